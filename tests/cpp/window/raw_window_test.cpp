// These tests use parts of raw windows among ranks of one host and of several hosts.
#include "window/raw/RawPart.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"
#include "window/peer/WindowServer.hpp"
#include "window/raw/MappedRawPeer.hpp"
#include "window/raw/MessageRawPeer.hpp"

namespace bluefog::testing {
namespace {

constexpr int kRanks = 4;
constexpr size_t kBytes = 40'000;
constexpr uint64_t kNumber = 7;

struct Places {
  uint64_t room;
  uint64_t heap;
};

// A RawMember is one rank's part of a raw window, with the ways to reach the other ranks' parts.
class RawMember {
 public:
  // `places` is shared by all ranks, each of which is a thread and fills in its own entry.
  RawMember(Rank& rank, std::vector<Places>& places)
      : me(rank),
        engine_(std::shared_ptr<void>(), &rank.engine),
        heap_(rank.engine.makeHeap()),
        memory_(std::make_shared<WindowMemory>(rank.engine.segments(), rank.self)),
        server_(std::make_shared<WindowServer>(
            rank.engine, std::make_shared<PeerLiveness>(rank.engine.processes()))),
        own_(kBytes) {
    std::byte* data = heap_ ? heap_->take(kBytes) : own_.data();
    std::memset(data, 0, kBytes);
    auto block = memory_->take(RawRoom::bytesFor(kRanks));
    places[static_cast<size_t>(me.self)] = {block->at(), heap_ ? *heap_->placeOf(data, kBytes) : 0};
    part = std::make_shared<RawPart>(me.self, kRanks, kNumber, RawPart::RawSpan{data, kBytes},
                                     std::move(block));
    me.synchronize();
    for (int peer = 0; peer < kRanks; ++peer) {
      peers_.push_back(makePeer(peer, places[static_cast<size_t>(peer)]));
    }
    server_->open(rank.engine.hosts().elsewhere());
    server_->add(kNumber, *part);
    part->setOpen(true);
    me.synchronize();
  }
  ~RawMember() {
    me.synchronize();
    close();
  }

  // Returns whether the peer's part was open.
  bool put(int peer, uint64_t at, const std::vector<std::byte>& values) {
    return wait(peers_[static_cast<size_t>(peer)]->put(at, {values.data(), values.size()},
                                                       {Engine::Who::kCaller, {}}));
  }
  bool signal(int peer) {
    return wait(peers_[static_cast<size_t>(peer)]->signal({Engine::Who::kCaller, {}}));
  }
  void await(const SignalQueue::Ticket& ticket) {
    while (!part->queue().look(*ticket)) {
      std::this_thread::yield();
    }
  }
  void close() {
    part->setOpen(false);
    server_->remove(kNumber);
  }

  Rank& me;
  std::shared_ptr<RawPart> part;

