#pragma once

#include <optional>
#include <string>

namespace bluefog {

// Where the ranks of a group that is being made leave a record for each other. The one thing that
// the bootstrap asks of the job's Store.
class Records {
 public:
  virtual ~Records() = default;
  virtual void publish(const std::string& record) = 0;
  // The record of a rank, once it has published one. Does not wait.
  virtual std::optional<std::string> look(int rank) = 0;
};

}  // namespace bluefog
