#pragma once

#include <vector>

#include "transport/Script.hpp"

namespace bluefog {

inline void append(std::vector<int>& ranks, const std::vector<int>& more) {
  ranks.insert(ranks.end(), more.begin(), more.end());
}

// A collective whose steps overlap: moves whatever can be moved, and waits only when nothing can.
template <class Steps>
Script moveUntilDone(Steps steps) {
  while (!steps.done()) {
    co_await Until([&] { return steps.canMove(); }, [&] { return steps.missing(); },
                   [&] { return steps.late(); });
    steps.move();
  }
}

}  // namespace bluefog
