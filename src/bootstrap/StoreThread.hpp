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

// A StoreThread makes the calls of a c10d Store in a thread of its own. That thread can be left
// behind, because torch's client waits without limit for a host that has fallen silent. The store
// lives as long as the thread.
// Thread safety: any thread may call run().
class StoreThread {
 public:
  using Call = std::function<void(c10d::Store&)>;

  // `interrupt` is called now and then while run() waits, and may throw. Error texts call the store
  // by `name`.
  StoreThread(c10::intrusive_ptr<c10d::Store> store, std::string name, Deadline deadline,
              std::function<void()> interrupt);
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  // Makes the call and waits for its end. Throws what the call throws, or Error at the deadline,
  // when the call may still be in progress.
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
    Call call;                     // in progress; null between two calls
    std::shared_ptr<Ended> ended;  // the result of `call`
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
