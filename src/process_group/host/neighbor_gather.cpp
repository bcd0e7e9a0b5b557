#include <algorithm>
#include <numeric>
#include <utility>

#include "process_group/host/Call.hpp"
#include "process_group/host/Signatures.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

// Returns what is sent for `input`. If its rows have no elements, that is the number of rows.
at::Tensor messageOf(const at::Tensor& input, const Signature& signature) {
  return signature.bytes() > 0 ? input : at::scalar_tensor(input.size(0), at::kLong);
}

// Gives the result its shape and its memory. The driving thread calls it once the size is known,
// which is in bytes, or in rows if the rows have no bytes.
void become(const at::Tensor& result, std::vector<int64_t> sizes, size_t bytes, OutputPool& pool) {
  sizes[0] = 1;
  const auto row = static_cast<size_t>(c10::multiply_integers(sizes)) * result.element_size();
  sizes[0] = static_cast<int64_t>(row == 0 ? bytes : bytes / row);
  const at::AutoDispatchBelowADInplaceOrView below;
  result.set_(pool.empty(sizes, result.options()));
}

// Makes one result for the rows of all sources one after the other, and returns where those of each
// source go.
std::vector<std::byte*> inOne(const at::Tensor& result, const std::vector<int64_t>& like,
                              const std::vector<size_t>& sizes, OutputPool& pool) {
  become(result, like, std::accumulate(sizes.begin(), sizes.end(), size_t{0}), pool);
  std::vector<std::byte*> places;
  auto* place = static_cast<std::byte*>(result.mutable_data_ptr());
  for (const size_t bytes : sizes) {
    places.push_back(place);
    place += result.numel() > 0 ? bytes : 0;
  }
  return places;
}

// Makes a result for each source, and returns where the rows of each source go.
std::vector<std::byte*> inEach(const Tensors& results, const std::vector<int64_t>& like,
                               const std::vector<size_t>& sizes, OutputPool& pool) {
  std::vector<std::byte*> places;
  for (size_t i = 0; i < sizes.size(); ++i) {
    become(results[i], like, sizes[i], pool);
    places.push_back(static_cast<std::byte*>(results[i].mutable_data_ptr()));
  }
  return places;
}

}  // namespace

WorkPtr ProcessGroupBluefog::neighborGather(OpKind kind, const at::Tensor& like,
                                            const Tensors& inputs, const Edges& edges,
                                            const GatherOptions& opts) {
  return countingRefusals(kind, edges, opts.match, opts.match.tag,
                          [&] { return gatherFromNeighbors(kind, like, inputs, edges, opts); });
}

WorkPtr ProcessGroupBluefog::gatherFromNeighbors(OpKind kind, const at::Tensor& like,
                                                 const Tensors& inputs, const Edges& edges,
                                                 const GatherOptions& opts) {
  const char* called = opts.is_of_all ? "allgather" : name(kind);
  checkProcess(called);
  const Validate validate(engine_->members(), called);
  validate.rows(like);
  const Signature signature = signatureOfRows(kind, like);
  validate.sameLength(inputs.size(), "the list", edges.destinations.size(), "out-neighbors");
  const auto op = neighborsOp(signature, edges, opts.match);
  op->title = opts.is_of_all ? called : "";
  auto buffers = std::make_shared<Buffers>();
  Tensors distinct;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i == 0 || !inputs[i].is_same(inputs[i - 1])) {
      distinct.push_back(inputs[i]);
      validate.rows(inputs[i]);
      validate.sameRows(inputs[i], like);
      buffers->inputs.push_back(Flat::input(messageOf(inputs[i], signature)));
    }
    const Flat& flat = buffers->inputs.back();
    addSend(engine_->mailbox(), *op,
            {edges.destinations[i].rank, opts.match.tag,
             ConstSpans(ConstSpan{flat.readable(), flat.tensor().nbytes()})});
  }
  Tensors outputs;
  for (size_t i = 0; i < (opts.in_one ? 1 : edges.sources.size()); ++i) {
    outputs.push_back(at::empty({0}, like.options()));
  }
  // It has the shape of `like` and not the tensor, which the engine's thread might be the last to
  // let go of.
  const auto allocate = [outputs, like = like.sizes().vec(), in_one = opts.in_one,
                         this](const std::vector<size_t>& sizes) {
    return in_one ? inOne(outputs.front(), like, sizes, outputs_)
                  : inEach(outputs, like, sizes, outputs_);
  };
  op->tasks.push_back(bluefog::neighborGather(engine_->mailbox(), *op, ranksOf(edges.sources),
                                              opts.match.tag, allocate));
  op->partners = edges.partners;
  own(*op, std::move(buffers));
  if (distinct.empty()) {
    distinct.push_back(like);
  }
  const char* title = opts.is_of_all ? "bluefog:allgather" : profilingTitle(kind);
  return post({op, c10d::OpType::UNKNOWN, title, std::move(distinct), std::move(outputs)},
              opts.async_op);
}

}  // namespace bluefog
