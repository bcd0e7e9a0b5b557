#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/Plugin.hpp"

namespace bluefog {

// Has `call(api, stream)` launch a kernel on the tensor's device, in its current stream. The
// program's current device stays what it is. Throws std::runtime_error if the call returns an
// error; `what` names the kernel in it.
template <class Call>
void launch(const Plugin& plugin, const char* what, const at::Tensor& tensor, const Call& call) {
  const c10::Device device = tensor.device();
  const c10::DeviceGuard guard(device);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  plugin.check(plugin.api()->set_device(device.index()), "set_device");
  plugin.check(call(*plugin.api(), stream.native_handle()), what);
}

}  // namespace bluefog