 private:
  std::unique_ptr<RawPeer> makePeer(int peer, const Places& place) {
    if (peer == me.self) {
      return std::make_unique<MappedRawPeer>(
          part, peer, part->room(),
          std::shared_ptr<std::byte>(std::shared_ptr<void>(), part->memory().data));
    }
    if (me.engine.hosts().isHere(peer)) {
      const std::shared_ptr<std::byte> heap = memory_->heapToWrite(peer);
      return std::make_unique<MappedRawPeer>(
          part, peer, RawRoom(memory_->room(peer) + place.room),
          std::shared_ptr<std::byte>(heap, heap.get() + place.heap));
    }
    return std::make_unique<MessageRawPeer>(std::make_shared<WindowClient>(
        engine_, peer, kNumber, "", me.limit, Cause::kMismatch, [] {}));
  }
  bool wait(const std::optional<PendingOp>& pending) {
    if (pending && *pending) {
      me.finish(*pending);
    }
    return pending.has_value();
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<SharedHeap> heap_;
  const std::shared_ptr<WindowMemory> memory_;
  const std::shared_ptr<WindowServer> server_;
  std::vector<std::byte> own_;
  std::vector<std::unique_ptr<RawPeer>> peers_;
};

class RawWindowTest : public ::testing::TestWithParam<int> {
 protected:
  static void run(const std::function<void(RawMember&)>& body) {
    std::vector<Places> places(kRanks);
    runRanksOn(GetParam(), kRanks, [&](Rank& me) {
      RawMember member(me, places);
      body(member);
    });
  }
};

std::vector<std::byte> bytesOf(int value, size_t count) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

TEST_P(RawWindowTest, ASignalComesAfterThePutsBeforeIt) {
  run([](RawMember& member) {
    const int self = member.me.self;
    constexpr size_t kPart = kBytes / kRanks;
    for (int round = 1; round <= 50; ++round) {
      for (int peer = 0; peer < kRanks; ++peer) {
        EXPECT_TRUE(
            member.put(peer, kPart * static_cast<size_t>(self), bytesOf(round + self, kPart)));
        EXPECT_TRUE(member.signal(peer));
      }
      for (int peer = 0; peer < kRanks; ++peer) {
        member.await(member.part->queue().join(peer));
        const std::byte* came = member.part->memory().data + kPart * static_cast<size_t>(peer);
        EXPECT_EQ(std::vector<std::byte>(came, came + kPart), bytesOf(round + peer, kPart));
      }
      member.me.synchronize();
    }
  });
}

TEST_P(RawWindowTest, TheFirstInTheQueueGetsTheFirstSignal) {
  run([](RawMember& member) {
    const int next = (member.me.self + 1) % kRanks;
    const int before = (member.me.self + kRanks - 1) % kRanks;
    SignalQueue& queue = member.part->queue();
    const SignalQueue::Ticket first = queue.join(before);
    const SignalQueue::Ticket second = queue.join(before);
    const SignalQueue::Ticket third = queue.join(before);
    EXPECT_FALSE(queue.look(*first));
    EXPECT_TRUE(queue.leave(second));
    member.me.synchronize();
    member.signal(next);
    member.me.synchronize();
    EXPECT_FALSE(queue.look(*third));
    EXPECT_TRUE(queue.look(*first));
    EXPECT_FALSE(queue.leave(first));
    EXPECT_FALSE(queue.look(*second));
    member.me.synchronize();
    member.signal(next);
    member.me.synchronize();
    EXPECT_TRUE(queue.look(*third));
  });
}

TEST_P(RawWindowTest, AClosedPartIsNotWrittenTo) {
  run([](RawMember& member) {
    if (member.me.self == 1) {
      member.close();
    }
    member.me.synchronize();
    if (member.me.self != 1 && member.me.engine.hosts().isHere(1)) {
      EXPECT_FALSE(member.put(1, 0, bytesOf(1, 8)));
      EXPECT_FALSE(member.signal(1));
    } else if (member.me.self != 1) {
      const Error error = failureOf([&] { member.put(1, 0, bytesOf(1, 8)); });
      EXPECT_EQ(error.cause(), Cause::kMismatch);
      EXPECT_NE(std::string(error.what()).find("Window.put: rank 1 has no such window"),
                std::string::npos)
          << error.what();
      EXPECT_EQ(failureOf([&] { member.signal(1); }).cause(), Cause::kMismatch);
    }
    member.me.synchronize();
    EXPECT_EQ(member.part->memory().data[0], std::byte{});
    EXPECT_EQ(member.part->room().signals(0).load(), 0U);
  });
}

TEST_P(RawWindowTest, WhatExceedsTheMemoryIsRefused) {
  run([](RawMember& member) {
    const auto values = bytesOf(1, 8);
    const RawPart& part = *member.part;
    EXPECT_FALSE(part.write(kBytes - 7, values.data(), 8));
    EXPECT_FALSE(part.write(kBytes + 1, values.data(), 0));
    EXPECT_FALSE(part.write(~uint64_t{0}, values.data(), 8));
    EXPECT_TRUE(part.write(kBytes - 8, values.data(), 8));
    EXPECT_TRUE(part.write(kBytes, values.data(), 0));
    for (const int peer : member.me.engine.hosts().elsewhere()) {
      const Error error = failureOf([&] { member.put(peer, kBytes - 7, values); });
      EXPECT_EQ(error.cause(), Cause::kMismatch);
    }
  });
}

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer leaves no addresses for the window areas of several ranks, and sees no order
// between two mappings.
INSTANTIATE_TEST_SUITE_P(Hosts, RawWindowTest, ::testing::Values(kRanks));
#else
INSTANTIATE_TEST_SUITE_P(Hosts, RawWindowTest, ::testing::Values(1, 2, kRanks));
#endif

}  // namespace
}  // namespace bluefog::testing
