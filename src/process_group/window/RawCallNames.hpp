#pragma once

// These are the names by which errors call a RawWindow's methods.
namespace bluefog::raw_calls {

inline constexpr const char* kRegister = "Window.tensor_register";
inline constexpr const char* kDeregister = "Window.tensor_deregister";
inline constexpr const char* kPut = "Window.put";
inline constexpr const char* kSignal = "Window.signal";
inline constexpr const char* kWaitSignal = "Window.wait_signal";
inline constexpr const char* kMap = "Window.map_remote_tensor";
inline constexpr const char* kGetAttr = "Window.get_attr";

}  // namespace bluefog::raw_calls
