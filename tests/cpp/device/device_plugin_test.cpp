// These tests load the library for CUDA devices, on machines with or without such a device.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "device/Plugin.hpp"

namespace bluefog {
namespace {

const bluefog_device_api* apiOf(uint32_t version) {
  static const SharedLibrary library(BLUEFOG_CUDA_PLUGIN, SharedLibrary::Symbols::kForUs);
  bluefog_device_getter get = nullptr;
  library.find("bluefog_device_get", get);
  return get(version);
}

class CudaPlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(BLUEFOG_CUDA_PLUGIN)) {
      GTEST_SKIP() << "libbluefog_cuda.so was not built (BLUEFOG_CUDA=OFF, or no nvcc)";
    }
  }
};

TEST_F(CudaPlugin, KnowsItsVersionAlone) {
  ASSERT_NE(apiOf(BLUEFOG_DEVICE_API), nullptr);
  EXPECT_EQ(apiOf(BLUEFOG_DEVICE_API)->size, sizeof(bluefog_device_api));
  EXPECT_EQ(apiOf(BLUEFOG_DEVICE_API + 1), nullptr);
}

TEST_F(CudaPlugin, SaysWhyItIsNoUse) {
  const Plugin plugin(BLUEFOG_CUDA_PLUGIN);
  int runtime = 0;
  int driver = 0;
  ASSERT_EQ(apiOf(BLUEFOG_DEVICE_API)->versions(&runtime, &driver), 0);
  EXPECT_GE(runtime, 12000);
  if (driver == 0) {
    EXPECT_EQ(plugin.api(), nullptr);
    EXPECT_EQ(plugin.reason(), "there is no driver");
  } else {
    EXPECT_EQ(plugin.api() == nullptr, driver < runtime) << plugin.reason();
  }
}

constexpr int kInvalidValue = 1;

TEST_F(CudaPlugin, RefusesWhatItCannotAdd) {
  const bluefog_device_api& api = *apiOf(BLUEFOG_DEVICE_API);
  char out = 0;
  const std::vector<double> weights(BLUEFOG_MOST_INPUTS + 1, 1.0);
  const std::vector<const void*> inputs(weights.size(), &out);
  const void* nothing = nullptr;
  const auto add = [&](void* to, const void* const* from, int n, size_t numel, int type) {
    return api.weighted_sum(to, from, weights.data(), n, 1, numel, type, nullptr);
  };
  EXPECT_EQ(add(&out, inputs.data(), 0, 8, BLUEFOG_F32), kInvalidValue);
  EXPECT_EQ(add(&out, inputs.data(), BLUEFOG_MOST_INPUTS + 1, 8, BLUEFOG_F32), kInvalidValue);
  EXPECT_EQ(add(&out, inputs.data(), 1, 8, 99), kInvalidValue);
  EXPECT_EQ(add(&out, nullptr, 1, 8, BLUEFOG_F32), kInvalidValue);
  EXPECT_EQ(add(&out, &nothing, 1, 8, BLUEFOG_F32), kInvalidValue);
  EXPECT_EQ(add(nullptr, inputs.data(), 1, 8, BLUEFOG_F32), kInvalidValue);
  EXPECT_EQ(add(nullptr, &nothing, 1, 0, BLUEFOG_F32), 0);
  EXPECT_STREQ(api.error_text(kInvalidValue), "invalid argument");
}

