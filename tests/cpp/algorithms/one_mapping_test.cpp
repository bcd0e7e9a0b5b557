// These tests run the algorithms without engines, all ranks on one mapping of the memory. With two
// mappings, ThreadSanitizer would not see a rank that reads what another one is still writing.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

// A BareRank drives the tasks of one operation, as an engine with nothing else to do would.
class BareRank {
 public:
  BareRank(const Segments& segments, int rank)
      : members(membership(rank, segments.shared().size())),
        wakeups(segments.shared()),
        board(segments, 0, members, wakeups),
        returns(segments, 1, members, wakeups),
        mailbox(segments, members, wakeups) {}

  void drive(std::vector<Task> tasks) {
    bool done = false;
    while (!done) {
      done = true;
      bool moved = mailbox.drain();
      for (Task& task : tasks) {
        moved |= !task.done() && task.advance();
        done = done && task.done();
      }
      wakeups.notifyAll();
      if (!moved) {
        std::this_thread::yield();
      }
    }
  }
  void drive(Task task) {
    std::vector<Task> one;
    one.push_back(std::move(task));
    drive(std::move(one));
  }

  const Membership members;
  PendingWakeups wakeups;
  Board board;
  Board returns;
  Mailbox mailbox;
};

void onOneMapping(int n, const std::function<void(BareRank&)>& body) {
  const Segments segments(Segment(Segment::create(n), n), 0);
  runThreads(n, [&](int rank) {
    BareRank me(segments, rank);
    body(me);
  });
}

MessageOp messageOf(OpKind kind, size_t count) {
  return {signatureOf<float>(kind, count), Deadline::never()};
}

TEST(OneMappingTest, AllreduceHasNoRaces) {
  onOneMapping(3, [](BareRank& me) {
    for (size_t count : {10u, 4'000u, 60'000u, 300'000u, 7u}) {
      std::vector<float> data(count, static_cast<float>(me.members.rank + 1));
      const CollectiveOp op(signatureOf<float>(OpKind::kAllReduce, count, ReduceKind::kSum),
                            Deadline::never());
      me.drive(allreduce(me.board, me.returns, op, Spans(spanOf(data))));
      EXPECT_TRUE(holds(data, [](size_t) { return 6.0f; }));
    }
  });
}

TEST(OneMappingTest, BroadcastHasNoRaces) {
  onOneMapping(3, [](BareRank& me) {
    for (int root = 0; root < 3; ++root) {
      std::vector<float> data(400'000, static_cast<float>(me.members.rank));
      Signature signature = signatureOf<float>(OpKind::kBroadcast, data.size());
      signature.root = static_cast<int16_t>(root);
      const CollectiveOp op(signature, Deadline::never());
      me.drive(broadcast(me.board, me.returns, op, bytesOf(data)));
      EXPECT_TRUE(holds(data, [&](size_t) { return static_cast<float>(root); }));
    }
  });
}

TEST(OneMappingTest, MessagesHaveNoRaces) {
  onOneMapping(2, [](BareRank& me) {
    const int peer = 1 - me.members.rank;
    for (size_t count : {10u, 300'000u, 11u}) {
      MessageOp op = messageOf(OpKind::kPointToPoint, count);
      const std::vector<float> sent(count, static_cast<float>(me.members.rank));
      std::vector<float> got(count, -1);
      addSend(me.mailbox, op, {peer, 1, spansOf(sent)});
      op.tasks.push_back(receive(me.mailbox, op, peer, 1, spanOf(got), std::make_shared<int>()));
      me.drive(std::move(op.tasks));
      EXPECT_TRUE(holds(got, [&](size_t) { return static_cast<float>(peer); }));
    }
  });
}

TEST(OneMappingTest, NeighborSumsHaveNoRaces) {
  onOneMapping(3, [](BareRank& me) {
    MessageOp op = messageOf(OpKind::kNeighborAllReduce, 200'000);
    const std::vector<float> input(200'000, static_cast<float>(me.members.rank));
    std::vector<float> output(input.size());
    std::vector<WeightedRank> others;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != me.members.rank) {
        others.push_back({rank, 1});
        addSend(me.mailbox, op, {rank, 0, spansOf(input)});
      }
    }
    op.tasks.push_back(neighborSum(me.mailbox, op, {1, others, 3, mixesOf(input, output)}, 0));
    me.drive(std::move(op.tasks));
    EXPECT_TRUE(holds(output, [](size_t) { return 1.0f; }));
  });
}

}  // namespace
}  // namespace bluefog::testing
