#include "process_group/window/TensorWindow.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "core/Deadline.hpp"
#include "process_group/host/Flat.hpp"
#include "process_group/window/WindowSlice.hpp"
#include "window/Combine.hpp"
#include "window/memory/DeviceSpace.hpp"

namespace bluefog {

TensorWindow::TensorWindow(WindowResources resources, std::string name, Plan plan)
    : resources_(std::move(resources)),
      label_{resources_.engine->members(), std::move(name)},
      tensor_(std::move(plan.tensor)),
      drops_(plan.drops),
      sources_(std::move(plan.sources)),
      sizes_(tensor_.sizes().vec()),
      mutexes_({label_, resources_.timeout, [this](const Edge& edge) { return mutexOf(edge); },
                [this](const char* op) {
                  checkOpen(op);
                  interrupt();
                }}),
      counters_(std::make_shared<WindowCounters>()) {
  const std::string who = label_.who("win_create");
  validate("win_create").tensor(tensor_, "the tensor");
  TORCH_CHECK_VALUE(isCombinable(dtypeOf(tensor_)), who, "elements of type ", typeName(tensor_),
                    " cannot be in a window; use a floating, complex or integer type");
  TORCH_CHECK_VALUE(Flat::isPlain(tensor_), who,
                    "the tensor is not contiguous; make the window of tensor.contiguous()");
  if (resources_.device) {
    const auto memory = std::shared_ptr<Device>(resources_.device, &resources_.device->device());
    stream_ = std::make_unique<WindowStream>(WindowStream::StreamContext{
        label_, tensor_.device(), memory, resources_.timeout, [this](const char* op) {
          checkGroup(op);
          interrupt();
        }});
  }
  if (label_.members.size > 1) {
    settle(plan.is_fresh, who);
  }
}

// Moves the tensor to where the other ranks reach it, and takes memory for the slots.
void TensorWindow::settle(bool is_fresh, const std::string& who) {
  const c10::OptionalDeviceGuard guard = onDevice();
  const size_t bytes = tensor_.nbytes();
  const bool is_reached =
      resources_.heap && resources_.engine->hosts().here().size() > 1 && bytes > 0;
  if (stream_) {
    stream_->catchUp("win_create");
  }
  if (is_reached) {
    shared_.emplace(resources_.heap, tensor_, is_fresh, who);
  }
  storage_ = tensor_.storage();
  storage_.unsafeGetStorageImpl()->set_resizable(false);
  if (!resources_.device) {
    space_ = HostSpace::get();
    place_.tensor = shared_ ? std::optional(shared_->place()) : std::nullopt;
  } else {
    space_ = std::make_shared<DeviceSpace>(resources_.device);
    if (is_reached) {
      on_device_ = std::make_unique<DeviceWindowMemory>(
          resources_.device, static_cast<const std::byte*>(tensor_.const_data_ptr()), bytes,
          here(sources_));
    }
  }
  const size_t room = WindowLayout(label_.members.size, bytes).bytes();
  room_ = resources_.memory->take(room);
  TORCH_CHECK(room_ != nullptr, who, "no room for slots of ", room,
              " bytes beside the other windows");
  place_.room = room_->at();
}

Validate TensorWindow::validate(const char* op) const {
  return {label_.members, op, resources_.device ? tensor_.device().type() : c10::kCPU};
}

std::vector<int> TensorWindow::here(const std::vector<int>& ranks) const {
  std::vector<int> here;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(here),
               [this](int rank) { return resources_.engine->hosts().isHere(rank); });
  return here;
}

// Memory that other ranks may still have open stays until the process ends, because freeing it
// would be undefined behavior.
TensorWindow::~TensorWindow() {
  stopHearing();
  stream_.reset();
  if (is_open_elsewhere_) {
    on_device_->forsakeSlots();
    (void)std::make_unique<c10::Storage>(storage_).release();
  }
  peer_windows_.clear();
  on_device_.reset();
}

c10::OptionalDeviceGuard TensorWindow::onDevice() const {
  const bool is_there = resources_.device && !resources_.engine->isForked();
  return is_there ? c10::OptionalDeviceGuard(tensor_.device()) : c10::OptionalDeviceGuard();
}

void TensorWindow::checkProcess(const char* op) const {
  if (resources_.engine->isForked()) {
    throwForked(label_.who(op));
  }
}

void TensorWindow::checkGroup(const char* op) const {
  TORCH_CHECK(!resources_.engine->hasStopped(), label_.who(op), "the group has ended");
}

void TensorWindow::checkOpen(const char* op) const {
  checkProcess(op);
  checkGroup(op);
  TORCH_CHECK_VALUE(!is_closed_, label_.who(op), "the window was freed");
  if (window_ == nullptr) {
    return;
  }
  TORCH_CHECK_VALUE(tensor_.storage().is_alias_of(storage_), label_.who(op),
                    "the window's tensor has got other memory (tensor.data = ..., set_()?); write "
                    "into it instead: tensor.copy_(...)");
  TORCH_CHECK_VALUE(tensor_.sizes() == sizes_ && tensor_.is_contiguous() &&
                        tensor_.const_data_ptr() == window_->tensor(),
                    label_.who(op),
                    "the window's tensor has got another shape or place in its memory "
                    "(resize_(), t_()?): ",
                    tensor_.sizes(), " instead of ", at::IntArrayRef(sizes_));
}

Window& TensorWindow::opened(const char* op) const {
  checkOpen(op);
  TORCH_CHECK(window_ != nullptr, label_.who(op), "there is no other rank in the group");
  return *window_;
}

void TensorWindow::check(const char* op, const at::Tensor& tensor) const {
  TORCH_CHECK_VALUE(tensor.device() == tensor_.device(), label_.who(op), "the tensor is on ",
                    tensor.device(), ", the window's on ", tensor_.device());
  validate(op).tensor(tensor, "the tensor");
  TORCH_CHECK_VALUE(tensor.sizes() == sizes_ && tensor.scalar_type() == tensor_.scalar_type(),
                    label_.who(op), "the tensor is ", typeName(tensor), tensor.sizes(),
                    ", the window's ", typeName(tensor_), at::IntArrayRef(sizes_));
}

void TensorWindow::close(const char* op) {
  checkProcess(op);
  is_closed_ = true;
  const Deadline deadline = Deadline::in(resources_.timeout);
  try {
    while (!calls_.try_lock_for(kSlice)) {
      const int rank = label_.members.global(label_.members.rank);
      if (deadline.passed()) {
        throw Error(Cause::kTimeout, {rank},
                    label_.who(op) + "timeout after " + inSeconds(resources_.timeout) +
                        "; a thread of this rank is in a call of the window");
      }
      interrupt();
    }
    calls_.unlock();
    flush(op);
  } catch (...) {
    is_closed_ = false;
    throw;
  }
  if (on_device_) {
    on_device_->closeAll();
  }
}

void TensorWindow::reopen() {
  if (on_device_) {
    on_device_->openAgain();
    for (const auto& [rank, opened] : opened_) {
      const auto& [window, part] = opened;
      window->reopened(slotAt(rank, part), tensorAt(rank));
    }
  }
  is_closed_ = false;
}

void TensorWindow::abandon() {
  if (window_) {
    window_->abandon();
    stopHearing();
    shared_.reset();  // the tensor may be in a window of another group next
  }
}

void TensorWindow::stopHearing() {
  if (resources_.server && window_ && !resources_.engine->isForked()) {
    resources_.server->remove(window_->number());
  }
}

void TensorWindow::interrupt() const {
  if (resources_.interrupt) {
    resources_.interrupt();
  }
}

}  // namespace bluefog