TEST_F(CudaPlugin, RefusesNulls) {
  const bluefog_device_api& api = *apiOf(BLUEFOG_DEVICE_API);
  char some[64] = {};
  bluefog_handle handle{};
  EXPECT_EQ(api.versions(nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(api.stream_create(nullptr), kInvalidValue);
  EXPECT_EQ(api.stream_destroy(nullptr), kInvalidValue);
  EXPECT_EQ(api.stream_is_capturing(nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(api.allocate(nullptr, 8), kInvalidValue);
  EXPECT_EQ(api.allocate_host(nullptr, 8), kInvalidValue);
  EXPECT_EQ(api.copy(nullptr, some, 8, nullptr), kInvalidValue);
  EXPECT_EQ(api.copy(some, nullptr, 8, nullptr), kInvalidValue);
  EXPECT_EQ(api.zero(nullptr, 8, nullptr), kInvalidValue);
  EXPECT_EQ(api.share(nullptr, &handle), kInvalidValue);
  EXPECT_EQ(api.share(some, nullptr), kInvalidValue);
  EXPECT_EQ(api.open(&handle, nullptr), kInvalidValue);
  EXPECT_EQ(api.close(nullptr), kInvalidValue);
}

TEST_F(CudaPlugin, HasNothingToDoWhereThereIsNothing) {
  const bluefog_device_api& api = *apiOf(BLUEFOG_DEVICE_API);
  EXPECT_EQ(api.release(nullptr), 0);
  EXPECT_EQ(api.release_host(nullptr), 0);
  EXPECT_EQ(api.copy(nullptr, nullptr, 0, nullptr), 0);
  EXPECT_EQ(api.zero(nullptr, 0, nullptr), 0);
  EXPECT_EQ(api.cast(nullptr, BLUEFOG_F16, nullptr, BLUEFOG_F32, 0, nullptr), 0);
  EXPECT_EQ(api.quantize(nullptr, nullptr, BLUEFOG_F32, 0, 256, nullptr), 0);
  EXPECT_EQ(api.dequantize(nullptr, BLUEFOG_F32, nullptr, 0, 256, nullptr), 0);
}

TEST_F(CudaPlugin, RefusesWhatItCannotCompress) {
  const bluefog_device_api& api = *apiOf(BLUEFOG_DEVICE_API);
  alignas(16) char some[64] = {};
  EXPECT_EQ(api.cast(some, BLUEFOG_F16, some, BLUEFOG_I32, 4, nullptr), kInvalidValue);
  EXPECT_EQ(api.cast(some, 99, some, BLUEFOG_F32, 4, nullptr), kInvalidValue);
  EXPECT_EQ(api.cast(nullptr, BLUEFOG_F16, some, BLUEFOG_F32, 4, nullptr), kInvalidValue);
  EXPECT_EQ(api.quantize(some, some, BLUEFOG_I8, 4, 4, nullptr), kInvalidValue);
  EXPECT_EQ(api.quantize(some, some, BLUEFOG_F32, 4, 0, nullptr), kInvalidValue);
  EXPECT_EQ(api.quantize(some + 1, some, BLUEFOG_F32, 4, 4, nullptr), kInvalidValue);
  EXPECT_EQ(api.dequantize(nullptr, BLUEFOG_F32, some, 4, 4, nullptr), kInvalidValue);
  EXPECT_EQ(api.top_k(some, some, BLUEFOG_F32, 4, 5, some, nullptr), kInvalidValue);
  EXPECT_EQ(api.top_k(some, some, BLUEFOG_F32, 4, 0, some, nullptr), kInvalidValue);
  EXPECT_EQ(api.top_k(some, some, BLUEFOG_F32, size_t(1) << 31, 1, some, nullptr), kInvalidValue);
  EXPECT_EQ(api.top_k(some, some, BLUEFOG_F32, 4, 1, nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(api.top_k(some, some, BLUEFOG_F32, 4, 1, some + 1, nullptr), kInvalidValue);
  EXPECT_EQ(api.scatter(some, BLUEFOG_I64, some, 4, 1, nullptr), kInvalidValue);
  EXPECT_EQ(api.top_k_scratch(nullptr), kInvalidValue);
  size_t bytes = 0;
  EXPECT_EQ(api.top_k_scratch(&bytes), 0);
  EXPECT_GT(bytes, 0u);
}

// Each call returns an error that has a text, and none of them ends the program.
TEST_F(CudaPlugin, TellsThatThereIsNoDriver) {
  const bluefog_device_api& api = *apiOf(BLUEFOG_DEVICE_API);
  int runtime = 0;
  int driver = 0;
  ASSERT_EQ(api.versions(&runtime, &driver), 0);
  if (driver != 0) {
    GTEST_SKIP() << "there is a driver";
  }
  alignas(16) char some[1 << 15] = {};
  const void* input = some;
  const double weight = 1;
  bluefog_stream stream = nullptr;
  bluefog_handle handle{};
  void* memory = nullptr;
  int is_capturing = 0;
  const std::vector<int> errors{
      api.set_device(0),
      api.stream_create(&stream),
      api.stream_wait(nullptr),
      api.stream_is_capturing(nullptr, &is_capturing),
      api.allocate(&memory, 8),
      api.allocate_host(&memory, 8),
      api.release(some),
      api.release_host(some),
      api.copy(some, some + 8, 8, nullptr),
      api.zero(some, 8, nullptr),
      api.share(some, &handle),
      api.open(&handle, &memory),
      api.close(some),
      api.weighted_sum(some, &input, &weight, 1, 1, 8, BLUEFOG_I8, nullptr),
      api.cast(some, BLUEFOG_F16, some, BLUEFOG_F32, 8, nullptr),
      api.quantize(some, some, BLUEFOG_F32, 8, 8, nullptr),
      api.dequantize(some, BLUEFOG_F32, some, 8, 8, nullptr),
      api.top_k(some, some, BLUEFOG_F32, 8, 2, some, nullptr),
      api.scatter(some, BLUEFOG_F32, some, 8, 2, nullptr),
  };
  for (size_t i = 0; i < errors.size(); ++i) {
    EXPECT_STREQ(api.error_text(errors[i]),
                 "CUDA driver version is insufficient for CUDA runtime version")
        << "call " << i;
  }
  EXPECT_EQ(api.allocate(&memory, SIZE_MAX), 2) << "that it is too much";
  EXPECT_EQ(memory, nullptr);
}

TEST(DevicePlugin, ThatIsNotThere) {
  const Plugin plugin("/nowhere/libbluefog_cuda.so");
  EXPECT_EQ(plugin.api(), nullptr);
  EXPECT_EQ(plugin.reason().find("/nowhere/libbluefog_cuda.so was not built"), 0U);
  EXPECT_EQ(Plugin("").reason(), "there is no library with kernels for such devices");
}

// Returns the reason that the stub gives with one variable of its environment set.
std::string reasonWith(const char* name, const char* value) {
  ::setenv(name, value, 1);
  const Plugin plugin(STUB_PLUGIN);
  ::unsetenv(name);
  EXPECT_EQ(plugin.api() == nullptr, !plugin.reason().empty());
  return plugin.reason();
}

TEST(DevicePlugin, SaysWhyAnotherOneIsNoUse) {
  const std::string path = STUB_PLUGIN;
  EXPECT_EQ(reasonWith("STUB_DRIVER", "13010"), "");
  EXPECT_EQ(reasonWith("STUB_DRIVER", "12080"),
            "the driver is for version 12.8, and " + path +
                " needs one for 13.0 or newer: update the driver, or "
                "install bluefog_pg with the nvcc of that version");
  EXPECT_EQ(reasonWith("STUB_DRIVER", "0"), "there is no driver");
  EXPECT_EQ(reasonWith("STUB_SIZE", "8"),
            path + " is of another version of bluefog_pg; install it again");
  EXPECT_EQ(reasonWith("STUB_ERROR", "35"), "[bluefog] its driver's version: as it was told");
}

}  // namespace
}  // namespace bluefog
