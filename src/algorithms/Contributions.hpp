#pragma once

#include <cstddef>
#include <vector>

#include "core/Reduce.hpp"
#include "transport/Op.hpp"

namespace bluefog {

// What the ranks bring to a reduction, in the order of the ranks.
class Contributions {
 public:
  void clear() {
    data_.clear();
    factors_.clear();
  }
  void add(const void* data, double factor) {
    data_.push_back(data);
    factors_.push_back(factor);
  }
  // `out` may be one of them.
  void reduce(const Signature& what, void* out, size_t count) const {
    if (what.reduce == ReduceKind::kPremulSum) {
      weightedSum(what.dtype, out, data_, factors_, 1.0, count, Stores::kCached);
    } else {
      fold(what.dtype, what.reduce, out, data_, count);
    }
  }

 private:
  std::vector<const void*> data_;
  std::vector<double> factors_;
};

}  // namespace bluefog
