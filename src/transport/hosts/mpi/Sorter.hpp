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

// This process's messages from and to the ranks of its MPI world, each kept for the group that it
// is for: whichever group looks, looks for all. Tags tell groups apart. May be used by several
// threads.
class Sorter {
 public:
  static constexpr int kTagsOfGroup = 8;
  // Matched, but not received yet.
  struct Arrival {
    int source;  // in the world
    int tag;     // in the group
    size_t bytes;
    Message message;
  };

  // The process's.
  static Sorter& of(World& world);
  explicit Sorter(World& world) : world_(world), requests_(world.mpi()) {}

  // See Connections.
  std::string greeting();
  void hearGreeting(const std::string& greeting);
  bool hasLeftHost();

  // What comes for the group of that number is kept, until it is closed.
  void open(int group);
  void close(int group);
  // Has MPI move, and takes in what has come and what has ended, of all groups. Throws
  // std::runtime_error where MPI does not work any more.
  void poll();
  std::optional<Arrival> next(int group);
  Requests::TrackedRequest* send(int to, int group, int tag, const void* data, size_t bytes,
                                 RemoteTransport::Ends ends);
  Requests::TrackedRequest* receive(Message message, void* into, size_t bytes);
  RemoteTransport::RequestState test(Requests::TrackedRequest* request);
  // Keeps that memory until those have ended.
  void detach(const std::vector<Requests::TrackedRequest*>& requests,
              const std::shared_ptr<void>& memory);
  // Ranks of the world that have died.
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
  std::map<int, std::deque<Arrival>> of_groups_;  // also of such as are still to be made here
  std::set<int> closed_;
  std::vector<int> dead_;
  std::string broken_;  // why MPI cannot be used any more
  std::atomic<uint64_t> polled_{0};
  Deadline next_look_at_hosts_ = Deadline::in(std::chrono::milliseconds(0));
};

}  // namespace bluefog::mpi
