#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>

namespace bluefog {

// What `pg_options=` takes. Only what every backend has: timeout, name and ranks of the group.
struct Options : c10d::Backend::Options {
  Options() : c10d::Backend::Options("bluefog") {}

  // Set by who makes the group. "cuda:nccl": this rank's, which all must have; empty: none.
  std::string accelerator;
};

}  // namespace bluefog
