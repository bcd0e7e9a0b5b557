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

// A Validate checks the arguments of one call. If an argument breaks a rule, each method throws in
// the caller's thread, before any byte has moved. The error is a ValueError, a TypeError or a
// NotImplementedError, and names the rank, the operation and what was wrong. `what` says in its
// text which argument is meant. The membership and the name of the operation must outlive the
// object.
// Thread safety: any thread may call any method.
class Validate {
 public:
  // `op` is the name of the call, and `device` the type of device on which its tensors must be.
  Validate(const Membership& members, const char* op, c10::DeviceType device = c10::kCPU)
      : members_(members), op_(op), device_(device) {}

  // Requires a dense tensor with memory, on the device of the call.
  void tensor(const at::Tensor& tensor, const char* what) const;
  // Requires that all tensors are on the device of the first one.
  void onOneDevice(const std::vector<at::Tensor>& tensors) const;
  // Requires a sparse COO tensor on the CPU.
  void sparse(const at::Tensor& tensor, const char* what) const;
  // Requires that no elements of the tensor share memory, because the call will write to it.
  void writable(const at::Tensor& tensor, const char* what) const;
  // Requires a tensor that can be exchanged with neighbors.
  void exchanged(const at::Tensor& input) const;
  // Requires the same, and a first dimension, along which the tensor is gathered.
  void rows(const at::Tensor& input) const;
  // Requires that the tensors differ in nothing but their number of rows.
  void sameRows(const at::Tensor& a, const at::Tensor& b) const;
  // Requires a tensor that can be exchanged, of a type that can be multiplied by weights.
  void summable(const at::Tensor& input) const;
  // Returns the only tensor of a list, after tensor() has checked it. c10d hands lists to calls
  // that have just one tensor.
  const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what) const;
  // Requires a tensor for each rank of the group.
  void listLength(size_t length, const char* what) const;
  // Requires `expected` tensors, which is the number of the `others`.
  void sameLength(size_t length, const char* what, size_t expected, const char* others) const;
  // Returns the list of the root of gather or scatter, which must have a tensor for each rank.
  // Other ranks must give none, and get an empty list.
  const std::vector<at::Tensor>& rootsList(const std::vector<std::vector<at::Tensor>>& lists,
                                           int root, const char* what) const;
  void rank(int64_t rank, const char* what) const;
  void sameType(const at::Tensor& a, const at::Tensor& b, const char* what) const;
  void elements(int64_t actual, int64_t expected, const char* what) const;
  void contiguous(const at::Tensor& tensor, const char* what) const;
  // Requires tensors of one type. `whole` must be as large as the parts of all ranks together.
  void wholeAndPart(const at::Tensor& whole, const char* what_whole, const at::Tensor& part,
                    const char* what_part) const;
  void tag(int tag) const;

  // Checks the root that c10d's options name. They also have the number of one of its tensors,
  // which must be 0, because each rank has one tensor.
  void root(int64_t rank, int64_t tensor) const;
  // Returns the number of bytes of `tensor` that each rank has. Rank r has splits[r] of its rows.
  // If `splits` is empty, all ranks have the same number of rows.
  std::vector<size_t> splits(const std::vector<int64_t>& splits, const at::Tensor& tensor,
                             const char* what) const;

  // Returns the signature of that reduction of the tensor. Requires that the reduction knows the
  // type of its elements.
  Signature reduction(OpKind kind, const c10d::ReduceOp& op, const at::Tensor& tensor) const;
  // Returns what PREMUL_SUM multiplies this rank's input by, and 1 for other reductions.
  double factor(const c10d::ReduceOp& op) const;

  // Returns how the errors of the call begin, as in "[bluefog] rank 3/8 allreduce: ".
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
// These return the name of a type for error texts, as in "float32".
std::string typeName(at::ScalarType type);
std::string typeName(const at::Tensor& tensor);
// Returns a signature with the kind of operation, and with the tensor's element type and count. If
// Dtype does not know the type, the elements are bytes.
Signature signatureOf(OpKind kind, const at::Tensor& tensor);

}  // namespace bluefog
