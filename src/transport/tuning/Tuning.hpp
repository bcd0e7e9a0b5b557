#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/Env.hpp"

// These are the thresholds of transport and of the algorithms that were chosen by measuring, each
// with its unit and the decision in docs/decisions that has the figures. All of them were measured
// on two cores. The adaptive choices are beside this file: StorePolicy, CoreBalancer, Backoff.
namespace bluefog::tuning {

// Returns false where BLUEFOG_TUNING=off is set: then StorePolicy and CoreBalancer choose nothing,
// so that two runs of one program do the same. The variable is read once a process. Throws
// std::invalid_argument where it has another value.
inline bool isAdaptive() {
  static const bool is_adaptive = !env::isTuningOff();
  return is_adaptive;
}

// ---- rings (0107)
// The bytes of a frame and the frames of a ring. A frame stays in the caches between its writer and
// its reader, and there are enough of them that ranks of different speed do not wait for each
// other.
inline constexpr uint32_t kFrameBytes = 128 * 1024;
inline constexpr uint32_t kFramesPerRing = 8;

// ---- large messages (0106)
// From this size on in bytes, one reader that has a core of its own reads a message where it lies
// in its sender's memory. Below it a lane is faster, whose frames stay in the caches.
inline constexpr size_t kOfferToOneReader = size_t{8} << 20;
// Up to this size in bytes, a rank that shares its core copies a tensor for one reader to memory
// that the reader maps. That takes less time than to wait until the reader has taken the first part
// from a lane.
inline constexpr size_t kMostCopiedForOne = size_t{2} << 20;
// Up to this many bytes, what all ranks of a host write and read next stays in a third-level cache
// of 32 MiB, so it is written through the caches.
inline constexpr size_t kStaysInSharedCache = size_t{8} << 20;
// This many bytes are added to a neighbor sum before the rank looks at what else it has to do.
inline constexpr size_t kSumStretch = size_t{1} << 20;

// ---- results (0105)
// Results of at least this many bytes come from a pool of memory that the peers map. Smaller ones
// come from malloc, which keeps blocks of that size when they are freed. The pool keeps at most
// this many bytes that nobody uses, or twice its largest result.
inline constexpr size_t kSmallestPooled = size_t{256} << 10;
inline constexpr size_t kMostIdlePooled = size_t{64} << 20;

// ---- all_reduce (0101, 0103)
// Up to this many bytes every rank adds up everything: that is one exchange instead of two.
inline constexpr size_t kReduceWhole = 16 * 1024;
// Between hosts a tensor is cut into at least this many blocks, unless a rank's part of a block
// were smaller than this many bytes. The first and the last block have the network to themselves.
inline constexpr size_t kLeastBlocksBetweenHosts = 16;
inline constexpr size_t kLeastPartBetweenHosts = 16 * 1024;
// Up to this many bytes for a rank, all ranks of all hosts send to all (0114).
inline constexpr size_t kMostSentToAllHosts = 4 * 1024;

// ---- small exchanges (0108)
// A small exchange is waited for at most this long before it becomes an operation.
inline constexpr std::chrono::milliseconds kFastPathLimit{2};

// ---- waiting (0104, 0108)
// A rank with a core of its own looks again at once for this long.
inline constexpr std::chrono::microseconds kSpinTime{5};
// A rank yields its core for this long before it sleeps, and where ranks share cores at most this
// many times.
inline constexpr std::chrono::microseconds kYieldTime{200};
inline constexpr int kMostYieldsOnSharedCore = 20;
// While operations wait, a rank looks between these two intervals for what other hosts send (0111).
inline constexpr std::chrono::microseconds kShortestPoll{50};
inline constexpr std::chrono::microseconds kLongestPoll{1000};

// ---- between hosts (0111, 0114)
// A frame of a board of at most this many bytes is sent without asking whether its reader has seen
// it, but for every fourth.
inline constexpr size_t kSmallFrame = 4096;
inline constexpr uint64_t kSmallFramesPerAcknowledgment = 4;

}  // namespace bluefog::tuning
