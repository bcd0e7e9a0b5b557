#include "device/Device.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/Reduce.hpp"

namespace bluefog {
namespace {

// There are two staging buffers of so many bytes each: while the device copies one, the host copies
// the other.
constexpr size_t kStaging = size_t{4} << 20;

}  // namespace

Device::Device(std::shared_ptr<const Plugin> plugin, int index, Around around)
    : plugin_(std::move(plugin)), index_(index), around_(std::move(around)) {
  const Use api = use();
  try {
    check(api->stream_create(&stream_), "making a stream");
    // Page-locked memory is allocated now, because that may wait for all that the device has to do.
    for (std::byte*& memory : staging_) {
      void* block = nullptr;
      check(api->allocate_host(&block, kStaging), "page-locked memory of the host");
      memory = static_cast<std::byte*>(block);
    }
  } catch (...) {
    giveUpOwn();
    throw;
  }
}

Device::~Device() {
  giveUpOwn();
}

void Device::giveUpOwn() noexcept {
  whileItIsThere([this](const Use& api) {
    for (std::byte* memory : staging_) {
      if (memory != nullptr) {
        api->release_host(memory);
      }
    }
    if (stream_ != nullptr) {
      api->stream_destroy(stream_);
    }
  });
}

// Each thread has a current device of its own, so every use sets it.
Device::Use::Use(const Device& device) : api_(*device.plugin_->api()), around_(device.around_()) {
  device.check(api_.set_device(device.index_), "choosing the device");
}

// Makes the call unless the device is no longer there. A forked child has no device, and when the
// process ends the device may be gone before this object.
void Device::whileItIsThere(const std::function<void(const Use& api)>& call) noexcept {
  if (process_.isForked()) {
    return;
  }
  try {
    call(use());
  } catch (const std::exception&) {
    // The device has gone, and all that it held has gone with it.
  }
}

void Device::check(int error, const char* what) const {
  plugin_->check(error, what);
}

void Device::finish() const {
  check(plugin_->api()->stream_wait(stream_), "waiting for the device");
}

std::byte* Device::allocate(size_t bytes) {
  void* block = nullptr;
  const std::string what = std::to_string(bytes) +
                           " bytes of the device's memory (torch.cuda.empty_cache() gives back "
                           "what torch keeps)";
  check(use()->allocate(&block, bytes), what.c_str());
  return static_cast<std::byte*>(block);
}

void Device::release(std::byte* block) noexcept {
  whileItIsThere([block](const Use& api) { api->release(block); });
}

std::optional<bluefog_handle> Device::share(std::byte* block, std::string& why) {
  bluefog_handle handle{};
  if (const int error = use()->share(block, &handle)) {
    why = plugin_->api()->error_text(error);
    return std::nullopt;
  }
  return handle;
}

std::byte* Device::open(const bluefog_handle& handle, std::string& why) {
  void* block = nullptr;
  if (const int error = use()->open(&handle, &block)) {
    why = plugin_->api()->error_text(error);
    return nullptr;
  }
  return static_cast<std::byte*>(block);
}

void Device::close(std::byte* block) noexcept {
  whileItIsThere([block](const Use& api) { api->close(block); });
}

void Device::copy(void* to, const void* from, size_t bytes) {
  check(use()->copy(to, from, bytes, stream_), "copying");
  finish();
}

void Device::zero(void* memory, size_t bytes) {
  check(use()->zero(memory, bytes, stream_), "zeroing");
  finish();
}

void Device::weightedSum(void* out, const std::vector<const void*>& inputs,
                         const std::vector<double>& weights, size_t count, bluefog_type type) {
  check(use()->weighted_sum(out, inputs.data(), weights.data(), static_cast<int>(inputs.size()), 1,
                            count, type, stream_),
        "a weighted sum");
  finish();
}

Device::StagedPart Device::part(size_t at, size_t bytes) const {
  return {at, std::min(kStaging, bytes - at), staging_[at / kStaging % 2]};
}

void Device::toHost(std::byte* to, const void* from, size_t bytes) {
  const std::lock_guard lock(staging_mutex_);
  const auto* source = static_cast<const std::byte*>(from);
  std::optional<StagedPart> before;
  for (size_t at = 0; at < bytes || before; at += kStaging) {
    std::optional<StagedPart> now;
    if (at < bytes) {
      now = part(at, bytes);
      check(use()->copy(now->memory, source + at, now->bytes, stream_), "copying to the host");
    }
    if (before) {
      copyBytes(to + before->at, before->memory, before->bytes);
    }
    finish();
    before = now;
  }
}

void Device::fromHost(void* to, const std::byte* from, size_t bytes) {
  const std::lock_guard lock(staging_mutex_);
  auto* target = static_cast<std::byte*>(to);
  for (size_t at = 0; at < bytes; at += kStaging) {
    const StagedPart now = part(at, bytes);
    copyBytes(now.memory, from + at, now.bytes);
    finish();
    check(use()->copy(target + at, now.memory, now.bytes, stream_), "copying from the host");
  }
  finish();
}

bool Device::isCapturing(bluefog_stream stream) const {
  int is_capturing = 0;
  check(use()->stream_is_capturing(stream, &is_capturing), "asking whether a stream is captured");
  return is_capturing != 0;
}

void Device::ignoreCaptures() const {
  check(plugin_->api()->ignore_captures(), "leaving captures alone");
}

}  // namespace bluefog
