#pragma once

#include <pthread.h>

#include <csignal>
#include <memory>
#include <thread>
#include <utility>

namespace bluefog {

// Starts a thread in which all signals are blocked, because only Python's main thread handles
// signals.
template <class Body>
std::thread startThread(Body body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const std::shared_ptr<void> restored(
      nullptr, [&before](void*) { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  return std::thread(std::move(body));
}

}  // namespace bluefog
