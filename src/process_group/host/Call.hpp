#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <memory>
#include <vector>

#include "process_group/ProcessGroupBluefog.hpp"
#include "process_group/host/Flat.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// A Call is what post() needs: an operation, and what its Work and the flight log say about it.
struct ProcessGroupBluefog::Call {
  std::shared_ptr<Op> op;
  c10d::OpType type;
  const char* profiling_title;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::shared_ptr<int> source = nullptr;
};

// Buffers is the memory that an operation's tasks use. A tensor that is both read and written is
// among the outputs.
struct Buffers {
  std::vector<Flat> inputs;
  std::vector<Flat> outputs;
};

// Gives the buffers to the operation, which keeps them until it is released. Its epilogue copies
// back what could not be written in place.
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
