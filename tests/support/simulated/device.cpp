// This file puts two simulated accelerators behind torch's PrivateUse1: host memory, streams that
// are threads, and an allocator. The allocator spoils freed memory in the order of the streams, so
// that data that is used too late or too early is NaN. All operators but a few wait for the current
// stream and run on the CPU.
#include "streams.hpp"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace simulated {

Stream& stream(int64_t id) {
  static auto* const all = new std::array<Stream, kStreams>;
  return all->at(static_cast<size_t>(id));
}

namespace {

thread_local int64_t current_id = 0;
thread_local c10::DeviceIndex current_device = 0;

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;  // both have the same streams

}  // namespace

int64_t currentId() {
  return current_id;
}
int64_t exchangeCurrentId(int64_t id) {
  return std::exchange(current_id, id);
}

namespace {

// ---- memory ----
struct Owned {
  size_t bytes;
  Stream* owner;
  std::vector<Stream*> users;  // streams from recordStream()
};
std::mutex owned_mutex;
std::map<void*, Owned> owned;

void spoil(void* memory, size_t bytes) {
  std::memset(memory, 0xff, bytes);
}

// Memory is never given back to malloc, because a write that comes too late must not break the
// heap.
void release(void* memory) {
  Owned block;
  {
    const std::lock_guard lock(owned_mutex);
    block = owned.extract(memory).mapped();
  }
  // This stream waits for all users of the memory, so that no stream of the program has to.
  static auto* const reclaiming = new Stream;
  Stream& last = block.users.empty() ? *block.owner : *reclaiming;
  if (!block.users.empty()) {
    block.users.push_back(block.owner);
  }
  for (Stream* user : block.users) {
    Event used;
    used.record(*user);
    used.block(last);
  }
  last.put([memory, bytes = block.bytes] { spoil(memory, bytes); });
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const char* full = std::getenv("SIMULATED_FULL");  // the number of the allocation that fails
    allocations = full == nullptr ? 0 : allocations + 1;
    TORCH_CHECK_WITH(OutOfMemoryError, allocations == 0 || allocations != std::atoi(full),
                     "the simulated device is full");
    const size_t rounded = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
    void* memory = std::aligned_alloc(64, rounded);
    spoil(memory, rounded);
    const std::lock_guard lock(owned_mutex);
    owned[memory] = {rounded, &current(), {}};
    return {memory, memory, &release, c10::Device(kType, current_device)};
  }
  std::atomic<int> allocations{0};
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
} allocator;
REGISTER_ALLOCATOR(kType, &allocator);

// ---- streams and events, as torch sees them ----
struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Stream named(c10::Device device, int64_t id) {
    return c10::Stream(c10::Stream::UNSAFE, device, id);
  }
  static Event& eventOf(void* event) { return *static_cast<Event*>(event); }

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return {kType, std::exchange(current_device, to.index())};
  }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device to) const override { current_device = to.index(); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current_device = to.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override { return named(device, current_id); }
  c10::Stream getDefaultStream(c10::Device device) const override { return named(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<int> next{0};
    return named(device, 2 + next++ % (kStreams - 2));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    return named(to.device(), exchangeCurrentId(to.id()));
  }
  void* getStreamNativeHandle(const c10::Stream it) const override { return &stream(it.id()); }
  bool queryStream(const c10::Stream& it) const override { return stream(it.id()).isIdle(); }
  void synchronizeStream(const c10::Stream& it) const override { stream(it.id()).synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    for (int id = 0; id < kStreams; ++id) {
      stream(id).synchronize();
    }
  }

  void record(void** event, const c10::Stream& in, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event;
    }
    eventOf(*event).record(stream(in.id()));
  }
  void block(void* event, const c10::Stream& it) const override {
    if (event != nullptr) {
      eventOf(event).block(stream(it.id()));
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || eventOf(event).isReached();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      eventOf(event).synchronize();
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& it) const override {
    const std::lock_guard lock(owned_mutex);
    if (const auto found = owned.find(data.get()); found != owned.end()) {
      found->second.users.push_back(&stream(it.id()));
    }
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t) const override {
    TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
    TORCH_CHECK(false, "the simulated device resizes no storage");
  }
};
const bool hooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

// ---- operators ----
using Sizes = c10::IntArrayRef;
using Type = std::optional<at::ScalarType>;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(Sizes sizes, Type type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(sizes, &allocator, kKeys, type.value_or(at::kFloat), format);
}
at::Tensor emptyStrided(Sizes sizes, Sizes strides, Type type, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(sizes, strides, &allocator, kKeys,
                                           type.value_or(at::kFloat));
}
at::Tensor onCpu(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor
                         : at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                                         tensor.options().device(at::kCPU));
}
at::Tensor copyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  if (from.device() == to.device() && from.scalar_type() == to.scalar_type() &&
      from.is_contiguous() && to.is_contiguous() && from.sizes() == to.sizes()) {
    current().put([out = to.mutable_data_ptr(), in = from.const_data_ptr(), bytes = from.nbytes()] {
      std::memmove(out, in, bytes);
    });
    return to;
  }
  current().synchronize();
  onCpu(to).copy_(onCpu(from));
  return to;
}
at::Tensor copyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copyFrom(from, to, false);
}
at::Tensor view(const at::Tensor& tensor, Sizes sizes) {
  return at::native::view(tensor, sizes);
}
at::Tensor asStrided(const at::Tensor& tensor, Sizes sizes, Sizes strides,
                     std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, offset);
}
const at::Tensor& resize(const at::Tensor& tensor, Sizes sizes, std::optional<at::MemoryFormat>) {
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * tensor.itemsize();
  if (tensor.storage().nbytes() < bytes) {
    TORCH_CHECK(tensor.storage().resizable(), "this storage is not resizable");
    const at::Tensor fresh = at::empty(sizes, tensor.options());
    impl->set_storage_keep_dtype(fresh.storage());
  }
  impl->set_sizes_contiguous(sizes);
  return tensor;
}
void elsewhere(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  current().synchronize();
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &emptyStrided);
  library.impl("_copy_from", &copyFrom);
  library.impl("_copy_from_and_resize", &copyFromAndResize);
  library.impl("resize_", &resize);
  library.impl("view", &view);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("as_strided", &asStrided);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&elsewhere>());
}

}  // namespace
}  // namespace simulated
