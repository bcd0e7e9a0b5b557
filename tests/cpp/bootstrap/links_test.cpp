#include "bootstrap/Links.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <utility>

#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// A LinksTest has the links of ranks 0 and 1, both of which belong to this process.
class LinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto [here, there] = socketPair();
    zero_.add(1, std::move(here), ::getpid());
    one_.emplace(2);
    one_->add(0, std::move(there), ::getpid());
  }

  Links zero_{2};
  std::optional<Links> one_;
};

std::string contents(const Fd& file) {
  std::array<char, 64> data{};
  const ssize_t length = ::pread(file.get(), data.data(), data.size(), 0);
  return length < 0 ? "" : std::string(data.data(), static_cast<size_t>(length));
}

Fd fileWith(const std::string& text) {
  Fd file(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

TEST_F(LinksTest, KnowsWhomItHas) {
  EXPECT_TRUE(zero_.has(1));
  EXPECT_FALSE(zero_.has(0));
}

TEST_F(LinksTest, NobodyHasLeftAtFirst) {
  EXPECT_TRUE(zero_.look().empty());
  EXPECT_TRUE(one_->look().empty());
}

TEST_F(LinksTest, AGoodbyeIsNotADeath) {
  one_->sayGoodbye();
  ASSERT_EQ(zero_.look().size(), 1u) << "the socket is open yet, and may stay so";
  const Departure departure = zero_.look().front();
  EXPECT_EQ(departure.rank, 1);
  EXPECT_EQ(departure.how, Departure::How::kLeft);
  EXPECT_EQ(departure.describe(6),
            "rank 6 (pid " + std::to_string(::getpid()) + ") has left the group");
}

TEST_F(LinksTest, AnEndWithoutGoodbyeIsADeath) {
  one_.reset();
  ASSERT_EQ(zero_.look().size(), 1u);
  EXPECT_EQ(zero_.look().front().how, Departure::How::kDied);
  EXPECT_EQ(zero_.look().front().describe(6),
            "rank 6 (pid " + std::to_string(::getpid()) + ") died");
  EXPECT_EQ(zero_.look().size(), 1u) << "it dies once";
}

TEST_F(LinksTest, OneThatClosesUnreadIsHeardToo) {
  zero_.sayGoodbye();  // rank 1 never reads it
  one_->sayGoodbye();
  one_.reset();
  ASSERT_EQ(zero_.look().size(), 1u);
  EXPECT_EQ(zero_.look().front().how, Departure::How::kLeft);
}

TEST_F(LinksTest, WhyAPeerGivesUpIsHeard) {
  one_->sayFailed({Cause::kMismatch, {3, 7}, "ranks 3, 7 are on another host"});
  one_.reset();
  ASSERT_EQ(zero_.look().size(), 1u);
  const Departure departure = zero_.look().front();
  EXPECT_EQ(departure.how, Departure::How::kGaveUp);
  EXPECT_EQ(departure.reason.cause, Cause::kMismatch);
  EXPECT_EQ(departure.reason.ranks, (Ranks{3, 7}));
  EXPECT_EQ(departure.reason.text, "ranks 3, 7 are on another host");
  EXPECT_NE(departure.describe(1).find("gave up: ranks 3, 7 are"), std::string::npos);
}

TEST_F(LinksTest, NobodyNeedBeBlamed) {
  one_->sayFailed({Cause::kTimeout, {}, "no reason"});
  one_.reset();
  ASSERT_EQ(zero_.look().size(), 1u);
  EXPECT_TRUE(zero_.look().front().reason.ranks.empty());
  EXPECT_EQ(zero_.look().front().reason.text, "no reason");
}

TEST_F(LinksTest, LongReasonsAreCut) {
  one_->sayFailed({Cause::kTimeout, {0}, std::string(10'000, 'x')});
  one_.reset();
  ASSERT_EQ(zero_.look().size(), 1u);
  const std::string why = zero_.look().front().reason.text;
  EXPECT_GT(why.size(), 4000u);
  EXPECT_EQ(why, std::string(why.size(), 'x'));
}

TEST_F(LinksTest, PassesAFile) {
  EXPECT_FALSE(one_->receiveFile(0).valid());
  zero_.sendFile(1, fileWith("memory"));
  const Fd received = one_->receiveFile(0);
  ASSERT_TRUE(received.valid());
  EXPECT_EQ(contents(received), "memory");
  EXPECT_NE(::fcntl(received.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(one_->receiveFile(0).valid());
}

TEST_F(LinksTest, KeepsAFileThatCameBeforeTheGoodbye) {
  one_->sendFile(0, fileWith("memory"));
  one_->sayGoodbye();
  one_.reset();
  EXPECT_EQ(zero_.look().size(), 1u);
  EXPECT_EQ(contents(zero_.receiveFile(1)), "memory");
}

TEST_F(LinksTest, AGoodbyeThatCameWithTheFileIsHeardLater) {
  one_->sendFile(0, fileWith("memory"));
  one_->sayGoodbye();
  EXPECT_EQ(contents(zero_.receiveFile(1)), "memory");
  EXPECT_EQ(zero_.look().size(), 1u) << "the socket has nothing more to say";
}

TEST_F(LinksTest, AFileThatIsTakenLateLeavesNoneOpen) {
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(before);
  for (int i = 0; i < 5; ++i) {
    zero_.sendFile(1, fileWith("one of several"));
  }
  EXPECT_TRUE(one_->receiveFile(0).valid());
  const int after = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(after);
  EXPECT_EQ(after, before) << "descriptors were left open";
}

TEST_F(LinksTest, SpeakingToTheDeadIsHarmless) {
  one_.reset();
  zero_.sayGoodbye();
  zero_.sendFile(1, fileWith("memory"));
  zero_.sayFailed({Cause::kTimeout, {1}, "it died"});
  EXPECT_EQ(zero_.look().size(), 1u);
}

// ---- another process

class ChildTest : public ::testing::Test {
 protected:
  // Starts a child at the other end of the link. This process keeps nothing of that end.
  void startChild(const std::function<void(Links&)>& body) {
    auto [here, there] = socketPair();
    const pid_t parent = ::getpid();
    child_.emplace([&] {
      here.reset();
      Links links(2);
      links.add(0, std::move(there), parent);
      body(links);
    });
    there.reset();
    zero_.add(1, std::move(here), child_->pid());
  }
  bool hasGone() {
    return eventually([&] { return !zero_.look().empty(); }, 10s);
  }

  Links zero_{2};
  std::optional<Child> child_;
};

TEST_F(ChildTest, AKilledOneIsSeenAtOnce) {
  startChild([](Links&) { ::pause(); });
  EXPECT_TRUE(zero_.look().empty());
  const auto start = Clock::now();
  ::kill(child_->pid(), SIGKILL);
  ASSERT_TRUE(hasGone());
  EXPECT_LT(Clock::now() - start, 500ms);
  EXPECT_EQ(zero_.look().front().how, Departure::How::kDied);
  EXPECT_EQ(zero_.look().front().pid, child_->pid());
}

// A worker that the dead process has forked still holds its sockets.
TEST_F(ChildTest, AKilledOneIsSeenThoughItsChildLives) {
  std::array<int, 2> life{};
  ASSERT_EQ(::pipe2(life.data(), O_CLOEXEC), 0);
  startChild([&](Links&) {
    if (::fork() == 0) {
      ::close(life[1]);
      char byte = 0;
      [[maybe_unused]] const ssize_t end = ::read(life[0], &byte, 1);
      ::_exit(0);
    }
    ::close(life[1]);
    ::pause();
  });
  std::this_thread::sleep_for(50ms);
  ::kill(child_->pid(), SIGKILL);
  EXPECT_TRUE(hasGone());
  ::close(life[0]);
  ::close(life[1]);
}

TEST_F(ChildTest, OneThatSaidGoodbyeHasLeft) {
  startChild([](Links& links) { links.sayGoodbye(); });
  ASSERT_TRUE(hasGone());
  EXPECT_EQ(zero_.look().front().how, Departure::How::kLeft);
}

TEST_F(ChildTest, OneThatJustExitsDied) {
  startChild([](Links&) {});
  ASSERT_TRUE(hasGone());
  EXPECT_EQ(zero_.look().front().how, Departure::How::kDied);
}

TEST_F(ChildTest, PassesAFile) {
  startChild([](Links& links) {
    links.sendFile(0, fileWith("from a child"));
    ::pause();
  });
  Fd received;
  ASSERT_TRUE(eventually([&] {
    received = zero_.receiveFile(1);
    return received.valid();
  }));
  EXPECT_EQ(contents(received), "from a child");
}

}  // namespace
}  // namespace bluefog::testing
