#pragma once

#include <optional>

#include "core/Dtype.hpp"
#include "device/api.h"

namespace bluefog {

// Returns the number by which plugins name the type, or nothing where they have no kernel for it.
inline std::optional<bluefog_type> pluginsType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return BLUEFOG_F16;
    case Dtype::kBFloat16:
      return BLUEFOG_BF16;
    case Dtype::kFloat32:
      return BLUEFOG_F32;
    case Dtype::kFloat64:
      return BLUEFOG_F64;
    case Dtype::kUInt8:
      return BLUEFOG_U8;
    case Dtype::kInt8:
      return BLUEFOG_I8;
    case Dtype::kInt16:
      return BLUEFOG_I16;
    case Dtype::kInt32:
      return BLUEFOG_I32;
    case Dtype::kInt64:
      return BLUEFOG_I64;
    default:
      return std::nullopt;
  }
}

}  // namespace bluefog
