#include "process_group/host/Validate.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

namespace bluefog {

Dtype dtypeOf(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return Dtype::kUInt8;
    case at::kChar:
      return Dtype::kInt8;
    case at::kShort:
      return Dtype::kInt16;
    case at::kInt:
      return Dtype::kInt32;
    case at::kLong:
      return Dtype::kInt64;
    case at::kHalf:
      return Dtype::kFloat16;
    case at::kBFloat16:
      return Dtype::kBFloat16;
    case at::kFloat:
      return Dtype::kFloat32;
    case at::kDouble:
      return Dtype::kFloat64;
    case at::kBool:
      return Dtype::kBool;
    case at::kUInt16:
      return Dtype::kUInt16;
    case at::kUInt32:
      return Dtype::kUInt32;
    case at::kUInt64:
      return Dtype::kUInt64;
    case at::kComplexHalf:
      return Dtype::kComplex32;
    case at::kComplexFloat:
      return Dtype::kComplex64;
    case at::kComplexDouble:
      return Dtype::kComplex128;
    case at::kFloat8_e4m3fn:
      return Dtype::kFloat8E4M3;
    case at::kFloat8_e4m3fnuz:
      return Dtype::kFloat8E4M3Fnuz;
    case at::kFloat8_e5m2:
      return Dtype::kFloat8E5M2;
    case at::kFloat8_e5m2fnuz:
      return Dtype::kFloat8E5M2Fnuz;
    case at::kFloat8_e8m0fnu:
      return Dtype::kFloat8E8M0;
    default:
      return Dtype::kBytes;
  }
}

std::string typeName(at::ScalarType type) {
  const Dtype dtype = dtypeOf(type);
  return dtype == Dtype::kBytes ? c10::toString(type) : name(dtype);
}

std::string typeName(const at::Tensor& tensor) {
  return typeName(tensor.scalar_type());
}

Signature signatureOf(OpKind kind, const at::Tensor& tensor) {
  Signature signature;
  signature.kind = kind;
  signature.dtype = dtypeOf(tensor);
  signature.count =
      signature.dtype == Dtype::kBytes ? tensor.nbytes() : static_cast<uint64_t>(tensor.numel());
  return signature;
}

namespace {

bool hasMemory(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return true;
  }
  if (!tensor.has_storage() || tensor.storage().data() == nullptr) {
    return false;
  }
  const size_t needed =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                       static_cast<size_t>(tensor.storage_offset()));
  return tensor.storage().nbytes() >= needed;
}

// Returns the part of an error that says why a call on the CPU cannot take a tensor of that device.
std::string whyNotOfCpu(const at::Tensor& tensor) {
  return tensor.is_meta() ? ", where tensors have no numbers"
                          : ", for which this group has no backend (`python -m bluefog_pg` says "
                            "why); only CPU tensors are supported";
}

}  // namespace

std::string Validate::who() const {
  return members_.who() + " " + op_ + ": ";
}

void Validate::tensor(const at::Tensor& tensor, const char* what) const {
  TORCH_CHECK_VALUE(tensor.defined(), who(), what, " is not a tensor");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, who(), what, " has layout ", tensor.layout(),
                    "; only dense (strided) tensors are supported");
  TORCH_CHECK_VALUE(
      tensor.device().type() == device_, who(), what, " is on device ", tensor.device(),
      device_ == c10::kCPU ? whyNotOfCpu(tensor)
                           : "; tensors of one call must be on one device, move it with .to()");
  TORCH_CHECK_VALUE(!tensor.is_nested(), who(), what, " is nested; pass its parts");
  TORCH_CHECK_VALUE(hasMemory(tensor), who(), what,
                    " has no memory of its own (a fake tensor, or one whose storage was freed?)");
  TORCH_CHECK_TYPE(!tensor.is_quantized(), who(), what, " is quantized (", typeName(tensor),
                   "); dequantize it first");
}

void Validate::onOneDevice(const std::vector<at::Tensor>& tensors) const {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.device() == tensors.front().device(), who(),
                      "tensors of one call must be on one device; here are some on ",
                      tensors.front().device(), " and some on ", tensor.device());
  }
}

