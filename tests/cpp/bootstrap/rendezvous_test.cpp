#include "bootstrap/Rendezvous.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/stores.hpp"

namespace bluefog::testing {
namespace {

std::vector<int> globalRanks(int n) {
  std::vector<int> ranks;
  for (int rank = 0; rank < n; ++rank) {
    ranks.push_back(10 * rank);
  }
  return ranks;
}

RankRecord self(int n) {
  return describeThisRank("", globalRanks(n));
}

class RendezvousTest : public ::testing::Test {
 protected:
  // Returns the error with which a process of that record fails when it meets the others.
  Error fail(RankRecord me, int rank, milliseconds limit) {
    Rendezvous rendezvous(store_, std::move(me), rank, Deadline::in(limit), nullptr);
    return failureOf([&] { rendezvous.meet(); });
  }
  // Meets as ranks 0 to `come` - 1 of n, and returns what each fails with.
  Errors failAll(int n, int come, milliseconds limit) {
    Errors errors(come);
    runThreads(come, [&](int rank) { errors.set(rank, fail(self(n), rank, limit)); });
    EXPECT_TRUE(errors.all());
    return errors;
  }
  // Returns what rank 0 of two fails with where rank 1 publishes the record `odd`.
  Error failBeside(RankRecord odd) {
    Errors errors(2);
    runThreads(2, [&](int rank) { errors.set(rank, fail(rank == 0 ? self(2) : odd, rank, 5s)); });
    return errors[0];
  }

  FolderStore store_;
};

void meetAndUse(KeyValueStore& store, int n) {
  std::atomic<int> used{0};
  runThreads(n, [&](int rank) {
    Rendezvous rendezvous(store, self(n), rank, Deadline::in(30s), nullptr);
    rendezvous.meet();
    const Fd memory = rendezvous.share(rank == 0 ? Segment::create(n) : Fd());
    Links links = rendezvous.takeLinks();
    const Segment segment(memory, n);
    segment.eventCount(0).epoch.fetch_add(1u << (4 * rank));
    ++used;
    EXPECT_TRUE(eventually([&] { return used >= n; }));
    uint32_t all = 0;
    for (int peer = 0; peer < n; ++peer) {
      EXPECT_EQ(links.has(peer), peer != rank);
      all += 1u << (4 * peer);
    }
    EXPECT_EQ(segment.eventCount(0).epoch.load(), all) << "not the same memory";
    EXPECT_TRUE(links.look().empty());
    ++used;
    EXPECT_TRUE(eventually([&] { return used >= 2 * n; }));
  });
}

TEST_F(RendezvousTest, RanksMeetAndShareMemory) {
  for (int n : {1, 2, 3, 7}) {
    SCOPED_TRACE(n);
    FolderStore store;
    meetAndUse(store, n);
  }
}

TEST_F(RendezvousTest, TwoProcessesOfOneRankTellAll) {
  Errors errors(3);  // of rank 0 and of two processes of rank 1
  runThreads(3, [&](int thread) { errors.set(thread, fail(self(3), thread == 0 ? 0 : 1, 10s)); });
  for (int thread = 0; thread < 3; ++thread) {
    EXPECT_EQ(errors[thread].cause(), Cause::kMismatch) << errors[thread].what();
    EXPECT_EQ(errors[thread].ranks(), Ranks{10});
    EXPECT_NE(std::string(errors[thread].what()).find("two processes say that they are rank 10"),
              std::string::npos);
  }
}

TEST_F(RendezvousTest, MeetsAgainAfterEarlierLives) {
  meetAndUse(store_, 2);
  meetAndUse(store_, 2);
  {
    const Child dead([&] { fail(self(2), 1, 50ms); });
  }
  failAll(2, 1, 50ms);
  meetAndUse(store_, 2);
}

// The ranks try again and again, each at its own pace.
TEST_F(RendezvousTest, NobodyWhoLivesIsSaidToHaveDied) {
  runThreads(2, [&](int rank) {
    for (int i = 0; i < 8; ++i) {
      const Error error = fail(self(3), rank, milliseconds(150 + 70 * rank));
      EXPECT_EQ(std::string(error.what()).find("died"), std::string::npos) << error.what();
    }
  });
}

TEST_F(RendezvousTest, NamesWhoNeverCame) {
  const Errors errors = failAll(4, 2, 300ms);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(errors[rank].cause(), Cause::kTimeout);
    EXPECT_EQ(errors[rank].ranks(), (Ranks{20, 30}));
    EXPECT_STREQ(errors[rank].what(), "timeout after 0.3 s; nothing from ranks 20, 30");
  }
}

TEST_F(RendezvousTest, NamesWhoHasNotSharedInTime) {
  Errors errors(1);
  std::atomic<bool> done{false};
  runThreads(2, [&](int rank) {
    Rendezvous rendezvous(store_, self(2), rank, Deadline::in(rank == 0 ? 30s : 1s), nullptr);
    rendezvous.meet();
    if (rank == 1) {
      errors.set(0, failureOf([&] { rendezvous.share(Fd()); }));
      done = true;
    } else {
      EXPECT_TRUE(eventually([&] { return done.load(); }));
    }
  });
  EXPECT_EQ(errors[0].cause(), Cause::kTimeout);
  EXPECT_EQ(errors[0].ranks(), Ranks{0});
}

// ---- hosts

// Ranks 0 and 2 are on this host, and rank 1 is on another one.
RankRecord selfOnTwoHosts(int n, int rank) {
  RankRecord me = self(n);
  if (rank % 2 != 0) {
    me.place = "another boot";
    me.host = "elsewhere";
  }
  return me;
}

TEST_F(RendezvousTest, RanksOfTwoHostsMeet) {
  std::atomic<int> through{0};
  runThreads(3, [&](int rank) {
    Rendezvous rendezvous(store_, selfOnTwoHosts(3, rank), rank, Deadline::in(30s), nullptr);
    rendezvous.meet();
    EXPECT_TRUE(rendezvous.spansHosts());
    EXPECT_EQ(rendezvous.leader(), rank % 2);
    const Fd memory = rendezvous.share(rank == rendezvous.leader() ? Segment::create(3) : Fd());
    const Segment segment(memory, 3);
    Links links = rendezvous.takeLinks();
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(rendezvous.isHere(peer), peer % 2 == rank % 2);
      EXPECT_EQ(links.has(peer), peer != rank && peer % 2 == rank % 2);
    }
    ++through;
    EXPECT_TRUE(eventually([&] { return through == 3; }));
  });
}

