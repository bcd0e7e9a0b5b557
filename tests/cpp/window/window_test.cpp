// These tests use windows among ranks of one host and of several hosts.
#include "window/Window.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/Reduce.hpp"
#include "support/ranks.hpp"
#include "window/peer/MappedPeerWindow.hpp"
#include "window/peer/MessagePeerWindow.hpp"
#include "window/peer/WindowServer.hpp"

namespace bluefog::testing {
namespace {

constexpr int kRanks = 4;
constexpr size_t kCount = 5000;
constexpr uint64_t kNumber = 7;
using Values = std::vector<double>;

// A Member is one rank's part of a window, together with the ways to reach the other ranks' parts.
class Member {
 public:
  // `places` is shared by all ranks, each of which is a thread and fills in its own entry.
  Member(Rank& rank, std::vector<WindowPlace>& places)
      : me(rank),
        engine_(std::shared_ptr<void>(), &rank.engine),
        heap_(rank.engine.makeHeap()),
        memory_(std::make_shared<WindowMemory>(rank.engine.segments(), rank.self)),
        liveness_(std::make_shared<PeerLiveness>(rank.engine.processes())),
        server_(std::make_shared<WindowServer>(rank.engine, liveness_)),
        own_(kCount),
        data_(heap_ ? heap_->take(kBytes) : bytesOf(own_)) {
    auto room = memory_->take(WindowLayout(kRanks, kBytes).bytes());
    places[static_cast<size_t>(me.self)] = {room->at(),
                                            heap_ ? heap_->placeOf(data_, kBytes) : std::nullopt};
    window = std::make_shared<Window>(me.self, kRanks, kNumber,
                                      WindowShape{Dtype::kFloat64, kCount}, data_, std::move(room));
    me.synchronize();
    for (int peer = 0; peer < kRanks; ++peer) {
      peer_windows_.push_back(makePeerWindow(peer, places[static_cast<size_t>(peer)]));
    }
    server_->open(rank.engine.hosts().elsewhere());
    server_->add(kNumber, *window);
    me.synchronize();
  }
  ~Member() {
    me.synchronize();
    server_->remove(kNumber);
  }

  void put(int peer, double value, PeerWindow::Into into) {
    const Values values(kCount, value);
    wait(peerWindow(peer).put({Dtype::kFloat64, kCount, values.data(), 1, value}, into,
                              {Engine::Who::kCaller, {}}));
  }
  void get(int peer, double weight) {
    wait(peerWindow(peer).get(weight, true, Engine::Who::kCaller));
  }
  void set(double value) {
    const Values values(kCount, value);
    copyBytes(data_, values.data(), kBytes);
  }
  // Takes out what the slot holds and returns it, or -1 if it is not whole or its p differs from
  // it.
  double taken(int peer) {
    Values out(kCount);
    const double before = window->p();
    window->update({0, {{peer, 1}}, true, true}, out.data());
    const double p = window->p();
    window->setP(before);
    return holds(out, [&](size_t) { return p; }) ? p : -1;
  }
  PeerWindow& peerWindow(int peer) { return *peer_windows_[static_cast<size_t>(peer)]; }

  Rank& me;
  std::shared_ptr<Window> window;

 private:
  static constexpr size_t kBytes = kCount * sizeof(double);

