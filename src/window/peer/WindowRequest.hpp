#pragma once

#include <cstdint>

#include "transport/memory/Frame.hpp"

namespace bluefog {

// A WindowRequest is what a rank asks of another rank's part of a window by a message. The message
// is this header, followed by the data of a put, accumulation or write. The peer sends one
// WindowReply back, followed by the tensor if that was asked for. The last two kinds are for raw
// windows.
struct alignas(64) WindowRequest {
  enum class RequestKind : uint32_t {
    kPut,
    kAccumulate,
    kGet,
    kTakeMutex,
    kLetMutexGo,
    kWrite,
    kSignal
  };

  RequestKind kind{};
  uint32_t has_p = 0;
  uint64_t window = 0;
  int64_t answer = 0;  // the reply's tag
  double weight = 1;
  double p = 0;
  uint64_t at = 0;  // of kWrite: the position of the first byte
};

// A WindowReply says how a request went.
struct alignas(64) WindowReply {
  enum class ReplyStatus : uint32_t { kDone, kHeld, kNoSuchWindow, kWrongSize, kNoMemory, kFailed };

  ReplyStatus status{};
  int32_t holder = 0;  // with kHeld: the rank that holds the mutex
  double p = 0;        // of kGet: the p of the tensor that follows
};

static_assert(sizeof(WindowRequest) == 64 && sizeof(WindowReply) == 64);

// Requests and replies are messages of bytes with this signature. All requests have the tag
// kRequests, which no reply has.
inline constexpr Signature kWindowMessage{
    .kind = OpKind::kWindow, .dtype = Dtype::kUInt8, .count = 1};
inline constexpr int64_t kRequests = 0;

}  // namespace bluefog
