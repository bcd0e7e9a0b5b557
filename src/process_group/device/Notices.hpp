#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "process_group/FlightLog.hpp"
#include "process_group/LanguageHooks.hpp"
#include "process_group/device/DeviceFailure.hpp"
#include "process_group/host/Edges.hpp"
#include "process_group/host/Match.hpp"

namespace bluefog {

// A call of neighbors with tensors of an accelerator, while it is being made.
struct DeviceCall {
  Signature signature;
  const char* title;  // in the flight log
  const std::vector<at::Tensor>& inputs;
  const Edges& edges;
  Match& match;
  std::string called = {};         // where that is not what the signature says
  std::vector<int64_t> rows = {};  // of what each destination gets, where they are gathered
  bool needs_rows = false;         // of what its sources send, to make its result

  std::string name() const { return called.empty() ? bluefog::name(signature.kind) : called; }
};

// How often this rank has exchanged with each of the others, which the backend matches by order.
using Exchanges = std::map<int, uint64_t>;

// The ranks of a call tell each other about it over the CPU, where calls match by number. An
// accelerator's backend knows neither what a peer calls nor whether it lives, and would wait for
// ever, or take other bytes for the expected ones.
class Notices {
 public:
  // When a call waits: before it exchanges, for what its neighbors tell; and until the exchange is
  // done.
  struct Waits {
    bool before = false;
    bool after = false;
  };

  // All arguments live longer than this.
  Notices(Engine& engine, const LanguageHooks& hooks, FlightLog& log,
          const std::shared_ptr<DeviceFailure>& failure, Exchanges& exchanges,
          const DeviceCall& call, Waits waits, Deadline deadline)
      : engine_(engine),
        hooks_(hooks),
        log_(log),
        failure_(failure),
        exchanges_(exchanges),
        call_(call),
        waits_(waits),
        deadline_(deadline) {}

  // Tells the neighbors, who rely on this rank from then on: call it when there is the memory for
  // the exchange, and before anything of it is issued. Where the call waits, throws what the
  // neighbors' notices show.
  void tell();
  bool areTold() const { return are_told_; }
  // The call, once it is told.
  std::string title() const { return titleOf(engine_.members(), *op_); }
  // Returns how many rows that rank sends; only a call that has waited knows it.
  int64_t rowsFrom(int rank) const;
  // Whether what comes of the exchange is to be known before the call returns.
  bool isWaitedFor() const { return waits_.after; }
  // Throws where the program is interrupted, by Ctrl-C.
  void lookForInterruption() const { hooks_.lookForInterruption(); }
  // Returns a function that throws, any time later, if the exchange may have come to nothing.
  std::function<void()> check() const;

 private:
  class Exchanged;

  void await();

  Engine& engine_;
  const LanguageHooks& hooks_;
  FlightLog& log_;
  const std::shared_ptr<DeviceFailure>& failure_;
  Exchanges& exchanges_;
  const DeviceCall& call_;
  const Waits waits_;
  const Deadline deadline_;
  bool are_told_ = false;
  std::shared_ptr<Op> op_;
  std::shared_ptr<Exchanged> exchanged_;
};

}  // namespace bluefog
