#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/mpi/World.hpp"
#include "transport/hosts/RemoteTransport.hpp"
#include "transport/hosts/mpi/Sorter.hpp"

namespace bluefog::mpi {

// An MpiTransport carries the messages of one group over MPI. It uses the process's Sorter, which
// it tells when the group begins and ends.
// Thread safety: as RemoteTransport. Groups with drivers of their own may use theirs at the same
// time.
class MpiTransport final : public RemoteTransport {
 public:
  // `number` differs from that of any other group in the MPI world (see numberOf()). `places` holds
  // the rank in that world of each rank of the group.
  MpiTransport(World& world, int number, std::vector<int> places);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  // A group's number is made of the rank of its leader in the world, and a number that the leader
  // gives. A leader's numbers repeat after this many groups.
  static constexpr int kNumbersOfLeader = 1 << 14;
  static int numberOf(int leader, uint32_t its_number) {
    return leader * kNumbersOfLeader + static_cast<int>(its_number % kNumbersOfLeader);
  }

  std::string greeting() const override;
  void hearGreeting(const std::string& greeting) override;
  Request send(int to, int stream, const void* data, size_t bytes, Ends ends) override;
  void poll() override;
  std::optional<Incoming> next() override;
  Request take(const Incoming& incoming, void* into) override;
  RequestState test(Request request) override;
  std::vector<int> takeDead() override;
  void detach(const std::vector<Request>& requests, const std::shared_ptr<void>& memory) override;
  bool hasLeftHost() const override;

 private:
  // Returns the rank in the group of a rank in the world, or nothing if that is not in the group.
  std::optional<int> rankAt(int place) const;

  Sorter& sorter_;
  int number_;
  std::vector<int> places_;
  size_t dead_seen_ = 0;
};

}  // namespace bluefog::mpi
