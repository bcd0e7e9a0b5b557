#pragma once

#include <initializer_list>
#include <vector>

#include "transport/boards/Board.hpp"
#include "transport/operations/Task.hpp"

namespace bluefog {

// Appends the ranks of `more`.
inline void append(std::vector<int>& ranks, const std::vector<int>& more) {
  ranks.insert(ranks.end(), more.begin(), more.end());
}
// Returns the first of the groups that is not empty.
inline std::vector<int> firstOf(std::initializer_list<std::vector<int>> groups) {
  for (const std::vector<int>& ranks : groups) {
    if (!ranks.empty()) {
      return ranks;
    }
  }
  return {};
}
// Returns the ranks that hold up what this rank has still to publish on its two boards.
inline std::vector<int> slowReaders(Board& board, bool has_more, Board& returns,
                                    bool returns_more) {
  std::vector<int> ranks;
  if (has_more) {
    append(ranks, board.room().missing());
  }
  if (returns_more) {
    append(ranks, returns.room().missing());
  }
  return ranks;
}

// Runs a collective whose steps overlap: it moves whatever can be moved, and waits only when
// nothing can.
template <class Steps>
Task moveUntilDone(Steps steps) {
  while (!steps.done()) {
    co_await WaitUntil([&] { return steps.move(); }, [&] { return steps.missing(); },
                       [&] { return steps.late(); });
  }
}

}  // namespace bluefog
