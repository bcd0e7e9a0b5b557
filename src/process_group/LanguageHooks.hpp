#pragma once

#include <exception>

#include "bootstrap/mpi/World.hpp"
#include "transport/engine/Engine.hpp"

namespace bluefog {

// What the backend asks of the language that calls it.
struct LanguageHooks {
  // What to throw for an operation's error.
  using Raised = std::exception_ptr (*)(const std::exception_ptr& error);

  Engine::Interrupt interrupt;
  Raised raised;
  mpi::World::FindHome find_mpi;

  // Throws where the program is interrupted.
  void lookForInterruption() const {
    if (interrupt) {
      interrupt();
    }
  }
};

}  // namespace bluefog
