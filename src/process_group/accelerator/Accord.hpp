#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "process_group/Edges.hpp"
#include "process_group/FlightLog.hpp"
#include "process_group/Frontend.hpp"
#include "process_group/Match.hpp"
#include "process_group/accelerator/Deal.hpp"
#include "transport/Engine.hpp"

namespace bluefog {

// An accelerator's backend knows neither what a peer calls nor whether it lives, and would wait for
// ever, or take other bytes for the expected ones. So ranks first agree on a call, over the CPU:
// each tells its partners what it calls, and then, when it has heard all of them or given some up,
// with which of their calls it goes on. Who has given up a call has said so, whenever the other one
// comes to it. Calls match by their number. What they exchange matches by order, so one is under
// way at a time.
class Accord {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  struct Call {
    Signature signature;
    const char* title;  // in the flight log
    const std::vector<at::Tensor>& inputs;
    const Edges& edges;
    Match& match;
    std::string called = {};         // where that is not what the signature says
    std::vector<int64_t> rows = {};  // of what each destination gets, where they are gathered
    // Where every rank takes part, or none: with whom this one exchanges beside its partners.
    std::optional<std::vector<int>> of_all_with = {};

    std::vector<int> others() const { return of_all_with.value_or(std::vector<int>()); }
    std::string name() const { return called.empty() ? bluefog::name(signature.kind) : called; }
  };

  // Which live as long as this.
  Accord(Engine& engine, const Frontend& frontend, FlightLog& log)
      : engine_(engine), frontend_(frontend), log_(log) {}

  // What `exchange` gives, which is among those who agree; or throws what there is to raise.
  // Its time begins with its turn.
  WorkPtr exchanged(const Call& call, std::chrono::milliseconds timeout,
                    const std::function<WorkPtr(Deal&)>& exchange);

 private:
  // A partner has told that it calls, and how long it waits for its other partners from then on.
  static constexpr std::chrono::milliseconds kSlack{5000};

  struct Asked;
  struct Meeting;
  class Turn;
  enum class Progress { kNone, kMeets, kAsks };  // what its partners know of a call

  Agreement agree(const Call& call, Deadline deadline);
  Agreement agreeWithAll(const Call& call, Deadline deadline);
  void leave(const Call& call, Progress progress, Deadline deadline);
  Agreement agreeWithPartners(const Call& call, Deadline deadline);
  static Deadline endOfAll(Deadline deadline);
  Meeting meet(const Call& call, uint64_t phase, bool fails, Deadline deadline, Engine::Who who);
  std::vector<int> whoFails(const Meeting& meeting) const;
  void raiseErrorOf(const Op& op) const;

  Asked ask(const Signature& signature, std::string called, Deadline deadline, int partner,
            const Notice& own, int64_t tag, int64_t their_tag);
  Asked askAbout(const Call& call, int partner, const Notice& own, Deadline deadline);
  std::vector<Asked> askAll(const Call& call, Deadline deadline, Agreement& agreement);
  void await(const Op& op) { engine_.wait(op, Deadline::never()); }
  void settle(const Op& op, Agreement& agreement);
  void hear(const std::vector<Asked>& all, const Agreement& agreement,
            const std::function<void(const Op&)>& wait,
            const std::function<void(const Asked&)>& judge, const std::function<void(int)>& leave);
  void answer(const Call& call, int partner, int64_t what, Deadline deadline);
  void giveUp(int partner, Deadline deadline);
  // A device's calls count together, whatever their names: the device's backend knows none.
  static Counter counterOf(const Call& call) {
    return bluefog::counterOf(call.signature.kind, call.edges, 0);
  }
  void begin(const Call& call);
  void close(const Call& call);
  void giveUpAll(const Call& call, Deadline deadline);
  void confirm(const Call& call, Agreement& agreement);
  void dropFailed(const Call& call, Agreement& agreement, const Asked& asked);

  bool isOutOfStep(int rank) const { return out_of_step_.contains(rank); }
  void loseStepWith(const std::vector<int>& ranks) {
    out_of_step_.insert(ranks.begin(), ranks.end());
  }
  std::exception_ptr raised(const Call& call, Cause cause, std::vector<int> ranks,
                            const std::string& what) const;
  std::exception_ptr notInStep(const Call& call, int rank) const;
  std::exception_ptr givenUp(const Call& call, int rank) const;
  std::string who(const Call& call) const;

  Engine& engine_;
  const Frontend& frontend_;
  FlightLog& log_;
  std::timed_mutex turns_;              // of the calls, and of all below
  std::atomic<std::thread::id> owner_;  // of the turn
  int64_t calls_ = 0;
  bool counts_ = false;        // it is no gradient
  std::set<int> out_of_step_;  // these may have exchanged once less, or more, than this rank
};

}  // namespace bluefog
