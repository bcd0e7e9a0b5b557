#pragma once

#include <optional>
#include <string>

#include "core/SharedLibrary.hpp"
#include "device/api.h"

namespace bluefog {

// A library of kernels for a kind of device, or why there is none.
class Plugin {
 public:
  explicit Plugin(const std::string& path);

  // Null where there is a `reason` why not.
  const bluefog_device_api* api() const { return api_; }
  const std::string& reason() const { return reason_; }

  // Throws std::runtime_error where that number is an error's.
  void check(int error, const char* what) const;

 private:
  void load(const std::string& path);

  std::optional<SharedLibrary> library_;
  const bluefog_device_api* api_ = nullptr;
  std::string reason_;
};

}  // namespace bluefog
