#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <string>

#include "bootstrap/Records.hpp"
#include "bootstrap/StoreThread.hpp"
#include "core/Deadline.hpp"

namespace bluefog {

// Records over the c10d Store. Keys of an earlier life are still there (restarts by torchrun,
// destroy and init again), so keys carry an incarnation.
class StoreRecords final : public Records {
 public:
  // See StoreThread.
  StoreRecords(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Deadline deadline,
               std::function<void()> interrupt);
  void publish(const std::string& topic, const std::string& record) override;
  std::optional<std::string> look(const std::string& topic, int rank) override;
  std::string keeper() const override { return keeper_; }

 private:
  std::string key(const std::string& topic, int rank) const;

  std::string keeper_;
  StoreThread store_;
  int rank_;
  std::string prefix_;
};

}  // namespace bluefog
