#pragma once

#include <cstddef>
#include <memory>

#include "transport/engine/Engine.hpp"

namespace bluefog {

// The registry knows the engines of all groups of this process. It does not keep them alive.
// Thread safety: any thread may call any function.
namespace registry {

// Returns how many groups have an operation pending, or a callback due or running.
size_t busy();
// Adds the engine of a new group.
void enroll(const std::shared_ptr<Engine>& engine);
// Shuts down the engines that still exist. Python calls it at exit, before the interpreter ends.
void shutdownAll();

}  // namespace registry

}  // namespace bluefog
