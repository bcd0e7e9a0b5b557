#pragma once

#include <optional>
#include <string>

namespace bluefog {

// Where the processes of a job leave texts for each other: the one thing that the bootstrap asks of
// the job's Store. What earlier processes have written is still there. May be used by several
// threads.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& text) = 0;
  // Returns the text that was set last, or nothing where none was. It does not wait for one.
  virtual std::optional<std::string> look(const std::string& key) = 0;
  // The host that keeps the texts, as this one calls it; empty where that is not known.
  virtual std::string host() const { return ""; }
};

}  // namespace bluefog
