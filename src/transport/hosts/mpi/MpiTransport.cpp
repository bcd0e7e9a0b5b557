#include "transport/hosts/mpi/MpiTransport.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "transport/operations/Failure.hpp"

namespace bluefog::mpi {

static_assert(RemoteTransport::kStreams <= Sorter::kTagsOfGroup);

MpiTransport::MpiTransport(World& world, int number, std::vector<int> places)
    : sorter_(Sorter::of(world)), number_(number), places_(std::move(places)) {
  sorter_.open(number_);
}

MpiTransport::~MpiTransport() {
  sorter_.close(number_);
}

std::string MpiTransport::greeting() const {
  return sorter_.greeting();
}

void MpiTransport::hearGreeting(const std::string& greeting) {
  sorter_.hearGreeting(greeting);
}

void MpiTransport::detach(const std::vector<Request>& requests,
                          const std::shared_ptr<void>& memory) {
  std::vector<Requests::TrackedRequest*> entries;
  for (Request request : requests) {
    entries.push_back(static_cast<Requests::TrackedRequest*>(request));
  }
  sorter_.detach(entries, memory);
}

bool MpiTransport::hasLeftHost() const {
  return sorter_.hasLeftHost();
}

RemoteTransport::Request MpiTransport::send(int to, int stream, const void* data, size_t bytes,
                                            Ends ends) {
  return sorter_.send(places_[static_cast<size_t>(to)], number_, stream, data, bytes, ends);
}

void MpiTransport::poll() {
  try {
    sorter_.poll();
  } catch (const std::runtime_error& error) {  // MPI does not work any more
    throw Failure{Cause::kPeerFailed, {}, error.what()};
  }
}

std::optional<RemoteTransport::Incoming> MpiTransport::next() {
  while (const std::optional<Sorter::Arrival> arrival = sorter_.next(number_)) {
    if (const std::optional<int> rank = rankAt(arrival->source)) {
      return Incoming{*rank, arrival->tag, arrival->bytes, arrival->message};
    }
  }
  return std::nullopt;
}

RemoteTransport::Request MpiTransport::take(const Incoming& incoming, void* into) {
  return sorter_.receive(incoming.message, into, incoming.bytes);
}

RemoteTransport::RequestState MpiTransport::test(Request request) {
  return sorter_.test(static_cast<Requests::TrackedRequest*>(request));
}

std::vector<int> MpiTransport::takeDead() {
  const std::vector<int> dead = sorter_.dead();
  if (dead.size() == dead_seen_) {
    return {};
  }
  dead_seen_ = dead.size();
  std::vector<int> ranks;
  for (const int place : dead) {
    if (const std::optional<int> rank = rankAt(place)) {
      ranks.push_back(*rank);
    }
  }
  return ranks;
}

std::optional<int> MpiTransport::rankAt(int place) const {
  const auto found = std::find(places_.begin(), places_.end(), place);
  return found == places_.end() ? std::nullopt
                                : std::optional<int>(static_cast<int>(found - places_.begin()));
}

}  // namespace bluefog::mpi
