#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "bootstrap/Records.hpp"

namespace bluefog {

// Records over the c10d Store. Keys of an earlier life are still there (restarts by torchrun,
// destroy and init again), so keys carry an incarnation.
class StoreRecords final : public Records {
 public:
  StoreRecords(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  void publish(const std::string& topic, const std::string& record) override;
  std::optional<std::string> look(const std::string& topic, int rank) override;
  std::string keeper() const override;

 private:
  std::string key(const std::string& topic, int rank) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  std::string prefix_;
};

}  // namespace bluefog
