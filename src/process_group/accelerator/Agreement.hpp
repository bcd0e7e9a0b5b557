#pragma once

#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "process_group/Edges.hpp"

namespace bluefog {

// With which of its partners a rank agrees on a call, and what these have told of it. Both sides of
// an edge know that: who does not agree with one goes on with the others, which else would wait,
// and raises then.
class Agreement {
 public:
  void add(int rank, const Notice& told) { told_.emplace(rank, told); }
  void add(std::exception_ptr error) {
    if (!error_) {
      error_ = std::move(error);
    }
  }
  void drop(int rank, std::exception_ptr error) {
    told_.erase(rank);
    add(std::move(error));
  }

  // By Ctrl-C, which is raised before all else; who waits on, for others, does so until then.
  void interrupt(std::exception_ptr error, Deadline patience) {
    error_ = std::move(error);
    patience_ = patience;
  }

  const std::map<int, Notice>& told() const { return told_; }
  std::vector<int> ranks() const {
    std::vector<int> ranks;
    for (const auto& [rank, told] : told_) {
      ranks.push_back(rank);
    }
    return ranks;
  }
  bool isWith(int rank) const { return told_.contains(rank); }
  int64_t rowsFrom(int rank) const { return told_.at(rank).data.rows; }
  // Of a partner that does not agree, or Ctrl-C; null where there is nothing to raise.
  const std::exception_ptr& error() const { return error_; }
  const std::optional<Deadline>& patience() const { return patience_; }

  // Those edges on which both agree, with the weights that the sources have told.
  Edges among(const Edges& edges) const {
    Edges agreed{edges.self_weight, {}, {}, edges.divisor};
    for (const WeightedRank& source : edges.sources) {
      if (const auto found = told_.find(source.rank); found != told_.end()) {
        agreed.sources.push_back({source.rank, source.weight * found->second.weight});
      }
    }
    for (const WeightedRank& destination : edges.destinations) {
      if (isWith(destination.rank)) {
        agreed.destinations.push_back(destination);
      }
    }
    return agreed;
  }

 private:
  std::map<int, Notice> told_;
  std::exception_ptr error_;
  std::optional<Deadline> patience_;
};

}  // namespace bluefog
