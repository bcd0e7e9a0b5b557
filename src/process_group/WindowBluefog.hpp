#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "process_group/Validate.hpp"
#include "process_group/WindowWork.hpp"
#include "transport/Engine.hpp"
#include "transport/SharedHeap.hpp"
#include "window/Lives.hpp"
#include "window/Reach.hpp"
#include "window/Reception.hpp"
#include "window/Window.hpp"

namespace bluefog {

// A window over a tensor, as Python has it. What it raises names this rank, the call and the
// window. Any thread may use it.
class WindowBluefog {
 public:
  // What it takes of its group, which it outlives.
  struct Ground {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<SharedHeap> heap;
    std::shared_ptr<Grounds> grounds;
    std::shared_ptr<Lives> lives;
    std::shared_ptr<Reception> reception;  // null where all ranks are here
    Engine::Interrupt interrupt;
    std::chrono::milliseconds timeout;
  };
  using Ranks = std::vector<WeightedRank>;

  // Moves what the tensor, and all that shares its storage, refers to into memory that the others
  // read. Its slots begin with the tensor's values, or empty. `drops`: what is for a dead rank is
  // counted, and no error.
  WindowBluefog(Ground ground, std::string name, at::Tensor tensor, bool drops);
  ~WindowBluefog();
  WindowBluefog(const WindowBluefog&) = delete;
  WindowBluefog& operator=(const WindowBluefog&) = delete;

  // For the others' open().
  WindowPlace place() const { return place_; }
  // With the places of all ranks, and a number that they give this window alone.
  void open(uint64_t number, const std::vector<WindowPlace>& places, bool zero_init,
            const std::vector<int>& sources);

  const at::Tensor& tensor() const { return tensor_; }
  using WorkPtr = std::shared_ptr<WindowWork>;
  struct PutOptions {
    Reach::Into into;
    bool require_mutex;
    bool with_p;
    bool async_op;
  };
  // Where it is asynchronous: what may still be under way, with a copy of what is to be sent; ended
  // where a mutex is required. Otherwise null.
  WorkPtr put(const at::Tensor& tensor, const Ranks& destinations, const PutOptions& opts);
  WorkPtr get(const Ranks& sources, bool require_mutex, bool async_op);
  // Until all that was begun has ended, well or not.
  void flush();
  at::Tensor update(double self_weight, const Ranks& sources, bool reset, bool clone,
                    bool require_mutex, bool with_p);
  at::Tensor read(int writer, bool require_mutex);
  double p() const { return window_ == nullptr ? alone_p_ : opened("win_associated_p").p(); }
  void multiplyP(double factor);
  // Of the slots of those ranks; changes since the last update, changes in all, and the seconds
  // since the last one (infinite where there was none).
  struct State {
    uint32_t version;
    uint64_t changes;
    double age;
    double p;
  };
  std::map<int, State> states(const std::vector<int>& writers) const;

  // What this rank has written to another, and what it has not since that was dead.
  struct Sent {
    uint64_t puts = 0;  // and accumulations
    uint64_t bytes = 0;
    uint64_t dropped = 0;
  };
  // Of the ranks to which there was anything.
  std::map<int, Sent> sent() const;

  // Of these edges, (owner, writer) each. By a thread, which has to let them go.
  using Edge = std::pair<int, int>;
  void take(const std::vector<Edge>& edges);
  void letGo(const std::vector<Edge>& edges);

 private:
  class Taken;
  class Ledger;

  std::string who(const char* op) const;
  Window& opened(const char* op) const;
  Reach& reach(int rank) const { return *reaches_[static_cast<size_t>(rank)]; }
  std::unique_ptr<Reach> reachOf(int rank, uint64_t number, const WindowPlace& place);
  uint64_t placeInHeap(const std::string& op);
  // Of the ranks that live: begins `what` with each.
  template <class What>
  WorkPtr with(const char* op, const Ranks& ranks, bool async_op, What what);
  void remember(const std::vector<Rest>& rests);
  Rest waitedFor(Rest rest, bool is_wanted);
  SlotMutex& mutexOf(const Edge& edge) const;
  void check(const char* op, const at::Tensor& tensor) const;
  void takeAll(const char* op, std::vector<Edge> edges);
  void take(const char* op, const Edge& edge);
  void letGo(const Edge& edge);
  bool isMine(const Edge& edge) const;

  const Ground ground_;
  const std::string name_;
  const at::Tensor tensor_;
  const bool drops_;
  c10::Storage storage_;  // of the window, also where the tensor has got another one
  WindowPlace place_{};
  std::unique_ptr<Room> room_;
  uint64_t number_ = 0;
  std::shared_ptr<Window> window_;                       // null where there is no other rank
  std::vector<std::unique_ptr<Reach>> reaches_;          // by rank; null for this one
  std::vector<std::unique_ptr<SlotMutex>> own_mutexes_;  // by writer
  double alone_p_ = 1;
  mutable std::mutex mutex_;
  std::vector<Rest> under_way_;
  std::map<Edge, std::thread::id> taken_;
  const std::shared_ptr<Ledger> ledger_;
};

}  // namespace bluefog
