#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bluefog {

// Of a group: a socket and a pidfd for each peer have to fit into the usual limit of 1024 open
// files.
constexpr size_t kMostRanks = 256;

// Ranks of a group, as they lie in shared memory.
struct RankSet {
  std::array<uint64_t, kMostRanks / 64> words{};

  void add(int rank) { words[static_cast<size_t>(rank) / 64] |= bit(rank); }
  bool has(int rank) const { return (words[static_cast<size_t>(rank) / 64] & bit(rank)) != 0; }
  // Those below `size`, whatever a peer has written.
  std::vector<int> below(int size) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) {
      if (has(rank)) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

 private:
  static uint64_t bit(int rank) { return uint64_t{1} << (static_cast<size_t>(rank) % 64); }
};

}  // namespace bluefog
