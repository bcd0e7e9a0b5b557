#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>

namespace bluefog {

// Options is what `pg_options=` of init_process_group takes. A program sets nothing in it but what
// the options of every backend have, such as the timeout.
// Thread safety: one thread at a time.
struct Options : c10d::Backend::Options {
  Options() : c10d::Backend::Options("bluefog") {}

  // Names the device and the backend of this rank's accelerator, as in "cuda:nccl", or is empty if
  // there is none. The package sets it, not the program. All ranks must have the same.
  std::string accelerator;
};

}  // namespace bluefog
