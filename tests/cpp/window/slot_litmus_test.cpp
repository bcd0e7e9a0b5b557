// Two processes do nothing but use one slot. The tests check the order and a checksum of everything
// that the slot shows.
//
// BLUEFOG_LITMUS=100000000 sets the number of changes.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "core/Fd.hpp"
#include "support/processes.hpp"
#include "window/Slot.hpp"

namespace bluefog::testing {
namespace {

constexpr size_t kWords = 16;
constexpr size_t kBytes = kWords * sizeof(int64_t);
using Words = std::array<int64_t, kWords>;

// Returns words that are multiples of the first one, which also holds for sums of several such
// values.
Words wordsOf(int64_t value) {
  Words words;
  for (size_t i = 0; i < kWords; ++i) {
    words[i] = value * static_cast<int64_t>(2 * i + 1);
  }
  return words;
}

// Returns the first word if the others fit it, or -1 if they do not.
int64_t valueOf(const Slot::Held& held) {
  if (held.data == nullptr) {
    return 0;
  }
  Words words;
  std::memcpy(words.data(), held.data, kBytes);
  return words == wordsOf(words[0]) ? words[0] : -1;
}

SlotUpdate times(const Words& words) {
  return {Dtype::kInt64, kWords, words.data(), 1, static_cast<double>(words[0])};
}

int64_t changes() {
  const char* asked = std::getenv("BLUEFOG_LITMUS");
  return asked == nullptr ? 1'000'000 : std::atoll(asked);
}

struct Shared {
  Mapping memory;
  Slot slot;
  std::atomic<bool>& ended;

  Shared()
      : memory(::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
               bytes()),
        slot(memory.data(), kBytes),
        ended(*reinterpret_cast<std::atomic<bool>*>(memory.data() + Slot::bytesFor(kBytes))) {}
  static size_t bytes() { return Slot::bytesFor(kBytes) + 4096; }
};

TEST(SlotLitmus, PutsGrow) {
  Shared shared;
  const int64_t n = changes();
  const Child writer([&] {
    for (int64_t i = 1; i <= n; ++i) {
      shared.slot.put(times(wordsOf(i)));
    }
    shared.ended = true;
  });
  int64_t last = 0;
  uint64_t looks = 0;
  uint64_t seen = 0;
  while (last < n) {
    const bool is_last = shared.ended;
    const Slot::Held held = shared.slot.hold(Slot::Then::kIsSeen);
    const int64_t value = valueOf(held);
    ASSERT_GE(value, last);
    ASSERT_EQ(static_cast<double>(value), held.p);
    seen += held.version;
    last = value;
    ++looks;
    ASSERT_TRUE(!is_last || last == n);
  }
  EXPECT_EQ(seen, static_cast<uint64_t>(n));
  std::cout << n << " puts, " << looks << " looks\n";
}

TEST(SlotLitmus, SumsAreWhole) {
  Shared shared;
  const int64_t n = changes();
  const Child writer([&] {
    const Words ones = wordsOf(1);
    for (int64_t i = 1; i <= n; ++i) {
      shared.slot.accumulate(times(ones));
    }
    shared.ended = true;
  });
  int64_t sum = 0;
  uint64_t looks = 0;
  while (sum < n) {
    const bool is_last = shared.ended;
    const Slot::Held held = shared.slot.hold(Slot::Then::kIsEmpty);
    const int64_t value = valueOf(held);
    ASSERT_GE(value, 0);
    ASSERT_EQ(static_cast<double>(value), held.p);
    sum += value;
    ++looks;
    ASSERT_TRUE(!is_last || sum == n);
  }
  EXPECT_EQ(sum, n);
  std::cout << n << " accumulations, taken out in " << looks << " looks\n";
}

}  // namespace
}  // namespace bluefog::testing
