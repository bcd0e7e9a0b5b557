#include <algorithm>
#include <iterator>
#include <numeric>

#include "process_group/host/Call.hpp"

namespace bluefog {
namespace {

using Tensors = std::vector<at::Tensor>;

Spans spansOf(const std::vector<Flat>& tensors) {
  std::vector<Span> spans;
  spans.reserve(tensors.size());
  for (const Flat& flat : tensors) {
    spans.push_back({flat.data(), flat.tensor().nbytes()});
  }
  return Spans(std::move(spans));
}

bool shareMemory(const std::vector<Flat>& tensors) {
  std::vector<std::pair<const std::byte*, size_t>> places;
  places.reserve(tensors.size());
  for (const Flat& flat : tensors) {
    places.emplace_back(flat.readable(), flat.tensor().nbytes());
  }
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end(), [](const auto& a, const auto& b) {
           return a.first + a.second > b.first;
         }) != places.end();
}

// Returns the tensors as flat memory. If some share memory, all are copied, because what was
// reduced in one tensor must not be reduced again in another.
std::vector<Flat> apart(const Tensors& tensors) {
  std::vector<Flat> flats;
  std::transform(tensors.begin(), tensors.end(), std::back_inserter(flats), Flat::input);
  if (shareMemory(flats)) {
    std::transform(tensors.begin(), tensors.end(), flats.begin(), Flat::copy);
  }
  return flats;
}

}  // namespace

ProcessGroupBluefog::Call ProcessGroupBluefog::allreduceCall(const Validate& validate,
                                                             const Tensors& tensors,
                                                             const c10d::ReduceOp& reduction,
                                                             std::chrono::milliseconds timeout) {
  Signature signature;
  std::vector<size_t> counts;
  for (const at::Tensor& tensor : tensors) {
    validate.writable(tensor, "the input");
    signature = validate.reduction(OpKind::kAllReduce, reduction, tensor);
    counts.push_back(signature.count);
  }
  signature.count = std::accumulate(counts.begin(), counts.end(), size_t{0});
  signature.detail = counts.size() > 1 ? digest(counts) : 0;
  auto op = std::make_shared<CollectiveOp>(signature, deadline(timeout));
  auto buffers = std::make_shared<Buffers>(Buffers{{}, apart(tensors)});
  op->factor = validate.factor(reduction);
  op->tasks.push_back(
      bluefog::allreduce(engine_->board(), engine_->returns(), *op, spansOf(buffers->outputs)));
  own(*op, std::move(buffers));
  return {std::move(op), c10d::OpType::ALLREDUCE, "bluefog:all_reduce", tensors, tensors};
}

WorkPtr ProcessGroupBluefog::allreduce(std::vector<at::Tensor>& tensors,
                                       const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors.front().defined() && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, opts);
  }
  checkProcess("allreduce");
  const Validate validate(engine_->members(), "allreduce");
  validate.only(tensors, "input");
  return post(allreduceCall(validate, tensors, opts.reduceOp, opts.timeout), opts.asyncOp);
}

}  // namespace bluefog
