#pragma once

#include <map>
#include <utility>
#include <vector>

#include "process_group/device/Accelerator.hpp"

namespace bluefog {

// An Exchange is a set of messages to and from several ranks, which go as one batch of the
// accelerator's backend. It keeps their tensors. The accelerator must outlive it.
// Thread safety: one thread at a time.
class Accelerator::Exchange {
 public:
  using Rooms = std::map<int, at::Tensor>;  // where messages go that are received, by source

  explicit Exchange(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Returns an uninitialized tensor like `tensor` for each source.
  static Rooms roomsFor(const at::Tensor& tensor, const Edges& edges);

  // These two add a message. The tensors must be contiguous. They travel as bytes, because not
  // every backend knows every type.
  void send(const at::Tensor& tensor, int rank) { add(sent_, tensor, rank); }
  void receive(const at::Tensor& tensor, int rank) { add(received_, tensor, rank); }
  // Sends the tensor to each destination, multiplied by the destination's weight. Receives from
  // each source into the source's room.
  void swap(const at::Tensor& tensor, const Edges& edges, const Rooms& rooms);
  // Runs all messages. They have arrived for what comes later in the current stream. If the device
  // has no streams, they have arrived when this returns.
  void run();

 private:
  using Messages = std::vector<std::pair<int, Tensors>>;
  using Works = std::vector<WorkPtr>;
  class Waited;

  static void add(Messages& messages, const at::Tensor& tensor, int rank);
  Works begin(c10d::Backend& backend);
  Works asFirstBatch(c10d::Backend& backend, c10::Device device);
  Works asBatch(c10d::Backend& backend);
  Works issue(c10d::Backend& backend);

  Accelerator& accelerator_;
  Messages sent_;
  Messages received_;
};

}  // namespace bluefog
