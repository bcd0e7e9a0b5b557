#pragma once

#include <cstdint>

#include "transport/memory/Frame.hpp"

namespace bluefog {

// What a rank asks of another one's part of a window, on another host: one message, with what is to
// be put behind it. One WindowReply comes back, with what was asked for behind that.
struct alignas(64) WindowRequest {
  enum class RequestKind : uint32_t { kPut, kAccumulate, kGet, kTakeMutex, kLetMutexGo };

  RequestKind kind{};
  uint32_t has_p = 0;
  uint64_t window = 0;
  int64_t answer = 0;  // the tag of that
  double weight = 1;
  double p = 0;
};

struct alignas(64) WindowReply {
  enum class ReplyStatus : uint32_t { kDone, kHeld, kNoSuchWindow, kWrongSize, kNoMemory, kFailed };

  ReplyStatus status{};
  int32_t holder = 0;  // kHeld
  double p = 0;        // kGet
};

static_assert(sizeof(WindowRequest) == 64 && sizeof(WindowReply) == 64);

// The messages of both: bytes, and of the tags the one that no answer has.
inline constexpr Signature kWindowMessage{
    .kind = OpKind::kWindow, .dtype = Dtype::kUInt8, .count = 1};
inline constexpr int64_t kRequests = 0;

}  // namespace bluefog
