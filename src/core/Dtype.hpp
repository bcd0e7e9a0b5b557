#pragma once

#include <cstddef>
#include <cstdint>

namespace bluefog {

// Dtype lists the element types that a frame can name. Reductions work on the types up to kBool and
// on the complex ones. The other types are only moved as bytes.
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
  kBytes,  // any other type, of which only the bytes are used
};

// Returns torch's name of the type, for example "float32".
const char* name(Dtype dtype);
// Returns the number of bytes that one element takes.
size_t width(Dtype dtype);
bool isFloating(Dtype dtype);
bool isReducible(Dtype dtype);
// Returns the type of a complex type's real and imaginary parts, and any other type unchanged.
Dtype partOf(Dtype dtype);

}  // namespace bluefog
