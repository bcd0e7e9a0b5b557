#pragma once

#include "process_group/Features.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "process_group/host/SharedStorage.hpp"
#include "process_group/host/Validate.hpp"
#include "process_group/window/OpenWindows.hpp"
#include "process_group/window/WindowResources.hpp"
#include "window/raw/MappedRawPeer.hpp"
#include "window/raw/RawPart.hpp"
#include "window/raw/RawPeer.hpp"

namespace bluefog {

// A RawRegistration is what a RawWindow has from tensor_register() until tensor_deregister(). It
// owns this rank's RawPart and the ways to reach the other ranks' parts, keeps the tensor's
// storage, and keeps the group's WindowResources. Thread safety: any thread may call any method.
class RawRegistration : public OpenWindows::OpenPart {
 public:
  using CallLock = std::shared_lock<std::shared_timed_mutex>;

  // Registers the tensor, on all ranks together. Its storage moves into memory that the other ranks
  // of the host write to. Throws on all ranks if one of them cannot.
  static std::shared_ptr<RawRegistration> make(const WindowResources& resources,
                                               const at::Tensor& tensor);
  ~RawRegistration() override;
  RawRegistration(const RawRegistration&) = delete;
  RawRegistration& operator=(const RawRegistration&) = delete;

  // A RawShape is the type and the shape of a rank's tensor.
  struct RawShape {
    at::ScalarType type;
    std::vector<int64_t> sizes;
    int64_t elements;
  };

  const WindowResources& resources() const { return resources_; }
  const Membership& members() const { return resources_.engine->members(); }
  const RawShape& shapeOf(int rank) const { return shapes_[static_cast<size_t>(rank)]; }
  RawPeer& peer(int rank) const { return *peers_[static_cast<size_t>(rank)]; }
  RawPart& part() const { return *part_; }
  // Returns whether each rank of this host can have a core of its own.
  bool hasOwnCore() const { return has_own_core_; }
  // Returns the tensor of a rank of this host, in that rank's memory.
  at::Tensor tensorOf(int rank) const;

  // A call that reaches other ranks holds this lock. It throws if the registration is closed, or
  // the tensor is no longer where other ranks write to.
  CallLock beginCall(const char* op);
  // Returns whether no call can begin any more. Waits for signals end then.
  bool isClosed() const { return is_closed_.load(std::memory_order_acquire); }
  // Throws if the program has given the tensor other memory.
  void checkPlace(const char* op) const;
  // Remembers what is under way, for close().
  void track(const PendingOp& pending);
  // Throws PeerFailed if that rank is known to have died or to have left the group.
  void checkLiving(const char* op, int rank) const;

  // Ends the registration, on all ranks together. Other ranks write to this one no more when it has
  // returned, or has thrown anything but Mismatch: that says that other ranks end another
  // registration, or register a tensor, and all go on as before.
  void end(const char* op);
  // Ends the registration of this rank alone. The tensor moves to other memory if a stopped rank
  // may go on to write to it later.
  void release() override;

 private:
  struct RankRow;

  RawRegistration(const WindowResources& resources, const at::Tensor& tensor)
      : resources_(resources), tensor_(tensor) {}

  std::string who(const char* op) const { return members().who() + " " + op + ": "; }
  void settle(const at::Tensor& tensor);
  void open(uint64_t number, const std::vector<RankRow>& rows);
  void gatherShapes(const std::vector<RankRow>& rows, std::exception_ptr error);
  void close(const char* op);
  bool awaitWriters() const;
  bool isInPlace() const;

  const WindowResources resources_;
  at::Tensor tensor_;
  std::optional<SharedStorage> shared_;
  std::unique_ptr<WindowBlock> block_;  // until part_ has it
  std::shared_ptr<RawPart> part_;
  std::vector<std::unique_ptr<RawPeer>> peers_;
  std::vector<MappedRawPeer*> writers_;  // of peers_: the other ranks of this host
  std::vector<RawShape> shapes_;
  bool has_own_core_ = false;
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> is_released_{false};
  std::shared_timed_mutex calls_;
  std::mutex mutex_;
  std::vector<PendingOp> under_way_;
};

}  // namespace bluefog

#endif
