#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "transport/engine/Engine.hpp"

namespace bluefog {

// The registry knows the engines of all groups of this process, and the threads that run beside
// them. It does not keep the engines alive.
// Thread safety: any thread may call any function.
namespace registry {

// Returns how many groups have an operation pending, or a callback due or running.
size_t busy();
// Adds the engine of a new group.
void enroll(const std::shared_ptr<Engine>& engine);
// Runs the function in a thread of its own. It must not throw.
void runApart(std::function<void()> function);
// Shuts down the engines that still exist, and waits a while for what runs apart. Python calls it
// at exit, before the interpreter ends.
void shutdownAll();

}  // namespace registry

}  // namespace bluefog
