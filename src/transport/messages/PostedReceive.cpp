#include "transport/messages/PostedReceive.hpp"

#include "transport/messages/ReceiveProtocol.hpp"

namespace bluefog {

void PostedReceive::abandon() {
  protocol_->abandon(*receive_);
}

}  // namespace bluefog
