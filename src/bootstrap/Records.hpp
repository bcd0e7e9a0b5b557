#pragma once

#include <optional>
#include <string>
#include <utility>

#include "bootstrap/KeyValueStore.hpp"

namespace bluefog {

// Records are texts that the ranks of one group leave for each other in the store, one for each
// topic and rank. The store must outlive the object.
// Thread safety: any thread.
class Records {
 public:
  // The constructor takes as `group` a name that no other group has or had.
  Records(KeyValueStore& store, std::string group, int rank)
      : store_(store), group_(std::move(group)), rank_(rank) {}
  void publish(const std::string& topic, const std::string& text) {
    store_.set(key(topic, rank_), text);
  }
  // Returns the text that the rank has published under the topic, or nothing where there is none
  // yet. It does not wait.
  std::optional<std::string> look(const std::string& topic, int rank) {
    return store_.look(key(topic, rank));
  }
  // Returns the host that keeps the texts. It is empty where that is unknown.
  std::string keeper() const { return store_.host(); }

 private:
  std::string key(const std::string& topic, int rank) const {
    return group_ + "/" + topic + "/" + std::to_string(rank);
  }

  KeyValueStore& store_;
  std::string group_;
  int rank_;
};

}  // namespace bluefog
