#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace bluefog {

// OpenWindows knows which windows of a group other ranks may write to without this rank's help, so
// that this ends when the rank leaves the group, though the program keeps the windows.
// Thread safety: any thread may call any method.
class OpenWindows {
 public:
  // An OpenPart is this rank's part of such a window.
  class OpenPart {
   public:
    virtual ~OpenPart() = default;
    // Lets no other rank write any more, without a word to them.
    virtual void release() = 0;
  };

  void add(std::weak_ptr<OpenPart> part) {
    std::unique_lock lock(mutex_);
    std::erase_if(parts_, [](const auto& before) { return before.expired(); });
    parts_.push_back(std::move(part));
    if (is_over_) {
      lock.unlock();
      release();
    }
  }
  // Releases the windows' parts, and those that are added later, too.
  void release() {
    std::vector<std::weak_ptr<OpenPart>> parts;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      parts = std::exchange(parts_, {});
    }
    for (const std::weak_ptr<OpenPart>& each : parts) {
      if (const std::shared_ptr<OpenPart> part = each.lock()) {
        part->release();
      }
    }
  }

 private:
  std::mutex mutex_;
  bool is_over_ = false;
  std::vector<std::weak_ptr<OpenPart>> parts_;
};

}  // namespace bluefog
