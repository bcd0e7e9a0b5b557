#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/Callers.hpp"
#include "bootstrap/Endpoint.hpp"
#include "bootstrap/Epoch.hpp"
#include "bootstrap/KeyValueStore.hpp"
#include "bootstrap/Links.hpp"
#include "bootstrap/LocalSocket.hpp"
#include "bootstrap/RankRecord.hpp"
#include "bootstrap/Records.hpp"
#include "bootstrap/Roster.hpp"
#include "core/Deadline.hpp"
#include "core/Error.hpp"
#include "core/Fd.hpp"

namespace bluefog {

// A Rendezvous lets the ranks of a group find each other. First they agree by the store which
// processes form the group, as the comment of Roster explains. Then the ranks of each host connect:
// each one listens on an abstract unix socket, connects to the ranks below it and accepts those
// above it. The first rank of each host then passes the memory to the others.
//
// A rank that gives up leaves a notice in the store, which all ranks on the roster read. If a rank
// dies, the ranks of its host notice it and leave a notice.
//
// The members of an Epoch know each other before they meet, so they connect at once. They need the
// store only if some of them are on other hosts.
//
// The store must outlive the object, which owns the links until takeLinks().
// Thread safety: one thread at a time.
class Rendezvous {
 public:
  // `me` describes this process. `interrupt` is called now and then, and may throw to end the
  // rendezvous.
  Rendezvous(KeyValueStore& store, RankRecord me, int rank, Deadline deadline,
             std::function<void()> interrupt);
  // Makes the rendezvous of an epoch's members, where this process is called at its endpoint, which
  // must outlive the object.
  Rendezvous(KeyValueStore& store, Endpoint& endpoint, const Epoch& epoch, Deadline deadline,
             std::function<void()> interrupt);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Waits until all ranks are known and those of this host are linked. Throws Error that names the
  // ranks that are missing or dead.
  void meet();
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(roster_.me().members.size()); }
  Deadline deadline() const { return deadline_; }

  // The functions below may be called after meet().
  const RankRecord& record(int rank) const { return *roster_.record(rank); }
  bool isHere(int rank) const { return isHere(record(rank)); }
  bool spansHosts() const;
  // Returns the first rank of this host.
  int leader() const;
  // Returns the group's memory on this host. The leader passes it in as `made`; the other ranks
  // receive it from the leader, and wait for it as meet() does.
  Fd share(Fd made);
  Links takeLinks() { return std::move(links_); }
  Records& records() { return *records_; }
  // Waits as meet() does, and returns the text that the rank has published in records().
  std::string await(const std::string& topic, int rank);
  // Checks whether a linked peer has died or given up, and throws Error if so.
  void watch();
  // Waits a moment, and meanwhile looks for reasons to give up. Throws Error as meet() does; past
  // the deadline, that error names the ranks that `missing` returns.
  void pause(const std::function<std::vector<int>()>& missing);
  // Tells the others why this rank cannot make the group.
  void abandon(const std::string& why);

 private:
  void agree();
  // These two exchange by the store what has changed of the members' records since they gave their
  // handles. A rank publishes its record before it waits for the ranks of its host. Otherwise ranks
  // of other hosts would name this rank where one of its host is late.
  void publishRecord();
  void renewRecords();
  void link();
  std::vector<int> unlinked() const;
  // Returns the store's answer to the question, or throws an error that says why there is none.
  template <typename Question>
  auto ask(const Question& question);
  // Gives up where another process has taken this one's place.
  void rejectTwin();
  // Leaves a notice for the group that was made with an earlier process of this rank.
  void tellOfRival();
  // Returns why that rank's record belongs to another group than this one, or nothing where it does
  // not.
  std::optional<Reason> otherMembers(const RankRecord& other, int rank) const;
  void checkIsAlike(int rank);
  local_socket::CallResult call(int rank);
  // Calls a rank only so that it sees which epoch this process is in. Gives up if the rank has
  // answered the last such call that it is in another one.
  local_socket::CallResult knock(int rank, const RankRecord& record);
  // Returns what to say to the process of that record.
  std::string hello(const RankRecord& record, int as) const;
  void answerCalls();
  // These are Callers::Answer, the second one for a call for another epoch. Such a caller has
  // either ended this epoch and comes too early, or it will never come to this one.
  bool answer(Caller& caller);
  bool answerOther(Caller& caller);
  // Throws Error with the reason that others have left in the store for this process, if there is
  // one.
  void readNotices();
  // Reads the notices, but does nothing where the store has ended.
  void readNoticesIfAny();
  std::optional<Reason> notice(const std::string& id);
  void leaveNotice(const std::string& id, const Reason& reason);
  void probe();
  void probeListeners();
  // Probes some ranks of this host that are not on the roster.
  void probeNewcomers();
  // Returns whether the process was started in this life of the job, as far as can be told. A job
  // that was restarted in the same store finds records of its earlier life there. A record that is
  // older than this process, or than this process's last attempt, may be one of those, and its rank
  // is waited for.
  bool isOfThisLife(const RankRecord& record) const;
  bool isHere(const RankRecord& record) const { return record.place == roster_.me().place; }
  // Gives up if the process no longer listens, or has ended.
  void probeListener(int rank, const RankRecord& record);
  // Gives up because the process no longer listens, unless its rank has another process by now.
  // `what` ends the error text.
  void giveUpOnGone(int rank, const RankRecord& record, const std::string& what);
  [[noreturn]] void giveUp(const Reason& reason);
  void sayWhy(const Reason& reason);
  [[noreturn]] void giveUpOnTime(const std::vector<int>& missing);
  int global(int rank) const { return roster_.me().members[static_cast<size_t>(rank)]; }
  std::string name(int rank) const { return "rank " + std::to_string(global(rank)); }

  KeyValueStore& store_;
  Endpoint* const endpoint_ = nullptr;  // null for a group whose members never change
  const std::string epoch_;             // the Epoch's name; empty for such a group
  int rank_;
  Deadline deadline_;
  std::function<void()> interrupt_;
  Roster roster_;
  std::optional<Records> records_;
  Callers own_callers_;  // for a group whose members never change
  Callers& callers_;     // its own, or the endpoint's
  std::vector<int> to_call_;
  std::map<int, Fd> knocks_;  // the last knocks, by rank
  Links links_;
  const int64_t last_end_before_;
  const Deadline::Clock::time_point began_ = Deadline::Clock::now();
  bool has_told_ = false;
  std::chrono::milliseconds pause_{1};
  Deadline next_probe_;
  int next_newcomer_ = 0;
};

}  // namespace bluefog
