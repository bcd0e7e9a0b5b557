#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/operations/Op.hpp"

namespace bluefog {

// The last operations of a group, for those who ask later what a job was doing. Any thread may use
// it.
class FlightLog {
 public:
  // Of an operation on more tensors, the first so many are written down.
  static constexpr size_t kMostShapes = 16;

  struct TensorShape {
    c10::DimVector sizes;
    at::ScalarType dtype;
  };
  using TensorShapes = c10::SmallVector<TensorShape, 1>;
  // Without memory of its own where it can be, and without its operation once that has ended: what
  // stays between the tensors that come and go keeps the heap from using their places again.
  struct Entry {
    enum class State { kScheduled, kCompleted, kFailed };

    uint64_t number = 0;  // from 1, of all that the group has issued
    const char* title = nullptr;
    Op::Kind kind = Op::Kind::kCollective;
    uint64_t sequence = 0;
    c10::SmallVector<int, 4> partners;
    std::chrono::milliseconds timeout{0};
    Op::Time created{};
    TensorShapes inputs;
    TensorShapes outputs;
    std::shared_ptr<Op> op;  // until it has ended
    State state = State::kScheduled;
    Op::Time::duration duration{0};  // when it has ended
  };

  void add(const char* title, const std::shared_ptr<Op>& op, const std::vector<at::Tensor>& inputs,
           const std::vector<at::Tensor>& outputs);
  // Of one that was over at once.
  void addEnded(const char* title, uint64_t sequence, const std::vector<int>& partners,
                std::chrono::milliseconds timeout, const at::Tensor& input,
                const at::Tensor& output, Op::Time created);
  // In no order: each has its number.
  std::vector<Entry> entries();

 private:
  static constexpr size_t kMost = 1024;
  // Looked at for each that comes: more than come, so that those that have ended are soon found.
  static constexpr size_t kLooks = 4;

  Entry& next(const char* title);
  // Looks at so many of those that had not ended.
  void settle(size_t looks);

  std::mutex mutex_;
  std::vector<Entry> ring_;
  std::deque<uint64_t> open_;  // numbers of entries that may still have an operation
  uint64_t added_ = 0;
};

}  // namespace bluefog
