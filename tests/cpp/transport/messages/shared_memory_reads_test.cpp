#include "transport/messages/SharedMemoryReads.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "support/processes.hpp"
#include "support/stepped.hpp"
#include "transport/memory/Ring.hpp"

namespace bluefog::testing {
namespace {

constexpr size_t kCount = 700'000;  // a receiver reads this in three stretches
constexpr size_t kBytes = kCount * sizeof(float);

// Rank 1 offers a tensor in its heap to rank 0, and averages with rank 2, which may die.
class OffersTest : public ::testing::Test {
 protected:
  OffersTest() {
    one_.emplace(memory_, 1, 3, std::move(links_.links));
    input_ = reinterpret_cast<float*>(one_->heap->take(kBytes));
    const std::vector<float> values = numbers(kCount, 1);
    std::copy(values.begin(), values.end(), input_);
  }

  OpPtr give(const std::vector<int>& sources = {}) {
    return one_->average({reinterpret_cast<const std::byte*>(input_), kBytes}, spanOf(output_),
                         sources, {0});
  }
  OpPtr take() { return zero_.average({bytesOf(none_), kBytes}, spanOf(got_), {1}, {}); }
  void failForWantOfTwo() {
    links_.die(2);
    one_->tick();
    one_->scheduler.takeFinished();
    std::fill(input_, input_ + kCount, -1.0F);  // its caller may do so from now on
  }
  void finish(const OpPtr& op) {
    while (!zero_.scheduler.anyFinished()) {
      zero_.scheduler.progress();
      one_->scheduler.progress();
    }
    EXPECT_EQ(zero_.scheduler.takeFinished().front(), op);
  }
  uint64_t framesInLane() const { return cursorAt(one_->segments->shared().lane(1, 0), 0).load(); }

