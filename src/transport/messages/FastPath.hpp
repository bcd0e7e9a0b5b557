#pragma once

#include <cstdint>
#include <memory>

#include "transport/memory/Frame.hpp"

namespace bluefog {

class Mailbox;
struct MessageOp;

// An exchange of small messages that need not become an operation, where no other one of the group
// is under way and the peers are not far behind. Used by the driving thread.
class FastPath {
 public:
  // See Op.
  virtual Counter counter() const = 0;
  // Whether all that it sends could go now.
  virtual bool maySend(Mailbox& mailbox) const = 0;
  // The numbers are the operation's that it stands for.
  virtual void send(Mailbox& mailbox, uint64_t sequence, uint64_t number) = 0;
  // Takes what it receives, once all of that is there; whether it is.
  virtual bool receive(Mailbox& mailbox) = 0;
  // What is left to do when the wait for that gets long: all but sending.
  virtual std::shared_ptr<MessageOp> makeOp() = 0;

 protected:
  ~FastPath() = default;
};

}  // namespace bluefog
