#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bluefog {

// A RemoteTransport moves messages between this rank and the ranks of its group on other hosts.
// Messages from one rank to another in one stream arrive in the order sent.
// Thread safety: only the driving thread uses it, or a thread that holds the engine's lock while
// nobody drives.
class RemoteTransport {
 public:
  // An Incoming message has arrived and can be taken. It may wait as long as its receiver likes.
  struct Incoming {
    int from;
    int stream;
    size_t bytes;
    void* message;
  };
  // A Request stands for a message that is being sent or received.
  using Request = void*;
  enum class RequestState { kUnderWay, kDone, kFailed };

  static constexpr int kStreams = 8;

  virtual ~RemoteTransport() = default;
  // Returns what each rank has to tell each other rank first, as a message. The receiver passes it
  // to hearGreeting().
  virtual std::string greeting() const = 0;
  virtual void hearGreeting(const std::string& greeting) = 0;
  // Ends says when a request of send() ends, until when the memory must stay as it is. kSoon: as
  // soon as the transport does not need the memory. kWhenSeen: not before the receiver has taken
  // the message, either.
  enum class Ends { kSoon, kWhenSeen };
  // Starts to send `bytes` to a rank of the group. `stream` is below kStreams.
  virtual Request send(int to, int stream, const void* data, size_t bytes, Ends ends) = 0;
  // Takes in what has arrived since the last call, for next(), and what has ended, for test().
  // Throws Failure when the transport does not work any more.
  virtual void poll() = 0;
  // Returns the next message that has arrived, or nothing.
  virtual std::optional<Incoming> next() = 0;
  // Starts to receive the message. The memory must have room for all its bytes and stay valid until
  // the request has ended.
  virtual Request take(const Incoming& incoming, void* into) = 0;
  // Returns the state of a request as of the last poll(). A request that was reported as ended must
  // not be tested again.
  virtual RequestState test(Request request) = 0;
  // Returns the ranks of the group that were found dead since the last call. It may name earlier
  // ones again.
  virtual std::vector<int> takeDead() = 0;
  // Takes over requests that nobody will test any more, and holds `memory` until they have ended.
  virtual void detach(const std::vector<Request>& requests,
                      const std::shared_ptr<void>& memory) = 0;
  // Returns whether everything that was sent would arrive if this process ended now.
  virtual bool hasLeftHost() const = 0;
};

}  // namespace bluefog
