#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bluefog {

// A number that says whether memory still holds the same bytes: another one but once in some 2^60
// changes that nobody has chosen for that. It is as fast as the memory is read.
inline uint64_t fingerprint(const void* begin, size_t bytes) {
  __extension__ using Wide = unsigned __int128;
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  // Several words at once: a multiplication takes three cycles, and one can begin in each.
  constexpr size_t kLanes = 8;
  std::array<uint64_t, kLanes> lanes{};
  const auto* at = static_cast<const std::byte*>(begin);
  for (; bytes >= sizeof(lanes); at += sizeof(lanes), bytes -= sizeof(lanes)) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) {
      // A product's low bits know nothing of the factor's high ones. Without the turn, the signs
      // of two numbers could change, and cancel out.
      lanes[i] = std::rotl((lanes[i] ^ words[i]) * kOdd, 29);
    }
  }
  std::array<uint64_t, kLanes> rest{};
  if (bytes != 0) {
    std::memcpy(rest.data(), at, bytes);
  }
  const auto mix = [](uint64_t before, uint64_t word) {
    const Wide product = static_cast<Wide>(before ^ word) * kOdd;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t all = bytes;
  for (size_t i = 0; i < kLanes; ++i) {
    all = mix(mix(all, lanes[i]), rest[i]);
  }
  return all;
}

}  // namespace bluefog
