#pragma once

#include <cstddef>
#include <cstdint>

namespace bluefog {

// The element types the frames can name. Reductions know those up to kBool and the complex ones;
// the others are moved as bytes.
enum class Dtype : uint8_t {
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kBool,
  kUInt16,
  kUInt32,
  kUInt64,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8E4M3,
  kFloat8E4M3Fnuz,
  kFloat8E5M2,
  kFloat8E5M2Fnuz,
  kFloat8E8M0,
  kBytes,  // any other type: only its bytes are looked at
};

// torch's name of the type, as "float32".
const char* name(Dtype dtype);
// Bytes an element takes.
size_t width(Dtype dtype);
bool isFloating(Dtype dtype);
bool isReducible(Dtype dtype);
// The type of a complex type's two parts; any other type itself.
Dtype partOf(Dtype dtype);

}  // namespace bluefog
