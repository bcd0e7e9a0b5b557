#pragma once

#include <optional>
#include <string>

#include "bootstrap/KeyValueStore.hpp"

namespace bluefog {

// A NoStore is for processes that need no store to meet. It keeps nothing.
// Thread safety: any thread.
class NoStore final : public KeyValueStore {
 public:
  void set(const std::string& /*key*/, const std::string& /*text*/) override {}
  std::optional<std::string> look(const std::string& /*key*/) override { return std::nullopt; }
};

}  // namespace bluefog
