#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "process_group/host/SharedStorage.hpp"
#include "process_group/host/Validate.hpp"
#include "process_group/window/WindowCounters.hpp"
#include "process_group/window/WindowLabel.hpp"
#include "process_group/window/WindowMutexes.hpp"
#include "process_group/window/WindowResources.hpp"
#include "process_group/window/WindowStream.hpp"
#include "process_group/window/WindowWork.hpp"
#include "transport/engine/Engine.hpp"
#include "window/Window.hpp"
#include "window/memory/DeviceWindowMemory.hpp"
#include "window/memory/PeerLiveness.hpp"
#include "window/peer/MappedPeerWindow.hpp"
#include "window/peer/PeerWindow.hpp"
#include "window/peer/WindowServer.hpp"

namespace bluefog {

// A TensorWindow is a window over a tensor, as Python has it. It owns this rank's Window and the
// ways to reach the other ranks' parts, shares ownership of the tensor, and keeps the group's
// WindowResources. The text of each error that it throws names this rank, the call and the window.
// Thread safety: any thread may call any method once open() has returned.
class TensorWindow {
 public:
  using Ranks = std::vector<WeightedRank>;

  // A Plan says how a window is made. `tensor` moves, with all that shares its storage, into memory
  // that the other ranks read. `is_fresh` means that nothing else points to the tensor's memory,
  // which is then freed. With `drops`, what is meant for a dead rank is counted and is no error.
  // `sources` are the ranks that write to the window by default.
  struct Plan {
    at::Tensor tensor;
    bool is_fresh;
    bool drops;
    std::vector<int> sources;
  };
  TensorWindow(WindowResources resources, std::string name, Plan plan);
  ~TensorWindow();
  TensorWindow(const TensorWindow&) = delete;
  TensorWindow& operator=(const TensorWindow&) = delete;

  // Returns where this rank's part lies, for the other ranks' open().
  WindowPlace place() const { return place_; }
  // Returns what the other ranks' openPeers() needs if the tensor is on a device. Returns nothing
  // if it is not, or if no other rank is on this host.
  std::optional<DeviceWindowMemory::Ticket> ticket();
  // Opens what ranks of this host have on the device. It needs the tickets and the sources of all
  // ranks. Returns the ranks whose slots, and those whose tensors, it has opened, and why it has
  // not opened the others.
  struct OpenedPeers {
    std::vector<int> slots;
    std::vector<int> tensors;
    std::string reason;
  };
  OpenedPeers openPeers(const std::vector<DeviceWindowMemory::Ticket>& tickets,
                        const std::vector<std::vector<int>>& sources);
  // Direct holds the ranks for which both sides have opened the device's memory: the `writers`
  // write to this rank's slots like that, and this rank writes to the slots of the `owners`.
  struct Direct {
    std::vector<int> writers = {};
    std::vector<int> owners = {};
  };
  // Makes the window ready for calls. `places` are those of all ranks, and `number` is what all
  // ranks give to this window alone. The slots begin with the tensor's values, or empty if
  // `zero_init`.
  void open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init, Direct direct);
  // Notes that all ranks have opened it. From now on only the ranks in Direct have its memory open.
  void noteOpened();

  const at::Tensor& tensor() const { return tensor_; }
  using WorkPtr = std::shared_ptr<WindowWork>;
  struct PutOptions {
    PeerWindow::Into into;
    bool require_mutex;
    bool with_p;
    bool async_op;
  };
  // Asynchronous calls return what may still be under way, with a copy of what is to be sent. It
  // has ended already if a mutex is required, or if this thread holds one of the mutexes. Other
  // calls return null.
  WorkPtr put(const at::Tensor& tensor, const Ranks& destinations, const PutOptions& opts);
  WorkPtr get(const Ranks& sources, bool require_mutex, bool with_p, bool async_op);
  // Waits until everything that was begun has ended, whether it succeeded or failed.
  void flush(const char* op);
  // Waits until no thread is in a call, and lets none begin until reopen(). It also closes what was
  // opened of other ranks' memory, so that they can free it. Throws a timeout if a thread stays in
  // a call.
  void close(const char* op);
  void reopen();
  // Makes the window look freed to the other ranks, though its memory stays.
  void abandon();
  // Notes that all ranks have closed it, so that nobody has its memory open any more.
  void noteFreed() { is_open_elsewhere_ = false; }
  at::Tensor update(double self_weight, const Ranks& sources, bool reset, bool clone,
                    bool require_mutex, bool with_p);
  // Waits until one of the sources has sent something since the last update, or until kPace has
  // passed since the last such wait.
  void awaitNews(const std::vector<int>& sources);
  at::Tensor read(int writer, bool require_mutex);
  double p() const { return window_ == nullptr ? alone_p_ : opened("win_associated_p").p(); }
  void multiplyP(double factor);
  // A SlotReport says for the slot of one writer: the changes since the last update, all changes so
  // far, the seconds since the last change (infinite if there was none), the slot's p, and whether
  // the writer has died.
  struct SlotReport {
    uint32_t version;
    uint64_t changes;
    double age;
    double p;
    bool has_ended;
  };
  std::map<int, SlotReport> states(const std::vector<int>& writers) const;

