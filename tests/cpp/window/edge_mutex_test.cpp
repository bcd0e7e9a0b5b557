#include "window/EdgeMutex.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace bluefog::testing {
namespace {

using std::chrono::milliseconds;

TEST(EdgeMutexTest, NamesWhoHoldsIt) {
  EdgeMutex mutex{};
  EXPECT_FALSE(mutex.holder().has_value());
  EXPECT_FALSE(mutex.take(3).has_value());
  EXPECT_EQ(mutex.take(4), std::optional(3));
  EXPECT_EQ(mutex.holder(), std::optional(3));
  mutex.letGo();
  EXPECT_FALSE(mutex.take(4).has_value());
}

TEST(EdgeMutexTest, IsTakenFromTheDeadOnce) {
  EdgeMutex mutex{};
  mutex.take(3);
  EXPECT_FALSE(mutex.takeFrom(2, 0));
  EXPECT_TRUE(mutex.takeFrom(3, 0));
  EXPECT_FALSE(mutex.takeFrom(3, 1));
  EXPECT_EQ(mutex.holder(), std::optional(0));
}

TEST(EdgeMutexTest, IsTakenFromTheDeadWhileOthersWait) {
  EdgeMutex mutex{};
  mutex.take(3);
  std::thread waiter([&] { mutex.await(3, std::chrono::seconds(10)); });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(mutex.takeFrom(3, 0));
  mutex.letGo();
  waiter.join();
}

TEST(EdgeMutexTest, ExcludesThreads) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  EdgeMutex mutex{};
  int count = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < kRounds; ++i) {
        while (const std::optional<int> holder = mutex.take(rank)) {
          mutex.await(*holder, milliseconds(100));
        }
        ++count;
        mutex.letGo();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(count, kThreads * kRounds);
}

}  // namespace
}  // namespace bluefog::testing
