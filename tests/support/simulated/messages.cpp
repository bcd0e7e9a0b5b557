// This file makes the simulated accelerator's messages, which device/api.h describes.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "plugin.hpp"
#include "streams.hpp"

namespace simulated {
namespace {

// Numbers is a view of an array of floating numbers of any type.
class Numbers {
 public:
  Numbers(const void* data, int type) : data_(const_cast<void*>(data)), type_(type) {}

  double get(size_t i) const {
    switch (type_) {
      case BLUEFOG_F16:
        return static_cast<c10::Half*>(data_)[i];
      case BLUEFOG_BF16:
        return static_cast<c10::BFloat16*>(data_)[i];
      case BLUEFOG_F32:
        return static_cast<float*>(data_)[i];
      default:
        return static_cast<double*>(data_)[i];
    }
  }
  void set(size_t i, double value) const {
    switch (type_) {
      case BLUEFOG_F16:
        static_cast<c10::Half*>(data_)[i] = limited<c10::Half>(value);
        break;
      case BLUEFOG_BF16:
        static_cast<c10::BFloat16*>(data_)[i] = limited<c10::BFloat16>(value);
        break;
      case BLUEFOG_F32:
        static_cast<float*>(data_)[i] = limited<float>(value);
        break;
      default:
        static_cast<double*>(data_)[i] = value;
    }
  }

 private:
  template <class T>
  static T limited(double value) {
    const double most = std::numeric_limits<T>::max();
    return static_cast<T>(static_cast<float>(std::clamp(value, -most, most)));
  }

  void* data_;
  int type_;
};

int put(bluefog_stream stream, Stream::Work work) {
  static_cast<Stream*>(stream)->put(std::move(work));
  return 0;
}

}  // namespace

int cast(void* out, int out_type, const void* in, int in_type, size_t numel,
         bluefog_stream stream) {
  return put(stream, [to = Numbers(out, out_type), from = Numbers(in, in_type), numel] {
    for (size_t i = 0; i < numel; ++i) {
      to.set(i, from.get(i));
    }
  });
}

int quantize(void* message, const void* in, int type, size_t numel, size_t block,
             bluefog_stream stream) {
  return put(stream, [message, from = Numbers(in, type), numel, block] {
    const size_t blocks = (numel + block - 1) / block;
    auto* const scales = static_cast<float*>(message);
    auto* const numbers = reinterpret_cast<int8_t*>(scales + blocks);
    std::fill_n(numbers, blocks * block, int8_t{0});
    for (size_t at = 0; at < blocks; ++at) {
      const size_t end = std::min(numel, (at + 1) * block);
      float most = 0;
      for (size_t i = at * block; i < end; ++i) {
        most = std::max(most, std::fabs(static_cast<float>(from.get(i))));
      }
      scales[at] = most / 127;
      for (size_t i = at * block; i < end; ++i) {
        const auto number = static_cast<float>(from.get(i)) / std::max(scales[at], 1e-38F);
        numbers[i] = static_cast<int8_t>(std::nearbyint(number));
      }
    }
  });
}

int dequantize(void* out, int type, const void* message, size_t numel, size_t block,
               bluefog_stream stream) {
  return put(stream, [to = Numbers(out, type), message, numel, block] {
    const auto* const scales = static_cast<const float*>(message);
    const auto* const numbers =
        reinterpret_cast<const int8_t*>(scales + (numel + block - 1) / block);
    for (size_t i = 0; i < numel; ++i) {
      to.set(i, scales[i / block] * static_cast<float>(numbers[i]));
    }
  });
}

int topKScratch(size_t* bytes) {
  *bytes = 0;
  return 0;
}

int topK(void* message, const void* in, int type, size_t numel, size_t k, void*,
         bluefog_stream stream) {
  return put(stream, [message, from = Numbers(in, type), numel, k] {
    std::vector<int32_t> order(numel);
    std::iota(order.begin(), order.end(), 0);
    const auto magnitude = [&](int32_t i) { return std::fabs(from.get(static_cast<size_t>(i))); };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return magnitude(a) > magnitude(b); });
    auto* const places = static_cast<int32_t*>(message);
    std::copy_n(order.begin(), k, places);
    std::sort(places, places + k);
    auto* const numbers = reinterpret_cast<float*>(places + k);
    for (size_t i = 0; i < k; ++i) {
      numbers[i] = static_cast<float>(from.get(static_cast<size_t>(places[i])));
    }
  });
}

int scatter(void* out, int type, const void* message, size_t numel, size_t k,
            bluefog_stream stream) {
  return put(stream, [to = Numbers(out, type), message, numel, k] {
    const auto* const places = static_cast<const int32_t*>(message);
    const auto* const numbers = reinterpret_cast<const float*>(places + k);
    for (size_t i = 0; i < numel; ++i) {
      to.set(i, 0);
    }
    for (size_t i = 0; i < k; ++i) {
      to.set(static_cast<size_t>(places[i]), numbers[i]);
    }
  });
}

}  // namespace simulated
