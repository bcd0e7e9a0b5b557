#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/memory/Segment.hpp"

namespace bluefog {

// A receive from this source takes a message from any rank.
constexpr int kAnySource = -1;

// A ReceiveState is one message on its way to this rank: one that an operation has posted a receive
// for, or one that has come unexpected.
//
// Thread safety: only the thread that drives the engine may use it.
struct ReceiveState {
  enum class Stage {
    kPosted,     // it has not come
    kBuffered,   // it came eagerly, and `payload` holds its bytes
    kAnnounced,  // its sender has announced it, and waits for an answer
    kStreaming,  // its receiver has accepted it, and its frames come
    kComplete
  };

  uint64_t receiver = 0;  // the sequence number of the operation that receives it
  int source = kAnySource;
  MatchKey key;
  Stage stage = Stage::kPosted;
  bool is_passed = false;  // its source has made this call, or a later one, without sending it
  std::optional<CancelReason> abandoned;   // why nobody waits for it any more; it is thrown away
  std::optional<CancelReason> broken_off;  // why its sender does not send all of it
  bool has_second = false;  // its sender sends a second message, for which no receive is posted
  uint64_t id = 0;
  double weight = 1.0;
  Signature signature;  // what its sender called
  size_t bytes = 0;     // the length of the whole message
  // Where it lies in its sender's heap; valid as long as SharedMemoryReads::isStillOffered().
  std::optional<uint64_t> offer;
  std::vector<std::byte> payload;
  // Where the frames of a streaming message are copied to. Where it is null, the task takes the
  // frames from the lane itself.
  std::byte* sink = nullptr;
  uint64_t received = 0;  // bytes
};

}  // namespace bluefog
