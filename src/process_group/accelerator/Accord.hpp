#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "process_group/Edges.hpp"
#include "process_group/FlightLog.hpp"
#include "process_group/Frontend.hpp"
#include "process_group/accelerator/Agreement.hpp"
#include "process_group/accelerator/OutOfStep.hpp"
#include "transport/Engine.hpp"

namespace bluefog {

// An accelerator's backend knows neither what a peer calls nor whether it lives, and would wait for
// ever, or take other bytes for the expected ones. So ranks first agree on a call, over the CPU:
// each tells its partners what it calls, and then, when it has heard all of them or given some up,
// with which of their calls it goes on. Who has given up a call has said so, whenever the other one
// comes to it. Calls match by their order, as what they exchange does: one is under way at a time.
class Accord {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  struct Call {
    Signature signature;
    const char* title;  // in the flight log
    const std::vector<at::Tensor>& inputs;
    const Edges& edges;
    std::string called = {};         // where that is not what the signature says
    std::vector<int64_t> rows = {};  // of what each destination gets, where they are gathered
    std::vector<int> others = {};    // with whom it exchanges, too, and agrees by other means

    std::string name() const { return called.empty() ? bluefog::name(signature.kind) : called; }
  };

  Accord(std::shared_ptr<Engine> engine, const Frontend& frontend, FlightLog& log)
      : engine_(std::move(engine)), frontend_(frontend), log_(log) {}

  // Throws where that is interrupted.
  Agreement on(const Call& call, Deadline deadline);
  // When on() has ended on a rank that begins it now, too.
  static Deadline endOf(Deadline deadline);
  // After on(): with none of them it is known who exchanges.
  void giveUpOn(const Call& call);
  // What `exchange` gives; or throws what there is to raise. It calls what it is given, which is
  // `settle`, when it has all the memory that it needs, and exchanges with those who then agree:
  // where it throws after that, nobody knows how often they have exchanged.
  WorkPtr exchanged(const Call& call, const std::function<Agreement()>& settle,
                    const std::function<WorkPtr(const Agree&)>& exchange);

 private:
  struct Asked;

  void awaitTurn(std::unique_lock<std::timed_mutex>& turn) const;
  Asked ask(const Signature& signature, std::string called, Deadline deadline, int partner,
            const Notice& own, int64_t tag, int64_t their_tag);
  void tell(const Signature& signature, int partner, int64_t tag, int64_t what, Deadline deadline);
  void confirm(const Call& call, Agreement& agreement, int64_t number);
  void drop(const Call& call, Agreement& agreement, const Asked& asked);
  std::exception_ptr raised(const Call& call, Cause cause, int partner, const char* what) const;
  std::string who(const Call& call) const;

  const std::shared_ptr<Engine> engine_;
  const Frontend& frontend_;
  FlightLog& log_;
  std::timed_mutex turns_;  // of the calls, and of all below
  int64_t calls_ = 0;
  OutOfStep out_of_step_;
};

}  // namespace bluefog
