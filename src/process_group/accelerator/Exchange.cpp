#include "process_group/accelerator/Exchange.hpp"

#include <exception>

namespace bluefog {
namespace {

// Of backends that match messages by it. None of a program's.
constexpr int kTag = 0x5b1ef09;

// Else what the thread calls next would be queued in the batch, and never begin.
void endOfFailed(c10d::Backend& backend) {
  try {
    backend.endCoalescing();
  } catch (const std::exception&) {
    // of what has failed already
  }
}

}  // namespace

// Nothing is no message: both sides know that. (A contiguous tensor may have any stride where it
// has one element, and then it cannot be viewed as bytes.)
void Accelerator::Exchange::add(Messages& messages, const at::Tensor& tensor, int rank) {
  if (tensor.numel() > 0) {
    messages.emplace_back(rank, Tensors{tensor.as_strided({tensor.numel()}, {1}).view(at::kByte)});
  }
}

Accelerator::Tensors Accelerator::Exchange::swap(const at::Tensor& tensor, const Edges& edges) {
  for (const WeightedRank& destination : edges.destinations) {
    send(tensor, destination.rank);
  }
  Tensors received;
  for (const WeightedRank& source : edges.sources) {
    receive(received.emplace_back(at::empty_like(tensor)), source.rank);
  }
  return received;
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
  const std::lock_guard lock(accelerator_.mutex_);  // a backend has one batch
  backend.startCoalescing();
  try {
    issue(backend);
  } catch (...) {
    endOfFailed(backend);
    throw;
  }
  return {backend.endCoalescing()};
}

void Accelerator::Exchange::run() {
  if (sent_.empty() && received_.empty()) {
    return;
  }
  c10d::Backend& backend = *accelerator_.backend_;
  for (const WorkPtr& work : backend.supportsCoalescing() ? asBatch(backend) : issue(backend)) {
    if (work) {
      work->wait();
    }
  }
}

}  // namespace bluefog
