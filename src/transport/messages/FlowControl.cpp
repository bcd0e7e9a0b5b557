#include "transport/messages/FlowControl.hpp"

#include <utility>

namespace bluefog {

void FlowControl::giveBack(int source, size_t charged) {
  size_t& uncredited = state_.lane(source).uncredited;
  uncredited += charged;
  if (uncredited >= kCreditStep) {
    control_.send(source, {.id = std::exchange(uncredited, 0), .kind = ControlMessage::kCredit});
  }
}

}  // namespace bluefog
