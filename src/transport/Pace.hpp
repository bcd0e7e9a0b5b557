#pragma once

#include <cstdint>

namespace bluefog {

// Whether what a peer calls is the counterpart of what it meets here. Calls match by their order.
// Once this rank has given one up, or one did not fit, the peer may have made another one in its
// place, or none: then their numbers have to prove that the next ones belong together.
class Pace {
 public:
  // Two calls have met, of which the peer's has so many more before it. Whether they may be
  // counterparts.
  bool meet(int64_t ahead) {
    is_lost_ = is_lost_ || (in_doubt_ && ahead != ahead_);
    is_even_ = is_even_ && ahead == ahead_;
    ahead_ = ahead;
    in_doubt_ = false;
    return !is_lost_;
  }
  // From now on order alone is no proof.
  void doubt() { in_doubt_ = true; }
  // Whether one of the peer's, with so many more before it, was meant for an earlier one of ours.
  bool isBehind(int64_t ahead) const { return is_even_ && ahead < ahead_; }
  // Numbers prove nothing of ranks that also make calls without each other, or in several threads.
  bool isEven() const { return is_even_; }
  bool isLost() const { return is_lost_; }
  bool isSure() const { return !in_doubt_ && !is_lost_; }

 private:
  int64_t ahead_ = 0;
  bool in_doubt_ = false;
  bool is_even_ = true;
  bool is_lost_ = false;
};

}  // namespace bluefog
