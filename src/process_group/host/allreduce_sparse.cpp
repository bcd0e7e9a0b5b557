#include <numeric>

#include "process_group/host/Call.hpp"

namespace bluefog {
namespace {

// A SparseSum holds the sparse tensors of all ranks, and adds them up once all have come.
struct SparseSum {
  at::Tensor own;  // coalesced
  at::Tensor target;
  std::vector<int64_t> counts;      // number of elements, by rank
  std::vector<at::Tensor> indices;  // by rank
  std::vector<at::Tensor> values;   // by rank

  void add() const {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor sum = at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values, 0),
                                                         own.sizes(), own.options())
                               .coalesce();
    target.copy_(sum);
  }
};

// Gathers one tensor of each rank: all[r] gets `own` of rank r.
Task gatherAll(Board& board, Board& returns, const CollectiveOp& op, const at::Tensor& own,
               const std::vector<at::Tensor>& all) {
  std::vector<std::byte*> data;
  std::vector<size_t> bytes;
  for (const at::Tensor& tensor : all) {
    data.push_back(static_cast<std::byte*>(tensor.mutable_data_ptr()));
    bytes.push_back(tensor.nbytes());
  }
  return allgather(board, returns, op, static_cast<const std::byte*>(own.const_data_ptr()),
                   std::move(data), std::move(bytes));
}

Task sumSparse(Board& board, Board& returns, const CollectiveOp& op, SparseSum& sum) {
  const at::Tensor indices = sum.own.indices().contiguous();
  const at::Tensor values = sum.own.values().contiguous();
  const auto ranks = static_cast<size_t>(board.size());
  sum.counts.assign(ranks, 0);
  std::vector<std::byte*> counts;
  for (int64_t& count : sum.counts) {
    counts.push_back(reinterpret_cast<std::byte*>(&count));
  }
  const int64_t own = sum.own._nnz();
  co_await Join(allgather(board, returns, op, reinterpret_cast<const std::byte*>(&own),
                          std::move(counts), std::vector<size_t>(ranks, sizeof(int64_t))));
  for (const int64_t count : sum.counts) {
    TORCH_CHECK(count >= 0, "a rank says that its sparse tensor has ", count, " elements");
    std::vector<int64_t> shape = values.sizes().vec();
    shape[0] = count;
    sum.indices.push_back(at::empty({indices.size(0), count}, indices.options()));
    sum.values.push_back(at::empty(shape, values.options()));
  }
  co_await Join(gatherAll(board, returns, op, indices, sum.indices));
  co_await Join(gatherAll(board, returns, op, values, sum.values));
}

}  // namespace

ProcessGroupBluefog::Call ProcessGroupBluefog::allreduceSparseCall(const Validate& validate,
                                                                   const at::Tensor& tensor,
                                                                   const c10d::ReduceOp& reduction,
                                                                   Milliseconds timeout) {
  validate.sparse(tensor, "the input");
  TORCH_CHECK_VALUE(reduction == c10d::ReduceOp::SUM, validate.who(),
                    "sparse tensors can be summed only; use SUM");
  Signature signature;
  signature.kind = OpKind::kAllReduceSparse;
  signature.dtype = dtypeOf(tensor);
  signature.count = static_cast<uint64_t>(tensor.numel());
  signature.reduce = ReduceKind::kSum;
  const at::IntArrayRef sizes = tensor.sizes();
  signature.detail = digest(std::vector<size_t>(sizes.begin(), sizes.end())) +
                     static_cast<uint64_t>(tensor.sparse_dim());

  auto op = std::make_shared<CollectiveOp>(signature, deadline(timeout));
  auto sum = std::make_shared<SparseSum>(SparseSum{tensor.detach().coalesce(), tensor, {}, {}, {}});
  op->tasks.push_back(sumSparse(engine_->board(), engine_->returns(), *op, *sum));
  op->epilogue = [sum] { sum->add(); };
  op->memory = std::move(sum);
  return {std::move(op),
          c10d::OpType::_ALLREDUCE_SPARSE,
          "bluefog:sparse_all_reduce",
          {tensor},
          {tensor}};
}

WorkPtr ProcessGroupBluefog::allreduce_sparse(std::vector<at::Tensor>& tensors,
                                              const c10d::AllreduceOptions& opts) {
  checkProcess("allreduce_sparse");
  const Validate validate(engine_->members(), "allreduce_sparse");
  TORCH_CHECK_VALUE(tensors.size() == 1, validate.who(), "expected one input tensor, got ",
                    tensors.size());
  return post(allreduceSparseCall(validate, tensors.front(), opts.reduceOp, opts.timeout),
              opts.asyncOp);
}

}  // namespace bluefog
