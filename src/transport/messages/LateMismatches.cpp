#include "transport/messages/LateMismatches.hpp"

#include <algorithm>
#include <utility>

namespace bluefog {

void LateMismatches::add(LateMismatch mismatch) {
  if (mismatches_.size() < kMost) {
    mismatches_.push_back(std::move(mismatch));
  }
}

std::optional<LateMismatch> LateMismatches::take(
    const std::function<bool(const LateMismatch&)>& wanted) {
  const auto first = std::find_if(mismatches_.begin(), mismatches_.end(), wanted);
  if (first == mismatches_.end()) {
    return std::nullopt;
  }
  LateMismatch mismatch = std::move(*first);
  mismatches_.erase(first);
  return mismatch;
}

void LateMismatches::dropThoseOfCalls() {
  std::erase_if(mismatches_, [](const LateMismatch& mismatch) { return mismatch.is_of_call; });
}

}  // namespace bluefog