TEST_F(RendezvousTest, WhatRanksElsewhereSayIsHeard) {
  runThreads(2, [&](int rank) {
    Rendezvous rendezvous(store_, selfOnTwoHosts(2, rank), rank, Deadline::in(30s), nullptr);
    rendezvous.meet();
    if (rank == 1) {
      rendezvous.abandon("it has no memory");
      return;
    }
    const Error error = failureOf([&] { rendezvous.await("nothing", 1); });
    EXPECT_EQ(error.cause(), Cause::kPeerFailed);
    EXPECT_EQ(error.ranks(), Ranks{10});
    EXPECT_STREQ(error.what(), "rank 10 could not make the group: it has no memory");
  });
}

TEST_F(RendezvousTest, OneElsewhereThatIsReplacedBeforeAllAreThereIsForgotten) {
  std::optional<Child> dead;
  dead.emplace([&] { fail(selfOnTwoHosts(3, 1), 1, 30s); });
  ASSERT_TRUE(eventually([&] { return store_.look("rank/1").has_value(); }));
  const RankRecord first = selfOnTwoHosts(3, 0);
  const RankRecord second = selfOnTwoHosts(3, 1);
  const auto lists = [&](const std::string& id) {
    return eventually([&] {
      const std::optional<std::string> list = store_.look(first.id + "/roster");
      return list && list->find(id) != std::string::npos;
    });
  };
  const std::string dead_id = RankRecord::decode(*store_.look("rank/1")).id;
  std::atomic<int> met{0};
  runThreads(3, [&](int rank) {
    if (rank == 1) {
      EXPECT_TRUE(lists(dead_id));
      dead.reset();
    } else if (rank == 2) {
      EXPECT_TRUE(lists(second.id));
    }
    const RankRecord me = rank == 0 ? first : rank == 1 ? second : selfOnTwoHosts(3, 2);
    Rendezvous rendezvous(store_, me, rank, Deadline::in(30s), nullptr);
    rendezvous.meet();
    EXPECT_EQ(rendezvous.record(1).pid, ::getpid());
    ++met;
    EXPECT_TRUE(eventually([&] { return met == 3; }));
  });
}

// ---- ranks that do not fit

TEST_F(RendezvousTest, RefusesAnotherVersion) {
  RankRecord odd = self(2);
  odd.version = "99.9";
  const Error error = failBeside(odd);
  EXPECT_EQ(error.cause(), Cause::kMismatch);
  EXPECT_EQ(error.ranks(), Ranks{10});
  EXPECT_NE(std::string(error.what()).find(") runs bluefog_pg 99.9"), std::string::npos);
}

