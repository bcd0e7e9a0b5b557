#pragma once

#include <cstdint>
#include <memory>

#include "transport/memory/Frame.hpp"

namespace bluefog {

class Mailbox;
struct MessageOp;

// A FastPath is an exchange of small messages that need not become an operation. The engine takes
// it where no other operation of the group is under way, and the peers are not far behind.
//
// Thread safety: only the thread that drives the engine may use it.
class FastPath {
 public:
  // Returns the counter of the call: see MessageOp.
  virtual Counter counter() const = 0;
  // Returns whether all of its messages could be sent now.
  virtual bool maySend(Mailbox& mailbox) const = 0;
  // Sends all of its messages, under the sequence number and the call's number that its operation
  // would have.
  virtual void send(Mailbox& mailbox, uint64_t sequence, uint64_t number) = 0;
  // Takes the messages that it receives once all of them have come. Returns whether they have.
  virtual bool receive(Mailbox& mailbox) = 0;
  // Returns an operation for what is left to do when the wait gets long: all but the sends.
  virtual std::shared_ptr<MessageOp> makeOp() = 0;

 protected:
  ~FastPath() = default;
};

}  // namespace bluefog
