#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/mpi/World.hpp"
#include "core/Deadline.hpp"
#include "transport/hosts/RemoteTransport.hpp"
#include "transport/hosts/mpi/Requests.hpp"

namespace bluefog::mpi {

// The Sorter moves all messages between this process and the ranks of its MPI world. It is named
// for what it does with arrivals: whichever group polls receives for all groups, and each message
// is kept for the group that it belongs to, which its MPI tag says. There is one in a process. It
// refers to the World, and owns the requests.
// Thread safety: any thread may call any method.
class Sorter {
 public:
  static constexpr int kTagsOfGroup = 8;
  // An Arrival is a message that MPI has matched and that nobody has received yet.
  struct Arrival {
    int source;  // rank in the world
    int tag;     // stream in the group
    size_t bytes;
    Message message;
  };

  // Returns the process's Sorter, which the first call makes.
  static Sorter& of(World& world);
  explicit Sorter(World& world) : world_(world), requests_(world.mpi()) {}

  // These call the method of the same purpose of Connections.
  std::string greeting();
  void hearGreeting(const std::string& greeting);
  bool hasLeftHost();

  // Messages for the group of that number are kept until close(), and thrown away after it.
  void open(int group);
  void close(int group);
  // Has MPI make progress, and takes in what has arrived and what has ended, for all groups. Throws
  // std::runtime_error when MPI does not work any more.
  void poll();
  // Returns the next message that has arrived for the group, or nothing.
  std::optional<Arrival> next(int group);
  // Starts to send to a rank of the world. A rank that has died makes the request fail.
  Requests::TrackedRequest* send(int to, int group, int tag, const void* data, size_t bytes,
                                 RemoteTransport::Ends ends);
  // Starts to receive an arrival's message.
  Requests::TrackedRequest* receive(Message message, void* into, size_t bytes);
  RemoteTransport::RequestState test(Requests::TrackedRequest* request);
  // Holds `memory` until all of these requests have ended, which nobody will test any more.
  void detach(const std::vector<Requests::TrackedRequest*>& requests,
              const std::shared_ptr<void>& memory);
  // Returns the ranks of the world that have died.
  std::vector<int> dead();

 private:
  [[noreturn]] void watchStrangers();
  void takeIn();
  void learnWhoDied();
  bool hasDied(int rank);
  Requests::TrackedRequest* begin(Message message, void* into, size_t bytes);
  void discard(const Arrival& arrival);

  World& world_;
  std::mutex mutex_;
  Requests requests_;
  std::map<int, std::deque<Arrival>> of_groups_;  // also for groups that do not exist yet
  std::set<int> closed_;
  std::vector<int> dead_;
  std::string broken_;  // why MPI cannot be used any more; empty if it can
  std::atomic<uint64_t> polled_{0};
  Deadline next_look_at_hosts_ = Deadline::in(std::chrono::milliseconds(0));
};

}  // namespace bluefog::mpi
