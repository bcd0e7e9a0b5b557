// These are the simulated accelerator's kernels, in the place of libbluefog_cuda.so.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plugin.hpp"
#include "streams.hpp"

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

// Integers are exact where the weights and the divisor are 1.
template <class T>
void addIntegers(void* out, const std::vector<const void*>& inputs,
                 const std::vector<double>& weights, double divisor, size_t numel) {
  const bool is_exact = divisor == 1 && std::all_of(weights.begin(), weights.end(),
                                                    [](double weight) { return weight == 1; });
  is_exact ? addTerms<T, int64_t>(out, inputs, weights, divisor, numel)
           : addTerms<T, double>(out, inputs, weights, divisor, numel);
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
      case BLUEFOG_F64:
        return addTerms<double, double>(out, in, by, divisor, numel);
      case BLUEFOG_U8:
        return addIntegers<uint8_t>(out, in, by, divisor, numel);
      case BLUEFOG_I8:
        return addIntegers<int8_t>(out, in, by, divisor, numel);
      case BLUEFOG_I16:
        return addIntegers<int16_t>(out, in, by, divisor, numel);
      case BLUEFOG_I32:
        return addIntegers<int32_t>(out, in, by, divisor, numel);
      default:
        return addIntegers<int64_t>(out, in, by, divisor, numel);
    }
  });
  return 0;
}

int versions(int* runtime, int* driver) {
  return *runtime = *driver = 0;
}
int setDevice(int device) {
  constexpr auto kType = c10::DeviceType::PrivateUse1;
  c10::impl::VirtualGuardImpl(kType).setDevice({kType, static_cast<c10::DeviceIndex>(device)});
  return 0;
}

constexpr bluefog_device_api kApi{
    .version = BLUEFOG_DEVICE_API,
    .size = sizeof(bluefog_device_api),
    .error_text = simulated::errorText,
    .versions = versions,
    .set_device = setDevice,
    .stream_create = simulated::createStream,
    .stream_destroy = simulated::destroyStream,
    .stream_wait = simulated::waitForStream,
    .ignore_captures = simulated::ignoreCaptures,
    .stream_is_capturing = simulated::isCapturing,
    .allocate = simulated::allocate,
    .release = simulated::release,
    .allocate_host = simulated::allocateHost,
    .release_host = simulated::releaseHost,
    .copy = simulated::copy,
    .zero = simulated::zero,
    .share = simulated::share,
    .open = simulated::open,
    .close = simulated::close,
    .weighted_sum = weightedSum,
    .cast = simulated::cast,
    .quantize = simulated::quantize,
    .dequantize = simulated::dequantize,
    .top_k_scratch = simulated::topKScratch,
    .top_k = simulated::topK,
    .scatter = simulated::scatter,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const bluefog_device_api* bluefog_device_get(
    uint32_t version) {
  return version == BLUEFOG_DEVICE_API ? &kApi : nullptr;
}