void Validate::writable(const at::Tensor& tensor, const char* what) const {
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, who(), what,
                    " has elements that share memory (an expanded tensor?) and cannot be written; "
                    "clone() it first");
}

const at::Tensor& Validate::only(const std::vector<at::Tensor>& tensors, const char* what) const {
  TORCH_CHECK_VALUE(tensors.size() == 1, who(), "expected one ", what, " tensor, got ",
                    tensors.size());
  tensor(tensors.front(), ("the " + std::string(what)).c_str());
  return tensors.front();
}

void Validate::exchanged(const at::Tensor& input) const {
  tensor(input, "the input");
  TORCH_CHECK_NOT_IMPLEMENTED(!input._fw_grad(0).defined(), who(),
                              "the input has a tangent, and forward-mode derivatives do not go "
                              "through it; use backward(), or detach() the input");
}

void Validate::rows(const at::Tensor& input) const {
  exchanged(input);
  TORCH_CHECK_VALUE(input.dim() > 0, who(),
                    "a tensor without dimensions cannot be gathered; reshape(1) gives it one");
}

void Validate::sameRows(const at::Tensor& a, const at::Tensor& b) const {
  TORCH_CHECK_VALUE(a.scalar_type() == b.scalar_type() && a.sizes().slice(1) == b.sizes().slice(1),
                    who(), "tensors must have one type and one shape but for the first dimension");
}

void Validate::summable(const at::Tensor& input) const {
  exchanged(input);
  TORCH_CHECK_VALUE(
      isFloating(partOf(dtypeOf(input))), who(), "elements of type ", typeName(input),
      " cannot be averaged; use float16, bfloat16, float32, float64 or a complex type");
}

void Validate::sparse(const at::Tensor& tensor, const char* what) const {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kSparse, who(), what,
                    " is not a sparse COO tensor");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), who(), what, " is on device ", tensor.device(),
                    whyNotOfCpu(tensor));
}

void Validate::sameLength(size_t length, const char* what, size_t expected,
                          const char* others) const {
  TORCH_CHECK_VALUE(length == expected, who(), what, " has ", length,
                    " tensors; it must have one for each of the ", expected, " ", others);
}

const std::vector<at::Tensor>& Validate::rootsList(
    const std::vector<std::vector<at::Tensor>>& lists, int root, const char* what) const {
  static const std::vector<at::Tensor> kNone;
  if (members_.rank != root) {
    TORCH_CHECK_VALUE(lists.empty() || (lists.size() == 1 && lists.front().empty()), who(),
                      "only the root, rank ", root, ", gives a list of ", what, "s");
    return kNone;
  }
  TORCH_CHECK_VALUE(lists.size() == 1, who(), "the root gives one list of ", what, "s, got ",
                    lists.size());
  const std::string list = std::string("the ") + what + " list";
  listLength(lists.front().size(), list.c_str());
  return lists.front();
}

void Validate::listLength(size_t length, const char* what) const {
  TORCH_CHECK_VALUE(length == static_cast<size_t>(members_.size), who(), what, " has ", length,
                    " tensors; it must have one for each of the ", members_.size,
                    " ranks of the group");
}

void Validate::rank(int64_t rank, const char* what) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < members_.size, who(), what, " rank ", rank,
                    " is not in the group, which has ranks 0 to ", members_.size - 1);
}

void Validate::sameType(const at::Tensor& a, const at::Tensor& b, const char* what) const {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), who(), what, " has dtype ", typeName(a),
                   " but the other tensors of the call have ", typeName(b));
}

void Validate::elements(int64_t actual, int64_t expected, const char* what) const {
  TORCH_CHECK_VALUE(actual == expected, who(), what, " has ", actual, " elements; it must have ",
                    expected);
}

void Validate::contiguous(const at::Tensor& tensor, const char* what) const {
  TORCH_CHECK_VALUE(tensor.is_contiguous(), who(), what, " must be contiguous");
}

void Validate::wholeAndPart(const at::Tensor& whole, const char* what_whole, const at::Tensor& part,
                            const char* what_part) const {
  tensor(part, what_part);
  tensor(whole, what_whole);
  sameType(whole, part, what_whole);
  elements(whole.numel(), part.numel() * members_.size, what_whole);
}

