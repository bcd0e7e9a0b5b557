#include "process_group/FlightLog.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/operations/MessageOp.hpp"

namespace bluefog {
namespace {

void assign(FlightLog::TensorShapes& shapes, const std::vector<at::Tensor>& tensors) {
  shapes.resize(std::min(tensors.size(), FlightLog::kMostShapes));
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].sizes = tensors[i].sizes();
    shapes[i].dtype = tensors[i].scalar_type();
  }
}

}  // namespace

FlightLog::Entry& FlightLog::next(const char* title) {
  settle(kLooks);
  const size_t place = added_ % kMost;
  if (place == ring_.size()) {
    ring_.reserve(kMost);
    ring_.emplace_back();
  }
  Entry& entry = ring_[place];
  entry.number = ++added_;
  entry.title = title;
  return entry;
}

void FlightLog::add(const char* title, std::shared_ptr<Op> op,
                    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  const std::lock_guard lock(mutex_);
  Entry& entry = next(title);
  const MessageOp* message = op->asMessage();
  entry.is_message = message != nullptr;
  entry.sequence = op->sequence;
  entry.partners.clear();
  if (message != nullptr) {
    entry.partners.assign(message->partners.begin(), message->partners.end());
  }
  entry.timeout = op->deadline.limit();
  entry.state = Entry::State::kScheduled;
  entry.created = op->issued;
  entry.op = std::move(op);
  open_.push_back(entry.number);
  assign(entry.inputs, inputs);
  assign(entry.outputs, outputs);
}

void FlightLog::addEnded(const char* title, uint64_t sequence, const std::vector<int>& partners,
                         std::chrono::milliseconds timeout, const at::Tensor& input,
                         const at::Tensor& output, Op::Time created) {
  const Op::Time::duration took = Deadline::Clock::now() - created;
  const std::lock_guard lock(mutex_);
  Entry& entry = next(title);
  entry.is_message = true;
  entry.sequence = sequence;
  entry.partners.assign(partners.begin(), partners.end());
  entry.timeout = timeout;
  entry.op.reset();
  entry.state = Entry::State::kCompleted;
  entry.duration = took;
  entry.created = created;
  entry.inputs.assign(1, TensorShape{c10::DimVector(input.sizes()), input.scalar_type()});
  entry.outputs.assign(1, TensorShape{c10::DimVector(output.sizes()), output.scalar_type()});
}

void FlightLog::settle(size_t looks) {
  for (looks = std::min(looks, open_.size()); looks > 0; --looks) {
    const uint64_t number = open_.front();
    open_.pop_front();
    Entry& entry = ring_[(number - 1) % kMost];
    if (entry.number != number) {
      continue;  // a later entry has taken its place
    }
    if (!entry.op->hasEnded()) {
      open_.push_back(number);
      continue;
    }
    entry.state = entry.op->error ? Entry::State::kFailed : Entry::State::kCompleted;
    entry.duration = entry.op->ended - entry.op->issued;
    entry.op.reset();
  }
}

std::vector<FlightLog::Entry> FlightLog::entries() {
  const std::lock_guard lock(mutex_);
  settle(open_.size());
  return ring_;
}

}  // namespace bluefog
