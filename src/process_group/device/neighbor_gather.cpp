#include <numeric>
#include <utility>

#include "process_group/device/Exchange.hpp"
#include "process_group/host/Flat.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor room(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, like.options());
}

}  // namespace

Accelerator::WorkPtr Accelerator::neighborGather(const at::Tensor& like, const Tensors& inputs,
                                                 const Edges& edges, Notices& notices, bool in_one,
                                                 bool async_op) {
  const at::NoGradGuard no_grad;
  Tensors used{like};
  for (const at::Tensor& input : inputs) {
    used.push_back(Flat::input(input).tensor());
  }
  notices.tell();
  std::vector<int64_t> rows;
  for (const WeightedRank& source : edges.sources) {
    rows.push_back(notices.rowsFrom(source.rank));
  }
  Tensors parts;
  Tensors outputs;
  if (in_one) {
    outputs.push_back(room(like, std::accumulate(rows.begin(), rows.end(), int64_t{0})));
    parts = outputs.front().split_with_sizes(rows);
  } else {
    for (const int64_t n : rows) {
      outputs.push_back(room(like, n));
    }
    parts = outputs;
  }
  return run(used, std::move(outputs), notices, async_op, [&] {
    Exchange exchange(*this);
    for (size_t i = 0; i < inputs.size(); ++i) {
      exchange.send(used[i + 1], edges.destinations[i].rank);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      exchange.receive(parts[i], edges.sources[i].rank);
    }
    exchange.run();
  });
}

}  // namespace bluefog
