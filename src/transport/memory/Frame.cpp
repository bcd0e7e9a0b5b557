#include "transport/memory/Frame.hpp"

namespace bluefog {

const char* name(OpKind kind) {
  constexpr std::array<const char*, 19> kNames = {
      "barrier",
      "allreduce",
      "sparse allreduce",
      "broadcast",
      "allgather",
      "reduce_scatter",
      "reduce",
      "gather",
      "scatter",
      "alltoall",
      "point-to-point",
      "neighbor_allreduce",
      "monitored_barrier",
      "neighbor_allgather",
      "neighbor_alltoall",
      "pair_gossip",
      "hierarchical_neighbor_allreduce",
      "window",
      "service",
  };
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

bool isBetweenNeighbors(OpKind kind) {
  return kind == OpKind::kNeighborAllReduce ||
         (kind >= OpKind::kNeighborAllGather && kind <= OpKind::kHierarchicalNeighborAllReduce);
}

// This is the FNV-1a hash, over whole words.
uint64_t digest(std::span<const size_t> sizes) {
  uint64_t hash = 14695981039346656037ull;
  for (size_t size : sizes) {
    hash = (hash ^ size) * 1099511628211ull;
  }
  return hash;
}

namespace {

bool isBarrier(OpKind kind) {
  return kind == OpKind::kBarrier || kind == OpKind::kMonitoredBarrier;
}

// Returns whether the call's text names its count. The other kinds have no single count, since each
// rank has a size of its own for each other rank, or no elements at all.
bool saysCount(OpKind kind) {
  return !isBarrier(kind) && kind != OpKind::kGather && kind != OpKind::kScatter &&
         kind != OpKind::kAllToAll;
}

}  // namespace

const char* name(End end) {
  switch (end) {
    case End::kSend:
      return "send";
    case End::kReceive:
      return "recv";
    case End::kReceiveFromAny:
      return "recv from any source";
    default:
      return name(OpKind::kPointToPoint);
  }
}

const char* name(const Signature& signature) {
  return signature.end == End::kNone ? name(signature.kind) : name(signature.end);
}

std::string details(const Signature& signature) {
  return details(signature, signature.root);
}

std::string details(const Signature& signature, int root) {
  std::string text;
  if (signature.reduce != ReduceKind::kNone) {
    text.append(" ").append(name(signature.reduce));
  }
  if (!isBarrier(signature.kind)) {
    text.append(" ").append(name(signature.dtype));
  }
  if (saysCount(signature.kind)) {
    text.append("[").append(std::to_string(signature.count)).append("]");
  }
  if (root >= 0) {
    text += " root=" + std::to_string(root);
  }
  if (signature.where == Where::kDevice) {
    text += " on an accelerator";
  }
  return text;
}

}  // namespace bluefog
