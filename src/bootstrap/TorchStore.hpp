#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <string>

#include "bootstrap/KeyValueStore.hpp"
#include "bootstrap/StoreThread.hpp"
#include "core/Deadline.hpp"

namespace bluefog {

// A c10d Store. One that has set, get and wait alone is enough, as it is for gloo.
class TorchStore final : public KeyValueStore {
 public:
  // Keys begin with `prefix`. For the others, see StoreThread.
  TorchStore(const c10::intrusive_ptr<c10d::Store>& store, std::string prefix, Deadline deadline,
             std::function<void()> interrupt);
  void set(const std::string& key, const std::string& text) override;
  std::optional<std::string> look(const std::string& key) override;
  std::string host() const override { return host_; }

 private:
  std::string host_;
  std::string prefix_;
  StoreThread store_;
};

}  // namespace bluefog
