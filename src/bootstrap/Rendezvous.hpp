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

// How the ranks of a group find each other: each publishes its record, and reads the others'. Those
// of one host link up: each listens on an abstract unix socket, calls the ranks below it and is
// called by those above. One that dies meanwhile is noticed by every rank of its host that has seen
// its record, and by the others since those say so. The first rank of each host passes the memory.
class Rendezvous {
 public:
  // `global_ranks` is for messages. `interrupt` is called now and then, and may throw.
  // `accelerator`: see RankRecord.
  Rendezvous(Records& records, int rank, std::vector<int> global_ranks, Deadline deadline,
             std::function<void()> interrupt, std::string accelerator = "");

  // Waits until all ranks are known, and those of this host linked. Throws Error naming who is
  // missing or dead.
  void meet();
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(global_ranks_.size()); }
  Deadline deadline() const { return deadline_; }
  const RankRecord& record(int rank) const { return *records_[static_cast<size_t>(rank)]; }
  bool isHere(int rank) const { return record(rank).place == me_.place; }
  bool spansHosts() const;
  // The first rank of this host.
  int leader() const;
  // The memory of the group on this host: `made` by the leader, received by the others.
  Fd share(Fd made);
  Links takeLinks() { return std::move(links_); }
  // Another record of a rank, under that topic. Waits as meet() does.
  std::string await(const std::string& topic, int rank);
  // Looks whether somebody is gone, as meet() does.
  void watch();
  // Passes a moment, and looks meanwhile whether this must come to nothing: see meet().
  void pause(const std::function<std::vector<int>()>& missing);
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
  std::optional<std::string> look(const std::string& topic, int rank);
  RankRecord decode(int rank, const std::string& text);
  void checkIsAlike(int rank);
  // Gives up where that record of this group's rank is one of another group.
  void checkMembers(int rank, const RankRecord& other);
  bool isMet(int rank) const;
  std::vector<int> unmet() const;
  Answer call(int rank);
  void answerCalls();
  bool answer(Caller& caller);
  void watchElsewhere();
  void probe();
  [[noreturn]] void giveUp(Cause cause, const std::vector<int>& ranks, const std::string& why);
  void sayWhy(Cause cause, const std::vector<int>& ranks, const std::string& why);
  [[noreturn]] void giveUpOnTime(const std::vector<int>& missing);
  // kBusy: its queue is full of callers, so it lives.
  Answer connect(const Fd& socket, int rank) const;
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
