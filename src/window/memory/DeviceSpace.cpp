#include "window/memory/DeviceSpace.hpp"

#include <vector>

#include "device/PluginsType.hpp"

namespace bluefog {
void DeviceSpace::combine(Dtype dtype, void* out, std::span<const void* const> inputs,
                          std::span<const double> weights, size_t count) {
  const size_t bytes = count * width(dtype);
  if (bytes == 0) {
    return;
  }
  if (inputs.empty()) {
    device().zero(out, bytes);
  } else if (inputs.size() == 1 && weights.front() == 1) {
    if (out != inputs.front()) {
      device().copy(out, inputs.front(), bytes);
    }
  } else {
    const Dtype part = partOf(dtype);
    device().weightedSum(out, {inputs.begin(), inputs.end()}, {weights.begin(), weights.end()},
                         bytes / width(part), pluginsType(part).value());
  }
}

std::shared_ptr<std::byte> DeviceSpace::make(size_t bytes) {
  return {heap_->take(bytes), [heap = heap_, bytes](std::byte* it) { heap->giveBack(it, bytes); }};
}

}  // namespace bluefog
