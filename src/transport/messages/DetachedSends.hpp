#pragma once

#include <memory>

#include "core/RankSet.hpp"
#include "transport/operations/Op.hpp"

namespace bluefog {

// Takes out of an operation that fails, into a new one, what it still sends to the living; null
// where they have all, or where that is more than `room` bytes. The new one reads a copy: the
// caller hears of the failure at once, and may then change the memory.
std::shared_ptr<Op> detachSends(const std::shared_ptr<Op>& op, const RankSet& gone, size_t room);

}  // namespace bluefog
