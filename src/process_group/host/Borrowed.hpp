#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>

#include <vector>

namespace bluefog {

// Tensors that somebody else holds for so long. To be one more holder of a tensor that Python has,
// and to be none any more, can take the GIL.
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
