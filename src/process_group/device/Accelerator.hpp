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

// An Accelerator is what a group has for the tensors of one type of device. It owns torch's own
// backend for them (NCCL, for CUDA), to which c10d's calls go. It makes the operations between
// neighbors of that backend's sends and receives, and of weighted sums on the device. Their
// messages match by edge and order, without tags.
//
// If the device has streams, everything is as with NCCL. An operation takes its place in the
// current stream. An asynchronous operation has a stream of its own, behind the current one, and
// wait() has the stream that is current by then wait for it. If the device has no streams (tensors
// on the CPU, over gloo), a call returns when it is done.
// Thread safety: any thread may call any method, but only one of the three operations may run at a
// time.
class Accelerator {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // Sums are formed by the plugin's kernels, or by ATen's if the plugin has none for them.
  Accelerator(c10::DeviceType type, c10::intrusive_ptr<c10d::Backend> backend,
              std::shared_ptr<const Plugin> plugin);

  c10::DeviceType type() const { return type_; }
  bool carries(const at::Tensor& tensor) const {
    return tensor.defined() && tensor.device().type() == type_;
  }
  const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }
  const Plugin& plugin() const { return *plugin_; }
  // Returns the heap for windows with tensors on that device, and makes it first if there is none.
  // Throws if the plugin could not be loaded.
  std::shared_ptr<DeviceHeap> heapOn(c10::Device device);
  // Makes the accelerator of another group, which has that backend.
  std::shared_ptr<Accelerator> sibling(c10::intrusive_ptr<c10d::Backend> backend) const {
    return std::make_shared<Accelerator>(type_, std::move(backend), plugin_);
  }

  // These three do what the methods of these names do in ProcessGroupBluefog. They call
  // notices.tell() once the memory for the exchange exists. A gather calls it before it makes the
  // results, because the sources' notices tell it the sizes of those.
  WorkPtr neighborAllreduce(const Tensors& inputs, const Edges& edges, Notices& notices,
                            bool async_op);
  WorkPtr neighborGather(const at::Tensor& like, const Tensors& inputs, const Edges& edges,
                         Notices& notices, bool in_one, bool async_op);
  WorkPtr hierarchicalNeighborAllreduce(const at::Tensor& input, const std::vector<int>& locals,
                                        const Edges& between, Notices& notices, bool async_op);

  // Returns how long a call may wait if the group's timeout is `groups`.
  std::chrono::milliseconds limit(std::chrono::milliseconds groups) const;
  // Ends everything that the backend has under way, whatever the other ranks do. Later operations
  // throw.
  void abort();

  // Returns the payload bytes that the operations between neighbors have handed to the backend.
  uint64_t bytesSent() const { return bytes_sent_.load(); }

 private:
  class Exchange;

  // Throws after abort().
  void requireNotAborted() const;
  // Waits until the current stream has done what it was given so far, if the call waits for that.
  // Throws if the notices show that the exchange has failed.
  void await(c10::Device device, const Notices& notices) const;
  // Runs `issue`, in a stream of its own if the call is asynchronous, and returns the Work of what
  // it has issued.
  WorkPtr run(const Tensors& inputs, Tensors outputs, const Notices& notices, bool async_op,
              const std::function<void()>& issue);
  c10::Stream streamOn(c10::Device device);

  const c10::DeviceType type_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::shared_ptr<const Plugin> plugin_;
  std::mutex waited_mutex_;
  std::vector<WorkPtr> waited_;  // what a call waits for now; empty if there are streams
  std::atomic<bool> is_aborted_{false};
  std::mutex heaps_mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<DeviceHeap>> heaps_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
  std::set<c10::DeviceIndex> met_;  // devices on which a batch has been begun
  std::atomic<uint64_t> bytes_sent_{0};
};

}  // namespace bluefog
