#include "core/Reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/kernels.hpp"
#include "support/values.hpp"

namespace bluefog::testing {
namespace {

struct Table {
  std::string name;
  const Kernels* kernels;
};

std::vector<Table> tables() {
  std::vector<Table> all{{"baseline", &kKernelsBaseline}};
#if BLUEFOG_X86_KERNELS
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    all.push_back({"avx2", &kKernelsAvx2});
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    all.push_back({"avx512", &kKernelsAvx512});
  }
#endif
  return all;
}

const std::vector<size_t> kCounts{0, 1, 7, 1023, 1024, 1025, 5000};
const std::vector<ReduceKind> kArithmetic{ReduceKind::kSum, ReduceKind::kProduct, ReduceKind::kMin,
                                          ReduceKind::kMax};
const std::vector<ReduceKind> kBitwise{ReduceKind::kBitAnd, ReduceKind::kBitOr,
                                       ReduceKind::kBitXor};

template <class T>
std::vector<ReduceKind> kindsOf() {
  std::vector<ReduceKind> kinds = kArithmetic;
  if constexpr (kFloating<T>) {
    kinds.push_back(ReduceKind::kAverage);
  } else {
    kinds.insert(kinds.end(), kBitwise.begin(), kBitwise.end());
  }
  return kinds;
}

template <class T>
T randomValue(std::mt19937_64& random) {
  if constexpr (kFloating<T>) {
    return fromDouble<T>(std::uniform_real_distribution<double>(-2, 2)(random));
  } else if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<uint8_t>(random() % 2)};
  } else {
    return static_cast<T>(static_cast<int64_t>(random() % 9) - (std::is_signed_v<T> ? 4 : 0));
  }
}

template <class T>
std::vector<std::vector<T>> randomInputs(size_t n, size_t count) {
  std::mt19937_64 random(n * 1000003 + count);
  std::vector<std::vector<T>> inputs(n, std::vector<T>(count));
  for (std::vector<T>& input : inputs) {
    for (T& value : input) {
      value = randomValue<T>(random);
    }
  }
  return inputs;
}

template <class T>
std::vector<const void*> pointers(const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> all;
  for (const std::vector<T>& input : inputs) {
    all.push_back(input.data());
  }
  return all;
}

// Wide is the type in which floating types are computed.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

