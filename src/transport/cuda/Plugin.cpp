#include "transport/cuda/Plugin.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

namespace bluefog::cuda {
namespace {

constexpr const char* kName = "libbluefog_cuda.so";

std::filesystem::path besideThisModule() {
  Dl_info here{};
  ::dladdr(reinterpret_cast<const void*>(&Plugin::get), &here);
  return std::filesystem::path(here.dli_fname).replace_filename(kName);
}

std::string asText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

const Plugin& Plugin::get() {
  static const Plugin plugin;
  return plugin;
}

Plugin::Plugin() {
  const std::filesystem::path path = besideThisModule();
  if (!std::filesystem::exists(path)) {
    reason_ = std::string(kName) + " was not built, for want of nvcc";
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
  library_.emplace(path);
  bluefog_cuda_getter get_api = nullptr;
  library_->find("bluefog_cuda_get", get_api);
  api_ = get_api(BLUEFOG_CUDA_API);
  if (api_ == nullptr) {
    throw std::runtime_error(path + " is of another version of bluefog_pg; install it again");
  }
  int runtime = 0;
  int driver = 0;
  check(api_->versions(&runtime, &driver), "cudaDriverGetVersion");
  if (driver < runtime) {
    throw std::runtime_error(driver == 0
                                 ? "there is no CUDA driver"
                                 : "the driver is for CUDA " + asText(driver) + ", and " + kName +
                                       " needs CUDA " + asText(runtime) + "'s or a newer one");
  }
}

void Plugin::check(int error, const char* what) const {
  if (error != 0) {
    throw std::runtime_error(std::string("[bluefog] ") + what + ": " + api_->error_text(error));
  }
}

}  // namespace bluefog::cuda