TEST_F(RendezvousTest, RefusesOtherMembers) {
  const Error error = failBeside(describeThisRank("", {20, 30}));
  EXPECT_EQ(error.cause(), Cause::kMismatch);
  EXPECT_EQ(error.ranks(), Ranks{30});
  EXPECT_NE(
      std::string(error.what())
          .find("rank 30 makes this group of ranks [20, 30], rank 0 of ranks [0, 10]; every rank "
                "must call new_group for each group, in the same order"),
      std::string::npos);
}

TEST_F(RendezvousTest, TellsTwinsOfTwoGroupsOfTheirMembers) {
  Errors errors(2);
  runThreads(2, [&](int thread) {
    errors.set(thread, fail(thread == 0 ? self(2) : describeThisRank("", {20, 30}), 1, 10s));
  });
  EXPECT_EQ(errors[0].cause(), Cause::kMismatch);
  EXPECT_EQ(errors[1].cause(), Cause::kMismatch);
  EXPECT_EQ(errors[0].ranks(), errors[1].ranks());
  EXPECT_NE(std::string(errors[0].what()).find("of ranks [20, 30]"), std::string::npos);
}

TEST_F(RendezvousTest, RefusesAnotherAccelerator) {
  RankRecord odd = self(2);
  odd.accelerator = "cuda:nccl";
  const Error error = failBeside(odd);
  EXPECT_EQ(error.cause(), Cause::kMismatch);
  EXPECT_EQ(error.ranks(), Ranks{10});
  EXPECT_NE(std::string(error.what()).find(") has cuda:nccl, "), std::string::npos);
  EXPECT_NE(std::string(error.what()).find(") has no accelerator; "), std::string::npos);
}

// Rank 0 refuses the version of rank 2. Rank 1 must not take that for a death.
TEST_F(RendezvousTest, TellsTheOthersOfAnotherVersion) {
  RankRecord odd = self(3);
  odd.version = "99.9";
  Errors errors(3);
  runThreads(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(300ms);
    }
    errors.set(rank, fail(rank == 2 ? odd : self(3), rank, 5s));
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(errors[rank].ranks(), Ranks{20}) << errors[rank].what();
    EXPECT_NE(std::string(errors[rank].what()).find("99.9"), std::string::npos);
  }
}

// A BrokenStore has gone with the rank that held it.
class BrokenStore final : public MemoryStore {
 public:
  std::optional<std::string> look(const std::string&) override {
    throw std::runtime_error("store is gone");
  }
};

TEST_F(RendezvousTest, PassesOnWhatTheStoreSays) {
  BrokenStore store;
  Rendezvous rendezvous(store, self(2), 0, Deadline::in(5s), nullptr);
  try {
    rendezvous.meet();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "store is gone");
  }
}

// ---- processes that die

// Kills the victim while all others wait for rank 3, which never comes.
void kill(FolderStore& store, int victim, milliseconds after) {
  std::optional<Child> child;
  child.emplace([&] {
    Rendezvous rendezvous(store, self(4), victim, Deadline::in(30s), nullptr);
    failureOf([&] { rendezvous.meet(); });
  });
  const pid_t pid = child->pid();
  ASSERT_TRUE(eventually([&] { return store.look("rank/" + std::to_string(victim)).has_value(); }));
  Errors errors(3);
  std::atomic<Clock::duration> killed{};
  std::array<Clock::duration, 3> failed{};
  runThreads(3, [&](int rank) {
    if (rank == victim) {
      std::this_thread::sleep_for(after);
      killed = Clock::now().time_since_epoch();
      ::kill(pid, SIGKILL);
      errors.set(rank, Error(Cause::kPeerFailed, {}, ""));
      return;
    }
    Rendezvous rendezvous(store, self(4), rank, Deadline::in(20s), nullptr);
    errors.set(rank, failureOf([&] { rendezvous.meet(); }));
    failed[static_cast<size_t>(rank)] = Clock::now().time_since_epoch();
  });
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != victim) {
      EXPECT_EQ(errors[rank].cause(), Cause::kPeerFailed);
      EXPECT_EQ(errors[rank].ranks(), Ranks{10 * victim});
      EXPECT_EQ(errors[rank].what(),
                "rank " + std::to_string(10 * victim) + " (pid " + std::to_string(pid) + ") died");
      EXPECT_LT(failed[static_cast<size_t>(rank)] - killed.load(), 1s);
    }
  }
}

