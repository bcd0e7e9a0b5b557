#pragma once

#include <optional>
#include <string>

#include "core/SharedLibrary.hpp"
#include "device/api.h"

namespace bluefog {

// A Plugin is a library of kernels for one kind of device, or the reason why there is none. The
// library stays loaded.
// Thread safety: any thread.
class Plugin {
 public:
  explicit Plugin(const std::string& path);

  // Returns the library's functions, or null where there is a `reason` why not.
  const bluefog_device_api* api() const { return api_; }
  const std::string& reason() const { return reason_; }

  // Throws std::runtime_error where `error` is not 0. `what` says what has failed.
  void check(int error, const char* what) const;

 private:
  void load(const std::string& path);

  std::optional<SharedLibrary> library_;
  const bluefog_device_api* api_ = nullptr;
  std::string reason_;
};

}  // namespace bluefog
