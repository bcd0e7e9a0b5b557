#pragma once

#include <optional>
#include <string>

#include "core/SharedLibrary.hpp"
#include "transport/cuda/api.h"

namespace bluefog::cuda {

// libbluefog_cuda.so, which lies beside this module where it was built, or why it is no use here.
class Plugin {
 public:
  // Loaded when first asked for.
  static const Plugin& get();

  // Null where there is a `reason` why not.
  const bluefog_cuda_api* api() const { return api_; }
  // A sentence without end: "... was not built (no nvcc)".
  const std::string& reason() const { return reason_; }

  // Throws std::runtime_error where that is no success.
  void check(int error, const char* what) const;

 private:
  Plugin();
  void load(const std::string& path);

  std::optional<SharedLibrary> library_;
  const bluefog_cuda_api* api_ = nullptr;
  std::string reason_;
};

}  // namespace bluefog::cuda
