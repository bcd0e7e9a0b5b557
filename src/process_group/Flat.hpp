#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>

namespace bluefog {

// A tensor as contiguous memory: itself where it is contiguous, otherwise a copy.
class Flat {
 public:
  // With the tensor's contents.
  static Flat input(const at::Tensor& tensor) {
    return isPlain(tensor) ? Flat(tensor, tensor)
                           : Flat(tensor, tensor.resolve_conj().resolve_neg().contiguous());
  }
  // In memory of its own, with the tensor's contents.
  static Flat copy(const at::Tensor& tensor) {
    return Flat(tensor, at::empty(tensor.sizes(), tensor.options()).copy_(tensor.detach()));
  }
  // With room for them; copyBack() puts them in place.
  static Flat output(const at::Tensor& tensor) {
    return isPlain(tensor) ? Flat(tensor, tensor)
                           : Flat(tensor, at::empty(tensor.sizes(), tensor.options()));
  }

  std::byte* data() const { return static_cast<std::byte*>(flat_.mutable_data_ptr()); }
  const std::byte* readable() const {
    return static_cast<const std::byte*>(flat_.const_data_ptr());
  }
  const at::Tensor& tensor() const { return flat_; }
  bool copied() const { return !flat_.is_same(original_); }
  void copyBack() const {
    if (copied()) {
      const at::AutoDispatchBelowADInplaceOrView below;
      original_.copy_(flat_);
    }
  }

 private:
  Flat(at::Tensor original, at::Tensor flat)
      : original_(std::move(original)), flat_(std::move(flat)) {}

  // Whether its memory, as it is, is its elements.
  static bool isPlain(const at::Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj();
  }

  at::Tensor original_;
  at::Tensor flat_;
};

}  // namespace bluefog
