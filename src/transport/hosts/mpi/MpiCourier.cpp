#include "transport/hosts/mpi/MpiCourier.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "transport/operations/Failure.hpp"

namespace bluefog::mpi {

static_assert(Courier::kStreams <= Sorter::kTagsOfGroup);

MpiCourier::MpiCourier(World& world, int number, std::vector<int> places)
    : sorter_(Sorter::of(world)), number_(number), places_(std::move(places)) {
  sorter_.open(number_);
}

MpiCourier::~MpiCourier() {
  sorter_.close(number_);
}

std::string MpiCourier::greeting() const {
  return sorter_.greeting();
}

void MpiCourier::hearGreeting(const std::string& greeting) {
  sorter_.hearGreeting(greeting);
}

void MpiCourier::bury(const std::vector<Errand>& errands, const std::shared_ptr<void>& memory) {
  std::vector<Requests::Entry*> requests;
  for (Errand errand : errands) {
    requests.push_back(static_cast<Requests::Entry*>(errand));
  }
  sorter_.bury(requests, memory);
}

bool MpiCourier::hasLeftHost() const {
  return sorter_.hasLeftHost();
}

Courier::Errand MpiCourier::send(int to, int stream, const void* data, size_t bytes, Ends ends) {
  return sorter_.send(places_[static_cast<size_t>(to)], number_, stream, data, bytes, ends);
}

void MpiCourier::gather() {
  try {
    sorter_.gather();
  } catch (const std::runtime_error& error) {  // of MPI
    throw Failure{Cause::kPeerFailed, {}, error.what()};
  }
}

std::optional<Courier::Letter> MpiCourier::next() {
  while (const std::optional<Sorter::Arrival> arrival = sorter_.next(number_)) {
    if (const std::optional<int> rank = rankAt(arrival->source)) {
      return Letter{*rank, arrival->tag, arrival->bytes, arrival->message};
    }
  }
  return std::nullopt;
}

Courier::Errand MpiCourier::take(const Letter& letter, void* into) {
  return sorter_.receive(letter.message, into, letter.bytes);
}

Courier::State MpiCourier::look(Errand errand) {
  return sorter_.look(static_cast<Requests::Entry*>(errand));
}

std::vector<int> MpiCourier::takeDead() {
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

std::optional<int> MpiCourier::rankAt(int place) const {
  const auto found = std::find(places_.begin(), places_.end(), place);
  return found == places_.end() ? std::nullopt
                                : std::optional<int>(static_cast<int>(found - places_.begin()));
}

}  // namespace bluefog::mpi
