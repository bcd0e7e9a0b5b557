#pragma once

#include <string>

#include "process_group/Features.hpp"

namespace bluefog {

// Options is what `pg_options=` of init_process_group takes. A program sets nothing in it but what
// the options of every backend have, such as the timeout.
// Thread safety: one thread at a time.
struct Options : c10d::Backend::Options {
  Options() : c10d::Backend::Options("bluefog") {}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  // Without this, torch would copy what it knows and leave out the accelerator.
  c10::intrusive_ptr<c10d::Backend::Options> clone() const override {
    return c10::make_intrusive<Options>(*this);
  }
#endif

  // Names the device and the backend of this rank's accelerator, as in "cuda:nccl", or is empty if
  // there is none. The package sets it, not the program. All ranks must have the same.
  std::string accelerator;
};

}  // namespace bluefog
