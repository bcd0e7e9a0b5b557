#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>

#include <vector>

namespace bluefog {

// A Borrowed is a list of tensors that somebody else holds for as long as the list exists. It does
// not count as a holder of them. To become or stop being a holder of a tensor that Python has can
// take the GIL.
// Thread safety: one thread at a time.
class Borrowed {
 public:
  Borrowed() = default;
  explicit Borrowed(const at::Tensor& tensor) { add(tensor); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    for (at::Tensor& tensor : tensors_) {
      Traits::destroyBorrow(tensor);
    }
  }

  void reserve(size_t n) { tensors_.reserve(n); }
  void add(const at::Tensor& tensor) { tensors_.push_back(Traits::createBorrow(tensor)); }
  const std::vector<at::Tensor>& all() const { return tensors_; }

 private:
  using Traits = c10::MaybeOwnedTraits<at::Tensor>;

  std::vector<at::Tensor> tensors_;
};

}  // namespace bluefog
