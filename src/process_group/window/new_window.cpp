#include "process_group/ProcessGroupBluefog.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include "process_group/window/RawWindow.hpp"

namespace bluefog {

c10::intrusive_ptr<c10d::Window> ProcessGroupBluefog::new_window(
    const std::optional<at::Tensor>& tensor) {
  checkProcess("new_window");
  auto window =
      c10::make_intrusive<RawWindow>(windows_.onHost(heap_, groupsTimeout(), "new_window"));
  if (tensor) {
    window->tensor_register(*tensor);
  }
  return window;
}

}  // namespace bluefog

#endif
