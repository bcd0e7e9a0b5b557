#pragma once

#include <optional>

#include "transport/Failure.hpp"
#include "transport/Segment.hpp"

namespace bluefog {

// The failure that the group's ranks have agreed on, if there is one.
std::optional<Failure> readVerdict(const Verdict& verdict);
// Records `failure` unless another rank was first; returns what is recorded.
Failure agreeOn(Verdict& verdict, const Failure& failure);

}  // namespace bluefog
