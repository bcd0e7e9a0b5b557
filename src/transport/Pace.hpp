#pragma once

#include <cstdint>
#include <optional>

namespace bluefog {

// By how many calls a peer is ahead of this rank where two calls have met. As long as that stays
// the same, numbers tell which of its calls was meant for which of ours. (They do not of ranks that
// also call without each other, or in several threads.)
class Pace {
 public:
  void note(int64_t ahead) {
    is_even_ = is_even_ && ahead == ahead_.value_or(ahead);
    ahead_ = ahead;
  }
  bool isAsBefore(int64_t ahead) const { return ahead == ahead_.value_or(0); }
  // Whether a call of the peer's, so far ahead, was meant for an earlier one of ours.
  bool isBehind(int64_t ahead) const { return is_even_ && ahead_ && ahead < *ahead_; }

 private:
  std::optional<int64_t> ahead_;
  bool is_even_ = true;
};

}  // namespace bluefog
