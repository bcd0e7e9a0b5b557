#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/mpi/World.hpp"
#include "core/Deadline.hpp"
#include "transport/Courier.hpp"

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
  explicit Sorter(World& world) : world_(world) {}

  // See Connections.
  std::string greeting();
  void hearGreeting(const std::string& greeting);
  bool hasLeftHost();

  // What comes for the group of that number is kept, until it is closed.
  void open(int group);
  void close(int group);
  std::optional<Arrival> next(int group);
  Request send(int to, int group, int tag, const void* data, size_t bytes, Courier::Ends ends);
  Request receive(Message message, void* into, size_t bytes);
  Courier::State look(Request& request);
  // Keeps that memory until those have ended.
  void bury(std::vector<Request> requests, std::shared_ptr<void> memory);
  // Ranks of the world that have died.
  std::vector<int> dead();

 private:
  struct Grave {
    std::vector<Request> requests;
    std::shared_ptr<void> memory;
  };

  void takeIn();
  void learnWhoDied();
  void discard(const Arrival& arrival);
  void tendGraves();

  World& world_;
  std::mutex mutex_;
  std::map<int, std::deque<Arrival>> of_groups_;  // also of such as are still to be made here
  std::set<int> closed_;
  std::list<Grave> graves_;
  std::vector<int> dead_;
  Deadline next_look_at_hosts_ = Deadline::in(std::chrono::milliseconds(0));
};

}  // namespace bluefog::mpi
