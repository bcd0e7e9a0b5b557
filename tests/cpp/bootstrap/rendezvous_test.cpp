#include "bootstrap/Rendezvous.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// A store in memory that forked children share.
class Noticeboard {
 public:
  Noticeboard() {
    void* data =
        ::mmap(nullptr, sizeof(Notices), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data, MAP_FAILED);
    notices_ = new (data) Notices;
  }
  Noticeboard(const Noticeboard&) = delete;
  Noticeboard& operator=(const Noticeboard&) = delete;
  ~Noticeboard() { ::munmap(notices_, sizeof(Notices)); }

  void write(int rank, const std::string& record, const std::string& topic = "roster") {
    Notice& notice = at(rank, topic);
    record.copy(notice.text.data(), notice.text.size());
    notice.length.store(record.size(), std::memory_order_release);
  }
  std::optional<std::string> read(int rank, const std::string& topic = "roster") const {
    const Notice& notice = at(rank, topic);
    const size_t length = notice.length.load(std::memory_order_acquire);
    if (length == 0) {
      return std::nullopt;
    }
    return std::string(notice.text.data(), length);
  }

 private:
  struct Notice {
    std::atomic<size_t> length{0};
    std::array<char, 1000> text;
  };
  static constexpr size_t kRanks = 8;
  using Notices = std::array<Notice, 3 * kRanks>;

  Notice& at(int rank, const std::string& topic) const {
    const size_t page = topic == "roster" ? 0 : topic == "gave up" ? 1 : 2;
    return (*notices_)[static_cast<size_t>(rank) + page * kRanks];
  }

  Notices* notices_;
};

class MemoryRecords : public Records {
 public:
  MemoryRecords(Noticeboard& board, int rank) : board_(board), rank_(rank) {}
  void publish(const std::string& topic, const std::string& record) override {
    board_.write(rank_, record, topic);
  }
  std::optional<std::string> look(const std::string& topic, int rank) override {
    return board_.read(rank, topic);
  }

 protected:
  Noticeboard& board_;
  int rank_;
};

std::vector<int> globalRanks(int n) {
  std::vector<int> ranks;
  for (int rank = 0; rank < n; ++rank) {
    ranks.push_back(10 * rank);
  }
  return ranks;
}

class RendezvousTest : public ::testing::Test {
 protected:
  // Meets as ranks 0 to `come` - 1 of n, and returns what each fails with.
  Errors fail(int n, int come, milliseconds limit) {
    Errors errors(come);
    std::atomic<int> failed{0};
    runThreads(come, [&](int rank) {
      MemoryRecords records(board_, rank);
      Rendezvous rendezvous(records, rank, globalRanks(n), Deadline::in(limit), nullptr);
      errors.set(rank, failureOf([&] { rendezvous.meet(); }));
      ++failed;
    });
    EXPECT_TRUE(errors.all());
    return errors;
  }

  Noticeboard board_;
};

void meetAndUse(Noticeboard& board, int n) {
  std::atomic<int> used{0};
  runThreads(n, [&](int rank) {
    MemoryRecords records(board, rank);
    Rendezvous rendezvous(records, rank, globalRanks(n), Deadline::in(30s), nullptr);
    rendezvous.meet();
    const Fd memory = rendezvous.share(rank == 0 ? Segment::create(n) : Fd());
    Links links = rendezvous.takeLinks();
    const Segment segment(memory, n);
    segment.bell(0).rings.fetch_add(1u << (4 * rank));
    ++used;
    EXPECT_TRUE(eventually([&] { return used >= n; }));
    uint32_t all = 0;
    for (int peer = 0; peer < n; ++peer) {
      EXPECT_EQ(links.has(peer), peer != rank);
      all += 1u << (4 * peer);
    }
    EXPECT_EQ(segment.bell(0).rings.load(), all) << "not the same memory";
    EXPECT_TRUE(links.look().empty());
    ++used;
    EXPECT_TRUE(eventually([&] { return used >= 2 * n; }));
  });
}

TEST_F(RendezvousTest, RanksMeetAndShareMemory) {
  for (int n : {1, 2, 3, 7}) {
    SCOPED_TRACE(n);
    Noticeboard board;
    meetAndUse(board, n);
  }
}

