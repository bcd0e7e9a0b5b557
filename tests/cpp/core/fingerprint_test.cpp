#include "core/Fingerprint.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace bluefog {
namespace {

TEST(FingerprintTest, EachBitAndTheLengthMatter) {
  for (const size_t size : {1, 7, 8, 63, 64, 65, 200}) {
    std::vector<unsigned char> bytes(size, 3);
    std::set<uint64_t> seen{fingerprint(bytes.data(), size), fingerprint(bytes.data(), size - 1)};
    for (size_t i = 0; i < size; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[i] ^= 1 << bit;
        seen.insert(fingerprint(bytes.data(), size));
        bytes[i] ^= 1 << bit;
      }
    }
    EXPECT_EQ(seen.size(), 2 + 8 * size);
    EXPECT_TRUE(seen.contains(fingerprint(bytes.data(), size)));
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
