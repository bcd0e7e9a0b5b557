#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "window/raw/RawRoom.hpp"

namespace bluefog {

// A SignalQueue hands the signals that a rank has got to the calls that wait for them. For each
// other rank, the call that began to wait first gets the first signal. It refers to the rank's
// RawRoom, whose memory must outlive it.
// Thread safety: any thread may call any method.
class SignalQueue {
 public:
  SignalQueue(RawRoom room, int size) : room_(room), lines_(static_cast<size_t>(size)) {}

  // A SignalTicket is the place of one call in the queue.
  class SignalTicket {
   public:
    explicit SignalTicket(int from) : from_(from) {}
    int from() const { return from_; }

   private:
    friend class SignalQueue;
    const int from_;
    bool has_signal_ = false;
  };
  using Ticket = std::shared_ptr<SignalTicket>;

  // Begins to wait for a signal of that rank.
  Ticket join(int from) {
    auto ticket = std::make_shared<SignalTicket>(from);
    const std::lock_guard lock(mutex_);
    line(from).waiting.push_back(ticket);
    return ticket;
  }
  // Returns whether the ticket has got its signal. Signals that have come are handed out first.
  bool look(const SignalTicket& ticket) {
    const std::lock_guard lock(mutex_);
    if (!ticket.has_signal_) {
      handOut(ticket.from());
    }
    return ticket.has_signal_;
  }
  // Leaves the queue. Returns false, and does nothing, if the ticket has got its signal by now.
  bool leave(const Ticket& ticket) {
    if (look(*ticket)) {
      return false;
    }
    drop(ticket);
    return true;
  }
  // Leaves the queue for good. A signal that the ticket has got goes to the next call.
  void drop(const Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    Line& line = this->line(ticket->from());
    std::erase(line.waiting, ticket);
    if (std::exchange(ticket->has_signal_, false)) {
      --line.taken;
      handOut(ticket->from());
    }
  }

 private:
  struct Line {
    uint64_t taken = 0;  // signals that tickets have got
    std::deque<Ticket> waiting;
  };

  Line& line(int from) { return lines_[static_cast<size_t>(from)]; }
  void handOut(int from) {
    Line& line = this->line(from);
    // This load orders what the rank wrote before it signaled before what the caller reads next.
    const uint64_t come = room_.signals(from).load(std::memory_order_acquire);
    while (line.taken < come && !line.waiting.empty()) {
      line.waiting.front()->has_signal_ = true;
      line.waiting.pop_front();
      ++line.taken;
    }
  }

  const RawRoom room_;
  std::mutex mutex_;
  std::vector<Line> lines_;
};

}  // namespace bluefog
