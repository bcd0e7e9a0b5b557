#include <numeric>
#include <utility>

#include "process_group/Flat.hpp"
#include "process_group/accelerator/Exchange.hpp"

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
                                                 const Edges& edges,
                                                 const std::vector<int64_t>& rows, bool in_one,
                                                 bool async_op) {
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
  Tensors used = inputs;
  used.push_back(like);
  return run(used, std::move(outputs), async_op, [&] {
    Exchange exchange(*this);
    for (size_t i = 0; i < inputs.size(); ++i) {
      exchange.send(Flat::input(inputs[i]).tensor(), edges.destinations[i].rank);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      exchange.receive(parts[i], edges.sources[i].rank);
    }
    exchange.run();
  });
}

}  // namespace bluefog
