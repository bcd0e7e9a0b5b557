#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <vector>

namespace bluefog {

// Bytes is a range of memory.
struct Bytes {
  const std::byte* begin = nullptr;
  size_t n = 0;

  // Returns the range from the first element of a tensor to its last one. It is empty if the tensor
  // is not dense.
  static Bytes of(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.numel() == 0) {
      return {};
    }
    int64_t last = 0;
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      last += (tensor.size(d) - 1) * tensor.stride(d);
    }
    return {static_cast<const std::byte*>(tensor.const_data_ptr()),
            static_cast<size_t>(last + 1) * tensor.itemsize()};
  }
  bool overlap(const Bytes& other) const {
    const std::less<> before;
    return n > 0 && other.n > 0 && before(begin, other.begin + other.n) &&
           before(other.begin, begin + n);
  }
};

// Returns the inputs of calls that run at the same time. Call i has inputs[i] and outputs[i]. An
// input is replaced by a copy if the outputs of another call could overwrite it.
inline std::vector<at::Tensor> apartFromOthers(
    std::vector<at::Tensor> inputs, const std::vector<std::vector<at::Tensor>>& outputs) {
  struct Output {
    size_t call;
    Bytes bytes;
  };
  std::vector<Output> all;
  for (size_t call = 0; call < outputs.size(); ++call) {
    std::transform(outputs[call].begin(), outputs[call].end(), std::back_inserter(all),
                   [&](const at::Tensor& output) { return Output{call, Bytes::of(output)}; });
  }
  for (size_t call = 0; call < inputs.size(); ++call) {
    const Bytes input = Bytes::of(inputs[call]);
    if (std::any_of(all.begin(), all.end(), [&](const Output& output) {
          return output.call != call && input.overlap(output.bytes);
        })) {
      inputs[call] = inputs[call].clone();
    }
  }
  return inputs;
}

// Does the same for calls that have one output each.
inline std::vector<at::Tensor> apartFromOthers(std::vector<at::Tensor> inputs,
                                               const std::vector<at::Tensor>& outputs) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const at::Tensor& output : outputs) {
    lists.push_back({output});
  }
  return apartFromOthers(std::move(inputs), lists);
}

}  // namespace bluefog
