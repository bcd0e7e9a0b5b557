// The library for CUDA devices, on machines with or without one.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "transport/device/Plugin.hpp"

namespace bluefog {
namespace {

const bluefog_device_api* apiOf(uint32_t version) {
  static const SharedLibrary library(BLUEFOG_CUDA_PLUGIN);
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

TEST_F(CudaPlugin, RefusesWhatItCannotAdd) {
  const bluefog_device_api& api = *apiOf(BLUEFOG_DEVICE_API);
  constexpr int kInvalidValue = 1;
  const std::vector<double> weights{1.0};
  const void* input = nullptr;
  EXPECT_EQ(api.weighted_sum(nullptr, &input, weights.data(), 0, 1, 8, BLUEFOG_F32, nullptr),
            kInvalidValue);
  EXPECT_EQ(api.weighted_sum(nullptr, &input, weights.data(), 1, 1, 8, 99, nullptr), kInvalidValue);
  EXPECT_EQ(api.weighted_sum(nullptr, &input, weights.data(), 1, 1, 0, BLUEFOG_F32, nullptr), 0);
  EXPECT_STREQ(api.error_text(kInvalidValue), "invalid argument");
}

TEST(DevicePlugin, ThatIsNotThere) {
  const Plugin plugin("/nowhere/libbluefog_cuda.so");
  EXPECT_EQ(plugin.api(), nullptr);
  EXPECT_EQ(plugin.reason(), "/nowhere/libbluefog_cuda.so was not built");
}

}  // namespace
}  // namespace bluefog
