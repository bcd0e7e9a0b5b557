#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "device/DeviceHeap.hpp"
#include "device/Plugin.hpp"
#include "process_group/device/Notices.hpp"

namespace bluefog {

// An accelerator's tensors in a group. What c10d calls with them goes to torch's own backend for
// them (NCCL, for CUDA); the operations between neighbours are made of that one's sends and
// receives, and of weighted sums on the device. They match by edge and order, without tags.
//
// With streams, all is as with NCCL: an operation takes its place in the current stream; an
// asynchronous one has a stream of its own, behind the current one, and wait() has the then current
// stream wait for it. Without (a CPU's tensors, over gloo) the call returns when it is done.
class Accelerator {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // Where the plugin has no kernel, ATen's do.
  Accelerator(c10::DeviceType type, c10::intrusive_ptr<c10d::Backend> backend,
              std::shared_ptr<const Plugin> plugin);

  c10::DeviceType type() const { return type_; }
  bool carries(const at::Tensor& tensor) const {
    return tensor.defined() && tensor.device().type() == type_;
  }
  const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }
  const Plugin& plugin() const { return *plugin_; }
  // For windows. Throws where the plugin is of no use.
  std::shared_ptr<DeviceHeap> heapOn(c10::Device device);
  // Another group's, with that backend.
  std::shared_ptr<Accelerator> sibling(c10::intrusive_ptr<c10d::Backend> backend) const {
    return std::make_shared<Accelerator>(type_, std::move(backend), plugin_);
  }

  // These do what ProcessGroupBluefog's of these names do, one at a time. They have their notices
  // told when there is the memory for the exchange, but that gathers' results have the sizes that
  // the sources then tell.
  WorkPtr neighborAllreduce(const Tensors& inputs, const Edges& edges, Notices& notices,
                            bool async_op);
  WorkPtr neighborGather(const at::Tensor& like, const Tensors& inputs, const Edges& edges,
                         Notices& notices, bool in_one, bool async_op);
  WorkPtr hierarchicalNeighborAllreduce(const at::Tensor& input, const std::vector<int>& locals,
                                        const Edges& between, Notices& notices, bool async_op);

  // How long a call may wait, where the group's limit is that.
  std::chrono::milliseconds limit(std::chrono::milliseconds groups) const;
  // Ends all that its backend has under way, wherever the ranks that it waits for are. Any thread
  // may call it.
  void abort();

  // Payload bytes handed to the backend by these operations.
  uint64_t bytesSent() const { return bytes_sent_.load(); }

 private:
  class Exchange;

  // Throws after abort().
  void requireNotAborted() const;
  // Returns when the current stream has come there; throws where it never will.
  void await(c10::Device device, const Notices& notices) const;
  // What `issue` issues, as one operation.
  WorkPtr run(const Tensors& inputs, Tensors outputs, const Notices& notices, bool async_op,
              const std::function<void()>& issue);
  c10::Stream streamOn(c10::Device device);

  const c10::DeviceType type_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::shared_ptr<const Plugin> plugin_;
  std::mutex waited_mutex_;
  std::vector<WorkPtr> waited_;  // by the thread that has called, where there are no streams
  std::atomic<bool> is_aborted_{false};
  std::mutex heaps_mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<DeviceHeap>> heaps_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
  std::set<c10::DeviceIndex> met_;  // on which there has been a batch
  std::atomic<uint64_t> bytes_sent_{0};
};

}  // namespace bluefog
