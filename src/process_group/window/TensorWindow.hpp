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

// A window over a tensor, as Python has it. What it raises names this rank, the call and the
// window. Any thread may use it.
class TensorWindow {
 public:
  using Ranks = std::vector<WeightedRank>;

  // Moves what the tensor, and all that shares its storage, refers to into memory that the others
  // read. `is_fresh`: nothing else points to its memory, which is freed. `drops`: what is for a
  // dead rank is counted, and no error. `sources`: those that write to it by default.
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

  // For the others' open().
  WindowPlace place() const { return place_; }
  // Of a tensor on a device: for the others' openPeers(); nothing of another one, or where no other
  // rank is here.
  std::optional<DeviceWindowMemory::Ticket> ticket();
  // Opens what ranks of this host have on the device: with all ranks' tickets and sources. The
  // ranks whose slots it has opened, those whose tensors, and why not the others.
  struct OpenedPeers {
    std::vector<int> slots;
    std::vector<int> tensors;
    std::string reason;
  };
  OpenedPeers openPeers(const std::vector<DeviceWindowMemory::Ticket>& tickets,
                        const std::vector<std::vector<int>>& sources);
  // The ranks that both sides have opened the device's memory of: to write to this one's slots; for
  // this one to write to theirs.
  struct Direct {
    std::vector<int> writers = {};
    std::vector<int> owners = {};
  };
  // With the places of all ranks, and a number that they give this window alone. Its slots begin
  // with the tensor's values, or empty.
  void open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init, Direct direct);
  // All ranks have: nobody else has its memory open but those.
  void noteOpened();

  const at::Tensor& tensor() const { return tensor_; }
  using WorkPtr = std::shared_ptr<WindowWork>;
  struct PutOptions {
    PeerWindow::Into into;
    bool require_mutex;
    bool with_p;
    bool async_op;
  };
  // Where it is asynchronous: what may still be under way, with a copy of what is to be sent;
  // ended where a mutex is required, or this thread holds one. Otherwise null.
  WorkPtr put(const at::Tensor& tensor, const Ranks& destinations, const PutOptions& opts);
  WorkPtr get(const Ranks& sources, bool require_mutex, bool with_p, bool async_op);
  // Until all that was begun has ended, well or not.
  void flush(const char* op);
  // No thread works on it any more when it returns, and none begins; nor does it keep other ranks
  // from freeing what it has opened of their memory. Until reopen().
  void close(const char* op);
  void reopen();
  // To others it is as if it had been freed, though its memory stays.
  void abandon();
  // All ranks have closed it: nobody has its memory open any more.
  void noteFreed() { is_open_elsewhere_ = false; }
  at::Tensor update(double self_weight, const Ranks& sources, bool reset, bool clone,
                    bool require_mutex, bool with_p);
  // Waits until one of the sources has sent something since the last update, or kPace has passed
  // since the last such wait.
  void awaitNews(const std::vector<int>& sources);
  at::Tensor read(int writer, bool require_mutex);
  double p() const { return window_ == nullptr ? alone_p_ : opened("win_associated_p").p(); }
  void multiplyP(double factor);
  // Of the slots of those ranks; changes since the last update, changes in all, and the seconds
  // since the last one (infinite where there was none); whether their writer has died.
  struct SlotReport {
    uint32_t version;
    uint64_t changes;
    double age;
    double p;
    bool has_ended;
  };
  std::map<int, SlotReport> states(const std::vector<int>& writers) const;

  using Sent = WindowCounters::Sent;
  // Of the ranks to which there was anything.
  std::map<int, Sent> sent() const;

  // The mutexes of these edges, but where the other rank is dead. By a thread, which has to let
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
  Window& opened(const char* op) const;  // where there are other ranks
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
    bool is_guarded;  // each part ends before the next one begins, or the call returns

    bool goesOn() const { return is_async && !is_guarded; }
    Engine::Who whoWaits() const { return goesOn() ? Engine::Who::kEngine : Engine::Who::kCaller; }
  };
  IssueMode issueModeOf(const Ranks& others, bool async_op, bool require_mutex) const;
  // Begins `what` with each of the ranks that live.
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
  c10::Storage storage_;  // of the window, also where the tensor has got another one
  std::optional<SharedStorage> shared_;
  WindowPlace place_{};
  Direct direct_;
  std::map<int, std::pair<MappedPeerWindow*, WindowPart>> opened_;  // of a tensor on a device
  std::unique_ptr<WindowBlock> room_;
  std::shared_ptr<Space> space_;
  std::unique_ptr<DeviceWindowMemory> on_device_;          // null where no other rank is here
  std::vector<std::vector<int>> all_sources_;              // of each rank; of a tensor on a device
  std::shared_ptr<Window> window_;                         // null where there is no other rank
  std::vector<std::unique_ptr<PeerWindow>> peer_windows_;  // by rank; null for this one
  std::vector<std::unique_ptr<SlotMutex>> own_mutexes_;    // by writer
  double alone_p_ = 1;
  std::shared_timed_mutex calls_;  // shared: by each call of a thread
  std::atomic<bool> is_closed_{false};
  bool is_open_elsewhere_ = false;  // its device's memory, or it may be
  std::mutex mutex_;
  std::vector<PendingOp> under_way_;
  std::optional<Slot::Clock::time_point> paced_at_;
  size_t most_under_way_ = 0;  // before those that have ended are looked for
  WindowMutexes mutexes_;
  const std::shared_ptr<WindowCounters> counters_;
  std::unique_ptr<WindowStream> stream_;  // null of a tensor of the CPU's
};

}  // namespace bluefog
