#include <algorithm>
#include <utility>

#include "process_group/device/Exchange.hpp"
#include "process_group/device/WeightedSum.hpp"
#include "process_group/host/Flat.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

// A Pack is all inputs of one type, one after the other. They make one message and one sum.
struct Pack {
  std::vector<size_t> members;  // indices of the inputs
  at::Tensor output;
};

std::vector<Pack> packsOf(const Tensors& inputs) {
  std::vector<Pack> packs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto same = std::find_if(packs.begin(), packs.end(), [&](const Pack& pack) {
      return inputs[pack.members.front()].scalar_type() == inputs[i].scalar_type();
    });
    (same == packs.end() ? packs.emplace_back() : *same).members.push_back(i);
  }
  return packs;
}

// Makes a tensor for the results of each pack, and returns the results as views of these tensors.
Tensors outputsOf(const Tensors& inputs, std::vector<Pack>& packs) {
  Tensors outputs(inputs.size());
  for (Pack& pack : packs) {
    int64_t numel = 0;
    for (const size_t i : pack.members) {
      numel += inputs[i].numel();
    }
    pack.output = at::empty({numel}, inputs[pack.members.front()].options());
    int64_t at = 0;
    for (const size_t i : pack.members) {
      outputs[i] = pack.output.narrow(0, at, inputs[i].numel()).view(inputs[i].sizes());
      at += inputs[i].numel();
    }
  }
  return outputs;
}

at::Tensor inputOf(const Pack& pack, const Tensors& inputs) {
  Tensors flats;
  for (const size_t i : pack.members) {
    flats.push_back(Flat::input(inputs[i]).tensor().reshape({-1}));
  }
  return flats.size() == 1 ? flats.front() : at::cat(flats);
}

}  // namespace

Accelerator::WorkPtr Accelerator::neighborAllreduce(const Tensors& inputs, const Edges& edges,
                                                    Notices& notices, bool async_op) {
  const at::NoGradGuard no_grad;
  std::vector<Pack> packs = packsOf(inputs);
  Tensors outputs = outputsOf(inputs, packs);
  return run(inputs, std::move(outputs), notices, async_op, [&] {
    struct PackSum {
      at::Tensor own;
      Exchange::Rooms received;
    };
    std::vector<PackSum> sums;
    Exchange exchange(*this);
    for (const Pack& pack : packs) {
      PackSum& sum = sums.emplace_back(PackSum{inputOf(pack, inputs), {}});
      sum.received = Exchange::roomsFor(sum.own, edges);
      exchange.swap(sum.own, edges, sum.received);
    }
    notices.tell();
    exchange.run();
    for (size_t i = 0; i < packs.size(); ++i) {
      sumOverEdges(*plugin_, packs[i].output, edges, backend_->getRank(), sums[i].own,
                   sums[i].received);
    }
  });
}

}  // namespace bluefog