void Validate::tag(int tag) const {
  TORCH_CHECK_VALUE(tag >= 0, who(), "tag ", tag, " is negative");
}

double Validate::factor(const c10d::ReduceOp& op) const {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) {
    return 1.0;
  }
  const auto* given = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(given != nullptr, who(),
                    "PREMUL_SUM has no factor; make it with "
                    "torch.distributed._make_nccl_premul_sum");
  return given->tensor_factor.defined() ? given->tensor_factor.item<double>()
                                        : given->double_factor;
}

void Validate::root(int64_t rank, int64_t tensor) const {
  this->rank(rank, "root");
  TORCH_CHECK_VALUE(tensor == 0, who(), "root tensor ", tensor, "; each rank has one, number 0");
}

std::vector<size_t> Validate::splits(const std::vector<int64_t>& splits, const at::Tensor& tensor,
                                     const char* what) const {
  TORCH_CHECK_VALUE(tensor.dim() > 0, who(), what, " has no dimension to split");
  const int64_t rows = tensor.size(0);
  const auto row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % members_.size == 0, who(), what, " has ", rows,
                      " rows, which cannot be split evenly among ", members_.size, " ranks");
    const auto each = static_cast<size_t>(rows / members_.size);
    return std::vector<size_t>(static_cast<size_t>(members_.size), each * row_bytes);
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(members_.size), who(), what, " has ",
                    splits.size(), " splits; it must have one for each of the ", members_.size,
                    " ranks of the group");
  std::vector<size_t> bytes;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0 && split <= rows, who(), what, " has ", rows,
                      " rows, and a split of ", split);
    bytes.push_back(static_cast<size_t>(split) * row_bytes);
    sum += split;
  }
  TORCH_CHECK_VALUE(sum == rows, who(), what, " has ", rows, " rows, but its splits add up to ",
                    sum);
  return bytes;
}

Signature Validate::reduction(OpKind kind, const c10d::ReduceOp& op,
                              const at::Tensor& tensor) const {
  Signature signature = signatureOf(kind, tensor);
  if (tensor.is_complex()) {
    TORCH_CHECK_VALUE(op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG ||
                          op.op_ == c10d::ReduceOp::PREMUL_SUM,
                      who(), "elements of type ", typeName(tensor),
                      " can be summed and averaged only");
  }
  TORCH_CHECK_VALUE(isReducible(signature.dtype), who(), "elements of type ", typeName(tensor),
                    " cannot be reduced; convert it first");
  signature.reduce = reduction(op, partOf(signature.dtype));
  return signature;
}

ReduceKind Validate::bitwise(ReduceKind kind, Dtype dtype) const {
  TORCH_CHECK_VALUE(!isFloating(dtype), who(), name(kind), " of ", name(dtype),
                    " has no meaning; use an integer or bool tensor");
  return kind;
}

ReduceKind Validate::reduction(const c10d::ReduceOp& op, Dtype dtype) const {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceKind::kSum;
    case c10d::ReduceOp::AVG:
      TORCH_CHECK_VALUE(dtype != Dtype::kBool, who(), "AVG of bool has no meaning");
      return ReduceKind::kAverage;
    case c10d::ReduceOp::PREMUL_SUM:
      TORCH_CHECK_VALUE(isFloating(dtype), who(), "PREMUL_SUM of ", name(dtype),
                        " would round; only floating types can be scaled");
      return ReduceKind::kPremulSum;
    case c10d::ReduceOp::PRODUCT:
      return ReduceKind::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceKind::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceKind::kMax;
    case c10d::ReduceOp::BAND:
      return bitwise(ReduceKind::kBitAnd, dtype);
    case c10d::ReduceOp::BOR:
      return bitwise(ReduceKind::kBitOr, dtype);
    case c10d::ReduceOp::BXOR:
      return bitwise(ReduceKind::kBitXor, dtype);
    default:
      TORCH_CHECK_VALUE(false, who(), "unknown reduction ", static_cast<int>(op.op_));
  }
}

}  // namespace bluefog
