#include "transport/Frame.hpp"

namespace bluefog {

const char* name(OpKind kind) {
  constexpr std::array<const char*, 7> kNames = {
      "barrier",        "allreduce",      "broadcast",          "allgather",
      "reduce_scatter", "point-to-point", "neighbor_allreduce",
  };
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string details(const Signature& signature) {
  std::string text;
  if (signature.reduce != ReduceKind::kNone) {
    text.append(" ").append(name(signature.reduce));
  }
  if (signature.kind != OpKind::kBarrier) {
    text.append(" ").append(name(signature.dtype));
    text.append("[").append(std::to_string(signature.count)).append("]");
  }
  if (signature.root >= 0) {
    text += " root=" + std::to_string(signature.root);
  }
  return text;
}

}  // namespace bluefog
