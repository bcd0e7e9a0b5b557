#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/KeyValueStore.hpp"
#include "bootstrap/Links.hpp"
#include "bootstrap/RankRecord.hpp"
#include "bootstrap/Records.hpp"
#include "bootstrap/Roster.hpp"
#include "core/Deadline.hpp"
#include "core/Error.hpp"
#include "core/Fd.hpp"

namespace bluefog {

// How the ranks of a group find each other. First they agree by the store which processes they are:
// see Roster. Then those of one host link up: each listens on an abstract unix socket, calls the
// ranks below it and is called by those above. The first rank of each host passes the memory.
//
// One that gives up leaves a notice in the store, which all on the roster read. One that dies is
// noticed by the ranks of its host, which leave a notice.
class Rendezvous {
 public:
  // `me` says what this process is. `interrupt` is called now and then, and may throw.
  Rendezvous(KeyValueStore& store, RankRecord me, int rank, Deadline deadline,
             std::function<void()> interrupt);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Waits until all ranks are known, and those of this host linked. Throws Error naming who is
  // missing or dead.
  void meet();
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(roster_.me().members.size()); }
  Deadline deadline() const { return deadline_; }

  // After meet():
  const RankRecord& record(int rank) const { return *roster_.record(rank); }
  bool isHere(int rank) const { return isHere(record(rank)); }
  bool spansHosts() const;
  // The first rank of this host.
  int leader() const;
  // The memory of the group on this host: `made` by the leader, received by the others.
  Fd share(Fd made);
  Links takeLinks() { return std::move(links_); }
  Records& records() { return *records_; }
  // Returns the text that a rank has published in records(). It waits as meet() does.
  std::string await(const std::string& topic, int rank);
  // Looks whether somebody is gone, as meet() does.
  void watch();
  // Passes a moment, and looks meanwhile whether this must come to nothing: see meet().
  void pause(const std::function<std::vector<int>()>& missing);
  // Tells the others why this rank cannot go on.
  void abandon(const std::string& why);

 private:
  enum class CallResult { kTaken, kBusy, kRefused };
  struct Caller {
    Fd socket;
    pid_t pid;
  };

  void listen();
  void agree();
  void link();
  std::vector<int> unlinked() const;
  // Returns the store's answer, or throws an error that says why there is none.
  template <typename Question>
  auto ask(const Question& question);
  // Gives up where another process has taken this one's place.
  void rejectTwin();
  // Tells the group that was made with an earlier process of this rank.
  void tellOfRival();
  // Why that record of a rank is of another group than this one; nothing where it is not.
  std::optional<Reason> otherMembers(const RankRecord& other, int rank) const;
  void checkIsAlike(int rank);
  CallResult call(int rank);
  void answerCalls();
  bool answer(Caller& caller);
  // Throws what others have left for this process: why the group comes to nothing.
  void readNotices();
  // Does nothing where the store has ended.
  void readNoticesIfAny();
  std::optional<Reason> notice(const std::string& id);
  void leaveNotice(const std::string& id, const Reason& reason);
  void probe();
  void probeListeners();
  // Looks at some who are not on the roster.
  void probeNewcomers();
  // The process and this one are of one life of the job, as far as can be told. Where a job is
  // started anew in a store that it has used, records of its earlier life are there: one that is
  // older than this process, or than what it has tried before, may be of an earlier life. Its rank
  // is waited for.
  bool isOfThisLife(const RankRecord& record) const;
  bool isHere(const RankRecord& record) const { return record.place == roster_.me().place; }
  // Gives up where that process does not listen any more.
  void probeListener(int rank, const RankRecord& record);
  // Gives up on a process that listens no more, unless the rank has another one by now.
  void giveUpOnGone(int rank, const RankRecord& record, const std::string& what);
  [[noreturn]] void giveUp(const Reason& reason);
  void sayWhy(const Reason& reason);
  [[noreturn]] void giveUpOnTime(const std::vector<int>& missing);
  // kBusy: its queue is full of callers, so it lives.
  CallResult connect(const Fd& socket, const RankRecord& record) const;
  int global(int rank) const { return roster_.me().members[static_cast<size_t>(rank)]; }
  std::string name(int rank) const { return "rank " + std::to_string(global(rank)); }

  KeyValueStore& store_;
  int rank_;
  Deadline deadline_;
  std::function<void()> interrupt_;
  Roster roster_;
  std::optional<Records> records_;
  Fd listener_;
  std::vector<int> to_call_;
  std::list<Caller> callers_;  // connected, but have not said who they are
  Links links_;
  const int64_t last_end_before_;
  const Deadline::Clock::time_point began_ = Deadline::Clock::now();
  bool has_told_ = false;
  std::chrono::milliseconds pause_{1};
  Deadline next_probe_;
  int next_newcomer_ = 0;
};

}  // namespace bluefog
