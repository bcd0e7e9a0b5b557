#pragma once

#include <map>
#include <utility>

namespace bluefog {

// With whom this rank may have exchanged once less, or more, than they with it.
class OutOfStep {
 public:
  void add(int rank) { is_told_.emplace(rank, false); }
  bool has(int rank) const { return is_told_.count(rank) > 0; }
  // True once: then that rank is to be told, which may not know.
  bool isToBeTold(int rank) { return !std::exchange(is_told_.at(rank), true); }

 private:
  std::map<int, bool> is_told_;
};

}  // namespace bluefog
