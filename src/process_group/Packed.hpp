#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "process_group/Flat.hpp"

namespace bluefog {

// Several tensors of one type as one contiguous memory: many small ones cost one operation.
class Packed {
 public:
  // With the tensors' contents.
  explicit Packed(const std::vector<at::Tensor>& tensors) {
    int64_t count = 0;
    for (const at::Tensor& tensor : tensors) {
      parts_.push_back(Flat::input(tensor));
      count += tensor.numel();
    }
    memory_ = at::empty({count}, tensors.front().options());
    forEach([](const Flat& part, std::byte* place, size_t bytes) {
      std::memcpy(place, part.readable(), bytes);
    });
  }

  const at::Tensor& memory() const { return memory_; }
  std::byte* data() const { return static_cast<std::byte*>(memory_.mutable_data_ptr()); }
  // Puts the memory's contents into the tensors.
  void unpack() const {
    forEach([](const Flat& part, const std::byte* place, size_t bytes) {
      std::memcpy(part.data(), place, bytes);
      part.copyBack();
    });
  }

 private:
  template <class Visit>
  void forEach(Visit visit) const {
    std::byte* place = data();
    for (const Flat& part : parts_) {
      const size_t bytes = part.tensor().nbytes();
      if (bytes > 0) {
        visit(part, place, bytes);
      }
      place += bytes;
    }
  }

  std::vector<Flat> parts_;
  at::Tensor memory_;
};

}  // namespace bluefog
