#pragma once

#include <cstddef>
#include <vector>

#include "support/ranks.hpp"

// These functions make calls of one rank whose results nobody looks at.
namespace bluefog::testing {

template <class T>
void callAllreduce(Rank& me, size_t count, ReduceKind kind = ReduceKind::kSum) {
  std::vector<T> data(count);
  me.run(me.allreduce(data, kind));
}

inline void callBroadcast(Rank& me, size_t count, int root) {
  std::vector<float> data(count);
  me.run(me.broadcast(data, root));
}

inline void callAllgather(Rank& me, size_t count) {
  const std::vector<float> data(count);
  Lists<float> outputs(static_cast<size_t>(me.size), std::vector<float>(count));
  me.run(me.allgather(data, outputs));
}

inline void callReduceScatter(Rank& me, const std::vector<size_t>& first) {
  Lists<float> inputs(static_cast<size_t>(me.size), std::vector<float>(5));
  for (size_t i = 0; i < first.size(); ++i) {
    inputs[i].resize(first[i]);
  }
  std::vector<float> output(inputs[static_cast<size_t>(me.self)].size());
  me.run(me.reduceScatter(inputs, output));
}

inline void callReduce(Rank& me, size_t count, int root) {
  std::vector<float> data(count);
  me.run(me.reduce(data, root));
}

inline void callExchange(Rank& me, size_t count) {
  const Lists<float> inputs(static_cast<size_t>(me.size), std::vector<float>(count));
  Lists<float> outputs = inputs;
  me.run(me.exchange(inputs, outputs));
}

}  // namespace bluefog::testing
