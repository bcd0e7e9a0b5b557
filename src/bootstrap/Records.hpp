#pragma once

#include <optional>
#include <string>

namespace bluefog {

// Where the ranks of a group that is being made leave records for each other, one per topic and
// rank. The one thing that the bootstrap asks of the job's Store. May be used by several threads.
class Records {
 public:
  virtual ~Records() = default;
  // This rank's.
  virtual void publish(const std::string& topic, const std::string& record) = 0;
  // The record of a rank, once it has published one. Does not wait.
  virtual std::optional<std::string> look(const std::string& topic, int rank) = 0;
  // The host that keeps them, as this one calls it; empty where that is not known.
  virtual std::string keeper() const { return ""; }
};

}  // namespace bluefog
