#include "process_group/accelerator/Messages.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace bluefog {
namespace {

constexpr int64_t kScale = 4;   // bytes of a block's scale
constexpr int64_t kPicked = 8;  // of a number and its place

at::Tensor bytesLike(const at::Tensor& tensor, int64_t bytes) {
  return at::empty({bytes}, tensor.options().dtype(at::kByte));
}

size_t count(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

bluefog_type typeOf(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return BLUEFOG_F16;
    case at::kBFloat16:
      return BLUEFOG_BF16;
    case at::kFloat:
      return BLUEFOG_F32;
    case at::kDouble:
      return BLUEFOG_F64;
    default:
      TORCH_CHECK_TYPE(false, "[bluefog] there are no messages of ", type);
  }
}

bluefog_stream streamOf(const at::Tensor& tensor) {
  return c10::impl::VirtualGuardImpl(tensor.device().type())
      .getStream(tensor.device())
      .native_handle();
}

}  // namespace

const bluefog_device_api& Messages::on(const at::Tensor& tensor) const {
  plugin_.check(plugin_.api()->set_device(tensor.device().index()), "set_device");
  return *plugin_.api();
}

at::Tensor Messages::narrow(const at::Tensor& tensor, at::ScalarType type) const {
  const at::Tensor from = tensor.contiguous();
  at::Tensor message = bytesLike(from, from.numel() * static_cast<int64_t>(elementSize(type)));
  plugin_.check(on(from).cast(message.mutable_data_ptr(), typeOf(type), from.const_data_ptr(),
                              typeOf(from.scalar_type()), count(from), streamOf(from)),
                "cast");
  return message;
}

at::Tensor Messages::widen(const at::Tensor& message, at::ScalarType type,
                           const at::Tensor& like) const {
  at::Tensor out = at::empty_like(like);
  plugin_.check(on(out).cast(out.mutable_data_ptr(), typeOf(out.scalar_type()),
                             message.const_data_ptr(), typeOf(type), count(out), streamOf(out)),
                "cast");
  return out;
}

at::Tensor Messages::quantize(const at::Tensor& tensor, int64_t block) const {
  const at::Tensor from = tensor.contiguous();
  const int64_t blocks = (from.numel() + block - 1) / block;
  at::Tensor message = bytesLike(from, blocks * (kScale + block));
  plugin_.check(on(from).quantize(message.mutable_data_ptr(), from.const_data_ptr(),
                                  typeOf(from.scalar_type()), count(from),
                                  static_cast<size_t>(block), streamOf(from)),
                "quantize");
  return message;
}

at::Tensor Messages::dequantize(const at::Tensor& message, const at::Tensor& like,
                                int64_t block) const {
  at::Tensor out = at::empty_like(like);
  plugin_.check(on(out).dequantize(out.mutable_data_ptr(), typeOf(out.scalar_type()),
                                   message.const_data_ptr(), count(out), static_cast<size_t>(block),
                                   streamOf(out)),
                "dequantize");
  return out;
}

at::Tensor Messages::pickLargest(const at::Tensor& tensor, int64_t count_picked) const {
  const at::Tensor from = tensor.contiguous();
  size_t scratch_bytes = 0;
  plugin_.check(on(from).top_k_scratch(&scratch_bytes), "top_k_scratch");
  const at::Tensor scratch = bytesLike(from, static_cast<int64_t>(scratch_bytes));
  at::Tensor message = bytesLike(from, count_picked * kPicked);
  plugin_.check(
      on(from).top_k(message.mutable_data_ptr(), from.const_data_ptr(), typeOf(from.scalar_type()),
                     count(from), static_cast<size_t>(count_picked), scratch.mutable_data_ptr(),
                     streamOf(from)),
      "top_k");
  return message;
}

at::Tensor Messages::scatter(const at::Tensor& message, const at::Tensor& like) const {
  at::Tensor out = at::empty_like(like);
  plugin_.check(
      on(out).scatter(out.mutable_data_ptr(), typeOf(out.scalar_type()), message.const_data_ptr(),
                      count(out), count(message) / kPicked, streamOf(out)),
      "scatter");
  return out;
}

}  // namespace bluefog
