#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bluefog {

// Moves messages between this rank and those of its group on other hosts. Messages between two
// ranks in one stream arrive in the order sent. Used by the driving thread alone.
class RemoteTransport {
 public:
  // One that has come and waits to be taken, for as long as it likes.
  struct Incoming {
    int from;
    int stream;
    size_t bytes;
    void* message;
  };
  // One under way.
  using Request = void*;
  enum class RequestState { kUnderWay, kDone, kFailed };

  static constexpr int kStreams = 8;

  virtual ~RemoteTransport() = default;
  // What each rank has to tell each other one first, in a message.
  virtual std::string greeting() const = 0;
  virtual void hearGreeting(const std::string& greeting) = 0;
  // The memory must stay as it is until the request has ended: with kWhenSeen not before its
  // receiver has seen it.
  enum class Ends { kSoon, kWhenSeen };
  virtual Request send(int to, int stream, const void* data, size_t bytes, Ends ends) = 0;
  // Takes in what has come since the last time, for next(), and what has ended, for look().
  virtual void poll() = 0;
  virtual std::optional<Incoming> next() = 0;
  // Into memory for all its bytes, until the request has ended.
  virtual Request take(const Incoming& incoming, void* into) = 0;
  // An request that has ended is not to be asked for again.
  virtual RequestState test(Request request) = 0;
  // The ranks that were found dead since the last time.
  virtual std::vector<int> takeDead() = 0;
  // Of requests that nobody looks after any more: the memory goes when they have ended.
  virtual void detach(const std::vector<Request>& requests,
                      const std::shared_ptr<void>& memory) = 0;
  // Whether what was sent would arrive if this process ended now.
  virtual bool hasLeftHost() const = 0;
};

}  // namespace bluefog
