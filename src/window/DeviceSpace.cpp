#include "window/DeviceSpace.hpp"

#include <vector>

namespace bluefog {
namespace {

bluefog_type typeOf(Dtype dtype) {
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
    default:
      return BLUEFOG_I64;
  }
}

}  // namespace

void DeviceSpace::combine(Dtype dtype, void* out, std::span<const void* const> inputs,
                          std::span<const double> weights, size_t count) {
  const size_t bytes = count * width(dtype);
  if (bytes == 0) {
    return;
  }
  if (inputs.empty()) {
    device().zero(out, bytes);
  } else if (inputs.size() == 1 && weights.front() == 1) {
    device().copy(out, inputs.front(), bytes);
  } else {
    const Dtype part = partOf(dtype);
    device().weightedSum(out, {inputs.begin(), inputs.end()}, {weights.begin(), weights.end()},
                         bytes / width(part), typeOf(part));
  }
}

std::shared_ptr<std::byte> DeviceSpace::make(size_t bytes) {
  return {heap_->take(bytes), [heap = heap_, bytes](std::byte* it) { heap->giveBack(it, bytes); }};
}

}  // namespace bluefog
