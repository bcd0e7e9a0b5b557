#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/Dtype.hpp"

namespace bluefog::testing {

struct Half {
  uint16_t bits;
  bool operator==(const Half&) const = default;
};
struct BFloat {
  uint16_t bits;
  bool operator==(const BFloat&) const = default;
};
struct Bool {
  uint8_t bits;
  bool operator==(const Bool&) const = default;
};

// A SmallFloat is a floating format of 16 bits, converted by its definition. It shares no trick
// with the kernels.
template <int kExponentBits, int kMantissaBits>
class SmallFloat {
 public:
  static double decode(uint16_t bits) {
    const int exponent = (bits & 0x7fff) >> kMantissaBits;
    const int mantissa = bits & (kHidden - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == kMostExponent) {
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
    }
    return exponent == 0 ? sign * std::ldexp(mantissa, 1 - kBias - kMantissaBits)
                         : sign * std::ldexp(kHidden + mantissa, exponent - kBias - kMantissaBits);
  }

  // Returns the nearest value. Of two equally near ones it takes the one whose last bit is 0.
  static uint16_t encode(double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) {
      return static_cast<uint16_t>(sign | kInfinity | (kHidden >> 1));
    }
    const double wanted = std::fabs(value);
    const std::vector<double>& all = magnitudes();
    const auto above = std::lower_bound(all.begin(), all.end(), wanted);
    if (above == all.begin()) {
      return sign;
    }
    if (above == all.end()) {
      return sign | kInfinity;
    }
    const auto index = static_cast<uint16_t>(above - all.begin());
    const double up = *above - wanted;
    const double down = wanted - *(above - 1);
    const bool take_lower = down < up || (down == up && index % 2 == 1);
    return static_cast<uint16_t>(sign | (take_lower ? index - 1 : index));
  }

 private:
  static constexpr int kHidden = 1 << kMantissaBits;
  static constexpr int kMostExponent = (1 << kExponentBits) - 1;
  static constexpr int kBias = kMostExponent / 2;
  static constexpr uint16_t kInfinity = static_cast<uint16_t>(kMostExponent << kMantissaBits);

  // Returns the magnitudes by bit pattern. The last one is what infinity's pattern would be if it
  // were a number: a value that is nearer to it than to the largest number is rounded to infinity.
  static const std::vector<double>& magnitudes() {
    static const std::vector<double> values = [] {
      std::vector<double> all;
      for (uint16_t bits = 0; bits < kInfinity; ++bits) {
        all.push_back(decode(bits));
      }
      all.push_back(std::ldexp(1.0, kMostExponent - kBias));
      return all;
    }();
    return values;
  }
};

using HalfFormat = SmallFloat<5, 10>;
using BFloatFormat = SmallFloat<8, 7>;

template <class T>
constexpr Dtype kDtype = Dtype::kBytes;
template <>
inline constexpr Dtype kDtype<uint8_t> = Dtype::kUInt8;
template <>
inline constexpr Dtype kDtype<int8_t> = Dtype::kInt8;
template <>
inline constexpr Dtype kDtype<int16_t> = Dtype::kInt16;
template <>
inline constexpr Dtype kDtype<int32_t> = Dtype::kInt32;
template <>
inline constexpr Dtype kDtype<int64_t> = Dtype::kInt64;
template <>
inline constexpr Dtype kDtype<Half> = Dtype::kFloat16;
template <>
inline constexpr Dtype kDtype<BFloat> = Dtype::kBFloat16;
template <>
inline constexpr Dtype kDtype<float> = Dtype::kFloat32;
template <>
inline constexpr Dtype kDtype<double> = Dtype::kFloat64;
template <>
inline constexpr Dtype kDtype<Bool> = Dtype::kBool;

template <class T>
constexpr bool kSmall = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
template <class T>
constexpr bool kFloating = kSmall<T> || std::is_floating_point_v<T>;

template <class T>
T fromDouble(double value) {
  if constexpr (std::is_same_v<T, Half>) {
    return {HalfFormat::encode(value)};
  } else if constexpr (std::is_same_v<T, BFloat>) {
    return {BFloatFormat::encode(value)};
  } else if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<uint8_t>(value != 0)};
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
double toDouble(T value) {
  if constexpr (std::is_same_v<T, Half>) {
    return HalfFormat::decode(value.bits);
  } else if constexpr (std::is_same_v<T, BFloat>) {
    return BFloatFormat::decode(value.bits);
  } else if constexpr (std::is_same_v<T, Bool>) {
    return value.bits;
  } else {
    return static_cast<double>(value);
  }
}

// Returns a small whole number, which every type holds exactly. It comes from a table, for speed.
template <class T>
T whole(int value) {
  static const auto table = [] {
    std::array<T, 128> all{};
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = fromDouble<T>(static_cast<double>(i));
    }
    return all;
  }();
  return table[static_cast<size_t>(value)];
}

template <class T>
bool sameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Two NaNs are the same value, whatever their bits.
template <class T>
bool sameValue(T a, T b) {
  if constexpr (kFloating<T>) {
    if (std::isnan(toDouble(a)) && std::isnan(toDouble(b))) {
      return true;
    }
  }
  return sameBits(a, b);
}

}  // namespace bluefog::testing
