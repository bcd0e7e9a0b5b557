#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "process_group/accelerator/Agreement.hpp"

namespace bluefog {

// How far a call has come: others rely on it from agree() to conclude(). What fails before is told
// them; what fails in between leaves unknown who has exchanged how often.
class Deal {
 public:
  explicit Deal(std::function<Agreement()> settle) : settle_(std::move(settle)) {}

  // To be called when there is the memory for the exchange. Throws where none is settled.
  const Agreement& agree() {
    is_begun_ = true;
    return agreement_.emplace(settle_());
  }
  // All messages of the exchange are issued.
  void conclude() { is_concluded_ = true; }

  bool isBegun() const { return is_begun_; }
  const std::optional<Agreement>& agreement() const { return agreement_; }
  bool isConcluded() const { return is_concluded_; }

 private:
  const std::function<Agreement()> settle_;
  std::optional<Agreement> agreement_;
  bool is_begun_ = false;
  bool is_concluded_ = false;
};

}  // namespace bluefog
