#pragma once

#include <pthread.h>

#include <csignal>
#include <memory>
#include <thread>
#include <utility>

namespace bluefog {

// A thread that takes no signals: these are the Python thread's business.
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
