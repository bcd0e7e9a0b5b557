// The simulated accelerator's kernels: what libbluefog_cuda.so is for CUDA.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <vector>

#include "streams.hpp"
#include "transport/device/api.h"

namespace {

template <class T, class Wide>
void addTerms(void* out, const std::vector<const void*>& inputs, const std::vector<double>& weights,
              double divisor, size_t numel) {
  for (size_t i = 0; i < numel; ++i) {
    Wide sum = 0;
    for (size_t j = 0; j < inputs.size(); ++j) {
      sum += Wide(weights[j]) * Wide(static_cast<const T*>(inputs[j])[i]);
    }
    static_cast<T*>(out)[i] = T(sum / Wide(divisor));
  }
}

int weightedSum(void* out, const void* const* inputs, const double* weights, int n, double divisor,
                size_t numel, int type, bluefog_stream stream) {
  const std::vector<const void*> in(inputs, inputs + n);
  const std::vector<double> by(weights, weights + n);
  static_cast<simulated::Stream*>(stream)->put([=] {
    switch (type) {
      case BLUEFOG_F16:
        return addTerms<c10::Half, float>(out, in, by, divisor, numel);
      case BLUEFOG_BF16:
        return addTerms<c10::BFloat16, float>(out, in, by, divisor, numel);
      case BLUEFOG_F32:
        return addTerms<float, float>(out, in, by, divisor, numel);
      default:
        return addTerms<double, double>(out, in, by, divisor, numel);
    }
  });
  return 0;
}

const char* errorText(int) {
  return "an error of the simulated device";
}
int versions(int* runtime, int* driver) {
  return *runtime = *driver = 0;
}
int setDevice(int) {
  return 0;
}

constexpr bluefog_device_api kApi{
    BLUEFOG_DEVICE_API, sizeof(bluefog_device_api), errorText, versions, setDevice, weightedSum,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const bluefog_device_api* bluefog_device_get(
    uint32_t version) {
  return version == BLUEFOG_DEVICE_API ? &kApi : nullptr;
}