TEST_F(RendezvousTest, TwoProcessesOfOneRankAreBothTold) {
  RankRecord twin = describeThisRank("", globalRanks(2));
  twin.pid = ::getppid();
  board_.write(1, twin.encode());
  const Errors later = fail(2, 2, 10s);  // rank 1 finds the other one's record
  EXPECT_EQ(later[1].cause(), Cause::kMismatch);
  EXPECT_EQ(later[1].ranks(), Ranks{10});
  EXPECT_NE(std::string(later[1].what()).find("two processes say that they are rank 10"),
            std::string::npos);
  EXPECT_NE(std::string(later[1].what()).find("pid " + std::to_string(::getppid())),
            std::string::npos);
}

TEST_F(RendezvousTest, OneWhoseRecordIsReplacedTellsAll) {
  std::atomic<bool> replaced{false};
  std::thread later([&] {
    std::this_thread::sleep_for(200ms);
    RankRecord twin = describeThisRank("", globalRanks(3));
    twin.pid = ::getppid();
    board_.write(1, twin.encode());
    replaced = true;
  });
  const Errors errors = fail(3, 2, 10s);
  later.join();
  EXPECT_TRUE(replaced);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(errors[rank].cause(), Cause::kMismatch);
    EXPECT_EQ(errors[rank].ranks(), Ranks{10});
  }
}

TEST_F(RendezvousTest, ARecordOfAnAttemptThatFailedIsReplaced) {
  RankRecord stale = describeThisRank("", globalRanks(2));
  stale.pid = INT_MAX;
  board_.write(1, stale.encode());
  meetAndUse(board_, 2);
}

