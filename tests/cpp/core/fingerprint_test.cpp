#include "core/Fingerprint.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace bluefog {
namespace {

TEST(FingerprintTest, EachBitAndTheLengthMatter) {
  for (const size_t size : {1, 7, 8, 63, 64, 65, 200}) {
    std::vector<unsigned char> bytes(size, 3);
    const uint64_t before = fingerprint(bytes.data(), size);
    EXPECT_NE(fingerprint(bytes.data(), size - 1), before);
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= 1 << bit % 8;
      EXPECT_NE(fingerprint(bytes.data(), size), before);
      bytes[bit / 8] ^= 1 << bit % 8;
    }
    EXPECT_EQ(fingerprint(bytes.data(), size), before);
  }
}

TEST(FingerprintTest, SignsOfManyNumbersMatter) {
  for (const size_t size : {16, 64, 1000}) {
    std::vector<double> numbers(size, 1.5);
    std::set<uint64_t> seen{fingerprint(numbers.data(), 8 * size)};
    for (size_t step = 1; step <= 16; ++step) {
      for (size_t i = 0; i < size; i += step) {
        numbers[i] = -numbers[i];
      }
      seen.insert(fingerprint(numbers.data(), 8 * size));
    }
    EXPECT_EQ(seen.size(), 17);
  }
}

TEST(FingerprintTest, WordsThatChangePlacesMatter) {
  std::vector<uint64_t> words(32);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = i;
  }
  const uint64_t before = fingerprint(words.data(), 8 * words.size());
  for (size_t i = 1; i < words.size(); ++i) {
    std::swap(words[0], words[i]);
    EXPECT_NE(fingerprint(words.data(), 8 * words.size()), before);
    std::swap(words[0], words[i]);
  }
}

}  // namespace
}  // namespace bluefog