TEST_F(RendezvousTest, NamesOneThatIsKilledWhileAllWait) {
  kill(store_, 2, 400ms);
}

TEST_F(RendezvousTest, NamesTheFirstRankThatIsKilledWhileAllWait) {
  kill(store_, 0, 400ms);
}

TEST_F(RendezvousTest, NamesOneThatWasDeadAlready) {
  std::optional<Child> second;
  second.emplace([&] { fail(self(3), 1, 30s); });
  ASSERT_TRUE(eventually([&] { return store_.look("rank/1").has_value(); }));
  second.reset();
  const auto start = Clock::now();
  const Error error = fail(self(3), 0, 20s);
  EXPECT_EQ(error.cause(), Cause::kPeerFailed);
  EXPECT_EQ(error.ranks(), Ranks{10});
  EXPECT_LT(Clock::now() - start, 1s);
}

TEST_F(RendezvousTest, NamesOneThatHasGivenUpAlready) {
  std::optional<Child> second;
  second.emplace([&] {
    fail(self(3), 1, 50ms);
    std::this_thread::sleep_for(30s);
  });
  std::this_thread::sleep_for(200ms);
  const auto start = Clock::now();
  const Error error = fail(self(3), 0, 20s);
  EXPECT_EQ(error.cause(), Cause::kPeerFailed);
  EXPECT_EQ(error.ranks(), Ranks{10});
  EXPECT_NE(std::string(error.what()).find("has given up making the group"), std::string::npos);
  EXPECT_LT(Clock::now() - start, 1s);
}

TEST_F(RendezvousTest, OneThatDiedBeforeTheLastTryIsMissing) {
  std::optional<Child> second;
  second.emplace([&] { fail(self(2), 1, 30s); });
  ASSERT_TRUE(eventually([&] { return store_.look("rank/1").has_value(); }));
  second.reset();
  EXPECT_EQ(fail(self(2), 0, 20s).cause(), Cause::kPeerFailed);
  const Error error = fail(self(2), 0, 500ms);
  EXPECT_EQ(error.cause(), Cause::kTimeout);
  EXPECT_EQ(error.ranks(), Ranks{10});
}

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

TEST_F(RendezvousTest, MayBeInterrupted) {
  Rendezvous rendezvous(store_, self(2), 0, Deadline::in(20s), [] { throw Interrupted(); });
  const auto start = Clock::now();
  EXPECT_THROW(rendezvous.meet(), Interrupted);
  EXPECT_LT(Clock::now() - start, 2s);
}

// ---- strangers

Fd connectTo(const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  return socket;
}

TEST_F(RendezvousTest, IgnoresCallersWithoutItsSecret) {
  std::atomic<bool> strangers_called{false};
  std::atomic<int> met{0};
  runThreads(3, [&](int thread) {
    if (thread == 2) {
      ASSERT_TRUE(eventually([&] { return store_.look("rank/0").has_value(); }));
      const RankRecord record = RankRecord::decode(*store_.look("rank/0"));
      std::vector<Fd> strangers;
      for (const std::string& hello : std::vector<std::string>{
               std::string(record.secret.size(), '0') + "1", "1", record.secret,
               record.secret + "///0", record.secret + "///-1", record.secret + "///2",
               record.secret + "nonsense", record.secret + "///nonsense", std::string(1000, 'x')}) {
        strangers.push_back(connectTo(record.name()));
        EXPECT_EQ(::send(strangers.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(hello.size()));
      }
      for (const Fd& stranger : strangers) {
        char byte = 0;
        EXPECT_TRUE(eventually([&] { return ::recv(stranger.get(), &byte, 1, MSG_DONTWAIT) == 0; }))
            << "a stranger was let in";
      }
      strangers.push_back(connectTo(record.name()));  // this stranger says nothing
      strangers.push_back(connectTo(record.name()));
      strangers.back().reset();
      std::this_thread::sleep_for(100ms);
      strangers_called = true;
      EXPECT_TRUE(eventually([&] { return met == 2; }));
      return;
    }
    if (thread == 1) {
      ASSERT_TRUE(eventually([&] { return strangers_called.load(); }));
    }
    Rendezvous rendezvous(store_, self(2), thread, Deadline::in(20s), nullptr);
    rendezvous.meet();
    const Links links = rendezvous.takeLinks();
    EXPECT_TRUE(links.has(1 - thread));
    EXPECT_TRUE(strangers_called) << "met a stranger";
    ++met;
    EXPECT_TRUE(eventually([&] { return met == 2; }));
  });
}

}  // namespace
}  // namespace bluefog::testing
