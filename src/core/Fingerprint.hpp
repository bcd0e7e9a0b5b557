#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bluefog {

// Returns a number by which a caller can tell whether memory still holds the same bytes. A change
// that nobody has crafted keeps the number only once in about 2^60 cases. The function is as fast
// as the memory can be read.
inline uint64_t fingerprint(const void* begin, size_t bytes) {
  __extension__ using Wide = unsigned __int128;
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  // Several words are hashed at once: a multiplication takes three cycles, and a new one can begin
  // in each cycle.
  constexpr size_t kLanes = 8;
  std::array<uint64_t, kLanes> lanes{};
  const auto* at = static_cast<const std::byte*>(begin);
  for (; bytes >= sizeof(lanes); at += sizeof(lanes), bytes -= sizeof(lanes)) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) {
      // The low bits of a product do not depend on the high bits of its factors. Without the
      // rotation, sign changes of two numbers could cancel out.
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
