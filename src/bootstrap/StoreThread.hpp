#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/Deadline.hpp"

namespace bluefog {

// Calls a Store in a thread of its own, which can be left behind: torch's client waits without
// limit for a host that has fallen silent. May be used by several threads.
class StoreThread {
 public:
  using Call = std::function<void(c10d::Store&)>;

  // `interrupt` is called now and then, and may throw. `name` of the store is for messages.
  StoreThread(c10::intrusive_ptr<c10d::Store> store, std::string name, Deadline deadline,
              std::function<void()> interrupt);
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  // Throws what the call throws, or a timeout: then it may still be under way.
  void run(const Call& call);

 private:
  struct Ended {
    bool has = false;
    std::exception_ptr error;
  };
  struct Shared {
    c10::intrusive_ptr<c10d::Store> store;
    std::mutex mutex;
    std::condition_variable changed;
    Call call;                     // under way; null between two
    std::shared_ptr<Ended> ended;  // of that
    bool is_over = false;
  };

  static void serve(const std::shared_ptr<Shared>& shared);
  void await(std::unique_lock<std::mutex>& lock, Deadline limit,
             const std::function<bool()>& ready) const;
  [[noreturn]] void giveUp() const;

  const std::shared_ptr<Shared> shared_;
  const std::string name_;
  const Deadline deadline_;
  const std::function<void()> interrupt_;
  std::thread thread_;
};

}  // namespace bluefog
