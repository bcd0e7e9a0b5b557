#include "process_group/device/Exchange.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <future>
#include <stdexcept>

#include "process_group/device/WeightedSum.hpp"

namespace bluefog {
namespace {

// The tag of the messages, for backends that match by tags. It must differ from those of programs.
constexpr int kTag = 0x5b1ef09;

// Ends the batch that has failed. Otherwise the next calls would be queued in it, and never begin.
// (If NCCL could not make the communicator, its batch cannot be ended, and nothing begins any
// more.)
void endOfFailed(c10d::Backend& backend) {
  try {
    backend.endCoalescing();
  } catch (const std::exception&) {
    // The caller throws the exchange's own error.
  }
}

}  // namespace

// A tensor without elements is no message, which both sides know. (A contiguous tensor may have any
// stride in a dimension of one element, and as it is cannot be viewed as bytes then.)
void Accelerator::Exchange::add(Messages& messages, const at::Tensor& tensor, int rank) {
  if (tensor.numel() > 0) {
    messages.emplace_back(rank, Tensors{tensor.as_strided({tensor.numel()}, {1}).view(at::kByte)});
  }
}

Accelerator::Exchange::Rooms Accelerator::Exchange::roomsFor(const at::Tensor& tensor,
                                                             const Edges& edges) {
  Rooms rooms;
  for (const WeightedRank& source : edges.sources) {
    rooms.emplace(source.rank, at::empty_like(tensor));
  }
  return rooms;
}

void Accelerator::Exchange::swap(const at::Tensor& tensor, const Edges& edges, const Rooms& rooms) {
  std::map<double, at::Tensor> weighted{{1.0, tensor}};
  for (const auto& [rank, weight] : edges.destinations) {
    at::Tensor& sent = weighted[weight];
    if (!sent.defined()) {
      sent = at::empty_like(tensor);
      sumOverEdges(*accelerator_.plugin_, sent, Edges{weight, {}, {}}, rank, tensor, {});
    }
    send(sent, rank);
  }
  for (const WeightedRank& source : edges.sources) {
    receive(rooms.at(source.rank), source.rank);
  }
}

Accelerator::Exchange::Works Accelerator::Exchange::issue(c10d::Backend& backend) {
  Works works;
  for (auto& [rank, tensors] : received_) {
    works.push_back(backend.recv(tensors, rank, kTag));
  }
  for (auto& [rank, tensors] : sent_) {
    works.push_back(backend.send(tensors, rank, kTag));
    accelerator_.bytes_sent_ += tensors.front().nbytes();
  }
  return works;
}

Accelerator::Exchange::Works Accelerator::Exchange::asBatch(c10d::Backend& backend) {
  backend.startCoalescing();
  try {
    issue(backend);
  } catch (...) {
    endOfFailed(backend);
    throw;
  }
  return {backend.endCoalescing()};
}

// Begins the first batch in a thread of its own, which ends with it. A group's first batch makes
// its communicator. If that fails, what NCCL's backend knows of the thread's batches stays wrong,
// and all groups that are made later fail in that thread.
Accelerator::Exchange::Works Accelerator::Exchange::asFirstBatch(c10d::Backend& backend,
                                                                 c10::Device device) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return std::async(std::launch::async,
                    [&] {
                      const c10::StreamGuard guard(stream);
                      return asBatch(backend);
                    })
      .get();
}

Accelerator::Exchange::Works Accelerator::Exchange::begin(c10d::Backend& backend) {
  if (!backend.supportsCoalescing()) {
    return issue(backend);
  }
  const c10::Device device = (sent_.empty() ? received_ : sent_).front().second.front().device();
  if (accelerator_.met_.contains(device.index())) {
    return asBatch(backend);
  }
  Works works = asFirstBatch(backend, device);
  accelerator_.met_.insert(device.index());
  return works;
}

// A Waited has abort() of the accelerator end these Works, for as long as it exists. Its
// constructor throws if the accelerator was aborted already.
class Accelerator::Exchange::Waited {
 public:
  Waited(Accelerator& accelerator, const Works& works) : accelerator_(accelerator) {
    const std::lock_guard lock(accelerator_.waited_mutex_);
    accelerator_.requireNotAborted();
    if (accelerator_.type_ == c10::kCPU) {
      accelerator_.waited_ = works;
    }
  }
  ~Waited() {
    const std::lock_guard lock(accelerator_.waited_mutex_);
    accelerator_.waited_.clear();
  }
  Waited(const Waited&) = delete;
  Waited& operator=(const Waited&) = delete;

 private:
  Accelerator& accelerator_;
};

void Accelerator::Exchange::run() {
  if (sent_.empty() && received_.empty()) {
    return;
  }
  accelerator_.requireNotAborted();
  const Works works = begin(*accelerator_.backend_);
  const Waited waited(accelerator_, works);
  for (const WorkPtr& work : works) {
    if (work && !work->wait()) {
      throw std::runtime_error("the exchange was aborted");
    }
  }
}

}  // namespace bluefog