double combineFloating(ReduceKind kind, double a, double b) {
  switch (kind) {
    case ReduceKind::kProduct:
      return a * b;
    case ReduceKind::kMin:
      return std::min(a, b);
    case ReduceKind::kMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}

int64_t combineWhole(ReduceKind kind, int64_t a, int64_t b) {
  switch (kind) {
    case ReduceKind::kBitAnd:
      return a & b;
    case ReduceKind::kBitOr:
      return a | b;
    case ReduceKind::kBitXor:
      return a ^ b;
    default:
      return static_cast<int64_t>(
          combineFloating(kind, static_cast<double>(a), static_cast<double>(b)));
  }
}

bool combineBool(ReduceKind kind, bool a, bool b) {
  switch (kind) {
    case ReduceKind::kProduct:
    case ReduceKind::kMin:
    case ReduceKind::kBitAnd:
      return a && b;
    case ReduceKind::kBitXor:
      return a != b;
    default:
      return a || b;
  }
}

template <class T>
T expectedAt(ReduceKind kind, const std::vector<std::vector<T>>& inputs, size_t i) {
  if constexpr (kFloating<T>) {
    // A double holds the exact sum, or product, of two floats closely enough to round it once.
    auto value = static_cast<Wide<T>>(toDouble(inputs[0][i]));
    for (size_t k = 1; k < inputs.size(); ++k) {
      value = static_cast<Wide<T>>(combineFloating(kind, value, toDouble(inputs[k][i])));
    }
    if (kind == ReduceKind::kAverage) {
      value = static_cast<Wide<T>>(static_cast<double>(value) / static_cast<double>(inputs.size()));
    }
    return fromDouble<T>(static_cast<double>(value));
  } else if constexpr (std::is_same_v<T, Bool>) {
    bool value = inputs[0][i].bits != 0;
    for (size_t k = 1; k < inputs.size(); ++k) {
      value = combineBool(kind, value, inputs[k][i].bits != 0);
    }
    return {static_cast<uint8_t>(value)};
  } else {
    int64_t value = inputs[0][i];
    for (size_t k = 1; k < inputs.size(); ++k) {
      value = combineWhole(kind, value, inputs[k][i]);
    }
    return static_cast<T>(value);
  }
}

template <class T>
class FoldTest : public ::testing::Test {};
using AllTypes =
    ::testing::Types<uint8_t, int8_t, int16_t, int32_t, int64_t, Half, BFloat, float, double, Bool>;
TYPED_TEST_SUITE(FoldTest, AllTypes);

template <class T>
class FloatingTest : public ::testing::Test {};
using FloatingTypes = ::testing::Types<Half, BFloat, float, double>;
TYPED_TEST_SUITE(FloatingTest, FloatingTypes);

template <class T>
class SmallFloatTest : public ::testing::Test {};
using SmallTypes = ::testing::Types<Half, BFloat>;
TYPED_TEST_SUITE(SmallFloatTest, SmallTypes);

template <class T>
void expectFolded(const std::vector<T>& out, ReduceKind kind,
                  const std::vector<std::vector<T>>& inputs) {
  for (size_t i = 0; i < inputs[0].size(); ++i) {
    const T wanted = expectedAt(kind, inputs, i);
    ASSERT_TRUE(sameValue(out[i], wanted))
        << name(kDtype<T>) << " " << name(kind) << " of " << inputs.size() << ", element " << i
        << " of " << inputs[0].size() << ": " << toDouble(out[i]) << ", not " << toDouble(wanted);
  }
}

TYPED_TEST(FoldTest, IsAPlainLoopOnEveryInstructionSet) {
  using T = TypeParam;
  for (const Table& table : tables()) {
    SCOPED_TRACE(table.name);
    for (ReduceKind kind : kindsOf<T>()) {
      for (size_t n : {1, 2, 3, 5}) {
        for (size_t count : kCounts) {
          const auto inputs = randomInputs<T>(n, count);
          std::vector<T> out(count + 1, whole<T>(1));
          table.kernels->fold(kDtype<T>, kind, out.data(), pointers(inputs).data(), n, count);
          expectFolded(out, kind, inputs);
          ASSERT_TRUE(sameBits(out[count], whole<T>(1))) << "wrote past the end";
        }
      }
    }
  }
}

TYPED_TEST(FoldTest, OutMayBeAnyInput) {
  using T = TypeParam;
  for (const Table& table : tables()) {
    SCOPED_TRACE(table.name);
    for (ReduceKind kind : kindsOf<T>()) {
      for (size_t n : {1, 2, 4}) {
        for (size_t aliased = 0; aliased < n; ++aliased) {
          const auto inputs = randomInputs<T>(n, 1025);
          auto memory = inputs;
          table.kernels->fold(kDtype<T>, kind, memory[aliased].data(), pointers(memory).data(), n,
                              1025);
          expectFolded(memory[aliased], kind, inputs);
        }
      }
    }
  }
}

TYPED_TEST(FoldTest, TheChosenTableIsUsed) {
  using T = TypeParam;
  const auto inputs = randomInputs<T>(3, 1025);
  std::vector<T> out(1025);
  fold(kDtype<T>, ReduceKind::kMax, out.data(), pointers(inputs), 1025);
  expectFolded(out, ReduceKind::kMax, inputs);
}

TEST(FoldTest, IntegersWrapAround) {
  const std::vector<std::vector<int64_t>> wide{{std::numeric_limits<int64_t>::max()}, {1}};
  const std::vector<std::vector<int32_t>> narrow{{std::numeric_limits<int32_t>::max()}, {2}};
  for (const Table& table : tables()) {
    int64_t sum = 0;
    table.kernels->fold(Dtype::kInt64, ReduceKind::kSum, &sum, pointers(wide).data(), 2, 1);
    EXPECT_EQ(sum, std::numeric_limits<int64_t>::min());
    int32_t product = 0;
    table.kernels->fold(Dtype::kInt32, ReduceKind::kProduct, &product, pointers(narrow).data(), 2,
                        1);
    EXPECT_EQ(product, -2);
  }
}

TEST(FoldTest, AnyByteIsABool) {
  const std::vector<std::vector<Bool>> inputs{{{255}, {2}, {0}, {0}}, {{1}, {0}, {4}, {0}}};
  const auto folded = [&](const Table& table, ReduceKind kind) {
    std::vector<Bool> out(4);
    table.kernels->fold(Dtype::kBool, kind, out.data(), pointers(inputs).data(), 2, 4);
    return std::vector<int>{out[0].bits, out[1].bits, out[2].bits, out[3].bits};
  };
  using Bits = std::vector<int>;
  for (const Table& table : tables()) {
    SCOPED_TRACE(table.name);
    for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kBitOr}) {
      EXPECT_EQ(folded(table, kind), (Bits{1, 1, 1, 0}));
    }
    for (ReduceKind kind : {ReduceKind::kProduct, ReduceKind::kMin, ReduceKind::kBitAnd}) {
      EXPECT_EQ(folded(table, kind), (Bits{1, 0, 0, 0}));
    }
    EXPECT_EQ(folded(table, ReduceKind::kBitXor), (Bits{0, 1, 1, 0}));
  }
}

