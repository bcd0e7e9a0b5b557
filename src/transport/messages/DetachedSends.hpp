#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "core/RankSet.hpp"
#include "transport/operations/MessageOp.hpp"

namespace bluefog {

// A CopyBudget limits how many bytes the detached sends of a group hold as copies. Each copy takes
// its bytes from the budget and gives them back when it is destroyed.
//
// Thread safety: only the thread that drives the engine may use it.
class CopyBudget {
 public:
  explicit CopyBudget(size_t most) : most_(most), used_(std::make_shared<size_t>(0)) {}

  size_t left() const { return most_ - std::min(*used_, most_); }
  // Takes the bytes until the returned owner is destroyed.
  std::shared_ptr<void> take(size_t bytes) const {
    *used_ += bytes;
    return {nullptr, [used = used_, bytes](void*) { *used -= bytes; }};
  }

 private:
  size_t most_;
  std::shared_ptr<size_t> used_;
};

// Moves what a failing operation still sends to ranks outside of `gone` into a new operation with
// the role kDetached. The new one reads copies, because the caller hears of the failure at once and
// may then change the memory. An operation that is detached already has its copies.
//
// Returns null where nothing is left to send, or where the copies exceed the budget.
std::shared_ptr<MessageOp> detachSends(const std::shared_ptr<MessageOp>& op, const RankSet& gone,
                                       const CopyBudget& budget);

}  // namespace bluefog
