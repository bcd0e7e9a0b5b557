#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <vector>

#include "core/Dtype.hpp"
#include "core/Reduce.hpp"
#include "transport/memory/Frame.hpp"
#include "transport/operations/Failure.hpp"

namespace bluefog {

// The rules for the arguments of one call. Every method throws ValueError or TypeError
// in the caller's thread, naming rank, operation and what was wrong, before any byte has moved.
class Validate {
 public:
  // Of tensors on that device.
  Validate(const Membership& members, const char* op, c10::DeviceType device = c10::kCPU)
      : members_(members), op_(op), device_(device) {}

  void tensor(const at::Tensor& tensor, const char* what) const;
  // All on the first one's device.
  void onOneDevice(const std::vector<at::Tensor>& tensors) const;
  // A COO tensor.
  void sparse(const at::Tensor& tensor, const char* what) const;
  // The call will write to it.
  void writable(const at::Tensor& tensor, const char* what) const;
  // With neighbours.
  void exchanged(const at::Tensor& input) const;
  // That, and with a first dimension, along which it is gathered.
  void rows(const at::Tensor& input) const;
  // They differ in their number of rows alone.
  void sameRows(const at::Tensor& a, const at::Tensor& b) const;
  // Exchanged, and of a type that can be multiplied by weights.
  void summable(const at::Tensor& input) const;
  // c10d hands lists that must have exactly one tensor.
  const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what) const;
  void listLength(size_t length, const char* what) const;
  // As many as there are of the others.
  void sameLength(size_t length, const char* what, size_t expected, const char* others) const;
  // Of gather and scatter: the root has one list, with a tensor for each rank; the others none.
  const std::vector<at::Tensor>& rootsList(const std::vector<std::vector<at::Tensor>>& lists,
                                           int root, const char* what) const;
  void rank(int64_t rank, const char* what) const;
  void sameType(const at::Tensor& a, const at::Tensor& b, const char* what) const;
  void elements(int64_t actual, int64_t expected, const char* what) const;
  void contiguous(const at::Tensor& tensor, const char* what) const;
  // Tensors of one type, one of them as large as the other ones of all ranks together.
  void wholeAndPart(const at::Tensor& whole, const char* what_whole, const at::Tensor& part,
                    const char* what_part) const;
  void tag(int tag) const;

  // c10d's options name the root's rank, and which of its tensors: there is but one.
  void root(int64_t rank, int64_t tensor) const;
  // The bytes of `tensor` for each rank: `splits` rows of it, the same number each where empty.
  std::vector<size_t> splits(const std::vector<int64_t>& splits, const at::Tensor& tensor,
                             const char* what) const;

  // What the frames say of that reduction of these elements; checks that it knows their type.
  Signature reduction(OpKind kind, const c10d::ReduceOp& op, const at::Tensor& tensor) const;
  // What PREMUL_SUM multiplies this rank's input by; 1 for the others.
  double factor(const c10d::ReduceOp& op) const;

  // "[bluefog] rank 3/8 allreduce: "
  std::string who() const;

 private:
  ReduceKind reduction(const c10d::ReduceOp& op, Dtype dtype) const;
  ReduceKind bitwise(ReduceKind kind, Dtype dtype) const;

  const Membership& members_;
  const char* op_;
  const c10::DeviceType device_;
};

Dtype dtypeOf(at::ScalarType type);
inline Dtype dtypeOf(const at::Tensor& tensor) {
  return dtypeOf(tensor.scalar_type());
}
// "float32", for messages.
std::string typeName(const at::Tensor& tensor);
// With kind, element type and count of the tensor.
Signature signatureOf(OpKind kind, const at::Tensor& tensor);

}  // namespace bluefog