TEST(FoldTest, ManyTrueAreTrue) {
  const std::vector<std::vector<Bool>> inputs(256, std::vector<Bool>{{1}});
  for (const Table& table : tables()) {
    Bool out{7};
    table.kernels->fold(Dtype::kBool, ReduceKind::kSum, &out, pointers(inputs).data(), 256, 1);
    EXPECT_EQ(out.bits, 1);
  }
}

TYPED_TEST(FloatingTest, NotANumberWins) {
  using T = TypeParam;
  const T nan = fromDouble<T>(std::numeric_limits<double>::quiet_NaN());
  for (const Table& table : tables()) {
    for (ReduceKind kind : {ReduceKind::kMin, ReduceKind::kMax}) {
      for (size_t n : {2, 3}) {
        for (size_t holder = 0; holder < n; ++holder) {
          auto inputs = randomInputs<T>(n, 37);
          inputs[holder][0] = nan;
          inputs[holder][36] = nan;
          std::vector<T> out(37);
          table.kernels->fold(kDtype<T>, kind, out.data(), pointers(inputs).data(), n, 37);
          for (size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(std::isnan(toDouble(out[i])), i == 0 || i == 36)
                << table.name << " " << name(kind) << " NaN in input " << holder << " element "
                << i;
          }
        }
      }
    }
  }
}

TYPED_TEST(SmallFloatTest, EveryValueSurvivesAZero) {
  using T = TypeParam;
  std::vector<std::vector<T>> inputs(2, std::vector<T>(65536, T{0}));
  for (size_t bits = 0; bits < 65536; ++bits) {
    inputs[0][bits].bits = static_cast<uint16_t>(bits);
  }
  for (const Table& table : tables()) {
    std::vector<T> out(65536);
    table.kernels->fold(kDtype<T>, ReduceKind::kSum, out.data(), pointers(inputs).data(), 2, 65536);
    for (size_t bits = 0; bits < 65536; ++bits) {
      // The sum of -0 and 0 is 0.
      const T wanted = bits == 0x8000 ? T{0} : inputs[0][bits];
      ASSERT_TRUE(sameValue(out[bits], wanted))
          << table.name << ": " << bits << " became " << out[bits].bits;
    }
  }
}

TYPED_TEST(SmallFloatTest, SumsAreRoundedOnce) {
  using T = TypeParam;
  // A single 1 is lost when it is added to the large number and rounded; both together are not.
  const double large = std::is_same_v<T, Half> ? 2048 : 256;
  const std::vector<std::vector<T>> inputs{
      {fromDouble<T>(large)}, {fromDouble<T>(1)}, {fromDouble<T>(1)}};
  for (const Table& table : tables()) {
    T out{};
    table.kernels->fold(kDtype<T>, ReduceKind::kSum, &out, pointers(inputs).data(), 3, 1);
    EXPECT_EQ(toDouble(out), large + 2) << table.name;
  }
}

TYPED_TEST(SmallFloatTest, AnySumIsTheRoundedFloat32Sum) {
  using T = TypeParam;
  std::mt19937 random(7);
  std::vector<std::vector<T>> inputs(3, std::vector<T>(30000));
  for (std::vector<T>& input : inputs) {
    for (T& value : input) {
      value.bits = static_cast<uint16_t>(random());
    }
  }
  for (const Table& table : tables()) {
    std::vector<T> out(30000);
    table.kernels->fold(kDtype<T>, ReduceKind::kSum, out.data(), pointers(inputs).data(), 3, 30000);
    expectFolded(out, ReduceKind::kSum, inputs);
  }
}

// ---- weighted sums

struct Weights {
  std::vector<double> each;
  double divisor;
};

template <class T>
T expectedSum(const std::vector<std::vector<T>>& inputs, const Weights& weights, size_t i) {
  using W = Wide<T>;
  // The variable is volatile, because a compiler that contracts to fused multiply-add would round
  // otherwise.
  volatile W sum = 0;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const volatile W term =
        static_cast<W>(weights.each[k]) * static_cast<W>(toDouble(inputs[k][i]));
    sum = k == 0 ? term : static_cast<W>(sum + term);
  }
  if (weights.divisor != 1) {
    sum = sum / static_cast<W>(weights.divisor);
  }
  return fromDouble<T>(static_cast<double>(sum));
}

Weights weightsFor(size_t n, double divisor) {
  const std::vector<double> some{0.3, 0.7, -1.25, 0.111, 2.0};
  return {std::vector<double>(some.begin(), some.begin() + static_cast<long>(n)), divisor};
}

