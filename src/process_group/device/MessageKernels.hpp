#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "device/Plugin.hpp"

namespace bluefog {

// A MessageKernels forms what optimizers send in place of a tensor of one dimension, which is a
// tensor of bytes, and reads it. A plugin's kernels do that on the tensor's device, in its current
// stream. optim/messages.py does the same by formulas. It owns the plugin.
// Thread safety: any thread may call any method.
class MessageKernels {
 public:
  explicit MessageKernels(const std::string& plugin) : plugin_(plugin) {}

  // Returns why there are no kernels, or an empty text if there are. Without kernels no other
  // method may be called.
  const std::string& reason() const { return plugin_.reason(); }

  // Returns the numbers in another floating type. A number beyond its range becomes the type's
  // largest one.
  at::Tensor narrow(const at::Tensor& tensor, at::ScalarType type) const;
  // Returns what narrow() to that type has left of a tensor like `like`.
  at::Tensor widen(const at::Tensor& message, at::ScalarType type, const at::Tensor& like) const;
  // Returns a float32 scale for each block of `block` numbers, and a byte for each number.
  at::Tensor quantize(const at::Tensor& tensor, int64_t block) const;
  // Returns what quantize() has left of a tensor like `like`.
  at::Tensor dequantize(const at::Tensor& message, const at::Tensor& like, int64_t block) const;
  // Returns the places of the `count` numbers of largest magnitude in int32, and then these numbers
  // in float32.
  at::Tensor pickLargest(const at::Tensor& tensor, int64_t count) const;
  // Returns what pickLargest() has left of a tensor like `like`, with zeros elsewhere.
  at::Tensor scatter(const at::Tensor& message, const at::Tensor& like) const;

 private:
  const Plugin plugin_;
};

}  // namespace bluefog
