#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "transport/messages/FastPath.hpp"

namespace bluefog {

// neighborSum of one small tensor, with what this rank sends for it.
class NeighborFastPath final : public FastPath {
 public:
  // Also its most sources.
  static constexpr size_t kMost = 8;

  struct Call {
    Signature signature;
    Counter counter;
    double self_weight;
    const std::vector<WeightedRank>& sources;
    const std::vector<WeightedRank>& destinations;
    double divisor;
    const std::byte* input;
    std::byte* output;
  };
  using MakeRest = std::function<std::shared_ptr<Op>()>;  // see rest()

  NeighborFastPath(const Call& call, MakeRest make_rest)
      : call_(call), make_rest_(std::move(make_rest)) {}
  static bool isPossible(const Call& call) {
    return call.signature.bytes() <= Mailbox::payload() && call.sources.size() <= kMost;
  }

  Counter counter() const override { return call_.counter; }
  bool maySend(Mailbox& mailbox) const override;
  void send(Mailbox& mailbox, uint64_t sequence, uint64_t number) override;
  bool receive(Mailbox& mailbox) override;
  std::shared_ptr<Op> rest() override { return make_rest_(); }

 private:
  const Call& call_;
  MakeRest make_rest_;
  uint64_t number_ = 0;
  std::array<const Frame*, kMost> frames_{};  // of the sources, as far as they have come
};

}  // namespace bluefog