TYPED_TEST(FloatingTest, WeightedSumIsAPlainLoop) {
  using T = TypeParam;
  for (const Table& table : tables()) {
    SCOPED_TRACE(table.name);
    for (size_t n = 1; n <= 5; ++n) {
      for (double divisor : {1.0, 3.0}) {
        for (size_t count : kCounts) {
          const auto inputs = randomInputs<T>(n, count);
          const Weights weights = weightsFor(n, divisor);
          std::vector<T> out(count + 1, whole<T>(1));
          table.kernels->weightedSum(kDtype<T>, out.data(), pointers(inputs).data(),
                                     weights.each.data(), n, divisor, count, Stores::kCached);
          for (size_t i = 0; i < count; ++i) {
            ASSERT_TRUE(sameBits(out[i], expectedSum(inputs, weights, i)))
                << n << " inputs, divisor " << divisor << ", element " << i << " of " << count;
          }
          ASSERT_TRUE(sameBits(out[count], whole<T>(1))) << "wrote past the end";
        }
      }
    }
  }
}

TYPED_TEST(FloatingTest, StreamedStoresWriteTheSameAnywhere) {
  using T = TypeParam;
  for (const Table& table : tables()) {
    for (size_t offset = 0; offset < 9; ++offset) {
      for (size_t count : kCounts) {
        const auto inputs = randomInputs<T>(3, count);
        const Weights weights = weightsFor(3, 3.0);
        const T canary = whole<T>(77);
        alignas(64) static std::array<T, 5000 + 32> memory;
        memory.fill(canary);
        table.kernels->weightedSum(kDtype<T>, memory.data() + offset, pointers(inputs).data(),
                                   weights.each.data(), 3, 3.0, count, Stores::kStreamed);
        for (size_t i = 0; i < memory.size(); ++i) {
          const bool inside = i >= offset && i < offset + count;
          const T wanted = inside ? expectedSum(inputs, weights, i - offset) : canary;
          ASSERT_TRUE(sameBits(memory[i], wanted))
              << table.name << " offset " << offset << " count " << count << " at " << i;
        }
      }
    }
  }
}

TYPED_TEST(FloatingTest, WeightedSumMayOverwriteAnInput) {
  using T = TypeParam;
  for (const Table& table : tables()) {
    for (size_t aliased = 0; aliased < 3; ++aliased) {
      const auto inputs = randomInputs<T>(3, 1025);
      auto memory = inputs;
      const Weights weights = weightsFor(3, 3.0);
      table.kernels->weightedSum(kDtype<T>, memory[aliased].data(), pointers(memory).data(),
                                 weights.each.data(), 3, 3.0, 1025, Stores::kCached);
      for (size_t i = 0; i < 1025; ++i) {
        ASSERT_TRUE(sameBits(memory[aliased][i], expectedSum(inputs, weights, i)))
            << table.name << " out is input " << aliased << ", element " << i;
      }
    }
  }
}

TEST(CopyTest, CopiesAreWhole) {
  std::vector<uint8_t> from(2000);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<uint8_t>(i * 7 + 1);
  }
  for (const Table& table : tables()) {
    for (Stores stores : {Stores::kCached, Stores::kStreamed}) {
      for (size_t offset = 0; offset < 70; offset += 3) {
        for (size_t bytes : {0, 1, 15, 63, 64, 65, 255, 256, 257, 1000, 1900}) {
          std::vector<uint8_t> to(2000, 0);
          table.kernels->copy(to.data() + offset, from.data() + 5, bytes, stores);
          for (size_t i = 0; i < to.size(); ++i) {
            const bool inside = i >= offset && i < offset + bytes;
            ASSERT_EQ(to[i], inside ? from[i - offset + 5] : 0)
                << table.name << " offset " << offset << " bytes " << bytes << " at " << i;
          }
        }
      }
    }
  }
}

TEST(CopyTest, NothingMayBeCopiedFromNowhere) {
  for (const Table& table : tables()) {
    table.kernels->copy(nullptr, nullptr, 0, Stores::kCached);
    table.kernels->copy(nullptr, nullptr, 0, Stores::kStreamed);
  }
}

TEST(WeightedSumTest, TheChosenTableIsUsed) {
  const std::vector<std::vector<float>> inputs{{1, 2}, {10, 20}};
  const std::vector<double> weights{1, 0.5};
  std::vector<float> out(2);
  weightedSum(Dtype::kFloat32, out.data(), pointers(inputs), weights, 2.0, 2, Stores::kStreamed);
  EXPECT_EQ(out, (std::vector<float>{3, 6}));
}

}  // namespace
}  // namespace bluefog::testing
