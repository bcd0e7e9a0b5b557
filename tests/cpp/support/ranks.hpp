#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/Algorithms.hpp"
#include "bootstrap/Links.hpp"
#include "core/Error.hpp"
#include "transport/engine/Engine.hpp"
#include "transport/memory/Segment.hpp"

#include "support/hosts.hpp"
#include "support/values.hpp"

namespace bluefog::testing {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using OpPtr = std::shared_ptr<Op>;
using CollectiveOpPtr = std::shared_ptr<CollectiveOp>;
using MessageOpPtr = std::shared_ptr<MessageOp>;
template <class T>
using Lists = std::vector<std::vector<T>>;

constexpr int kPatience = 90;  // seconds

// Runs body(0) to body(n - 1), each in a thread. The test fails where one throws. If one hangs, the
// process says so and ends.
inline void runThreads(int n, const std::function<void(int)>& body) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<char> running(static_cast<size_t>(n), 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
      }
      const std::lock_guard lock(mutex);
      running[static_cast<size_t>(rank)] = 0;
      changed.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  const auto ended = [&] { return std::accumulate(running.begin(), running.end(), 0) == 0; };
  // The limit counts waits of one second, so that a machine that was suspended meanwhile does not
  // exceed it.
  int seconds = 0;
  while (!changed.wait_for(lock, 1s, ended) && ++seconds < kPatience) {
  }
  if (!ended()) {
    for (int rank = 0; rank < n; ++rank) {
      if (running[static_cast<size_t>(rank)] != 0) {
        std::fprintf(stderr, "rank %d of %d hangs\n", rank, n);
      }
    }
    std::abort();
  }
  lock.unlock();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

inline Membership membership(int rank, int size) {
  Membership members;
  members.rank = rank;
  members.size = size;
  members.global_ranks.resize(static_cast<size_t>(size));
  std::iota(members.global_ranks.begin(), members.global_ranks.end(), 0);
  return members;
}

template <class T>
std::byte* bytesOf(std::vector<T>& data) {
  return reinterpret_cast<std::byte*>(data.data());
}
template <class T>
const std::byte* bytesOf(const std::vector<T>& data) {
  return reinterpret_cast<const std::byte*>(data.data());
}

template <class T>
Span spanOf(std::vector<T>& data) {
  return {bytesOf(data), data.size() * sizeof(T)};
}
template <class T>
ConstSpans spansOf(const std::vector<T>& data) {
  return ConstSpans(ConstSpan{bytesOf(data), data.size() * sizeof(T)});
}
template <class T>
SegmentList<SumPiece> mixesOf(const std::vector<T>& input, std::vector<T>& output) {
  return SegmentList<SumPiece>(
      SumPiece{bytesOf(input), bytesOf(output), input.size() * sizeof(T), kDtype<T>});
}

template <class T>
Signature signatureOf(OpKind kind, size_t count, ReduceKind reduce = ReduceKind::kNone) {
  Signature signature;
  signature.kind = kind;
  signature.reduce = reduce;
  signature.dtype = kDtype<T>;
  signature.count = count;
  return signature;
}

// A Rank is one rank of a group in this process. It makes operations on memory that must outlive
// them, and runs them as ProcessGroupBluefog does.
// Thread safety: one thread at a time.
class Rank {
 public:
  Rank(const Fd& memory, Membership members, Engine::Interrupt interrupt = nullptr)
      : self(members.rank),
        size(members.size),
        engine(Segments(Segment(memory, members.size), members.rank), members, Links(members.size),
               nullptr, std::move(interrupt)) {}
  Rank(const Hosts& hosts, Membership members)
      : self(members.rank),
        size(members.size),
        engine(hosts.segments(self), members, linksOf(hosts, members), hosts.transport(self),
               nullptr) {}

  CollectiveOpPtr collective(const Signature& signature) {
    return std::make_shared<CollectiveOp>(signature, Deadline::in(limit));
  }
  MessageOpPtr message(const Signature& signature) {
    auto op = std::make_shared<MessageOp>(signature, Deadline::in(limit));
    if (isBetweenNeighbors(signature.kind)) {
      op->counter = Counter();
    }
    return op;
  }

  template <class T>
  CollectiveOpPtr allreduce(std::vector<T>& data, ReduceKind kind = ReduceKind::kSum) {
    CollectiveOpPtr op = collective(signatureOf<T>(OpKind::kAllReduce, data.size(), kind));
    op->tasks.push_back(
        bluefog::allreduce(engine.board(), engine.returns(), *op, Spans(spanOf(data))));
    return op;
  }

