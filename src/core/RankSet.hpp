#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bluefog {

// A group has at most this many ranks: a socket and a pidfd for each peer have to fit into the
// usual limit of 1024 open files.
constexpr size_t kMostRanks = 256;

// A RankSet is a set of a group's ranks that can lie in shared memory, where peers read and write
// it.
// Thread safety: the words are not atomic, so the caller orders the accesses of threads and
// processes.
struct RankSet {
  std::array<uint64_t, kMostRanks / 64> words{};

  void add(int rank) { words[static_cast<size_t>(rank) / 64] |= bit(rank); }
  bool has(int rank) const { return (words[static_cast<size_t>(rank) / 64] & bit(rank)) != 0; }
  // Returns the ranks below `size`. Bits beyond that are ignored, because a peer may have written
  // anything.
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
