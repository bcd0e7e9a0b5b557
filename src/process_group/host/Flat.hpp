#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>

namespace bluefog {

// A tensor as contiguous memory: itself where it is contiguous, otherwise a copy.
class Flat {
 public:
  // Whether its memory, as it is, is its elements.
  static bool isPlain(const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_neg() &&
           !tensor.is_conj();
  }
  // With the tensor's contents.
  static Flat input(const at::Tensor& tensor) {
    return isPlain(tensor) ? Flat(tensor)
                           : Flat(tensor.resolve_conj().resolve_neg().contiguous(), tensor);
  }
  // In memory of its own, with the tensor's contents.
  static Flat copy(const at::Tensor& tensor) {
    return Flat(at::empty(tensor.sizes(), tensor.options()).copy_(tensor.detach()), tensor);
  }
  // With room for them; copyBack() puts them in place.
  static Flat output(const at::Tensor& tensor) {
    return isPlain(tensor) ? Flat(tensor) : outputApart(tensor);
  }
  // The same, in memory of its own.
  static Flat outputApart(const at::Tensor& tensor) {
    return Flat(at::empty(tensor.sizes(), tensor.options()), tensor);
  }

  std::byte* data() const { return static_cast<std::byte*>(flat_.mutable_data_ptr()); }
  const std::byte* readable() const {
    return static_cast<const std::byte*>(flat_.const_data_ptr());
  }
  const at::Tensor& tensor() const { return flat_; }
  bool copied() const { return original_.defined(); }
  void copyBack() const {
    if (copied()) {
      const at::AutoDispatchBelowADInplaceOrView below;
      original_.copy_(flat_);
    }
  }

 private:
  explicit Flat(at::Tensor flat, at::Tensor original = {})
      : flat_(std::move(flat)), original_(std::move(original)) {}

  at::Tensor flat_;
  at::Tensor original_;  // where it is another one
};

}  // namespace bluefog