  template <class T>
  CollectiveOpPtr broadcast(std::vector<T>& data, int root) {
    Signature signature = signatureOf<T>(OpKind::kBroadcast, data.size());
    signature.root = static_cast<int16_t>(root);
    CollectiveOpPtr op = collective(signature);
    op->tasks.push_back(bluefog::broadcast(engine.board(), engine.returns(), *op, bytesOf(data)));
    return op;
  }

  // The ranks agree on the sizes, and outputs[self] has its size, too.
  template <class T>
  CollectiveOpPtr allgather(const std::vector<T>& input, Lists<T>& outputs) {
    std::vector<std::byte*> data;
    std::vector<size_t> bytes;
    Signature signature = signatureOf<T>(OpKind::kAllGather, 0);
    for (std::vector<T>& output : outputs) {
      data.push_back(bytesOf(output));
      bytes.push_back(output.size() * sizeof(T));
      signature.count += output.size();
    }
    CollectiveOpPtr op = collective(signature);
    op->tasks.push_back(bluefog::allgather(engine.board(), engine.returns(), *op, bytesOf(input),
                                           std::move(data), std::move(bytes)));
    return op;
  }

  template <class T>
  CollectiveOpPtr reduceScatter(const Lists<T>& inputs, std::vector<T>& output,
                                ReduceKind kind = ReduceKind::kSum) {
    std::vector<const std::byte*> data;
    std::vector<size_t> counts;
    Signature signature = signatureOf<T>(OpKind::kReduceScatter, 0, kind);
    for (const std::vector<T>& input : inputs) {
      data.push_back(bytesOf(input));
      counts.push_back(input.size());
      signature.count += input.size();
      signature.detail = signature.detail * 31 + input.size();
    }
    CollectiveOpPtr op = collective(signature);
    op->tasks.push_back(bluefog::reduceScatter(engine.board(), engine.returns(), *op,
                                               std::move(data), std::move(counts),
                                               bytesOf(output)));
    return op;
  }

  template <class T>
  CollectiveOpPtr reduce(std::vector<T>& data, int root, ReduceKind kind = ReduceKind::kSum) {
    Signature signature = signatureOf<T>(OpKind::kReduce, data.size(), kind);
    signature.root = static_cast<int16_t>(root);
    CollectiveOpPtr op = collective(signature);
    op->tasks.push_back(bluefog::reduce(engine.board(), *op, bytesOf(data),
                                        self == root ? bytesOf(data) : nullptr));
    return op;
  }

  template <class T>
  CollectiveOpPtr exchange(const Lists<T>& inputs, Lists<T>& outputs) {
    std::vector<SendBlock> blocks;
    std::vector<RecvBlock> places;
    for (const std::vector<T>& input : inputs) {
      blocks.push_back({bytesOf(input), input.size() * sizeof(T)});
    }
    for (std::vector<T>& output : outputs) {
      places.push_back({bytesOf(output), output.size() * sizeof(T)});
    }
    CollectiveOpPtr op = collective(signatureOf<T>(OpKind::kAllToAll, 0));
    op->tasks.push_back(
        bluefog::exchange(engine.board(), *op, std::move(blocks), std::move(places)));
    return op;
  }

  CollectiveOpPtr barrier() {
    CollectiveOpPtr op = collective(Signature{});
    op->tasks.push_back(bluefog::barrier(engine.board(), *op));
    return op;
  }

  template <class T>
  MessageOpPtr send(const std::vector<T>& data, int destination, int64_t tag = 0) {
    MessageOpPtr op = message(signatureOf<T>(OpKind::kPointToPoint, data.size()));
    addSend(engine.mailbox(), *op, {destination, tag, spansOf(data)});
    return op;
  }

  template <class T>
  MessageOpPtr receive(std::vector<T>& data, int source, int64_t tag = 0,
                       const std::shared_ptr<int>& sender = std::make_shared<int>(-2)) {
    MessageOpPtr op = message(signatureOf<T>(OpKind::kPointToPoint, data.size()));
    op->tasks.push_back(bluefog::receive(engine.mailbox(), *op, source, tag, spanOf(data), sender));
    if (source != kAnySource) {
      op->partners = {source};
    }
    return op;
  }

  template <class T>
  MessageOpPtr neighborSum(const std::vector<T>& input, double self_weight,
                           std::vector<WeightedRank> sources, double divisor,
                           std::vector<T>& output, const std::vector<WeightedRank>& destinations,
                           int64_t tag = 0) {
    MessageOpPtr op = message(signatureOf<T>(OpKind::kNeighborAllReduce, input.size()));
    op->counter->tag = tag;
    for (const WeightedRank& destination : destinations) {
      addSend(engine.mailbox(), *op, {destination.rank, tag, spansOf(input), destination.weight});
      op->partners.push_back(destination.rank);
    }
    for (const WeightedRank& source : sources) {
      op->partners.push_back(source.rank);
    }
    op->tasks.push_back(bluefog::neighborSum(
        engine.mailbox(), *op, {self_weight, std::move(sources), divisor, mixesOf(input, output)},
        tag));
    return op;
  }

