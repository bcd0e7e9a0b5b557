#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/Links.hpp"
#include "bootstrap/Records.hpp"
#include "bootstrap/Roster.hpp"
#include "core/Deadline.hpp"
#include "core/Error.hpp"
#include "core/Fd.hpp"

namespace bluefog {

// How the ranks of a group find each other on one host: each listens on an abstract unix socket,
// publishes its record, calls the ranks below it and is called by those above. A rank that dies
// meanwhile is noticed by every rank that has seen its record. Group rank 0 then passes the memory.
class Rendezvous {
 public:
  // `global_ranks` is for messages. `interrupt` is called now and then, and may throw.
  Rendezvous(Records& records, int rank, std::vector<int> global_ranks, Deadline deadline,
             std::function<void()> interrupt);

  // Waits until all ranks are linked. Throws Error naming who is missing, dead or elsewhere.
  void meet();
  // The memory of the group: `made` by group rank 0, received by the others.
  Fd share(Fd made);
  Links takeLinks() { return std::move(links_); }
  // Tells the others why this rank cannot go on.
  void abandon(const std::string& why);

 private:
  enum class Answer { kTaken, kBusy, kRefused };
  struct Caller {
    Fd socket;
    pid_t pid;
  };

  void listen();
  void publish();
  // Gives up where the store's record of this rank is another process's that lives.
  void rejectTwin(const std::optional<std::string>& found);
  void learn();
  RankRecord decode(int rank, const std::string& text);
  void checkPlace(int rank);
  Answer call(int rank);
  void answerCalls();
  bool answer(Caller& caller);
  void watch();
  void probeUnlinked();
  void pause();
  [[noreturn]] void giveUp(Cause cause, const std::vector<int>& ranks, const std::string& why);
  [[noreturn]] void giveUpOnTime();
  // kBusy: its queue is full of callers, so it lives.
  Answer connect(const Fd& socket, int rank) const;
  int size() const { return static_cast<int>(global_ranks_.size()); }
  int global(int rank) const { return global_ranks_[static_cast<size_t>(rank)]; }

  Records& published_;
  int rank_;
  std::vector<int> global_ranks_;
  Deadline deadline_;
  std::function<void()> interrupt_;
  RankRecord me_;
  Fd listener_;
  std::vector<std::optional<RankRecord>> records_;
  std::vector<int> to_call_;   // known, but not called yet
  std::list<Caller> callers_;  // connected, but have not said who they are
  Links links_;
  std::chrono::milliseconds pause_{1};
  Deadline next_probe_;
  int refusals_ = 0;
};

}  // namespace bluefog
