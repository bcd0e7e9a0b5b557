#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "process_group/FlightLog.hpp"
#include "process_group/Language.hpp"
#include "process_group/device/DeviceFailure.hpp"
#include "process_group/host/Edges.hpp"
#include "process_group/host/Match.hpp"

namespace bluefog {

// A DeviceCall describes a neighbor call with tensors of an accelerator, while it is being made.
struct DeviceCall {
  Signature signature;
  const char* title;  // in the flight log
  const std::vector<at::Tensor>& inputs;
  const Edges& edges;
  Match& match;
  std::string called = {};         // the call's name, if it is not the signature's
  std::vector<int64_t> rows = {};  // rows that each destination gets; empty unless it is a gather
  bool needs_rows = false;         // the result's size depends on the rows that the sources send

  std::string name() const { return called.empty() ? bluefog::name(signature.kind) : called; }
};

// Exchanges has the number of exchanges of this rank with each other rank so far. The accelerator's
// backend matches messages by that order.
using Exchanges = std::map<int, uint64_t>;

// A Notices tells the neighbors about one call on an accelerator, and learns what they call. The
// notices travel over the CPU, where calls match by number. An accelerator's backend knows neither
// what a peer calls nor whether it lives. It would wait for ever, or take other bytes for the
// expected ones.
// Thread safety: only the thread that makes the call. Any thread may call the function that check()
// returns.
class Notices {
 public:
  // Waits says when a call waits: before its exchange for the notices of its neighbors, and after
  // it until the exchange is done.
  struct Waits {
    bool before = false;
    bool after = false;
  };

  // All arguments that are references must outlive this object.
  Notices(Engine& engine, const Language& language, FlightLog& log,
          const std::shared_ptr<DeviceFailure>& failure, Exchanges& exchanges,
          const DeviceCall& call, Waits waits, Deadline deadline)
      : engine_(engine),
        language_(language),
        log_(log),
        failure_(failure),
        exchanges_(exchanges),
        call_(call),
        waits_(waits),
        deadline_(deadline) {}

  // Sends the notices. From then on the neighbors rely on this rank, so the memory for the exchange
  // must exist, and nothing of the exchange may have been issued. If the call waits before its
  // exchange, throws the failure that the neighbors' notices show.
  void tell();
  bool areTold() const { return are_told_; }
  // Returns the title of the call for error texts. areTold() must be true.
  std::string title() const { return titleOf(engine_.members(), *op_); }
  // Returns how many rows that rank sends. Only a call that waits before its exchange knows it.
  int64_t rowsFrom(int rank) const;
  // Returns whether the call must return only once it is known how the exchange has ended.
  bool isWaitedFor() const { return waits_.after; }
  // Throws if the user has interrupted the program, as by Ctrl-C.
  void lookForInterruption() const { language_.lookForInterruption(); }
  // Returns a function that throws if the group's calls on the device have failed by then, in which
  // case the exchange may have failed, too. The function may outlive this object and the group.
  std::function<void()> check() const;

 private:
  class Exchanged;

  void await();

  Engine& engine_;
  const Language& language_;
  FlightLog& log_;
  const std::shared_ptr<DeviceFailure>& failure_;
  Exchanges& exchanges_;
  const DeviceCall& call_;
  const Waits waits_;
  const Deadline deadline_;
  bool are_told_ = false;
  std::shared_ptr<MessageOp> op_;
  std::shared_ptr<Exchanged> exchanged_;
};

}  // namespace bluefog
