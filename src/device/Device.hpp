#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/OwnProcess.hpp"
#include "device/Plugin.hpp"

namespace bluefog {

// A Device is one device of an accelerator, which is used through its plugin. It owns a stream that
// waits for no other stream, so that no thread here waits for what a program has put into its own
// streams. It also owns page-locked staging memory on the host. When a call returns, its work is
// done. Errors are std::runtime_error.
// Thread safety: any thread.
class Device {
 public:
  // An Around makes this device the calling thread's current one. When the object that it returns
  // is destroyed, the previous device is current again. It may throw.
  using Around = std::function<std::shared_ptr<void>()>;

  // `plugin` must have an api().
  Device(std::shared_ptr<const Plugin> plugin, int index, Around around);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::byte* allocate(size_t bytes);
  void release(std::byte* block) noexcept;
  // Returns the handle by which other processes open the block. Where they cannot, it returns
  // nothing and sets `why`.
  std::optional<bluefog_handle> share(std::byte* block, std::string& why);
  // Returns the address in this process of another process's block. Where it cannot be opened, it
  // returns null and sets `why`.
  std::byte* open(const bluefog_handle& handle, std::string& why);
  void close(std::byte* block) noexcept;

  // Copies within the device's memory, and to and from blocks that it has opened.
  void copy(void* to, const void* from, size_t bytes);
  void zero(void* memory, size_t bytes);
  // Writes the weighted sum of the inputs, as the plugin's weighted_sum() does with the divisor 1.
  void weightedSum(void* out, const std::vector<const void*>& inputs,
                   const std::vector<double>& weights, size_t count, bluefog_type type);
  // toHost() and fromHost() copy through page-locked memory of the host, which the device reads and
  // writes by itself. One thread at a time copies; others wait for it.
  void toHost(std::byte* to, const void* from, size_t bytes);
  void fromHost(void* to, const std::byte* from, size_t bytes);

  bool isCapturing(bluefog_stream stream) const;
  // From now on, nothing that the calling thread does disturbs a graph capture of another thread.
  void ignoreCaptures() const;

 private:
  // A StagedPart is the part of a copy that goes through one staging buffer.
  struct StagedPart {
    size_t at;
    size_t bytes;
    std::byte* memory;
  };

  // A Use gives access to the plugin's functions, and keeps the device current while it lives.
  class Use {
   public:
    explicit Use(const Device& device);
    const bluefog_device_api* operator->() const { return &api_; }

   private:
    const bluefog_device_api& api_;
    const std::shared_ptr<void> around_;
  };

  Use use() const { return Use(*this); }
  void whileItIsThere(const std::function<void(const Use& api)>& call) noexcept;
  void giveUpOwn() noexcept;
  void check(int error, const char* what) const;
  void finish() const;
  StagedPart part(size_t at, size_t bytes) const;

  const std::shared_ptr<const Plugin> plugin_;
  const int index_;
  const Around around_;
  const OwnProcess process_;
  bluefog_stream stream_ = nullptr;
  std::mutex staging_mutex_;
  std::byte* staging_[2] = {nullptr, nullptr};
};

}  // namespace bluefog
