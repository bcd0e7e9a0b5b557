#pragma once

#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "algorithms/Algorithms.hpp"
#include "transport/messages/FastPath.hpp"

namespace bluefog {

// A NeighborFastPath computes the neighborSum() of one small tensor, and sends what this rank
// gives. The call and its memory must outlive it.
//
// Thread safety: see FastPath; any thread may make one.
class NeighborFastPath final : public FastPath {
 public:
  // The most sources that such a sum may have.
  static constexpr size_t kMost = 8;

  struct SmallExchange {
    Signature signature;
    Counter counter;
    double self_weight;
    const std::vector<WeightedRank>& sources;
    const std::vector<WeightedRank>& destinations;
    double divisor;
    const std::byte* input;
    std::byte* output;
  };
  using MakeOp = std::function<std::shared_ptr<MessageOp>()>;

  // makeOp() returns what `make_op` does.
  NeighborFastPath(const SmallExchange& call, MakeOp make_op)
      : call_(call), make_op_(std::move(make_op)) {}
  // Returns whether the messages of the call fit frames, and its sources this class.
  static bool isPossible(const SmallExchange& call) {
    return call.signature.bytes() <= Lane::payload() && call.sources.size() <= kMost;
  }

  Counter counter() const override { return call_.counter; }
  bool maySend(Mailbox& mailbox) const override;
  void send(Mailbox& mailbox, uint64_t sequence, uint64_t number) override;
  bool receive(Mailbox& mailbox) override;
  std::shared_ptr<MessageOp> makeOp() override { return make_op_(); }

 private:
  const SmallExchange& call_;
  MakeOp make_op_;
  uint64_t number_ = 0;
  std::array<const Frame*, kMost> frames_{};  // by source; null until the frame has come
};

}  // namespace bluefog
