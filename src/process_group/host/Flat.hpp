#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <functional>

namespace bluefog {

// A Flat is a tensor as contiguous memory: the tensor itself if possible, otherwise a copy. It
// keeps the tensor, and the copy.
// Thread safety: one thread at a time.
class Flat {
 public:
  // Returns whether the tensor's memory holds its elements one after the other, as they are.
  static bool isPlain(const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_neg() &&
           !tensor.is_conj();
  }
  // Returns the tensor's contents, in its own memory if it is plain.
  static Flat input(const at::Tensor& tensor) {
    return isPlain(tensor) ? Flat(tensor)
                           : Flat(tensor.resolve_conj().resolve_neg().contiguous(), tensor);
  }
  // Returns a copy of the tensor's contents.
  static Flat copy(const at::Tensor& tensor) {
    return Flat(at::empty(tensor.sizes(), tensor.options()).copy_(tensor.detach()), tensor);
  }
  // Returns memory to write the tensor's new contents to, which is its own if it is plain.
  // copyBack() must be called once they are written.
  static Flat output(const at::Tensor& tensor) {
    return isPlain(tensor) ? Flat(tensor) : outputApart(tensor);
  }
  // Does the same, but always returns memory that is not the tensor's own.
  static Flat outputApart(const at::Tensor& tensor) {
    return Flat(at::empty(tensor.sizes(), tensor.options()), tensor);
  }

  std::byte* data() const { return static_cast<std::byte*>(flat_.mutable_data_ptr()); }
  const std::byte* readable() const {
    return static_cast<const std::byte*>(flat_.const_data_ptr());
  }
  const at::Tensor& tensor() const { return flat_; }
  // Returns whether this is not the tensor's own memory.
  bool copied() const { return original_.defined(); }
  // Copies the contents into the tensor, if they are not there already.
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
  at::Tensor original_;  // undefined if flat_ is the tensor itself
};

}  // namespace bluefog
