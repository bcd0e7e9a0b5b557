#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/mpi/World.hpp"
#include "transport/hosts/RemoteTransport.hpp"
#include "transport/hosts/mpi/Sorter.hpp"

namespace bluefog::mpi {

// Messages of one group over MPI.
class MpiTransport final : public RemoteTransport {
 public:
  // `number` is the group's, unlike that of any other group of the world. `places` are its ranks in
  // the world.
  MpiTransport(World& world, int number, std::vector<int> places);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  // As many groups as a rank can lead before a number comes again.
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
  std::optional<int> rankAt(int place) const;

  Sorter& sorter_;
  int number_;
  std::vector<int> places_;
  size_t dead_seen_ = 0;
};

}  // namespace bluefog::mpi
