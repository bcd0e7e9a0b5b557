#include "transport/operations/Verdict.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "bootstrap/Reason.hpp"

namespace bluefog {

std::string Ruling::encode() const {
  return std::to_string(sequence) + " " +
         Reason{failure.cause, failure.ranks, failure.reason}.encode();
}

Ruling Ruling::decode(const std::string& encoded) {
  const size_t space = encoded.find(' ');
  Reason reason = Reason::decode(space == std::string::npos ? "" : encoded.substr(space));
  return {{reason.cause, std::move(reason.ranks), std::move(reason.text)},
          std::strtoull(encoded.c_str(), nullptr, 10)};
}

std::optional<Ruling> readVerdict(const Verdict& verdict) {
  if (verdict.state.load(std::memory_order_acquire) != Verdict::kWritten) {
    return std::nullopt;
  }
  // The bounds hold whatever a peer has written.
  const size_t ranks_n = std::min<size_t>(verdict.ranks_n, kMostRanks);
  const size_t text_n = std::min<size_t>(verdict.text_n, Verdict::kMostText);
  return Ruling{
      {static_cast<Cause>(verdict.cause & 3u),
       std::vector<int>(verdict.ranks, verdict.ranks + ranks_n), std::string(verdict.text, text_n)},
      verdict.sequence};
}

Ruling agreeOn(Verdict& verdict, const Ruling& ruling) {
  const Failure& failure = ruling.failure;
  uint32_t expected = Verdict::kNone;
  if (verdict.state.compare_exchange_strong(expected, Verdict::kBeingWritten)) {
    verdict.sequence = ruling.sequence;
    verdict.cause = static_cast<uint32_t>(failure.cause);
    verdict.ranks_n = static_cast<uint32_t>(std::min<size_t>(failure.ranks.size(), kMostRanks));
    std::copy_n(failure.ranks.begin(), verdict.ranks_n, verdict.ranks);
    verdict.text_n =
        static_cast<uint32_t>(std::min<size_t>(failure.reason.size(), Verdict::kMostText));
    std::memcpy(verdict.text, failure.reason.data(), verdict.text_n);
    verdict.state.store(Verdict::kWritten, std::memory_order_release);
    return *readVerdict(verdict);  // as the others, who may not read all of a long reason
  }
  // The writer is at work, unless it was killed at it: then everybody has a view of its own.
  for (int tries = 0; tries < 50; ++tries) {
    if (const std::optional<Ruling> agreed = readVerdict(verdict)) {
      return *agreed;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ruling;
}

}  // namespace bluefog
