#include "transport/messages/Mailbox.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <map>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

TEST(MessagesTest, OfEverySizeArrive) {
  runRanks(2, [](Rank& me) {
    const size_t frame = Lane::payload() / sizeof(float);
    for (size_t count :
         {size_t{0}, size_t{1}, kLittle, frame - 1, frame, frame + 1, 2 * frame, size_t{300'001}}) {
      if (me.self == 0) {
        me.run(me.send(numbers(count, 3), 1));
      } else {
        std::vector<float> data(count, -1);
        me.run(me.receive(data, 0));
        EXPECT_TRUE(are(data, 3)) << count << " elements";
      }
    }
  });
}

// Small and large messages are sent in another order than they are received in.
TEST(MessagesTest, AreFoundByTheirTags) {
  runRanks(2, [](Rank& me) {
    Lists<float> data;
    std::vector<OpPtr> ops;
    for (int tag = 0; tag < 10; ++tag) {
      data.push_back(numbers(tag % 2 == 0 ? kLittle : kMuch, tag));
    }
    if (me.self == 0) {
      for (int tag : {3, 1, 2, 9, 8, 0, 5, 7, 6, 4}) {
        ops.push_back(me.start(me.send(data[static_cast<size_t>(tag)], 1, tag)));
      }
      me.finishAll(ops);
      return;
    }
    for (int tag = 0; tag < 10; ++tag) {
      std::vector<float>& got = data[static_cast<size_t>(tag)];
      got.assign(got.size(), -1);
      me.run(me.receive(got, 0, tag));
      EXPECT_TRUE(are(got, tag)) << "tag " << tag;
    }
  });
}

TEST(MessagesTest, OfOneTagArriveInOrder) {
  runRanks(2, [](Rank& me) {
    Lists<float> data;
    std::vector<OpPtr> ops;
    for (int k = 0; k < 60; ++k) {
      data.push_back(numbers(k % 3 == 0 ? kMuch : kLittle, k));
    }
    for (int k = 0; k < 60; ++k) {
      std::vector<float>& mine = data[static_cast<size_t>(k)];
      if (me.self == 1) {
        mine.assign(mine.size(), -1);
      }
      ops.push_back(me.start(me.self == 0 ? me.send(mine, 1) : me.receive(mine, 0)));
    }
    me.finishAll(ops);
    for (int k = 0; k < 60; ++k) {
      EXPECT_TRUE(are(data[static_cast<size_t>(k)], k)) << "message " << k;
    }
  });
}

TEST(MessagesTest, RunBothWaysAtOnce) {
  runRanks(3, [](Rank& me) {
    Lists<float> sent;
    Lists<float> got;
    for (int peer = 0; peer < me.size; ++peer) {
      sent.push_back(numbers(kMuch, me.self * 10 + peer));
      got.emplace_back(kMuch);
    }
    std::vector<OpPtr> ops;
    for (int peer = 0; peer < me.size; ++peer) {
      ops.push_back(me.start(me.send(sent[static_cast<size_t>(peer)], peer)));
    }
    for (int peer = 0; peer < me.size; ++peer) {
      ops.push_back(me.start(me.receive(got[static_cast<size_t>(peer)], peer)));
    }
    me.finishAll(ops);
    for (int peer = 0; peer < me.size; ++peer) {
      EXPECT_TRUE(are(got[static_cast<size_t>(peer)], peer * 10 + me.self));
    }
  });
}

TEST(MessagesTest, MayComeFromAnybody) {
  runRanks(4, [](Rank& me) {
    for (size_t count : {kLittle, kMuch}) {
      const auto tag = static_cast<int64_t>(count);
      if (me.self != 0) {
        me.run(me.send(numbers(count, me.self), 0, tag));
        me.run(me.send(numbers(count, me.self + 10), 0, tag));
        continue;
      }
      std::map<int, int> heard;
      for (int k = 0; k < 6; ++k) {
        std::vector<float> data(count, -1);
        const auto sender = std::make_shared<int>(-2);
        me.run(me.receive(data, kAnySource, tag, sender));
        ASSERT_TRUE(*sender >= 1 && *sender <= 3);
        EXPECT_TRUE(are(data, *sender + 10 * heard[*sender])) << "from " << *sender;
        ++heard[*sender];
      }
      EXPECT_EQ(heard, (std::map<int, int>{{1, 2}, {2, 2}, {3, 2}}));
    }
  });
}

TEST(MessagesTest, MayGoToOneself) {
  runRanks(2, [](Rank& me) {
    for (size_t count : {size_t{0}, kLittle, kMuch}) {
      const std::vector<float> data = numbers(count, me.self);
      std::vector<float> got(count, -1);
      const OpPtr sent = me.start(me.send(data, me.self, 1));
      me.run(me.receive(got, me.self, 1));
      me.finish(sent);
      EXPECT_TRUE(are(got, me.self));
    }
  });
}

TEST(MessagesTest, MayBeUnexpected) {
  runRanks(2, [](Rank& me) {
    constexpr int kMessages = 40;
    const auto count = [](int tag) { return tag % 8 == 0 ? kMuch : kLittle; };
    if (me.self == 0) {
      Lists<float> data;
      std::vector<OpPtr> ops;
      for (int tag = 0; tag < kMessages; ++tag) {
        data.push_back(numbers(count(tag), tag));
      }
      for (int tag = 0; tag < kMessages; ++tag) {
        ops.push_back(me.start(me.send(data[static_cast<size_t>(tag)], 1, tag)));
      }
      me.synchronize();
      me.finishAll(ops);
      return;
    }
    me.synchronize();
    for (int tag = kMessages - 1; tag >= 0; --tag) {
      std::vector<float> got(count(tag), -1);
      me.run(me.receive(got, 0, tag));
      EXPECT_TRUE(are(got, tag)) << "tag " << tag;
    }
  });
}

// The receiver takes none of the messages. Beyond the sender's credit, even an empty message waits
// for the receiver.
TEST(MessagesTest, ThatAreEmptyDoNotPileUpWithoutEnd) {
  runRanks(2, [](Rank& me) {
    constexpr int kMost = 65'536;
    constexpr int kFastPathLimit = 256;
    const std::vector<float> nothing;
    if (me.self == 0) {
      for (int message = 0; message < kMost; message += kFastPathLimit) {
        std::vector<OpPtr> sends(kFastPathLimit);
        std::ranges::generate(sends, [&] { return me.start(me.send(nothing, 1)); });
        std::ranges::for_each(sends, [&](const OpPtr& send) { me.finish(send); });
      }
      me.limit = 50ms;
      EXPECT_EQ(failureOf([&] { me.run(me.send(nothing, 1)); }).cause(), Cause::kTimeout);
    }
    me.limit = 60s;
    me.synchronize();
  });
}

TEST(MessagesTest, DoNotWaitForCollectives) {
  runRanks(2, [](Rank& me) {
    std::vector<float> sum(kMuch, 1);
    std::vector<float> data = numbers(kMuch, 1);
    if (me.self == 0) {
      const OpPtr reduced = me.start(me.allreduce(sum));
      me.run(me.send(data, 1));
      me.finish(reduced);
    } else {
      data.assign(kMuch, -1);
      me.run(me.receive(data, 0));
      EXPECT_TRUE(are(data, 1));
      me.run(me.allreduce(sum));
    }
    EXPECT_TRUE(holds(sum, [](size_t) { return 2.0f; }));
  });
}

// ---- who does not come

TEST(MessagesTest, ThatDoNotComeAreTimedOut) {
  runRanksUnheard(3, [](Rank& me) {
    if (me.self != 1) {
      return;
    }
    me.limit = 100ms;
    std::vector<float> data(kLittle);
    const Error error = failureOf([&] { me.run(me.receive(data, 0)); });
    EXPECT_EQ(error.cause(), Cause::kTimeout);
    EXPECT_EQ(error.ranks(), Ranks{0});
    EXPECT_EQ(story(error), "timeout after 0.1 s; nothing from rank 0");
    EXPECT_EQ(failureOf([&] { me.run(me.receive(data, kAnySource)); }).ranks(), (Ranks{0, 2}));
    EXPECT_EQ(failureOf([&] { me.run(me.send(numbers(kMuch, 0), 2)); }).ranks(), Ranks{2});
  });
}

// The k-th receive takes the k-th message, though the first receive was given up before its message
// came.
void giveUpTheFirst(size_t count) {
  runRanks(2, [count](Rank& me) {
    if (me.self == 1) {
      std::vector<float> data(count, -1);
      me.limit = 100ms;
      const Error error = failureOf([&] { me.run(me.receive(data, 0)); });
      EXPECT_EQ(error.cause(), Cause::kTimeout);
      me.limit = 30s;
      me.synchronize();
      me.run(me.receive(data, 0));
      EXPECT_TRUE(are(data, 2)) << "took the message that was meant for the first receive";
      return;
    }
    me.synchronize();
    const std::vector<float> one = numbers(count, 1);
    const std::vector<float> two = numbers(count, 2);
    const OpPtr first = me.start(me.send(one, 1));
    const OpPtr second = me.start(me.send(two, 1));
    me.finish(second);
    if (count == kLittle) {
      me.finish(first);  // it was sent before anybody looked at it
      return;
    }
    const Error error = failureOf([&] { me.finish(first); });
    EXPECT_EQ(error.cause(), Cause::kTimeout);
    EXPECT_EQ(error.ranks(), Ranks{0});
    EXPECT_EQ(story(error),
              "rank 1 had already given up the matching operation: nothing from rank 0; this rank "
              "came too late");
  });
}

TEST(MessagesTest, ThatCameTooLateAreThrownAway) {
  giveUpTheFirst(kLittle);
  giveUpTheFirst(kMuch);
}

// The rank that has given up is heard though it calls nothing in this group any more.
TEST(MessagesTest, WhoHasGivenUpSaysSoToWhoComesLater) {
  std::latch cancel_reason(1);
  std::latch heard(1);
  runRanks(2, [&](Rank& me) {
    std::vector<float> data(kMuch);
    if (me.self == 1) {
      me.limit = 50ms;
      failureOf([&] { me.run(me.receive(data, 0)); });
      cancel_reason.count_down();
      heard.wait();
    } else {
      cancel_reason.wait();
      me.limit = 5s;
      const Error error = failureOf([&] { me.run(me.send(data, 1)); });
      EXPECT_EQ(error.ranks(), Ranks{0});  // its own limit would blame rank 1
      heard.count_down();
    }
  });
}

TEST(MessagesTest, ThatCameTooLateDoNotGoToAnotherTag) {
  runRanks(2, [](Rank& me) {
    std::vector<float> data(kLittle, -1);
    if (me.self == 1) {
      me.limit = 50ms;
      failureOf([&] { me.run(me.receive(data, 0, 1)); });
      me.limit = 30s;
      me.synchronize();
      me.run(me.receive(data, 0, 2));
      EXPECT_TRUE(are(data, 2));
      me.run(me.receive(data, 0, 1));
      EXPECT_TRUE(are(data, 3));
      return;
    }
    me.synchronize();
    me.run(me.send(numbers(kLittle, 1), 1, 1));
    me.run(me.send(numbers(kLittle, 2), 1, 2));
    me.run(me.send(numbers(kLittle, 3), 1, 1));
  });
}

TEST(MessagesTest, ATimeoutLeavesOtherOperationsAlone) {
  runRanks(2, [](Rank& me) {
    std::vector<float> data(kMuch, -1);
    if (me.self == 1) {
      const OpPtr patient = me.start(me.receive(data, 0, 2));
      me.limit = 50ms;
      std::vector<float> never(kMuch);
      failureOf([&] { me.run(me.receive(never, 0, 1)); });
      me.limit = 30s;
      me.synchronize();
      me.finish(patient);
      EXPECT_TRUE(are(data, 2));
    } else {
      me.synchronize();
      me.run(me.send(numbers(kMuch, 2), 1, 2));
    }
  });
}

// ---- who does not agree

TEST(MessagesTest, BothSidesTellAMismatch) {
  Errors errors(2);
  runRanks(2, [&](Rank& me) {
    std::vector<int32_t> data(kMuch);
    errors.set(me.self, failureOf([&] {
                 me.run(me.self == 0 ? me.send(numbers(kMuch + 1, 0), 1) : me.receive(data, 0));
               }));
    // Nothing is left of the mismatch.
    std::vector<float> next(kMuch, -1);
    me.run(me.self == 0 ? me.send(numbers(kMuch, 4), 1) : me.receive(next, 0));
    EXPECT_TRUE(me.self == 0 || are(next, 4));
  });
  ASSERT_TRUE(errors.all());
  EXPECT_EQ(errors[0].cause(), Cause::kMismatch);
  EXPECT_EQ(errors[1].cause(), Cause::kMismatch);
  EXPECT_EQ(errors[0].ranks(), (Ranks{0, 1}));
  EXPECT_EQ(story(errors[0]), story(errors[1]));
  EXPECT_NE(story(errors[0]).find("rank 0 called point-to-point float32[200001], "
                                  "rank 1 called point-to-point int32[200000]"),
            std::string::npos)
      << story(errors[0]);
}

// A small message has left before its receiver looks at it, so its sender hears of the mismatch at
// its next call.
TEST(MessagesTest, ASmallMismatchIsToldLater) {
  runRanks(2, [](Rank& me) {
    std::vector<float> data(kLittle);
    if (me.self == 0) {
      me.run(me.send(numbers(kLittle + 1, 0), 1));
      me.synchronize();
      std::vector<float> answer(1);
      me.limit = 5s;
      const Error error = failureOf([&] {
        me.run(me.receive(answer, 1));
        me.run(me.receive(answer, 1));
      });
      EXPECT_EQ(error.cause(), Cause::kMismatch);
      EXPECT_EQ(error.ranks(), Ranks{1});
      EXPECT_NE(story(error).find("it called point-to-point float32[100]"), std::string::npos);
    } else {
      const Error error = failureOf([&] { me.run(me.receive(data, 0)); });
      EXPECT_EQ(error.cause(), Cause::kMismatch);
      EXPECT_EQ(error.ranks(), (Ranks{0, 1}));
      me.synchronize();
      me.run(me.send(std::vector<float>(1), 0));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