  // Has the engine's own thread run the operation.
  OpPtr start(OpPtr op) {
    engine.post(op, Engine::Who::kEngine);
    return op;
  }
  void finish(const OpPtr& op) {
    EXPECT_TRUE(engine.wait(*op, Deadline::never()));
    if (op->error) {
      std::rethrow_exception(op->error);
    }
  }
  void run(const OpPtr& op) {
    engine.post(op, Engine::Who::kCaller);
    finish(op);
  }
  void finishAll(const std::vector<OpPtr>& ops) {
    for (const OpPtr& op : ops) {
      finish(op);
    }
  }
  void synchronize() { run(barrier()); }

 private:
  static Links linksOf(const Hosts& hosts, const Membership& members) {
    Links links(members.size);
    for (const int peer : hosts.elsewhere(members.rank)) {
      links.addElsewhere(peer, 1, "host" + std::to_string(peer));
    }
    return links;
  }

 public:
  const int self;
  const int size;
  Engine engine;
  milliseconds limit{60'000};
};

inline void runRanksOn(const Hosts& hosts, int n, const std::function<void(Rank&)>& body) {
  runThreads(n, [&](int rank) {
    Rank me(hosts, membership(rank, n));
    body(me);
  });
}
inline void runRanksOn(int hosts_n, int n, const std::function<void(Rank&)>& body) {
  runRanksOn(Hosts(n, std::min(n, hosts_n)), n, body);
}
// Runs the ranks on one host, or on as many as BLUEFOG_TEST_HOSTS says.
inline void runRanks(int n, const std::function<void(Rank&)>& body) {
  const char* named = std::getenv("BLUEFOG_TEST_HOSTS");
  runRanksOn(named == nullptr ? 1 : std::atoi(named), n, body);
}
// Runs the ranks where no rank hears of another one that leaves early.
inline void runRanksUnheard(int n, const std::function<void(Rank&)>& body) {
  runRanksOn(1, n, body);
}

// Returns the error with which the call fails. The test fails where the call does not.
inline Error failureOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Cause::kAborted, {}, ""};
}

// Returns the error with which an operation that has ended has failed, or nothing.
inline std::optional<Error> errorOf(const Op& op) {
  if (!op.error) {
    return std::nullopt;
  }
  try {
    std::rethrow_exception(op.error);
  } catch (const Error& error) {
    return error;
  }
}

// Returns the part of a failure's text that is the same on all ranks.
inline std::string story(const Error& error) {
  const std::string text = error.what();
  const size_t at = text.find(": ");
  return at == std::string::npos ? text : text.substr(at + 2);
}

// Errors collects errors of several threads.
// Thread safety: each thread may set the error of a rank of its own.
class Errors {
 public:
  explicit Errors(int n) : errors_(static_cast<size_t>(n)) {}
  void set(int rank, Error error) { errors_[static_cast<size_t>(rank)] = std::move(error); }
  const Error& operator[](int rank) const { return *errors_[static_cast<size_t>(rank)]; }
  bool all() const {
    for (const std::optional<Error>& error : errors_) {
      if (!error) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::optional<Error>> errors_;
};

using Ranks = std::vector<int>;

// Says where two lists differ first, rather than print them.
template <class T, class PostedReceive>
::testing::AssertionResult holds(const std::vector<T>& got, const PostedReceive& expected) {
  for (size_t i = 0; i < got.size(); ++i) {
    const T wanted = expected(i);
    if (!sameValue(got[i], wanted)) {
      return ::testing::AssertionFailure() << "element " << i << " of " << got.size() << " is "
                                           << toDouble(got[i]) << ", not " << toDouble(wanted);
    }
  }
  return ::testing::AssertionSuccess();
}

constexpr size_t kLittle = 100;
constexpr size_t kMuch = 200'000;  // enough for several frames

inline std::vector<float> numbers(size_t count, int seed) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>((i + static_cast<size_t>(seed) * 17) % 1000);
  }
  return data;
}

inline ::testing::AssertionResult are(const std::vector<float>& got, int seed) {
  const std::vector<float> wanted = numbers(got.size(), seed);
  return holds(got, [&](size_t i) { return wanted[i]; });
}

inline bool eventually(const std::function<bool()>& happened, milliseconds limit = 20'000ms) {
  const auto end = Clock::now() + limit;
  while (!happened()) {
    if (Clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace bluefog::testing