  std::unique_ptr<PeerWindow> makePeerWindow(int peer, const WindowPlace& place) {
    if (peer == me.self) {
      return nullptr;
    }
    if (me.engine.hosts().isHere(peer)) {
      return std::make_unique<MappedPeerWindow>(window, peer, place, *memory_, *liveness_);
    }
    return std::make_unique<MessagePeerWindow>(
        window, peer,
        std::make_shared<WindowClient>(engine_, peer, kNumber, "w", me.limit, Cause::kMismatch,
                                       [] {}));
  }
  void wait(const PendingOp& pending) {
    if (pending) {
      me.finish(pending);
    }
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<SharedHeap> heap_;
  const std::shared_ptr<WindowMemory> memory_;
  const std::shared_ptr<PeerLiveness> liveness_;
  const std::shared_ptr<WindowServer> server_;
  Values own_;
  std::byte* const data_;
  std::vector<std::unique_ptr<PeerWindow>> peer_windows_;
};

class WindowTest : public ::testing::TestWithParam<int> {
 protected:
  static void run(const std::function<void(Member&)>& body) {
    std::vector<WindowPlace> places(kRanks);
    runRanksOn(GetParam(), kRanks, [&](Rank& me) {
      Member member(me, places);
      body(member);
    });
  }
  static void forPeers(const Member& member, const std::function<void(int)>& visit) {
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer != member.me.self) {
        visit(peer);
      }
    }
  }
};

TEST_P(WindowTest, WhatIsPutAndAddedIsThere) {
  run([](Member& member) {
    const int self = member.me.self;
    forPeers(member, [&](int peer) {
      member.put(peer, 100, PeerWindow::Into::kReplace);
      member.put(peer, 10 * self + peer, PeerWindow::Into::kReplace);
      member.put(peer, 1000, PeerWindow::Into::kAdd);
    });
    member.me.synchronize();
    forPeers(member, [&](int peer) {
      EXPECT_EQ(member.window->slotOf(peer).version(), 3U);
      EXPECT_EQ(member.taken(peer), 1000 + 10 * peer + self);
    });
  });
}

TEST_P(WindowTest, AGetFetchesTheTensorAndItsP) {
  run([](Member& member) {
    member.set(member.me.self + 1);
    member.window->setP(member.me.self + 1);
    member.me.synchronize();
    forPeers(member, [&](int peer) {
      member.get(peer, 2);
      EXPECT_EQ(member.taken(peer), 2 * (peer + 1));
    });
  });
}

TEST_P(WindowTest, AMutexNamesItsHolder) {
  run([](Member& member) {
    if (member.me.self == 1) {
      EXPECT_EQ(member.peerWindow(0).mutex().take(), std::nullopt);
      EXPECT_EQ(member.peerWindow(0).mutex().take(), 1);
    }
    member.me.synchronize();
    if (member.me.self == 0) {
      EXPECT_EQ(member.window->mutexWith(1).holder(), 1);
    }
    member.me.synchronize();
    if (member.me.self == 1) {
      member.peerWindow(0).mutex().letGo();
      EXPECT_EQ(member.peerWindow(0).mutex().take(), std::nullopt);
      member.peerWindow(0).mutex().letGo();
    }
  });
}

TEST_P(WindowTest, NothingIsLostThoughNobodyWaits) {
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> arrived{0};
  run([&](Member& member) {
    std::mt19937 random(static_cast<unsigned>(member.me.self));
    int64_t came = 0;
    const auto take = [&](int peer) {
      const double value = member.taken(peer);
      ASSERT_GE(value, 0);
      came += static_cast<int64_t>(value);
    };
    for (int i = 0; i < 300; ++i) {
      const int peer = (member.me.self + 1 + static_cast<int>(random() % (kRanks - 1))) % kRanks;
      if (random() % 2 == 0) {
        const auto amount = static_cast<int>(random() % 100 + 1);
        member.put(peer, amount, PeerWindow::Into::kAdd);
        sent += amount;
      } else {
        take(peer);
      }
    }
    member.me.synchronize();
    forPeers(member, take);
    arrived += came;
  });
  EXPECT_EQ(arrived, sent);
}

TEST_P(WindowTest, WhoAsksForNoWindowHearsSo) {
  run([](Member& member) {
    const std::shared_ptr<Engine> engine(std::shared_ptr<void>(), &member.me.engine);
    for (const int peer : engine->hosts().elsewhere()) {
      const auto client =
          std::make_shared<WindowClient>(engine, peer, 99, "gone", 10s, Cause::kMismatch, [] {});
      const Error error =
          failureOf([&] { client->await(client->ask({}, {}, {Engine::Who::kCaller, {}})); });
      EXPECT_EQ(error.cause(), Cause::kMismatch);
      EXPECT_NE(std::string(error.what())
                    .find("win_put 'gone': rank " + std::to_string(peer) + " has no such window"),
                std::string::npos)
          << error.what();
    }
  });
}

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer leaves no addresses for the window areas of several ranks, and sees no order
// between two mappings.
INSTANTIATE_TEST_SUITE_P(Hosts, WindowTest, ::testing::Values(kRanks));
#else
INSTANTIATE_TEST_SUITE_P(Hosts, WindowTest, ::testing::Values(1, 2, kRanks));
#endif

}  // namespace
}  // namespace bluefog::testing
