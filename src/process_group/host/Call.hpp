#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <memory>
#include <vector>

#include "process_group/ProcessGroupBluefog.hpp"
#include "process_group/host/Flat.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// What post() needs: the operation, and what its Work says of it.
struct ProcessGroupBluefog::Call {
  std::shared_ptr<Op> op;
  c10d::OpType type;
  const char* profiling_title;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::shared_ptr<int> source = nullptr;
};

// The memory that an operation's tasks use. What is both read and written is an output.
struct Buffers {
  std::vector<Flat> inputs;
  std::vector<Flat> outputs;
};

// Gives it to the operation, whose epilogue copies back what could not be written in place.
inline void own(Op& op, std::shared_ptr<Buffers> buffers) {
  const std::vector<Flat>& outputs = buffers->outputs;
  if (std::any_of(outputs.begin(), outputs.end(), [](const Flat& f) { return f.copied(); })) {
    op.epilogue = [buffers] {
      for (const Flat& output : buffers->outputs) {
        output.copyBack();
      }
    };
  }
  op.memory = std::move(buffers);
}

}  // namespace bluefog
