#include "process_group/Registry.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bluefog::registry {
namespace {

// Torch's recorder may import some hundred modules before it writes its file.
constexpr std::chrono::seconds kLongestAtExit{20};

struct Engines {
  std::mutex mutex;
  std::vector<std::weak_ptr<Engine>> all;
};

// Threads counts those that run apart. A forked child has none of its parent's.
struct Threads {
  std::mutex mutex;
  std::condition_variable ended;
  pid_t process = 0;
  size_t running = 0;

  size_t& here() {
    if (std::exchange(process, ::getpid()) != ::getpid()) {
      running = 0;
    }
    return running;
  }
};

// These are never destroyed, because static destructors run while threads still do.
Engines& engines() {
  static Engines* const instance = std::make_unique<Engines>().release();
  return *instance;
}

Threads& threads() {
  static Threads* const instance = std::make_unique<Threads>().release();
  return *instance;
}

// Returns the engines that still exist. In a forked child it leaves out those of the parent.
std::vector<std::shared_ptr<Engine>> alive() {
  std::vector<std::shared_ptr<Engine>> found;
  Engines& known = engines();
  const std::lock_guard lock(known.mutex);
  for (const std::weak_ptr<Engine>& weak : known.all) {
    if (auto engine = weak.lock(); engine && !engine->isForked()) {
      found.push_back(std::move(engine));
    }
  }
  return found;
}

}  // namespace

void enroll(const std::shared_ptr<Engine>& engine) {
  Engines& known = engines();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [](const auto& weak) { return weak.expired(); });
  known.all.push_back(engine);
}

size_t busy() {
  const auto all = alive();
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& engine) { return engine->isBusy(); }));
}

void runApart(std::function<void()> function) {
  Threads& all = threads();
  {
    const std::lock_guard lock(all.mutex);
    ++all.here();
  }
  std::thread([&all, function = std::move(function)]() mutable {
    std::exchange(function, nullptr)();  // It has ended, too, when the thread counts as ended.
    const std::lock_guard lock(all.mutex);
    --all.here();
    all.ended.notify_all();
  }).detach();
}

void shutdownAll() {
  for (const auto& engine : alive()) {
    engine->shutdown();
  }
  Threads& all = threads();
  std::unique_lock lock(all.mutex);
  all.ended.wait_for(lock, kLongestAtExit, [&] { return all.here() == 0; });
}

}  // namespace bluefog::registry
