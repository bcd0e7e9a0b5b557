#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/Spans.hpp"
#include "transport/Board.hpp"
#include "transport/Mailbox.hpp"
#include "transport/Op.hpp"
#include "transport/Script.hpp"

namespace bluefog {

// The algorithms, one per file, as scripts over raw memory: no torch here. `op` says
// what is called (element type, count, reduction, root) and outlives the script, and so does the
// memory. Every rank of a collective publishes at least one frame in it, so that every rank sees
// what every other one called.

// In place. `returns` is the group's second board here and below.
Script allreduce(Board& board, Board& returns, const Op& op, Spans data);

// In place, from the signature's root.
Script broadcast(Board& board, Board& returns, const Op& op, std::byte* data);

// outputs[r] gets the bytes[r] bytes of rank r. `input` may be outputs[own rank].
Script allgather(Board& board, Board& returns, const Op& op, const std::byte* input,
                 std::vector<std::byte*> outputs, std::vector<size_t> bytes);

// `output` gets the reduction over all ranks of their inputs[own rank], which has
// counts[own rank] elements. `output` may be inputs[own rank].
Script reduceScatter(Board& board, Board& returns, const Op& op,
                     std::vector<const std::byte*> inputs, std::vector<size_t> counts,
                     std::byte* output);

// `output` of the signature's root gets the reduction over all ranks of their inputs; the others'
// may be null. `output` may be `input`.
Script reduce(Board& board, const Op& op, const std::byte* input, std::byte* output);

// What one rank has for another, or wants from it.
struct Parcel {
  const std::byte* data;
  size_t bytes;
};
struct Place {
  std::byte* data;
  size_t bytes;
};
// Every rank sends parcels[r] to rank r, and gets into places[r] what rank r sends to it. Throws a
// mismatch where one sends another size than the other expects. The own parcel may lie at the own
// place.
Script exchange(Board& board, const Op& op, std::vector<Parcel> parcels, std::vector<Place> places);

Script barrier(Board& board, const Op& op);

// A message that asks first is not taken by a receiver that comes when its operation has ended.
enum class Manners { kMayGoUnasked, kAsksFirst };

// What `op.outgoing` points to, also where that changes meanwhile; the receiver multiplies it by
// `weight` where it sums.
Script send(Mailbox& mailbox, const Op& op, int destination, int64_t tag, double weight = 1.0,
            Manners manners = Manners::kMayGoUnasked);

// `source` may be kAnySource; *sender gets who it was.
Script receive(Mailbox& mailbox, const Op& op, int source, int64_t tag, std::byte* data,
               std::shared_ptr<int> sender);

struct WeightedRank {
  int rank;
  double weight;
};

// output = (self_weight * input + sum of weight_i * (what rank i sends)) / divisor, summed in the
// order of `sources`. One pass: the sum is formed as the peers' memory streams by.
Script neighborSum(Mailbox& mailbox, const Op& op, const std::byte* input, double self_weight,
                   std::vector<WeightedRank> sources, double divisor, std::byte* output);

}  // namespace bluefog
