#include "process_group/Registry.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace bluefog::registry {
namespace {

struct Engines {
  std::mutex mutex;
  std::vector<std::weak_ptr<Engine>> all;
};

Engines& engines() {
  // It is never destroyed, because static destructors run while threads still do.
  static Engines* const instance = std::make_unique<Engines>().release();
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

void shutdownAll() {
  for (const auto& engine : alive()) {
    engine->shutdown();
  }
}

}  // namespace bluefog::registry
