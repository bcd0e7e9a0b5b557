#pragma once

#include <chrono>
#include <optional>

#include "window/EdgeMutex.hpp"
#include "window/SlotMutex.hpp"
#include "window/memory/PeerLiveness.hpp"

namespace bluefog {

// A MappedMutex is a SlotMutex whose word lies in memory of this host. It takes the mutex from a
// holder that has died. The mutex and the liveness must outlive it.
// Thread safety: any thread may call any method.
class MappedMutex final : public SlotMutex {
 public:
  MappedMutex(EdgeMutex& mutex, int rank, const PeerLiveness& liveness)
      : mutex_(mutex), rank_(rank), liveness_(liveness) {}

  std::optional<int> take() override {
    const std::optional<int> holder = mutex_.take(rank_);
    const bool is_left = holder && *holder != rank_ && liveness_.hasEnded(*holder);
    return is_left && mutex_.takeFrom(*holder, rank_) ? std::nullopt : holder;
  }
  void await(int holder, std::chrono::nanoseconds limit) override { mutex_.await(holder, limit); }
  void letGo() noexcept override { mutex_.letGo(); }

 private:
  EdgeMutex& mutex_;
  const int rank_;
  const PeerLiveness& liveness_;
};

}  // namespace bluefog
