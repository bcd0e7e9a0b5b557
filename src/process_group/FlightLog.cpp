#include "process_group/FlightLog.hpp"

#include <algorithm>
#include <chrono>

namespace bluefog {
namespace {

// Into the place of older ones, whose memory it uses.
void assign(std::vector<FlightLog::Shape>& shapes, const std::vector<at::Tensor>& tensors) {
  shapes.resize(std::min(tensors.size(), FlightLog::kMostShapes));
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].sizes = tensors[i].sizes();
    shapes[i].dtype = tensors[i].scalar_type();
  }
}

}  // namespace

void FlightLog::add(const char* title, const std::shared_ptr<Op>& op,
                    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::lock_guard lock(mutex_);
  const size_t place = added_ % kMost;
  if (place == ring_.size()) {
    ring_.emplace_back();
  }
  Entry& entry = ring_[place];
  entry.number = ++added_;
  entry.title = title;
  entry.op = op;
  entry.created_ns = std::chrono::nanoseconds(now).count();
  assign(entry.inputs, inputs);
  assign(entry.outputs, outputs);
}

std::vector<FlightLog::Entry> FlightLog::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> all = ring_;
  if (added_ > kMost) {
    std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(added_ % kMost), all.end());
  }
  return all;
}

}  // namespace bluefog
