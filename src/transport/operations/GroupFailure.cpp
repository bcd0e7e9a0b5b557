#include "transport/operations/GroupFailure.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "bootstrap/Reason.hpp"

namespace bluefog {

std::string GroupFailure::encode() const {
  return std::to_string(sequence) + " " +
         Reason{failure.cause, failure.ranks, failure.reason}.encode();
}

GroupFailure GroupFailure::decode(const std::string& encoded) {
  const size_t space = encoded.find(' ');
  Reason reason = Reason::decode(space == std::string::npos ? "" : encoded.substr(space));
  return {{reason.cause, std::move(reason.ranks), std::move(reason.text)},
          std::strtoull(encoded.c_str(), nullptr, 10)};
}

std::optional<GroupFailure> readGroupFailure(const GroupFailureCell& cell) {
  if (cell.state.load(std::memory_order_acquire) != GroupFailureCell::kWritten) {
    return std::nullopt;
  }
  // The bounds hold, whatever a peer has written into the cell.
  const size_t ranks_n = std::min<size_t>(cell.ranks_n, kMostRanks);
  const size_t text_n = std::min<size_t>(cell.text_n, GroupFailureCell::kMostText);
  return GroupFailure{
      {static_cast<Cause>(cell.cause & 3u), std::vector<int>(cell.ranks, cell.ranks + ranks_n),
       std::string(cell.text, text_n)},
      cell.sequence};
}

GroupFailure publishFirst(GroupFailureCell& cell, const GroupFailure& group_failure) {
  const Failure& failure = group_failure.failure;
  uint32_t expected = GroupFailureCell::kNone;
  if (cell.state.compare_exchange_strong(expected, GroupFailureCell::kBeingWritten)) {
    cell.sequence = group_failure.sequence;
    cell.cause = static_cast<uint32_t>(failure.cause);
    cell.ranks_n = static_cast<uint32_t>(std::min<size_t>(failure.ranks.size(), kMostRanks));
    std::copy_n(failure.ranks.begin(), cell.ranks_n, cell.ranks);
    cell.text_n =
        static_cast<uint32_t>(std::min<size_t>(failure.reason.size(), GroupFailureCell::kMostText));
    std::memcpy(cell.text, failure.reason.data(), cell.text_n);
    cell.state.store(GroupFailureCell::kWritten, std::memory_order_release);
    return *readGroupFailure(cell);  // the other ranks, too, see a long reason cut short
  }
  // Another rank is writing. Where it was killed meanwhile, each rank keeps its own view.
  for (int tries = 0; tries < 50; ++tries) {
    if (const std::optional<GroupFailure> agreed = readGroupFailure(cell)) {
      return *agreed;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return group_failure;
}

}  // namespace bluefog
