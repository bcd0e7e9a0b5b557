#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bluefog {

// A number that says whether memory still holds the same bytes. A change of one word always changes
// it, and a change of several does but once in 2^64 times. It is as fast as the memory is read.
inline uint64_t fingerprint(const void* begin, size_t bytes) {
  // Several words at once: a multiplication takes three cycles, and one can begin in each.
  constexpr size_t kLanes = 8;
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::array<uint64_t, kLanes> lanes{};
  const auto* at = static_cast<const std::byte*>(begin);
  for (; bytes >= sizeof(lanes); at += sizeof(lanes), bytes -= sizeof(lanes)) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = (lanes[i] ^ words[i]) * kOdd;
    }
  }
  std::array<uint64_t, kLanes> rest{};
  if (bytes != 0) {
    std::memcpy(rest.data(), at, bytes);
  }
  uint64_t all = bytes;
  for (size_t i = 0; i < kLanes; ++i) {
    all = ((all ^ lanes[i]) * kOdd ^ rest[i]) * kOdd;
  }
  return all;
}

}  // namespace bluefog
