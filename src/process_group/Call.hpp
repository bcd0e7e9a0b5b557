#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <vector>

#include "process_group/Flat.hpp"
#include "process_group/ProcessGroupBluefog.hpp"
#include "transport/Op.hpp"

namespace bluefog {

// What post() needs: the operation, and what its Work says of it.
struct ProcessGroupBluefog::Call {
  std::shared_ptr<Op> op;
  c10d::OpType type;
  const char* profiling_title;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  bool async_op;
  std::shared_ptr<int> source = nullptr;
};

// Gives `op` the memory that its scripts use, `results` of which they write.
template <class Memory>
void own(Op& op, std::shared_ptr<Memory> memory, const std::vector<const Flat*>& results) {
  for (const Flat* result : results) {
    if (result->copied()) {
      op.epilogue = [memory, results] {
        for (const Flat* flat : results) {
          flat->copyBack();
        }
      };
      break;
    }
  }
  op.memory = std::move(memory);
}

}  // namespace bluefog
