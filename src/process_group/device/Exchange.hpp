#pragma once

#include <map>
#include <utility>
#include <vector>

#include "process_group/device/Accelerator.hpp"

namespace bluefog {

// Messages to and from several ranks, as one batch of the backend's.
class Accelerator::Exchange {
 public:
  using Rooms = std::map<int, at::Tensor>;  // by rank

  explicit Exchange(Accelerator& accelerator) : accelerator_(accelerator) {}

  // Like `tensor`, for each source.
  static Rooms roomsFor(const at::Tensor& tensor, const Edges& edges);

  // Contiguous tensors, which travel as bytes: not every backend knows every type.
  void send(const at::Tensor& tensor, int rank) { add(sent_, tensor, rank); }
  void receive(const at::Tensor& tensor, int rank) { add(received_, tensor, rank); }
  // Sends it to the destinations, times their weights; receives from each source into the room that
  // there is for it.
  void swap(const at::Tensor& tensor, const Edges& edges, const Rooms& rooms);
  // What comes after it in the current stream (without streams: when it returns) finds them there.
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
