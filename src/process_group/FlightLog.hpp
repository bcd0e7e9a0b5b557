#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/Op.hpp"

namespace bluefog {

// The last operations of a group, for those who ask later what a job was doing. Any thread may use
// it.
class FlightLog {
 public:
  // Of an operation on more tensors, the first so many are written down.
  static constexpr size_t kMostShapes = 16;

  struct Shape {
    c10::DimVector sizes;
    at::ScalarType dtype;
  };
  struct Entry {
    uint64_t number = 0;  // from 1, of all that the group has issued
    const char* title = nullptr;
    std::shared_ptr<Op> op;
    int64_t created_ns = 0;  // since the epoch
    std::vector<Shape> inputs;
    std::vector<Shape> outputs;
  };

  void add(const char* title, const std::shared_ptr<Op>& op, const std::vector<at::Tensor>& inputs,
           const std::vector<at::Tensor>& outputs);
  // The oldest first.
  std::vector<Entry> entries() const;

 private:
  static constexpr size_t kMost = 1024;

  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  uint64_t added_ = 0;
};

}  // namespace bluefog
