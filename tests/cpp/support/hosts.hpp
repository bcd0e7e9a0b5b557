#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/hosts/RemoteTransport.hpp"
#include "transport/memory/Segments.hpp"

namespace bluefog::testing {

// A Switchboard carries messages between the hosts of a group, all of which are in this process.
// Like MPI, it copies small messages when they are sent. It leaves large ones where they are until
// they are received.
// Thread safety: any thread.
class Switchboard {
 public:
  struct Parcel {
    int from;
    int stream;
    std::vector<std::byte> kept;
    const std::byte* data;
    size_t bytes;
    std::atomic<bool> is_taken{false};
  };

  explicit Switchboard(int ranks) : to_(static_cast<size_t>(ranks)) {}

  std::shared_ptr<Parcel> send(int from, int to, int stream, const void* data, size_t bytes,
                               bool may_be_kept) {
    auto parcel = std::make_shared<Parcel>();
    parcel->from = from;
    parcel->stream = stream;
    parcel->data = static_cast<const std::byte*>(data);
    parcel->bytes = bytes;
    if (may_be_kept && bytes <= kMostKept) {
      parcel->kept.assign(parcel->data, parcel->data + bytes);
      parcel->data = parcel->kept.data();
      parcel->is_taken = true;
    }
    const std::lock_guard lock(mutex_);
    to_[static_cast<size_t>(to)].push_back(parcel);
    return parcel;
  }
  std::shared_ptr<Parcel> next(int rank) {
    const std::lock_guard lock(mutex_);
    auto& queue = to_[static_cast<size_t>(rank)];
    if (queue.empty()) {
      return nullptr;
    }
    auto first = std::move(queue.front());
    queue.pop_front();
    return first;
  }
  void die(int rank) {
    const std::lock_guard lock(mutex_);
    dead_.push_back(rank);
  }
  void keep(std::shared_ptr<void> memory) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
  }
  std::vector<int> deadFrom(size_t index) {
    const std::lock_guard lock(mutex_);
    return {dead_.begin() + static_cast<std::ptrdiff_t>(index), dead_.end()};
  }

 private:
  static constexpr size_t kMostKept = 32 * 1024;

  std::mutex mutex_;
  std::vector<std::deque<std::shared_ptr<Parcel>>> to_;
  std::vector<int> dead_;
  std::vector<std::shared_ptr<void>> kept_;
};

// A SwitchedTransport is one rank's RemoteTransport, which sends through a Switchboard.
class SwitchedTransport final : public RemoteTransport {
 public:
  SwitchedTransport(std::shared_ptr<Switchboard> board, int rank)
      : board_(std::move(board)), rank_(rank) {}

  std::string greeting() const override { return "hello"; }
  void hearGreeting(const std::string& greeting) override { EXPECT_EQ(greeting, "hello"); }
  Request send(int to, int stream, const void* data, size_t bytes, Ends ends) override {
    return keep(board_->send(rank_, to, stream, data, bytes, ends == Ends::kSoon));
  }
  void poll() override {}
  std::optional<Incoming> next() override {
    std::shared_ptr<Switchboard::Parcel> parcel = board_->next(rank_);
    if (!parcel) {
      return std::nullopt;
    }
    return Incoming{parcel->from, parcel->stream, parcel->bytes, keep(std::move(parcel))};
  }
  Request take(const Incoming& incoming, void* into) override {
    const auto& parcel = *static_cast<std::shared_ptr<Switchboard::Parcel>*>(incoming.message);
    std::memcpy(into, parcel->data, parcel->bytes);
    parcel->is_taken.store(true, std::memory_order_release);
    return incoming.message;
  }
  RequestState test(Request request) override {
    const auto& parcel = *static_cast<std::shared_ptr<Switchboard::Parcel>*>(request);
    return parcel->is_taken.load(std::memory_order_acquire) ? RequestState::kDone
                                                            : RequestState::kUnderWay;
  }
  std::vector<int> takeDead() override {
    const std::vector<int> dead = board_->deadFrom(dead_seen_);
    dead_seen_ += dead.size();
    return dead;
  }
  // A large message is read from the memory where it lies, so that memory must live on.
  void detach(const std::vector<Request>& requests, const std::shared_ptr<void>& memory) override {
    for (Request request : requests) {
      if (test(request) == RequestState::kUnderWay) {
        board_->keep(memory);
      }
    }
  }
  bool hasLeftHost() const override { return true; }

 private:
  void* keep(std::shared_ptr<Switchboard::Parcel> parcel) {
    parcels_.push_back(std::make_unique<std::shared_ptr<Switchboard::Parcel>>(std::move(parcel)));
    return parcels_.back().get();
  }

  std::shared_ptr<Switchboard> board_;
  int rank_;
  std::deque<std::unique_ptr<std::shared_ptr<Switchboard::Parcel>>> parcels_;
  size_t dead_seen_ = 0;
};

// Hosts describes the hosts of a group's ranks, and owns the memory of each.
class Hosts {
 public:
  // Rank r is on host r % hosts.
  Hosts(int ranks, int hosts)
      : ranks_(ranks), hosts_(hosts), board_(std::make_shared<Switchboard>(ranks)) {
    for (int host = 0; host < hosts; ++host) {
      memory_.push_back(Segment::create(ranks));
    }
  }

  std::vector<int> elsewhere(int rank) const { return map(rank).elsewhere(); }
  Segments segments(int rank) const {
    Segment shared(memory_[static_cast<size_t>(rank % hosts_)], ranks_);
    if (elsewhere(rank).empty()) {
      return {std::move(shared), rank};
    }
    return {std::move(shared), Segment(Segment::create(ranks_), ranks_), map(rank)};
  }
  std::unique_ptr<RemoteTransport> transport(int rank) const {
    return elsewhere(rank).empty() ? nullptr : std::make_unique<SwitchedTransport>(board_, rank);
  }
  void die(int rank) const { board_->die(rank); }

 private:
  HostMap map(int rank) const {
    std::vector<int> host_of;
    for (int each = 0; each < ranks_; ++each) {
      host_of.push_back(each % hosts_);
    }
    return {rank, std::move(host_of)};
  }

  int ranks_;
  int hosts_;
  std::vector<Fd> memory_;
  std::shared_ptr<Switchboard> board_;
};

}  // namespace bluefog::testing
