#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "process_group/host/Call.hpp"
#include "process_group/host/Overlap.hpp"

namespace bluefog {

// An ExchangeBlocks collects for exchange() what each rank is sent, and what is expected from it.
// Both are nothing until they are set. It keeps the tensors' memory until giveTo(), which must be
// the last call.
// Thread safety: one thread at a time.
class ProcessGroupBluefog::ExchangeBlocks {
 public:
  explicit ExchangeBlocks(int ranks)
      : out_(static_cast<size_t>(ranks), {nullptr, 0}),
        in_(static_cast<size_t>(ranks), {nullptr, 0}) {}

  void send(int rank, const at::Tensor& tensor) {
    buffers_->inputs.push_back(Flat::input(tensor));
    out_[static_cast<size_t>(rank)] = {buffers_->inputs.back().readable(), tensor.nbytes()};
  }
  void receive(int rank, const at::Tensor& tensor) {
    buffers_->outputs.push_back(Flat::output(tensor));
    in_[static_cast<size_t>(rank)] = {buffers_->outputs.back().data(), tensor.nbytes()};
  }
  // These two split the tensor among all ranks in their order: rank r has bytes[r] bytes of it.
  void sendSplit(const at::Tensor& tensor, const std::vector<size_t>& bytes) {
    buffers_->inputs.push_back(Flat::input(tensor));
    const std::byte* part = buffers_->inputs.back().readable();
    for (size_t rank = 0; rank < bytes.size(); part += bytes[rank++]) {
      out_[rank] = {part, bytes[rank]};
    }
  }
  void receiveSplit(const at::Tensor& tensor, const std::vector<size_t>& bytes) {
    buffers_->outputs.push_back(Flat::output(tensor));
    std::byte* part = buffers_->outputs.back().data();
    for (size_t rank = 0; rank < bytes.size(); part += bytes[rank++]) {
      in_[rank] = {part, bytes[rank]};
    }
  }
  // Makes the exchange a task of the operation, and gives the memory to the operation.
  void giveTo(CollectiveOp& op, Board& board) {
    keepFromOutputs(board.rank());
    op.tasks.push_back(exchange(board, op, std::move(out_), std::move(in_)));
    own(op, std::move(buffers_));
  }

 private:
  // Copies each block that could be overwritten before it has left, because inputs may share memory
  // with outputs. This rank's own block may lie where it goes to.
  void keepFromOutputs(int self) {
    const auto own = static_cast<size_t>(self);
    for (size_t rank = 0; rank < out_.size(); ++rank) {
      const bool in_place = rank == own && out_[rank].data == in_[rank].data;
      if (!in_place && isOverwritten(out_[rank])) {
        const at::Tensor copy = at::empty({static_cast<int64_t>(out_[rank].bytes)}, at::kByte);
        std::memcpy(copy.mutable_data_ptr(), out_[rank].data, out_[rank].bytes);
        buffers_->inputs.push_back(Flat::input(copy));
        out_[rank].data = buffers_->inputs.back().readable();
      }
    }
  }
  bool isOverwritten(const SendBlock& block) const {
    const Bytes sent{block.data, block.bytes};
    return std::any_of(in_.begin(), in_.end(), [&](const RecvBlock& place) {
      return sent.overlap({place.data, place.bytes});
    });
  }

  std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();
  std::vector<SendBlock> out_;
  std::vector<RecvBlock> in_;
};

}  // namespace bluefog
