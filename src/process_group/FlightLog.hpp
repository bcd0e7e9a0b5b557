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

// A FlightLog keeps a record of the last operations of a group, for those who ask later what a job
// was doing. It has its name from torch's flight recorder, whose fields it fills.
// Thread safety: any thread may call any method.
class FlightLog {
 public:
  // An entry describes at most this many of an operation's inputs and of its outputs.
  static constexpr size_t kMostShapes = 16;

  struct TensorShape {
    c10::DimVector sizes;
    at::ScalarType dtype;
  };
  using TensorShapes = c10::SmallVector<TensorShape, 1>;
  // An Entry describes one operation. It avoids allocating memory, and drops the operation once
  // that has ended. Memory that stays allocated between tensors that come and go would keep malloc
  // from reusing their space.
  struct Entry {
    enum class State { kScheduled, kCompleted, kFailed };

    uint64_t number = 0;  // counts the entries of the log, from 1
    const char* title = nullptr;
    bool is_message = false;  // otherwise a collective
    uint64_t sequence = 0;
    c10::SmallVector<int, 4> partners;
    std::chrono::milliseconds timeout{0};
    Op::Time created{};
    TensorShapes inputs;
    TensorShapes outputs;
    std::shared_ptr<Op> op;  // null once its end was noticed
    State state = State::kScheduled;
    Op::Time::duration duration{0};  // from the call to the end; 0 before the end
  };

  // Adds an entry for an operation that has been posted. `title` must live as long as the process.
  void add(const char* title, std::shared_ptr<Op> op, const std::vector<at::Tensor>& inputs,
           const std::vector<at::Tensor>& outputs);
  // Adds an entry for an operation that began at `created` and has succeeded just now, without an
  // Op.
  void addEnded(const char* title, uint64_t sequence, const std::vector<int>& partners,
                std::chrono::milliseconds timeout, const at::Tensor& input,
                const at::Tensor& output, Op::Time created);
  // Returns the entries of at most the last kMost operations. They are in no particular order, and
  // their numbers tell in which order the operations were issued.
  std::vector<Entry> entries();

 private:
  static constexpr size_t kMost = 1024;
  // This many open entries are looked at when one is added. It is more than one, so that those
  // whose operation has ended are soon found.
  static constexpr size_t kLooks = 4;

  // Returns the entry to fill in, which may be that of the oldest operation.
  Entry& next(const char* title);
  // Looks at up to `looks` of the open entries. If an operation has ended, it takes down the
  // outcome and drops the operation.
  void settle(size_t looks);

  std::mutex mutex_;
  std::vector<Entry> ring_;
  std::deque<uint64_t> open_;  // numbers of entries that may still have an operation
  uint64_t added_ = 0;
};

}  // namespace bluefog
