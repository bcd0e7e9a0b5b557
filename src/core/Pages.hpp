#pragma once

#include <cstddef>

namespace bluefog {

constexpr size_t kPage = 4096;

constexpr size_t roundUp(size_t bytes, size_t unit = kPage) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace bluefog
