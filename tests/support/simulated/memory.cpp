// This file has the simulated accelerator's memory, streams and copies, in the place of those of
// libbluefog_cuda.so.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "plugin.hpp"
#include "streams.hpp"

namespace simulated {
namespace {

constexpr int kInvalid = 1;
constexpr int kRefused = 2;
constexpr int kNoRoom = 3;

struct Block {
  int file;  // -1 where another process owns the block
  size_t bytes;
};
std::mutex mutex;
std::map<void*, Block>& blocks() {
  static auto* const all = new std::map<void*, Block>;
  return *all;
}

// A Handle says where another process finds a block.
struct Handle {
  int process;
  int file;
  size_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(bluefog_handle));

Stream& streamOf(bluefog_stream stream) {
  return stream == nullptr ? simulated::stream(0) : *static_cast<Stream*>(stream);
}

void* mapped(int file, size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

int remember(void* memory, Block block, void** out) {
  if (memory == MAP_FAILED) {
    return kNoRoom;
  }
  const std::lock_guard lock(mutex);
  blocks()[memory] = block;
  *out = memory;
  return 0;
}

}  // namespace

const char* errorText(int error) {
  switch (error) {
    case kRefused:
      return "the simulated device does not share its memory";
    case kNoRoom:
      return "the simulated device has no room";
    default:
      return "an error of the simulated device";
  }
}

int createStream(bluefog_stream* out) {
  *out = new Stream;
  return 0;
}
int destroyStream(bluefog_stream stream) {
  streamOf(stream).synchronize();  // the stream's thread lives on
  return 0;
}
int waitForStream(bluefog_stream stream) {
  streamOf(stream).synchronize();
  return 0;
}
int ignoreCaptures() {
  return 0;
}
int isCapturing(bluefog_stream, int* is_capturing) {
  *is_capturing = std::getenv("SIMULATED_CAPTURE") != nullptr;
  return 0;
}

int allocate(void** out, size_t bytes) {
  if (std::getenv("SIMULATED_NO_ROOM") != nullptr) {
    return kNoRoom;
  }
  const int file = ::memfd_create("simulated", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return kNoRoom;
  }
  const int error = remember(mapped(file, bytes), {file, bytes}, out);
  if (error == 0) {
    std::memset(*out, 0xff, bytes);  // NaN, where somebody reads too early
  }
  return error;
}
int release(void* memory) {
  simulated::stream(0).synchronize();  // waits for the device, as cudaFree does
  const std::lock_guard lock(mutex);
  const auto found = blocks().find(memory);
  if (found == blocks().end()) {
    return kInvalid;
  }
  std::memset(memory, 0xff, found->second.bytes);  // NaN, where somebody reads too late
  ::munmap(memory, found->second.bytes);
  ::close(found->second.file);
  blocks().erase(found);
  return 0;
}
int allocateHost(void** out, size_t bytes) {
  *out = std::malloc(bytes);
  return *out == nullptr ? kNoRoom : 0;
}
int releaseHost(void* memory) {
  std::free(memory);
  return 0;
}
int copy(void* to, const void* from, size_t bytes, bluefog_stream stream) {
  if (std::getenv("SIMULATED_FAILURE") != nullptr) {
    return kInvalid;
  }
  streamOf(stream).put([=] { std::memmove(to, from, bytes); });
  return 0;
}
int zero(void* memory, size_t bytes, bluefog_stream stream) {
  streamOf(stream).put([=] { std::memset(memory, 0, bytes); });
  return 0;
}

int share(void* memory, bluefog_handle* out) {
  if (std::getenv("SIMULATED_NO_SHARING") != nullptr) {
    return kRefused;
  }
  const std::lock_guard lock(mutex);
  const auto found = blocks().find(memory);
  if (found == blocks().end()) {
    return kInvalid;
  }
  const Handle handle{::getpid(), found->second.file, found->second.bytes};
  std::memcpy(out, &handle, sizeof handle);
  return 0;
}
int open(const bluefog_handle* given, void** out) {
  Handle handle{};
  std::memcpy(&handle, given, sizeof handle);
  const char* refused = std::getenv("SIMULATED_NO_OPENING");
  const std::string name =
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = refused != nullptr ? -1 : ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    return kRefused;
  }
  void* memory = mapped(file, handle.bytes);
  ::close(file);
  return remember(memory, {-1, handle.bytes}, out);
}
int close(void* memory) {
  const std::lock_guard lock(mutex);
  const auto found = blocks().find(memory);
  if (found == blocks().end() || found->second.file >= 0) {
    return kInvalid;
  }
  ::munmap(memory, found->second.bytes);
  blocks().erase(found);
  return 0;
}

}  // namespace simulated
