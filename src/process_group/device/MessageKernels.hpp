#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "device/Plugin.hpp"

namespace bluefog {

// What optimizers send in place of a tensor of one dimension, in bytes: formed on its device by a
// plugin's kernels, in the current stream. optim/messages.py has the same as formulas.
class MessageKernels {
 public:
  explicit MessageKernels(const std::string& plugin) : plugin_(plugin) {}

  // Why there are none; empty where there are.
  const std::string& reason() const { return plugin_.reason(); }

  // In another floating type; what is beyond its range becomes its largest number.
  at::Tensor narrow(const at::Tensor& tensor, at::ScalarType type) const;
  at::Tensor widen(const at::Tensor& message, at::ScalarType type, const at::Tensor& like) const;
  // A scale for each block, and a byte for each number.
  at::Tensor quantize(const at::Tensor& tensor, int64_t block) const;
  at::Tensor dequantize(const at::Tensor& message, const at::Tensor& like, int64_t block) const;
  // Where the `count` largest numbers are, and they.
  at::Tensor pickLargest(const at::Tensor& tensor, int64_t count) const;
  at::Tensor scatter(const at::Tensor& message, const at::Tensor& like) const;

 private:
  const Plugin plugin_;
};

}  // namespace bluefog
