// This plugin behaves as the environment says. STUB_SIZE is the size of its struct, STUB_DRIVER is
// the driver's version, and STUB_ERROR is the error that versions() returns.
#include <cstdlib>

#include "device/api.h"

namespace {

int numberOf(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

const char* errorText(int) {
  return "as it was told";
}

int versions(int* runtime, int* driver) {
  *runtime = 13000;
  *driver = numberOf("STUB_DRIVER", 13000);
  return numberOf("STUB_ERROR", 0);
}

bluefog_device_api api;

}  // namespace

extern "C" __attribute__((visibility("default"))) const bluefog_device_api* bluefog_device_get(
    uint32_t version) {
  api.version = version;
  api.size = static_cast<uint32_t>(numberOf("STUB_SIZE", sizeof api));
  api.error_text = errorText;
  api.versions = versions;
  return &api;
}
