#pragma once

#include <exception>

#include "bootstrap/mpi/World.hpp"
#include "transport/engine/Engine.hpp"

namespace bluefog {

// A Language has the functions by which a group asks something of the language that calls it.
// The bindings provide those for Python.
// Thread safety: any thread may call them.
struct Language {
  // Returns the exception to throw for an operation's error.
  using Raised = std::exception_ptr (*)(const std::exception_ptr& error);

  Engine::Interrupt interrupt;
  Raised raised;
  mpi::World::FindHome find_mpi;  // called if the group spans hosts

  // Throws if the user has interrupted the program, as by Ctrl-C.
  void lookForInterruption() const {
    if (interrupt) {
      interrupt();
    }
  }
};

}  // namespace bluefog
