#include "core/Dtype.hpp"

#include <array>

namespace bluefog {
namespace {

struct Row {
  const char* name;
  size_t width;
};

constexpr std::array<Row, 22> kRows = {{
    {"uint8", 1},          {"int8", 1},
    {"int16", 2},          {"int32", 4},
    {"int64", 8},          {"float16", 2},
    {"bfloat16", 2},       {"float32", 4},
    {"float64", 8},        {"bool", 1},
    {"uint16", 2},         {"uint32", 4},
    {"uint64", 8},         {"complex32", 4},
    {"complex64", 8},      {"complex128", 16},
    {"float8_e4m3fn", 1},  {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1}, {"bytes", 1},
}};

const Row& row(Dtype dtype) {
  const auto index = static_cast<size_t>(dtype);
  // A frame consists of bytes that a peer wrote, so its value is checked before it is used as an
  // index.
  return kRows[index < kRows.size() ? index : kRows.size() - 1];
}

}  // namespace

const char* name(Dtype dtype) {
  return row(dtype).name;
}

size_t width(Dtype dtype) {
  return row(dtype).width;
}

bool isFloating(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16 || dtype == Dtype::kFloat32 ||
         dtype == Dtype::kFloat64;
}

bool isReducible(Dtype dtype) {
  return partOf(dtype) <= Dtype::kBool;
}

Dtype partOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kComplex32:
      return Dtype::kFloat16;
    case Dtype::kComplex64:
      return Dtype::kFloat32;
    case Dtype::kComplex128:
      return Dtype::kFloat64;
    default:
      return dtype;
  }
}

}  // namespace bluefog
