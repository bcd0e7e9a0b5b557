#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <string>

#include "bootstrap/KeyValueStore.hpp"
#include "bootstrap/StoreThread.hpp"
#include "core/Deadline.hpp"

namespace bluefog {

// A TorchStore is a KeyValueStore that keeps its texts in a c10d Store. That store only needs the
// methods set, get and wait, as it does for gloo.
// Thread safety: any thread.
class TorchStore final : public KeyValueStore {
 public:
  // All keys begin with `prefix`. The comment of StoreThread explains the deadline and the
  // interrupt.
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
