#pragma once

#include <cstddef>
#include <memory>

#include "transport/engine/Engine.hpp"

namespace bluefog {

// The groups of this process: the one piece of state that is the process's.
namespace registry {

// How many of them have something to do.
size_t busy();
void enroll(const std::shared_ptr<Engine>& engine);
// Shuts down those that are still there, before the interpreter goes.
void shutdownAll();

}  // namespace registry

}  // namespace bluefog
