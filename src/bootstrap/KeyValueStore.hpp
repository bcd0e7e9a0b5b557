#pragma once

#include <optional>
#include <string>

namespace bluefog {

// A KeyValueStore keeps texts that the processes of a job leave for each other. It is all that the
// bootstrap needs of the job's c10d Store. Texts that earlier processes have written are still
// there.
// Thread safety: any thread.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& text) = 0;
  // Returns the text that was set last, or nothing where none was. It does not wait for one.
  virtual std::optional<std::string> look(const std::string& key) = 0;
  // Returns the host that keeps the texts, by the name under which this process reaches it. The
  // result is empty where that is unknown.
  virtual std::string host() const { return ""; }
};

}  // namespace bluefog
