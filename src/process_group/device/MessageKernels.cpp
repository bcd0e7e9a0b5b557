#include "process_group/device/MessageKernels.hpp"

#include <ATen/ATen.h>

#include "device/PluginsType.hpp"
#include "process_group/device/Launch.hpp"
#include "process_group/host/Validate.hpp"

namespace bluefog {
namespace {

constexpr int64_t kScale = 4;   // bytes of a block's scale
constexpr int64_t kPicked = 8;  // bytes of a picked number and its place

at::Tensor bytesLike(const at::Tensor& tensor, int64_t bytes) {
  return at::empty({bytes}, tensor.options().dtype(at::kByte));
}

size_t count(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

bluefog_type typeOf(at::ScalarType type) {
  const Dtype dtype = dtypeOf(type);
  const auto known = pluginsType(dtype);
  TORCH_CHECK_TYPE(known && isFloating(dtype), "[bluefog] there are no messages of ", type);
  return *known;
}

bluefog_type typeOf(const at::Tensor& tensor) {
  return typeOf(tensor.scalar_type());
}

int64_t bytesOfBlocks(const at::Tensor& tensor, int64_t block) {
  return (tensor.numel() + block - 1) / block * (kScale + block);
}

// Throws unless the message has that many bytes and lies where `like` does. A kernel would read
// beyond its end, or where the device has no memory.
void check(const at::Tensor& message, const at::Tensor& like, int64_t bytes) {
  TORCH_CHECK_VALUE(message.device() == like.device() && message.scalar_type() == at::kByte &&
                        message.is_contiguous() && message.numel() == bytes,
                    "[bluefog] a message for a tensor of ", like.numel(), " numbers on ",
                    like.device(), " must be ", bytes, " contiguous bytes there, not ",
                    message.numel(), " of ", message.scalar_type(), " on ", message.device());
}

}  // namespace

at::Tensor MessageKernels::narrow(const at::Tensor& tensor, at::ScalarType type) const {
  const at::Tensor from = tensor.contiguous();
  at::Tensor message = bytesLike(from, from.numel() * static_cast<int64_t>(elementSize(type)));
  launch(plugin_, "cast", from, [&](const bluefog_device_api& api, bluefog_stream stream) {
    return api.cast(message.mutable_data_ptr(), typeOf(type), from.const_data_ptr(), typeOf(from),
                    count(from), stream);
  });
  return message;
}

at::Tensor MessageKernels::widen(const at::Tensor& message, at::ScalarType type,
                                 const at::Tensor& like) const {
  check(message, like, like.numel() * static_cast<int64_t>(elementSize(type)));
  at::Tensor out = at::empty_like(like);
  launch(plugin_, "cast", out, [&](const bluefog_device_api& api, bluefog_stream stream) {
    return api.cast(out.mutable_data_ptr(), typeOf(out), message.const_data_ptr(), typeOf(type),
                    count(out), stream);
  });
  return out;
}

at::Tensor MessageKernels::quantize(const at::Tensor& tensor, int64_t block) const {
  const at::Tensor from = tensor.contiguous();
  at::Tensor message = bytesLike(from, bytesOfBlocks(from, block));
  launch(plugin_, "quantize", from, [&](const bluefog_device_api& api, bluefog_stream stream) {
    return api.quantize(message.mutable_data_ptr(), from.const_data_ptr(), typeOf(from),
                        count(from), static_cast<size_t>(block), stream);
  });
  return message;
}

at::Tensor MessageKernels::dequantize(const at::Tensor& message, const at::Tensor& like,
                                      int64_t block) const {
  check(message, like, bytesOfBlocks(like, block));
  at::Tensor out = at::empty_like(like);
  launch(plugin_, "dequantize", out, [&](const bluefog_device_api& api, bluefog_stream stream) {
    return api.dequantize(out.mutable_data_ptr(), typeOf(out), message.const_data_ptr(), count(out),
                          static_cast<size_t>(block), stream);
  });
  return out;
}

at::Tensor MessageKernels::pickLargest(const at::Tensor& tensor, int64_t picked) const {
  const at::Tensor from = tensor.contiguous();
  size_t scratch_bytes = 0;
  plugin_.check(plugin_.api()->top_k_scratch(&scratch_bytes), "top_k_scratch");
  const at::Tensor scratch = bytesLike(from, static_cast<int64_t>(scratch_bytes));
  at::Tensor message = bytesLike(from, picked * kPicked);
  launch(plugin_, "top_k", from, [&](const bluefog_device_api& api, bluefog_stream stream) {
    return api.top_k(message.mutable_data_ptr(), from.const_data_ptr(), typeOf(from), count(from),
                     static_cast<size_t>(picked), scratch.mutable_data_ptr(), stream);
  });
  return message;
}

at::Tensor MessageKernels::scatter(const at::Tensor& message, const at::Tensor& like) const {
  check(message, like, message.numel() / kPicked * kPicked);
  at::Tensor out = at::empty_like(like);
  launch(plugin_, "scatter", out, [&](const bluefog_device_api& api, bluefog_stream stream) {
    return api.scatter(out.mutable_data_ptr(), typeOf(out), message.const_data_ptr(), count(out),
                       count(message) / kPicked, stream);
  });
  return out;
}

}  // namespace bluefog
