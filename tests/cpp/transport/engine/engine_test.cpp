#include "transport/engine/Engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace bluefog::testing {
namespace {

milliseconds processTime() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(time.tv_sec) +
                                                  std::chrono::nanoseconds(time.tv_nsec));
}

// The group has two ranks. Each test drives one or both of them from threads of its own.
class EngineTest : public ::testing::Test {
 protected:
  // Starts a receive on rank 0 that is not answered before answer().
  OpPtr pending() { return zero.start(zero.receive(got_, 1)); }
  void answer() { one.run(one.send(sent_, 0)); }

  const Fd memory_ = Segment::create(2);
  std::vector<float> got_ = std::vector<float>(3, -1);
  const std::vector<float> sent_ = {1, 2, 3};

 public:
  Rank zero{memory_, membership(0, 2)};
  Rank one{memory_, membership(1, 2)};
};

TEST_F(EngineTest, RunsWhatNobodyWaitsFor) {
  std::vector<float> a(1000, 1);
  std::vector<float> b(1000, 2);
  const OpPtr first = zero.start(zero.allreduce(a));
  const OpPtr second = one.start(one.allreduce(b));
  EXPECT_TRUE(eventually([&] { return first->done && second->done; }));
  EXPECT_TRUE(holds(a, [](size_t) { return 3.0f; }));
  EXPECT_TRUE(holds(b, [](size_t) { return 3.0f; }));
}

TEST_F(EngineTest, RunsTheRestAfterAWait) {
  std::vector<float> late(2, -1);
  const OpPtr rest = zero.start(zero.receive(late, 1, 9));
  const OpPtr first = pending();
  answer();
  zero.finish(first);
  one.run(one.send(std::vector<float>{5, 5}, 0, 9));
  EXPECT_TRUE(eventually([&] { return rest->done.load(); }));
  EXPECT_TRUE(holds(late, [](size_t) { return 5.0f; }));
}

TEST_F(EngineTest, NumbersCollectivesAndMessagesApart) {
  const OpPtr message = pending();
  EXPECT_EQ(message->sequence, 1u);
  std::vector<OpPtr> ops;
  for (uint64_t number = 1; number <= 3; ++number) {
    ops.push_back(zero.start(zero.barrier()));
    EXPECT_EQ(ops.back()->sequence, number);
    one.start(one.barrier());
  }
  zero.finishAll(ops);
}

TEST_F(EngineTest, WaitEndsAtItsLimit) {
  const OpPtr op = pending();
  const auto start = Clock::now();
  EXPECT_FALSE(zero.engine.wait(*op, Deadline::in(100ms)));
  EXPECT_GE(Clock::now() - start, 100ms);
  EXPECT_LT(Clock::now() - start, 1s);
  EXPECT_FALSE(op->done);
  answer();
  EXPECT_TRUE(zero.engine.wait(*op, Deadline::never()));
  EXPECT_EQ(got_, sent_);
}

