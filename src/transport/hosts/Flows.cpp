#include "transport/hosts/Flows.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "transport/tuning/Tuning.hpp"

namespace bluefog {
namespace {

// Returns whether a transfer's memory is free again, be it because the transfer succeeded or
// because it failed.
bool hasEnded(RemoteTransport& transport, const Transfer& transfer) {
  return transfer.request == nullptr ||
         transport.test(transfer.request) != RemoteTransport::RequestState::kUnderWay;
}

// Removes the transfers at the front that have ended, and returns how many.
size_t sweep(RemoteTransport& transport, Transfers& partings) {
  size_t ended = 0;
  while (!partings.empty() && hasEnded(transport, partings.front())) {
    partings.pop_front();
    ++ended;
  }
  return ended;
}

Transfer sendCopy(RemoteTransport& transport, int to, int stream, std::vector<std::byte> bytes,
                  RemoteTransport::Ends ends = RemoteTransport::Ends::kSoon) {
  Transfer transfer{nullptr, std::move(bytes)};
  transfer.request = transport.send(to, stream, transfer.copy.data(), transfer.copy.size(), ends);
  return transfer;
}

}  // namespace

// A board's writer must not run far ahead of its readers. But hearing that a frame was seen costs
// about as much as a small frame, so only every fourth small frame is asked after. A lane's writer
// waits for control messages anyway.
bool FrameOutflow::mayGoUnseen(size_t bytes) {
  return board_ == nullptr ||
         (bytes <= tuning::kSmallFrame && ++small_n_ % tuning::kSmallFramesPerAcknowledgment != 0);
}

bool FrameOutflow::move(RemoteTransport& transport) {
  bool moved = false;
  while (const Frame* frame = ring_.front(under_way_.size())) {
    under_way_.push_back(sendOff(transport, *frame, ring_.popped() + under_way_.size()));
    moved = true;
  }
  if (const size_t ended = sweep(transport, under_way_)) {
    ring_.skip(ended);
    moved = true;
  }
  return moved;
}

Transfer FrameOutflow::sendOff(RemoteTransport& transport, const Frame& frame, uint64_t number) {
  const Board::MaybeCut cut =
      board_ == nullptr ? Board::Cut{0, frame.bytes} : board_->cutFor(number, to_);
  if (!cut) {
    return {nullptr, {}};
  }
  const auto ends =
      mayGoUnseen(cut->bytes) ? RemoteTransport::Ends::kSoon : RemoteTransport::Ends::kWhenSeen;
  if (cut->offset == 0 || cut->bytes == 0) {
    return {transport.send(to_, stream_, &frame, sizeof frame + cut->bytes, ends), {}};
  }
  std::vector<std::byte> copy(sizeof frame + cut->bytes);
  Frame head = frame;
  head.offset = cut->offset;
  std::memcpy(copy.data(), &head, sizeof head);
  std::memcpy(copy.data() + sizeof head, payloadOf(&frame) + cut->offset, cut->bytes);
  return sendCopy(transport, to_, stream_, std::move(copy), ends);
}

bool FrameInflow::move(RemoteTransport& transport) {
  bool moved = false;
  while (!waiting_.empty() && !is_cut_ && ring_.room(coming_.size())) {
    const RemoteTransport::Incoming& incoming = waiting_.front();
    if (incoming.bytes < sizeof(Frame) || incoming.bytes > ring_.shape().stride()) {
      throw std::runtime_error("not a frame");
    }
    coming_.push_back({transport.take(incoming, ring_.slot(coming_.size())), incoming.bytes});
    waiting_.pop_front();
    moved = true;
  }
  while (!coming_.empty()) {
    const RemoteTransport::RequestState state = transport.test(coming_.front().request);
    if (state == RemoteTransport::RequestState::kUnderWay) {
      break;
    }
    const size_t bytes = coming_.front().bytes;
    coming_.pop_front();
    moved = true;
    is_cut_ |= state == RemoteTransport::RequestState::kFailed;
    if (!is_cut_) {
      place(*ring_.slot(), bytes - sizeof(Frame));
      ring_.publish();
    }
  }
  return moved;
}

void FrameInflow::giveUp(RemoteTransport& transport, RequestList& requests) {
  collect(coming_, requests);
  for (const RemoteTransport::Incoming& incoming : waiting_) {
    unwanted_.emplace_back(incoming.bytes);
    requests.push_back(transport.take(incoming, unwanted_.back().data()));
  }
  waiting_.clear();
}

void FrameInflow::place(Frame& frame, size_t bytes) const {
  frame.written = StoreSample::kNone;
  if (!is_board_ || frame.offset == 0) {
    return;
  }
  if (frame.offset > ring_.shape().payload - bytes) {
    throw std::runtime_error("a piece of no frame");
  }
  std::byte* payload = payloadOf(&frame);
  std::memmove(payload + frame.offset, payload, bytes);
  frame.offset = 0;
}

bool ControlOutflow::isIdle() const {
  return under_way_.empty() && ring_->written.load(std::memory_order_relaxed) ==
                                   ring_->read.load(std::memory_order_relaxed);
}

bool ControlOutflow::move(RemoteTransport& transport) {
  const uint64_t written = ring_->written.load(std::memory_order_acquire);
  uint64_t read = ring_->read.load(std::memory_order_relaxed);
  const bool has_any = read != written;
  if (has_any) {
    std::vector<std::byte> copy((written - read) * sizeof(ControlMessage));
    for (std::byte* to = copy.data(); read != written; ++read, to += sizeof(ControlMessage)) {
      std::memcpy(to, &ring_->entries[read % ControlRing::kEntries], sizeof(ControlMessage));
    }
    ring_->read.store(read, std::memory_order_release);
    under_way_.push_back(sendCopy(transport, to_, stream_, std::move(copy)));
  }
  return sweep(transport, under_way_) > 0 || has_any;
}

bool MessageInflow::move(RemoteTransport& transport) {
  bool moved = false;
  for (; !waiting_.empty(); waiting_.pop_front()) {
    const RemoteTransport::Incoming& incoming = waiting_.front();
    coming_.push_back({nullptr, Bytes(incoming.bytes)});
    coming_.back().request = transport.take(incoming, coming_.back().bytes.data());
    moved = true;
  }
  while (!coming_.empty()) {
    const RemoteTransport::RequestState state = transport.test(coming_.front().request);
    if (state == RemoteTransport::RequestState::kUnderWay) {
      break;
    }
    is_cut_ |= state == RemoteTransport::RequestState::kFailed;
    if (!is_cut_) {
      here_.push_back(std::move(coming_.front().bytes));
    }
    coming_.pop_front();
    moved = true;
  }
  return moved;
}

MessageInflow::Bytes MessageInflow::take() {
  Bytes first = std::move(here_.front());
  here_.pop_front();
  return first;
}

bool ControlInflow::move(RemoteTransport& transport) {
  bool moved = messages_.move(transport);
  while (messages_.hasAny()) {
    const MessageInflow::Bytes bytes = messages_.take();
    if (bytes.size() % sizeof(ControlMessage) != 0) {
      throw std::runtime_error("not answers");
    }
    for (size_t at = 0; at < bytes.size(); at += sizeof(ControlMessage)) {
      ControlMessage control;
      std::memcpy(&control, bytes.data() + at, sizeof control);
      left_.push_back(control);
    }
  }
  uint64_t written = ring_->written.load(std::memory_order_relaxed);
  while (!left_.empty() &&
         written - ring_->read.load(std::memory_order_acquire) < ControlRing::kEntries) {
    ring_->entries[written % ControlRing::kEntries] = left_.front();
    left_.pop_front();
    ring_->written.store(++written, std::memory_order_release);
    moved = true;
  }
  return moved;
}

void TextOutflow::send(RemoteTransport& transport, const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  under_way_.push_back(sendCopy(transport, to_, stream_, {begin, begin + text.size()}));
}

bool TextOutflow::move(RemoteTransport& transport) {
  return sweep(transport, under_way_) > 0;
}

}  // namespace bluefog
