#pragma once

#include "process_group/Features.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "process_group/window/RawRegistration.hpp"
#include "process_group/window/WindowResources.hpp"

namespace bluefog {

// A RawWindow is c10d's window: other ranks write to the tensor that this rank has registered, at
// any offset and at any time, and signals say when. A rank that reads meanwhile sees any part of a
// write. (A TensorWindow has a slot for each writer instead.) Ranks are those of the group. It owns
// its registration, and keeps the group's WindowResources.
// Thread safety: any thread may call any method.
class RawWindow final : public c10d::Window {
 public:
  explicit RawWindow(WindowResources resources) : resources_(std::move(resources)) {}
  // Ends a registration for this rank alone. Other ranks' puts then raise.
  ~RawWindow() override;
  RawWindow(const RawWindow&) = delete;
  RawWindow& operator=(const RawWindow&) = delete;

  // The window keeps the tensor's storage even if it is not `owning`, because others write there.
  void tensor_register(const at::Tensor& tensor, bool owning = true) override;
  void tensor_deregister() override;
  c10::intrusive_ptr<c10d::Work> put(const at::Tensor& tensor, int64_t to, int64_t offset,
                                     bool async_op, const c10d::PutOptions& opts) override;
  // Returns a tensor in the memory of a rank of this host, with the type and shape of what that
  // rank has registered. The memory stays mapped as long as the tensor.
  at::Tensor map_remote_tensor(int64_t rank) override;
  c10::intrusive_ptr<c10d::Work> signal(int64_t to, bool async_op,
                                        const c10d::SignalOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> wait_signal(int64_t from, bool async_op,
                                             const c10d::WaitSignalOptions& opts) override;
  c10d::WindowAttr get_attr(int64_t rank) override;

 private:
  using Milliseconds = std::chrono::milliseconds;

  std::string who(const char* op) const {
    return resources_.engine->members().who() + " " + op + ": ";
  }
  void checkGroup(const char* op) const;
  int checkRank(const char* op, int64_t rank) const;
  std::shared_ptr<RawRegistration> registration() const;
  // Returns the registration. Throws if there is none.
  std::shared_ptr<RawRegistration> registered(const char* op) const;
  template <class Call>
  c10::intrusive_ptr<c10d::Work> reach(const char* op, int rank, bool async_op,
                                       Milliseconds timeout, std::shared_ptr<void> kept,
                                       RawRegistration& registration, const Call& call);

  const WindowResources resources_;
  std::mutex registering_;
  mutable std::mutex mutex_;
  std::shared_ptr<RawRegistration> registration_;  // null if no tensor is registered
};

}  // namespace bluefog

#endif
