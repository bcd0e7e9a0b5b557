#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace bluefog {

// Memory for large results, used again when the tensor that had it is gone. A fresh mapping of
// 64 MiB costs 16384 page faults, as long as the averaging itself; glibc's malloc keeps blocks only
// up to 32 MiB. Holds at most two idle blocks. Any thread may use it and drop its tensors.
class OutputPool {
 public:
  OutputPool();

  // A new contiguous tensor of the shape and type of `like`, uninitialised.
  at::Tensor emptyLike(const at::Tensor& like);

 private:
  class Blocks;

  std::shared_ptr<Blocks> blocks_;  // outlived by tensors: each holds a share
};

}  // namespace bluefog
