#include "device/Plugin.hpp"

#include <filesystem>
#include <stdexcept>

namespace bluefog {
namespace {

std::string asText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

Plugin::Plugin(const std::string& path) {
  if (path.empty()) {
    reason_ = "there is no library with kernels for such devices";
    return;
  }
  if (!std::filesystem::exists(path)) {
    reason_ = path +
              " was not built (that needs nvcc, 12.8 or newer, when bluefog_pg is installed), " +
              "and no wheel bluefog-pg-cuda13 is installed";
    return;
  }
  try {
    load(path);
  } catch (const std::runtime_error& error) {
    api_ = nullptr;
    reason_ = error.what();
  }
}

void Plugin::load(const std::string& path) {
  library_.emplace(path, SharedLibrary::Symbols::kForUs);
  bluefog_device_getter get = nullptr;
  library_->find("bluefog_device_get", get);
  api_ = get(BLUEFOG_DEVICE_API);
  if (api_ == nullptr || api_->size != sizeof *api_) {
    throw std::runtime_error(path + " is of another version of bluefog_pg; install it again");
  }
  int runtime = 0;
  int driver = 0;
  check(api_->versions(&runtime, &driver), "its driver's version");
  if (driver < runtime) {
    throw std::runtime_error(driver == 0
                                 ? "there is no driver"
                                 : "the driver is for version " + asText(driver) + ", and " + path +
                                       " needs one for " + asText(runtime) +
                                       " or newer: update the driver, or install bluefog_pg "
                                       "with the nvcc of that version");
  }
}

void Plugin::check(int error, const char* what) const {
  if (error != 0) {
    throw std::runtime_error(std::string("[bluefog] ") + what + ": " + api_->error_text(error));
  }
}

}  // namespace bluefog