  using Sent = WindowCounters::Sent;
  // Returns the counts for the ranks to which something was sent, or would have been.
  std::map<int, Sent> sent() const;

  // take() takes the mutexes of these edges, except those of dead ranks. The same thread must let
  // them go.
  using Edge = WindowMutexes::Edge;
  void take(const std::vector<Edge>& edges);
  void letGo(const std::vector<Edge>& edges);

 private:
  using ScopedLock = WindowMutexes::ScopedLock;
  using CallLock = std::shared_lock<std::shared_timed_mutex>;

  void stopHearing();
  void checkProcess(const char* op) const;
  void checkGroup(const char* op) const;
  void interrupt() const;
  void checkOpen(const char* op) const;
  Window& opened(const char* op) const;  // there must be other ranks
  PeerWindow& peerWindow(int rank) const { return *peer_windows_[static_cast<size_t>(rank)]; }
  void settle(bool is_fresh, const std::string& who);
  std::vector<int> here(const std::vector<int>& ranks) const;
  WindowSpace spaceFor(const std::vector<int>& writers) const;
  c10::OptionalDeviceGuard onDevice() const;
  std::unique_ptr<PeerWindow> makePeerWindow(int rank, const WindowPlace& place);
  std::optional<Slot> slotAt(int rank, const WindowPart& part) const;
  const std::byte* tensorAt(int rank) const;
  std::unique_ptr<PeerWindow> messagesTo(int rank);
  struct IssueMode {
    bool is_async;
    bool is_guarded;  // each part must end before the next one begins or the call returns

    bool goesOn() const { return is_async && !is_guarded; }
    Engine::Who whoWaits() const { return goesOn() ? Engine::Who::kEngine : Engine::Who::kCaller; }
  };
  IssueMode issueModeOf(const Ranks& others, bool async_op, bool require_mutex) const;
  // A PeerCall begins a call's part with one rank. forEachPeer() makes it for each of the ranks
  // that live.
  using PeerCall = std::function<PendingOp(const WeightedRank&)>;
  WorkPtr forEachPeer(const char* op, const Ranks& ranks, const IssueMode& mode, PeerCall call);
  WorkPtr forEachPeerLater(const char* op, const Ranks& ranks, PeerCall call);
  WindowIssued issue(const char* op, const Ranks& ranks, const PeerCall& call);
  WindowWork::CallContext callContext(const char* op) const;
  PendingOp track(PendingOp pending, const IssueMode& mode);
  SlotMutex* mutexOf(const Edge& edge) const;
  void check(const char* op, const at::Tensor& tensor) const;
  Validate validate(const char* op) const;
  void scaleAlone(const at::Tensor& out, double weight) const;
  std::vector<Slot> slotsOfLiving(const std::vector<int>& sources) const;
  enum class News { kOfEach, kOfAny };
  void keepPace(const std::vector<Slot>& slots, News news);

  const WindowResources resources_;
  const WindowLabel label_;
  const at::Tensor tensor_;
  const bool drops_;
  const std::vector<int> sources_;
  const std::vector<int64_t> sizes_;
  c10::Storage storage_;  // the window's, even if the tensor has got another one
  std::optional<SharedStorage> shared_;
  WindowPlace place_{};
  Direct direct_;
  std::map<int, std::pair<MappedPeerWindow*, WindowPart>> opened_;  // only for a tensor on a device
  std::unique_ptr<WindowBlock> room_;
  std::shared_ptr<Space> space_;
  std::unique_ptr<DeviceWindowMemory> on_device_;          // null if no other rank is on this host
  std::vector<std::vector<int>> all_sources_;              // by rank; only for a tensor on a device
  std::shared_ptr<Window> window_;                         // null if there is no other rank
  std::vector<std::unique_ptr<PeerWindow>> peer_windows_;  // by rank; null for this one
  std::vector<std::unique_ptr<SlotMutex>> own_mutexes_;    // by writer
  double alone_p_ = 1;
  std::shared_timed_mutex calls_;  // held in shared mode by each thread in a call
  std::atomic<bool> is_closed_{false};
  bool is_open_elsewhere_ = false;  // other ranks have its device memory open, or may have
  std::mutex mutex_;
  std::vector<PendingOp> under_way_;
  std::optional<Slot::Clock::time_point> paced_at_;
  size_t most_under_way_ = 0;  // length at which ended ones are dropped
  WindowMutexes mutexes_;
  const std::shared_ptr<WindowCounters> counters_;
  std::unique_ptr<WindowStream> stream_;  // null for a tensor on the CPU
};

}  // namespace bluefog
