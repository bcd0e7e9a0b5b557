#include "transport/hosts/mpi/Sorter.hpp"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/Thread.hpp"

namespace bluefog::mpi {
namespace {

// This is how often a poll() looks for hosts that have fallen silent, and watchStrangers() for a
// call of MPI that does not return.
constexpr std::chrono::milliseconds kLookAtHosts{1000};
// MPI sends up to this many bytes in one piece, so a request for them may end at once.
constexpr size_t kShort = 32 * 1024;

// The Sorter is never destroyed, since the MPI world is not, either.
Sorter* the_sorter = nullptr;

}  // namespace

Sorter& Sorter::of(World& world) {
  static std::once_flag once;
  std::call_once(once, [&world] {
    the_sorter = std::make_unique<Sorter>(world).release();
    startThread([] { the_sorter->watchStrangers(); }).detach();
    ::pthread_atfork([] { the_sorter->mutex_.lock(); }, [] { the_sorter->mutex_.unlock(); },
                     [] {
                       the_sorter->world_.connections().close();
                       the_sorter->mutex_.unlock();
                     });
  });
  return *the_sorter;
}

// While a call of MPI does not return, its caller holds the mutex and `polled_` does not advance.
// MPI may then be waiting for a stranger that has connected to its port and says nothing.
void Sorter::watchStrangers() {
  uint64_t before = 0;
  while (true) {
    std::this_thread::sleep_for(kLookAtHosts);
    const uint64_t now = polled_;
    if (mutex_.try_lock()) {
      mutex_.unlock();
    } else if (now == before) {
      world_.connections().endStrangers();
    }
    before = now;
  }
}

std::string Sorter::greeting() {
  const std::lock_guard lock(mutex_);
  return world_.connections().endpoints();
}

void Sorter::hearGreeting(const std::string& greeting) {
  const std::lock_guard lock(mutex_);
  world_.connections().add(greeting);
}

bool Sorter::hasLeftHost() {
  const std::lock_guard lock(mutex_);
  return world_.connections().underWay() == 0;
}

void Sorter::open(int group) {
  const std::lock_guard lock(mutex_);
  closed_.erase(group);  // the numbers of groups repeat
}

void Sorter::close(int group) {
  const std::lock_guard lock(mutex_);
  closed_.insert(group);
  const auto found = of_groups_.find(group);
  if (found != of_groups_.end()) {
    for (const Arrival& arrival : found->second) {
      discard(arrival);
    }
    of_groups_.erase(found);
  }
}

std::optional<Sorter::Arrival> Sorter::next(int group) {
  const std::lock_guard lock(mutex_);
  std::deque<Arrival>& arrived = of_groups_[group];
  if (arrived.empty()) {
    return std::nullopt;
  }
  const Arrival first = arrived.front();
  arrived.pop_front();
  return first;
}

void Sorter::poll() {
  const std::lock_guard lock(mutex_);
  if (next_look_at_hosts_.passed()) {
    next_look_at_hosts_ = Deadline::in(kLookAtHosts);
    world_.connections().giveUpSilent();
  }
  takeIn();
  requests_.askForAll();
  ++polled_;
  if (!broken_.empty()) {
    throw std::runtime_error(broken_);
  }
}

void Sorter::takeIn() {
  const MpiLibrary& mpi = world_.mpi();
  int failures = 0;
  while (true) {
    int found = 0;
    Message message = nullptr;
    Status status{};
    const int code =
        mpi.improbe(MpiLibrary::kAny, MpiLibrary::kAny, mpi.world, &found, &message, &status);
    if (code != 0) {
      if (mpi.failure_ack == nullptr) {
        throw std::runtime_error("a rank on another host died; this Open MPI does not say which");
      }
      learnWhoDied();
      if (++failures > 1) {
        break;
      }
      continue;  // what the dead sent before may have arrived
    }
    if (found == 0) {
      break;
    }
    const Arrival arrival{status.source, status.tag % kTagsOfGroup, status.bytes, message};
    const int group = status.tag / kTagsOfGroup;
    if (closed_.contains(group)) {
      discard(arrival);
    } else {
      of_groups_[group].push_back(arrival);
    }
  }
}

void Sorter::detach(const std::vector<Requests::TrackedRequest*>& requests,
                    const std::shared_ptr<void>& memory) {
  const std::lock_guard lock(mutex_);
  requests_.detach(requests, memory);
}

// After a death MPI finds no message from any rank until it was asked who died.
void Sorter::learnWhoDied() {
  const MpiLibrary& mpi = world_.mpi();
  if (mpi.failure_ack == nullptr) {
    return;
  }
  Group dead = nullptr;
  mpi.failure_ack(mpi.world);
  mpi.failure_get_acked(mpi.world, &dead);
  int count = 0;
  mpi.group_size(dead, &count);
  if (static_cast<size_t>(count) != dead_.size()) {
    Group all = nullptr;
    mpi.comm_group(mpi.world, &all);
    std::vector<int> ranks(static_cast<size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    dead_.resize(ranks.size());
    mpi.group_translate_ranks(dead, count, ranks.data(), all, dead_.data());
    mpi.group_free(&all);
  }
  mpi.group_free(&dead);
}

bool Sorter::hasDied(int rank) {
  learnWhoDied();
  return std::find(dead_.begin(), dead_.end(), rank) != dead_.end();
}

void Sorter::discard(const Arrival& arrival) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(arrival.bytes);
  requests_.detach({begin(arrival.message, bytes->data(), bytes->size())}, bytes);
}

Requests::TrackedRequest* Sorter::send(int to, int group, int tag, const void* data, size_t bytes,
                                       RemoteTransport::Ends ends) {
  const std::lock_guard lock(mutex_);
  const MpiLibrary& mpi = world_.mpi();
  Request request = nullptr;
  // Open MPI forgets the connection to a rank that has died, and crashes if it is asked to send
  // there.
  if (hasDied(to)) {
    return requests_.add(nullptr, false);
  }
  const auto isend = ends == RemoteTransport::Ends::kSoon ? mpi.isend : mpi.issend;
  const int code = isend(data, static_cast<int>(bytes), mpi.byte, to, group * kTagsOfGroup + tag,
                         mpi.world, &request);
  if (code != 0 && !hasDied(to)) {
    broken_ = "MPI could not send to another host: " + world_.describe(code);
  }
  const bool may_have_ended = ends == RemoteTransport::Ends::kSoon && bytes <= kShort;
  return requests_.add(code == 0 ? request : nullptr, may_have_ended);
}

Requests::TrackedRequest* Sorter::receive(Message message, void* into, size_t bytes) {
  const std::lock_guard lock(mutex_);
  return begin(message, into, bytes);
}

Requests::TrackedRequest* Sorter::begin(Message message, void* into, size_t bytes) {
  const MpiLibrary& mpi = world_.mpi();
  Request request = nullptr;
  const int code = mpi.imrecv(into, static_cast<int>(bytes), mpi.byte, &message, &request);
  return requests_.add(code == 0 ? request : nullptr, bytes <= kShort);
}

RemoteTransport::RequestState Sorter::test(Requests::TrackedRequest* request) {
  const std::lock_guard lock(mutex_);
  return requests_.test(request);
}

std::vector<int> Sorter::dead() {
  const std::lock_guard lock(mutex_);
  return dead_;
}

}  // namespace bluefog::mpi
