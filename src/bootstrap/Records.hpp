#pragma once

#include <optional>
#include <string>
#include <utility>

#include "bootstrap/KeyValueStore.hpp"

namespace bluefog {

// The ranks of one group leave texts for each other in the store, one for each topic and rank.
// May be used by several threads.
class Records {
 public:
  // `group` is a name that no other group has or had.
  Records(KeyValueStore& store, std::string group, int rank)
      : store_(store), group_(std::move(group)), rank_(rank) {}
  // Publishes this rank's text.
  void publish(const std::string& topic, const std::string& text) {
    store_.set(key(topic, rank_), text);
  }
  // The text of a rank, once it has published one. Does not wait.
  std::optional<std::string> look(const std::string& topic, int rank) {
    return store_.look(key(topic, rank));
  }
  // The host that keeps them; empty where that is not known.
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