TEST_F(EngineTest, SeveralThreadsMayWait) {
  constexpr int kThreads = 4;
  Lists<float> data(kThreads, std::vector<float>(10'000, -1));
  const std::vector<float> sent(10'000, 7);
  runThreads(2 * kThreads, [&](int thread) {
    if (thread < kThreads) {
      zero.run(zero.receive(data[static_cast<size_t>(thread)], 1, thread));
    } else {
      std::this_thread::sleep_for(milliseconds(thread));
      one.run(one.send(sent, 0, thread - kThreads));
    }
  });
  for (const std::vector<float>& got : data) {
    EXPECT_EQ(got, sent);
  }
}

TEST_F(EngineTest, SeveralThreadsMayWaitForOne) {
  const OpPtr op = pending();
  runThreads(4, [&](int thread) {
    if (thread == 3) {
      std::this_thread::sleep_for(20ms);
      answer();
    } else {
      zero.finish(op);
    }
  });
  EXPECT_EQ(got_, sent_);
}

// Threads post, wait and release operations on both ranks at the same time.
TEST_F(EngineTest, SeveralThreadsMayDoEverything) {
  constexpr int kThreads = 3;
  runThreads(2 * kThreads, [&](int thread) {
    Rank& me = thread < kThreads ? zero : one;
    const int tag = thread % kThreads;
    for (int round = 0; round < 200; ++round) {
      const std::vector<int32_t> data(round % 50 == 7 ? 50'000 : 10, round);
      std::vector<int32_t> got(data.size(), -1);
      const OpPtr sent = me.start(me.send(data, 1 - me.self, tag));
      const OpPtr received = me.receive(got, 1 - me.self, tag);
      if (round % 2 == 0) {
        me.run(received);
      } else {
        me.finish(me.start(received));
      }
      me.finish(sent);
      ASSERT_EQ(got, data);
    }
  });
}

// ---- stop and shutdown

Error endOf(Rank& me, const OpPtr& op) {
  return failureOf([&] { me.finish(op); });
}

TEST_F(EngineTest, StopWakesThoseWhoWait) {
  constexpr int kWaiting = 3;
  std::vector<OpPtr> ops;
  Lists<float> data(kWaiting, std::vector<float>(2));
  for (int i = 0; i < kWaiting; ++i) {
    ops.push_back(zero.start(zero.receive(data[static_cast<size_t>(i)], 1, i)));
  }
  Errors errors(kWaiting);
  std::atomic<int> waiting{0};
  runThreads(kWaiting + 1, [&](int thread) {
    if (thread < kWaiting) {
      ++waiting;
      errors.set(thread, endOf(zero, ops[static_cast<size_t>(thread)]));
      return;
    }
    EXPECT_TRUE(eventually([&] { return waiting == kWaiting; }));
    std::this_thread::sleep_for(50ms);
    const auto start = Clock::now();
    zero.engine.stop({Cause::kPeerFailed, {5}, "the roof fell in"});
    EXPECT_LT(Clock::now() - start, 1s);
  });
  ASSERT_TRUE(errors.all());
  for (int i = 0; i < kWaiting; ++i) {
    EXPECT_EQ(errors[i].cause(), Cause::kPeerFailed);
    EXPECT_EQ(errors[i].ranks(), Ranks{5});
    EXPECT_EQ(story(errors[i]), "the roof fell in");
  }
}

TEST_F(EngineTest, NothingIsPostedAfterStop) {
  zero.engine.stop(aborted("first"));
  zero.engine.stop(aborted("second"));
  EXPECT_EQ(story(failureOf([&] { zero.synchronize(); })), "first; make a new group");
  EXPECT_EQ(story(failureOf([&] { pending(); })), "first; make a new group");
}

TEST_F(EngineTest, ShutdownFailsWhatIsPending) {
  const OpPtr message = pending();
  const OpPtr collective = zero.start(zero.barrier());
  zero.engine.shutdown();
  ASSERT_TRUE(message->done && collective->done);
  for (const OpPtr& op : {message, collective}) {
    const std::optional<Error> error = errorOf(*op);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->cause(), Cause::kAborted);
    EXPECT_EQ(story(*error), "the process group was destroyed; make a new group");
  }
  zero.engine.shutdown();
}

// A send that nobody waited for still goes if it can.
TEST_F(EngineTest, ShutdownSendsWhatWasPosted) {
  zero.engine.post(zero.send(sent_, 1), Engine::Who::kCaller);
  zero.engine.shutdown();
  std::vector<float> got(3, -1);
  one.run(one.receive(got, 0));
  EXPECT_EQ(got, sent_);
}

TEST_F(EngineTest, ShutdownWakesThoseWhoWait) {
  for (int round = 0; round < 50; ++round) {
    const Fd memory = Segment::create(2);
    Rank me(memory, membership(0, 2));
    std::vector<float> data(2);
    const OpPtr op = round % 2 == 0 ? me.start(me.receive(data, 1)) : me.receive(data, 1);
    if (round % 2 != 0) {
      me.engine.post(op, Engine::Who::kCaller);
    }
    runThreads(3, [&](int thread) {
      if (thread == 2) {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
        me.engine.shutdown();
      } else {
        EXPECT_EQ(endOf(me, op).cause(), Cause::kAborted);
      }
    });
  }
}

TEST_F(EngineTest, SeveralThreadsMayShutDown) {
  for (int round = 0; round < 50; ++round) {
    const Fd memory = Segment::create(2);
    Rank me(memory, membership(0, 2));
    std::vector<float> data(2);
    const OpPtr op = me.start(me.receive(data, 1));
    runThreads(3, [&](int) { me.engine.shutdown(); });
    EXPECT_TRUE(op->done);
  }
}

TEST_F(EngineTest, MayPostWhileAnotherThreadShutsDown) {
  for (int round = 0; round < 50; ++round) {
    const Fd memory = Segment::create(2);
    Rank me(memory, membership(0, 2));
    runThreads(2, [&](int thread) {
      if (thread == 1) {
        std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
        me.engine.shutdown();
        return;
      }
      std::vector<float> data(2);
      EXPECT_EQ(failureOf([&] {
                  while (true) {
                    me.run(me.send(data, 0));
                    me.run(me.receive(data, 0));
                  }
                }).cause(),
                Cause::kAborted);
    });
  }
}

// ---- what it costs

// A receive that was given up keeps the engine's thread on duty, and the other rank's messages keep
// it busy.
TEST_F(EngineTest, EndsWhileItsThreadIsAtWorkForPeers) {
  for (int round = 0; round < 30; ++round) {
    const Fd memory = Segment::create(2);
    Rank sender{memory, membership(1, 2)};
    Rank me{memory, membership(0, 2)};
    std::vector<float> never(1);
    me.limit = 1ms;
    failureOf([&] { me.finish(me.start(me.receive(never, 1, 1))); });
    std::atomic<bool> has_ended{false};
    std::thread flood([&] {
      const std::vector<float> data(1);
      for (int i = 0; i < 100'000 && !has_ended; ++i) {
        sender.engine.wait(*sender.start(sender.send(data, 0, 2)), Deadline::in(100ms));
      }
    });
    std::this_thread::sleep_for(2ms);
    me.engine.shutdown();
    has_ended = true;
    flood.join();
  }
}

TEST_F(EngineTest, CostsNothingWhereThereIsNothingToDo) {
  const OpPtr op = pending();
  answer();
  zero.finish(op);
  std::this_thread::sleep_for(20ms);
  const milliseconds before = processTime();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT((processTime() - before).count(), 5);
}

TEST_F(EngineTest, CostsLittleWhileItWaits) {
  const OpPtr polled = pending();
  const OpPtr collective = one.start(one.barrier());
  const milliseconds before = processTime();
  EXPECT_FALSE(zero.engine.wait(*polled, Deadline::in(300ms)));
  EXPECT_LT((processTime() - before).count(), 60);
}

TEST_F(EngineTest, FreesWhatHasEnded) {
  std::weak_ptr<Op> trace;
  std::weak_ptr<int> memory;
  {
    const auto owned = std::make_shared<int>(1);
    const OpPtr op = zero.barrier();
    op->memory = owned;
    // A Work does the same: it concludes itself and holds its operation.
    op->finished = [op](Op&) {};
    trace = op;
    memory = owned;
    zero.start(op);
    one.run(one.barrier());
    zero.finish(op);
  }
  for (int i = 0; i < 3; ++i) {
    const OpPtr other = zero.start(zero.barrier());
    one.run(one.barrier());
    zero.finish(other);
  }
  EXPECT_TRUE(memory.expired()) << "the operation's memory is never freed";
  EXPECT_TRUE(trace.expired()) << "the operation is never freed";
}

// ---- callbacks

TEST_F(EngineTest, CallbacksRunOnceAndAfterTheResult) {
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    got_.assign(3, -1);
    const OpPtr op = zero.receive(got_, 1);
    op->finished = [&](Op& ended) {
      EXPECT_TRUE(ended.done);
      EXPECT_EQ(got_, sent_);
      ++calls;
    };
    zero.start(op);
    answer();
    EXPECT_TRUE(eventually([&] { return calls == round + 1; }));
    zero.finish(op);
  }
  EXPECT_EQ(calls, 20);
}

TEST_F(EngineTest, CallbacksRunWhenItFailed) {
  std::atomic<int> calls{0};
  const OpPtr op = zero.receive(got_, 1);
  op->finished = [&](Op& ended) { calls += ended.error ? 1 : 100; };
  zero.start(op);
  zero.engine.stop(aborted("enough"));
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
}

TEST_F(EngineTest, EpiloguesRunBeforeTheResultIsThere) {
  const OpPtr op = zero.receive(got_, 1);
  op->epilogue = [&] {
    EXPECT_FALSE(op->done);
    got_[0] = 100;
  };
  zero.engine.post(op, Engine::Who::kCaller);
  answer();
  zero.finish(op);
  EXPECT_EQ(got_[0], 100);
}

// Starts the next collective in the callback of the last one, as a hook of DDP does.
void chain(Rank& me, std::vector<float>& data, int left, std::atomic<int>& ended) {
  const OpPtr op = me.allreduce(data);
  op->finished = [&me, &data, left, &ended](Op&) {
    ++ended;
    if (left > 0) {
      chain(me, data, left - 1, ended);
    }
  };
  me.start(op);
}

TEST_F(EngineTest, CallbacksMayPost) {
  std::vector<float> a(10, 1);
  std::vector<float> b(10, 1);
  std::atomic<int> ended{0};
  chain(zero, a, 9, ended);
  chain(one, b, 9, ended);
  EXPECT_TRUE(eventually([&] { return ended == 20; }));
  EXPECT_TRUE(holds(a, [](size_t) { return 1024.0f; }));
}

TEST_F(EngineTest, CallbacksMayWait) {
  for (bool somebody_waits : {false, true}) {
    std::atomic<int> ended{0};
    std::vector<OpPtr> ops;
    for (Rank* me : {&zero, &one}) {
      const OpPtr op = me->barrier();
      op->finished = [me, &ended](Op&) {
        me->synchronize();
        ++ended;
      };
      ops.push_back(me->start(op));
    }
    runThreads(2, [&](int rank) {
      if (somebody_waits) {
        (rank == 0 ? zero : one).finish(ops[static_cast<size_t>(rank)]);
      }
      EXPECT_TRUE(eventually([&] { return ended == 2; }));
    });
  }
}

TEST_F(EngineTest, CallbacksMayShutDown) {
  std::atomic<int> calls{0};
  const OpPtr op = zero.receive(got_, 1);
  op->finished = [&](Op&) {
    zero.engine.shutdown();
    ++calls;
  };
  zero.start(op);
  std::vector<float> late(2);
  const OpPtr other = zero.start(zero.receive(late, 1, 9));
  answer();
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
  EXPECT_TRUE(other->done);
  EXPECT_EQ(failureOf([&] { zero.synchronize(); }).cause(), Cause::kAborted);
}

// ---- interrupts

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

TEST(InterruptTest, EndsAWaitAndNotTheOperation) {
  const Fd memory = Segment::create(2);
  std::atomic<bool> now{false};
  Rank zero(memory, membership(0, 2), [&] {
    if (now) {
      throw Interrupted();
    }
    return false;
  });
  Rank one(memory, membership(1, 2));
  std::vector<float> data(3, -1);
  const OpPtr op = zero.receive(data, 1);
  zero.engine.post(op, Engine::Who::kCaller);
  now = true;
  const auto start = Clock::now();
  EXPECT_THROW(zero.engine.wait(*op, Deadline::never()), Interrupted);
  EXPECT_LT(Clock::now() - start, 1s);
  now = false;
  // Nobody waits now, so the engine's thread continues with the operation.
  one.run(one.send(std::vector<float>{1, 2, 3}, 0));
  EXPECT_TRUE(eventually([&] { return op->done.load(); }));
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3}));
}

TEST(InterruptTest, MayUseTheGroup) {
  const Fd memory = Segment::create(1);
  Rank* self = nullptr;
  std::atomic<int> calls{0};
  const std::vector<float> sent(1);
  Rank me(memory, membership(0, 1), [&] {
    self->start(self->send(sent, 0));
    ++calls;
    return false;
  });
  self = &me;
  std::vector<float> data(2);
  const OpPtr op = me.start(me.receive(data, 0, 7));
  EXPECT_FALSE(me.engine.wait(*op, Deadline::in(300ms)));
  EXPECT_GE(calls, 1);
}

}  // namespace
}  // namespace bluefog::testing