TEST_F(RendezvousTest, NamesWhoNeverCame) {
  const Errors errors = fail(4, 2, 300ms);
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
    MemoryRecords records(board_, rank);
    Rendezvous rendezvous(records, rank, globalRanks(2), Deadline::in(rank == 0 ? 30s : 1s),
                          nullptr);
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

TEST_F(RendezvousTest, MeetsAgainAfterAnEarlierLife) {
  Noticeboard other;
  meetAndUse(board_, 2);
  meetAndUse(other, 2);
}

// ---- records that do not fit

// Publishes what `change` makes of its rank's record.
class ChangingRecords final : public MemoryRecords {
 public:
  ChangingRecords(Noticeboard& board, int rank, std::function<void(RankRecord&)> change)
      : MemoryRecords(board, rank), change_(std::move(change)) {}
  void publish(const std::string&, const std::string& record) override {
    RankRecord changed = RankRecord::decode(record);
    change_(changed);
    board_.write(rank_, changed.encode());
  }

 private:
  std::function<void(RankRecord&)> change_;
};

Error meetOdd(Noticeboard& board, const std::function<void(RankRecord&)>& change) {
  ChangingRecords odd(board, 1, change);
  odd.publish("roster", describeThisRank("", globalRanks(2)).encode());
  MemoryRecords records(board, 0);
  Rendezvous rendezvous(records, 0, globalRanks(2), Deadline::in(5s), nullptr);
  return failureOf([&] { rendezvous.meet(); });
}

// Ranks 0 and 2 here, rank 1 elsewhere.
class TwoHosts final : public MemoryRecords {
 public:
  using MemoryRecords::MemoryRecords;
  std::optional<std::string> look(const std::string& topic, int rank) override {
    std::optional<std::string> found = MemoryRecords::look(topic, rank);
    if (found && topic == "roster" && rank % 2 != rank_ % 2) {
      RankRecord moved = RankRecord::decode(*found);
      moved.place = "another boot";
      moved.host = "elsewhere";
      return moved.encode();
    }
    return found;
  }
};

TEST_F(RendezvousTest, RanksOfTwoHostsMeet) {
  std::atomic<int> through{0};
  runThreads(3, [&](int rank) {
    TwoHosts records(board_, rank);
    Rendezvous rendezvous(records, rank, globalRanks(3), Deadline::in(30s), nullptr);
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
    TwoHosts records(board_, rank);
    Rendezvous rendezvous(records, rank, globalRanks(2), Deadline::in(30s), nullptr);
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

TEST_F(RendezvousTest, RefusesAnotherVersion) {
  const Error error = meetOdd(board_, [](RankRecord& record) { record.version = "99.9"; });
  EXPECT_EQ(error.cause(), Cause::kMismatch);
  EXPECT_EQ(error.ranks(), Ranks{10});
  EXPECT_NE(std::string(error.what()).find(") runs bluefog_pg 99.9"), std::string::npos);
}

TEST_F(RendezvousTest, RefusesOtherMembers) {
  const Error error = meetOdd(board_, [](RankRecord& record) { record.members = {20, 30}; });
  EXPECT_EQ(error.cause(), Cause::kMismatch);
  EXPECT_EQ(error.ranks(), Ranks{30});
  EXPECT_NE(
      std::string(error.what())
          .find("rank 30 makes this group of ranks [20, 30], rank 0 of ranks [0, 10]; every rank "
                "must call new_group for each group, in the same order"),
      std::string::npos);
}

// Rank 0 of a group of others, which has taken this one's place in the store.
TEST_F(RendezvousTest, TellsTwinsOfTwoGroupsOfTheirMembers) {
  RankRecord twin = describeThisRank("", {20, 30});
  twin.pid = ::getppid();
  board_.write(1, twin.encode());
  const Errors errors = fail(2, 2, 10s);
  EXPECT_EQ(errors[1].cause(), Cause::kMismatch);
  EXPECT_EQ(errors[1].ranks(), Ranks{30});
}

TEST_F(RendezvousTest, RefusesAnotherAccelerator) {
  const Error error = meetOdd(board_, [](RankRecord& record) { record.accelerator = "cuda:nccl"; });
  EXPECT_EQ(error.cause(), Cause::kMismatch);
  EXPECT_EQ(error.ranks(), Ranks{10});
  EXPECT_NE(std::string(error.what()).find(") has cuda:nccl, "), std::string::npos);
  EXPECT_NE(std::string(error.what()).find(") has no accelerator; "), std::string::npos);
}

TEST_F(RendezvousTest, RefusesARecordThatIsNone) {
  board_.write(1, "hello");
  MemoryRecords records(board_, 0);
  Rendezvous rendezvous(records, 0, globalRanks(2), Deadline::in(5s), nullptr);
  EXPECT_THROW(rendezvous.meet(), std::runtime_error);
}

// Sees rank 2's record only after the others have.
class LateRecords final : public MemoryRecords {
 public:
  LateRecords(Noticeboard& board, int rank, const std::atomic<bool>& now)
      : MemoryRecords(board, rank), now_(now) {}
  std::optional<std::string> look(const std::string& topic, int rank) override {
    return rank != 2 || now_ ? MemoryRecords::look(topic, rank) : std::nullopt;
  }

 private:
  const std::atomic<bool>& now_;
};

// Rank 0 refuses rank 2's version; rank 1, linked to rank 0, must not take that for a death.
TEST_F(RendezvousTest, TellsTheOthersOfAnotherVersion) {
  ChangingRecords odd(board_, 2, [](RankRecord& record) { record.version = "99.9"; });
  std::atomic<bool> nobody_looks{false};
  std::atomic<bool> published{false};
  Errors errors(2);
  runThreads(2, [&](int rank) {
    LateRecords records(board_, rank, rank == 0 ? published : nobody_looks);
    Rendezvous rendezvous(records, rank, globalRanks(3), Deadline::in(5s), nullptr);
    if (rank == 1) {
      errors.set(1, failureOf([&] { rendezvous.meet(); }));
      return;
    }
    std::thread later([&] {
      std::this_thread::sleep_for(300ms);
      odd.publish("roster", describeThisRank("", globalRanks(3)).encode());
      published = true;
    });
    errors.set(0, failureOf([&] { rendezvous.meet(); }));
    later.join();
  });
  ASSERT_TRUE(errors.all());
  EXPECT_EQ(errors[0].ranks(), Ranks{20});
  EXPECT_EQ(errors[1].ranks(), Ranks{20}) << errors[1].what();
  EXPECT_NE(std::string(errors[1].what()).find("99.9"), std::string::npos) << errors[1].what();
}

// A store that has gone with the rank that held it.
class BrokenRecords final : public MemoryRecords {
 public:
  using MemoryRecords::MemoryRecords;
  std::optional<std::string> look(const std::string&, int) override {
    throw std::runtime_error("store is gone");
  }
};

TEST_F(RendezvousTest, PassesOnWhatTheStoreSays) {
  BrokenRecords records(board_, 0);
  Rendezvous rendezvous(records, 0, globalRanks(2), Deadline::in(5s), nullptr);
  EXPECT_THROW(
      {
        try {
          rendezvous.meet();
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "store is gone");
          throw;
        }
      },
      std::runtime_error);
}

// ---- processes that die

void meetAsChild(Noticeboard& board, int rank, int n) {
  MemoryRecords records(board, rank);
  Rendezvous rendezvous(records, rank, globalRanks(n), Deadline::in(30s), nullptr);
  try {
    rendezvous.meet();
  } catch (const Error&) {
    ::_exit(1);
  }
}

// Rank 3 never comes, so that all wait when rank 2 is killed.
void killTheThird(Noticeboard& board, milliseconds after) {
  Child third([&] { meetAsChild(board, 2, 4); });
  ASSERT_TRUE(eventually([&] { return board.read(2).has_value(); }));
  Errors errors(2);
  std::atomic<Clock::duration> killed{};
  std::array<Clock::duration, 2> failed{};
  runThreads(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(after);
      ::kill(third.pid(), SIGKILL);
      killed = Clock::now().time_since_epoch();
      return;
    }
    MemoryRecords records(board, rank);
    Rendezvous rendezvous(records, rank, globalRanks(4), Deadline::in(20s), nullptr);
    errors.set(rank, failureOf([&] { rendezvous.meet(); }));
    failed[static_cast<size_t>(rank)] = Clock::now().time_since_epoch();
  });
  ASSERT_TRUE(errors.all());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(errors[rank].cause(), Cause::kPeerFailed);
    EXPECT_EQ(errors[rank].ranks(), Ranks{20}) << errors[rank].what();
    EXPECT_NE(std::string(errors[rank].what())
                  .find("rank 20 (pid " + std::to_string(third.pid()) + ") died"),
              std::string::npos)
        << errors[rank].what();
    EXPECT_LT(failed[static_cast<size_t>(rank)] - killed.load(), 1s);
  }
}

