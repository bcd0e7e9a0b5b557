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

// A device of an accelerator, by its plugin: its memory, and a stream of ours that waits for no
// other, so that no thread here waits for what a program has put into its own. What a call does is
// done when it returns; errors are std::runtime_error. Any thread may use it.
class Device {
 public:
  // For as long as what it gives is there, this device is the thread's current one; then again the
  // one before. May throw.
  using Around = std::function<std::shared_ptr<void>()>;

  // The plugin must have an api().
  Device(std::shared_ptr<const Plugin> plugin, int index, Around around);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::byte* allocate(size_t bytes);
  void release(std::byte* block) noexcept;
  // What other processes find such a block by; nothing, and why, where they cannot.
  std::optional<bluefog_handle> share(std::byte* block, std::string& why);
  // Another process's block, here; null, and why, where it cannot be had.
  std::byte* open(const bluefog_handle& handle, std::string& why);
  void close(std::byte* block) noexcept;

  // Within the device's memory, or what it has opened.
  void copy(void* to, const void* from, size_t bytes);
  void zero(void* memory, size_t bytes);
  // As the plugin's, undivided.
  void weightedSum(void* out, const std::vector<const void*>& inputs,
                   const std::vector<double>& weights, size_t count, bluefog_type type);
  // Through memory of the host that the device copies to and from by itself.
  void toHost(std::byte* to, const void* from, size_t bytes);
  void fromHost(void* to, const std::byte* from, size_t bytes);

  bool isCapturing(bluefog_stream stream) const;
  // Nothing that this thread does disturbs what another one captures in a graph.
  void ignoreCaptures() const;

 private:
  struct Parcel {
    size_t at;
    size_t bytes;
    std::byte* memory;
  };

  // The api, while the device is the current one.
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
  Parcel parcel(size_t at, size_t bytes) const;

  const std::shared_ptr<const Plugin> plugin_;
  const int index_;
  const Around around_;
  const OwnProcess process_;
  bluefog_stream stream_ = nullptr;
  std::mutex staging_mutex_;
  std::byte* staging_[2] = {nullptr, nullptr};
};

}  // namespace bluefog
