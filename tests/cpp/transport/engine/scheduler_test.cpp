#include "transport/engine/Scheduler.hpp"

#include <gtest/gtest.h>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// The group has two ranks, whose schedulers the test drives itself, step by step.
class SchedulerTest : public ::testing::Test {
 protected:
  struct Side {
    Side(const Fd& memory, int rank)
        : members(membership(rank, 2)),
          segments(std::make_shared<const Segments>(Segment(memory, 2), rank)),
          scheduler(segments, members, Links(2), nullptr),
          peer(1 - rank) {}

    // Adds an operation that `task` completes. The vector that `task` gets lives as long as the
    // operation.
    OpPtr add(size_t count, const std::function<void(MessageOp&, std::vector<float>&)>& task) {
      Signature signature;
      signature.kind = OpKind::kPointToPoint;
      signature.dtype = kDtype<float>;
      signature.count = count;
      const auto op = std::make_shared<MessageOp>(signature, Deadline::in(std::chrono::minutes(1)));
      const auto data = std::make_shared<std::vector<float>>(count);
      op->memory = data;
      op->sequence = ++issued;
      task(*op, *data);
      scheduler.add(op);
      return op;
    }
    OpPtr send(size_t count) {
      return add(count, [&](MessageOp& op, const std::vector<float>& data) {
        addSend(scheduler.mailbox(), op, {peer, 0, spansOf(data)});
      });
    }
    OpPtr receive(size_t count) {
      return add(count, [&](MessageOp& op, std::vector<float>& data) {
        op.tasks.push_back(bluefog::receive(scheduler.mailbox(), op, peer, 0, spanOf(data),
                                            std::make_shared<int>()));
      });
    }

    Membership members;
    std::shared_ptr<const Segments> segments;
    Scheduler scheduler;
    int peer;
    uint64_t issued = 0;
  };

  Fd memory_ = Segment::create(2);
  Side zero_{memory_, 0};
  Side one_{memory_, 1};
};

std::string told(const OpPtr& op) {
  const std::optional<Error> error = errorOf(*op);
  return error ? story(*error) : "";
}

// The call that reports the first refusal sends a message that is itself refused later.
TEST_F(SchedulerTest, EachOfTwoLateRefusalsIsTold) {
  EXPECT_EQ(told(zero_.send(2)), "");
  const OpPtr first = one_.receive(1);
  one_.scheduler.progress();
  EXPECT_NE(told(first), "");

  zero_.receive(1);
  zero_.scheduler.progress();  // takes in the refusal
  const std::string of_first = told(zero_.send(3));
  EXPECT_NE(of_first.find("this rank's message #1"), std::string::npos) << of_first;
  const OpPtr second = one_.receive(1);
  one_.scheduler.progress();
  EXPECT_NE(told(second), "");

  zero_.scheduler.progress();
  const std::string of_second = told(zero_.receive(1));
  EXPECT_NE(of_second.find("this rank's message #3"), std::string::npos) << of_second;
  EXPECT_EQ(told(zero_.receive(1)), "");
}

TEST_F(SchedulerTest, TwoLateRefusalsAtOnceAreToldOneAfterTheOther) {
  zero_.send(2);
  zero_.send(3);
  one_.receive(1);
  one_.receive(1);
  one_.scheduler.progress();

  zero_.receive(1);
  zero_.scheduler.progress();  // takes in both refusals
  for (const char* which : {"this rank's message #1", "this rank's message #2"}) {
    const std::string told_of = told(zero_.send(1));
    EXPECT_NE(told_of.find(which), std::string::npos) << told_of;
  }
  EXPECT_EQ(told(zero_.send(1)), "");
}

TEST_F(SchedulerTest, ALateRefusalIsToldThoughItsTellerFailsOtherwise) {
  zero_.send(2);
  one_.receive(1);
  one_.scheduler.progress();
  zero_.receive(1);
  zero_.scheduler.progress();

  const OpPtr large = zero_.send(kMuch);  // has to wait for its receiver
  EXPECT_FALSE(errorOf(*large));
  zero_.scheduler.tick(Deadline::Clock::now() + std::chrono::hours(1));
  EXPECT_NE(told(large).find("this rank's message #1"), std::string::npos) << told(large);
}

// Rank 1 writes frames into its lane that no correct rank would write.
class DamagedLaneTest : public SchedulerTest {
 protected:
  void write(const Frame& frame) {
    *lane_.slot() = frame;
    lane_.publish();
  }
  Failure failure() {
    try {
      zero_.scheduler.progress();
    } catch (const Failure& failure) {
      return failure;
    }
    ADD_FAILURE() << "nothing was thrown";
    return aborted("");
  }
  static Frame frame(FrameType type, uint64_t count) {
    Frame frame;
    frame.type = type;
    frame.signature.kind = OpKind::kPointToPoint;
    frame.signature.dtype = kDtype<float>;
    frame.signature.count = count;
    return frame;
  }

  RingWriter lane_{zero_.segments->shared().lane(1, 0), Segment::laneShape()};
};

TEST_F(DamagedLaneTest, ASmallMessageThatIsNoneBlamesItsSender) {
  zero_.receive(kMuch);
  Frame small = frame(FrameType::kEager, kMuch);
  small.bytes = Lane::payload() + 1;
  write(small);
  EXPECT_EQ(failure().ranks, Ranks{1});
}

TEST_F(DamagedLaneTest, AMessageOfAnotherLengthThanItSaysBlamesItsSender) {
  const OpPtr op = zero_.receive(4);
  write(frame(FrameType::kEager, 4));
  zero_.scheduler.progress();
  const std::optional<Error> error = errorOf(*op);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->ranks(), Ranks{1});
}

TEST_F(DamagedLaneTest, AFrameThatBelongsNowhereBlamesItsSender) {
  zero_.receive(kMuch);
  Frame announced = frame(FrameType::kAnnounce, kMuch);
  announced.offset = kMuch * sizeof(float);
  write(announced);
  zero_.scheduler.progress();
  Frame data = frame(FrameType::kData, kMuch);
  data.offset = kMuch * sizeof(float) - 1;
  data.bytes = 2;
  write(data);
  const Failure failure = this->failure();
  EXPECT_EQ(failure.ranks, Ranks{1});
  EXPECT_EQ(failure.reason, "rank 1 has damaged a message");
}

}  // namespace
}  // namespace bluefog::testing