TEST_F(RendezvousTest, NamesOneThatWasKilledWhenAllWereLinked) {
  killTheThird(board_, 300ms);
}

TEST_F(RendezvousTest, NamesOneThatWasKilledAsSoonAsItHadPublished) {
  killTheThird(board_, 0ms);
}

TEST_F(RendezvousTest, NamesOneThatWasDeadAlready) {
  std::optional<Child> second;
  second.emplace([&] { meetAsChild(board_, 1, 3); });
  ASSERT_TRUE(eventually([&] { return board_.read(1).has_value(); }));
  second.reset();
  const auto start = Clock::now();
  MemoryRecords records(board_, 0);
  Rendezvous rendezvous(records, 0, globalRanks(3), Deadline::in(20s), nullptr);
  const Error error = failureOf([&] { rendezvous.meet(); });
  EXPECT_EQ(error.cause(), Cause::kPeerFailed);
  EXPECT_EQ(error.ranks(), Ranks{10});
  EXPECT_LT(Clock::now() - start, 1s);
}

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

TEST_F(RendezvousTest, MayBeInterrupted) {
  MemoryRecords records(board_, 0);
  Rendezvous rendezvous(records, 0, globalRanks(2), Deadline::in(20s), [] { throw Interrupted(); });
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
      ASSERT_TRUE(eventually([&] { return board_.read(0).has_value(); }));
      const RankRecord record = RankRecord::decode(*board_.read(0));
      std::vector<Fd> strangers;
      for (const std::string& hello : std::vector<std::string>{
               std::string(record.secret.size(), '0') + "1", "1", record.secret,
               record.secret + "0", record.secret + "-1", record.secret + "2",
               record.secret + "nonsense", std::string(1000, 'x')}) {
        strangers.push_back(connectTo(record.socket));
        EXPECT_EQ(::send(strangers.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(hello.size()));
      }
      strangers.push_back(connectTo(record.socket));  // which says nothing
      strangers.push_back(connectTo(record.socket));
      strangers.back().reset();
      std::this_thread::sleep_for(100ms);
      strangers_called = true;
      EXPECT_TRUE(eventually([&] { return met == 2; }));
      return;
    }
    if (thread == 1) {
      ASSERT_TRUE(eventually([&] { return strangers_called.load(); }));
    }
    MemoryRecords records(board_, thread);
    Rendezvous rendezvous(records, thread, globalRanks(2), Deadline::in(20s), nullptr);
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
