#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace bluefog {

// What `pg_options=` takes. Only what every backend has: timeout, name and ranks of the group.
struct Options : c10d::Backend::Options {
  Options() : c10d::Backend::Options("bluefog") {}
};

}  // namespace bluefog