  const Fd memory_ = Segment::create(3);
  LinksOfOne links_;
  std::vector<float> output_ = std::vector<float>(kCount);
  std::vector<float> none_ = std::vector<float>(kCount);
  std::vector<float> got_ = std::vector<float>(kCount);
  SteppedRank zero_{memory_, 0, 3, Links(3)};
  std::optional<SteppedRank> one_;
  float* input_ = nullptr;
};

TEST_F(OffersTest, AreReadWhereTheyLie) {
  const OpPtr gives = give();
  const OpPtr takes = take();
  finish(takes);
  EXPECT_FALSE(errorOf(*takes));
  EXPECT_TRUE(are(got_, 1));
  EXPECT_EQ(framesInLane(), 1);  // a single frame says where the data lies
  one_->scheduler.progress();
  EXPECT_TRUE(one_->scheduler.anyFinished());
  EXPECT_FALSE(errorOf(*gives));
  EXPECT_EQ(one_->scheduler.mailbox().counters().sent(), kBytes);
}

// Offers carry samples for StorePolicy as frames of data do (see store_policy_test.cpp).
TEST_F(OffersTest, TellNowAndThenHowTheyAreReadBest) {
  int timed = 0;
  for (int call = 0; call < 64; ++call) {
    const Frame* frame =
        slotAt(one_->segments->shared().lane(1, 0), Segment::laneShape(), framesInLane());
    give();
    const OpPtr takes = take();
    finish(takes);
    one_->scheduler.progress();
    one_->scheduler.takeFinished();
    timed += frame->written != StoreSample::kNone;
  }
  EXPECT_EQ(timed, 8);
}

TEST_F(OffersTest, TheirSenderWaitsUntilTheyAreRead) {
  give();
  for (int i = 0; i < 10; ++i) {
    one_->scheduler.progress();
    zero_.scheduler.progress();
  }
  EXPECT_FALSE(one_->scheduler.anyFinished());
}

TEST_F(OffersTest, TheirReceiverEndsWhenItsAnswersAreThere) {
  std::vector<OpPtr> taken;
  size_t ended = 0;
  for (uint64_t i = 0; i <= ControlRing::kEntries; ++i) {
    give();  // the sender does not read control messages meanwhile
    taken.push_back(take());
    for (int pass = 0; pass < 5; ++pass) {
      zero_.scheduler.progress();
    }
    ended += zero_.scheduler.takeFinished().size();
  }
  EXPECT_EQ(ended, ControlRing::kEntries);
  finish(taken.back());
}

TEST_F(OffersTest, OfOneThatFailedAreNotRead) {
  give({2});
  failForWantOfTwo();
  const OpPtr takes = take();
  finish(takes);
  EXPECT_FALSE(errorOf(*takes));
  EXPECT_TRUE(are(got_, 1));
  EXPECT_GT(framesInLane(), 1);
}

TEST_F(OffersTest, ThatEndWhileTheyAreReadAreReadAgain) {
  give({2});
  const OpPtr takes = take();
  zero_.scheduler.progress();
  zero_.scheduler.progress();
  ASSERT_EQ(got_[0], numbers(1, 1)[0]);  // the receiver has begun to read
  ASSERT_EQ(got_.back(), 0);
  ASSERT_FALSE(zero_.scheduler.anyFinished());
  failForWantOfTwo();
  finish(takes);
  EXPECT_FALSE(errorOf(*takes));
  EXPECT_TRUE(are(got_, 1));
}

TEST_F(OffersTest, OfOneWhoseCopyWouldBeTooLargeFail) {
  const size_t calls = (size_t{260} << 20) / kBytes;
  for (size_t call = 0; call <= calls; ++call) {
    give({2});
  }
  failForWantOfTwo();
  size_t received = 0;
  std::optional<Error> error;
  while (!error && received <= calls) {
    const OpPtr takes = take();
    finish(takes);
    error = errorOf(*takes);
    ASSERT_TRUE(error || are(got_, 1)) << received;
    received += error ? 0 : 1;
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->ranks(), Ranks{2});
  EXPECT_GT(received, 0U);
}

TEST_F(OffersTest, BeyondTheHeapAreDamaged) {
  one_->average({reinterpret_cast<const std::byte*>(input_), kBytes}, spanOf(output_), {}, {0},
                one_->segments->shared().bytesOf(Segment::Area::kHeap) - kBytes / 2);
  take();
  EXPECT_THROW(
      {
        while (!zero_.scheduler.anyFinished()) {
          zero_.scheduler.progress();
        }
        std::rethrow_exception(zero_.scheduler.takeFinished().front()->error);
      },
      Error);
}

// Each rank changes its input as soon as its operation has ended.
TEST(OffersBetweenThreadsTest, NobodyReadsWhatComesAfter) {
  constexpr int kRounds = 30;
  runRanksUnheard(4, [&](Rank& me) {
    const std::shared_ptr<SharedHeap> heap = me.engine.makeHeap();
    auto* input = reinterpret_cast<float*>(heap->take(kBytes));
    std::vector<float> output(kCount);
    const int left = (me.self + 3) % 4;
    const int right = (me.self + 1) % 4;
    for (int round = 0; round < kRounds; ++round) {
      std::fill(input, input + kCount, static_cast<float>(4 * round + me.self));
      const MessageOpPtr op = me.message(signatureOf<float>(OpKind::kNeighborAllReduce, kCount));
      const auto* bytes = reinterpret_cast<const std::byte*>(input);
      for (const int peer : {left, right}) {
        Outgoing message{peer, 0, ConstSpans(ConstSpan{bytes, kBytes})};
        message.offer = heap->placeOf(bytes, kBytes);
        addSend(me.engine.mailbox(), *op, std::move(message));
      }
      op->partners = {left, right};
      const SumPiece piece{bytes, bytesOf(output), kBytes, Dtype::kFloat32};
      op->tasks.push_back(neighborSum(me.engine.mailbox(), *op,
                                      {0, {{left, 1}, {right, 1}}, 1, SegmentList<SumPiece>(piece)},
                                      0));
      me.run(op);
      const auto expected = static_cast<float>(8 * round + left + right);
      ASSERT_TRUE(holds(output, [&](size_t) { return expected; })) << round;
    }
    me.synchronize();
  });
}

}  // namespace
}  // namespace bluefog::testing
