#include "process_group/host/Signatures.hpp"

#include <algorithm>

namespace bluefog {

using Tensors = std::vector<at::Tensor>;

bool areOfOneType(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == tensors.front().scalar_type();
  });
}

Signature signatureOfAll(OpKind kind, const Tensors& tensors) {
  Signature signature = signatureOf(kind, tensors.front());
  if (tensors.size() == 1) {
    return signature;
  }
  std::vector<size_t> told;
  signature.count = 0;
  const bool of_one_type = areOfOneType(tensors);
  for (const at::Tensor& tensor : tensors) {
    told.push_back(static_cast<size_t>(tensor.numel()));
    told.push_back(static_cast<size_t>(dtypeOf(tensor)));
    signature.count += of_one_type ? static_cast<size_t>(tensor.numel()) : tensor.nbytes();
  }
  if (!of_one_type) {
    signature.dtype = Dtype::kBytes;
  }
  signature.detail = digest(told);
  return signature;
}

Signature signatureAmongMachines(const at::Tensor& tensor, size_t ranks) {
  Signature signature = signatureOf(OpKind::kHierarchicalNeighborAllReduce, tensor);
  signature.detail = digest(std::vector{ranks});
  return signature;
}

Signature signatureOfRows(OpKind kind, const at::Tensor& like) {
  std::vector<size_t> sizes;
  Signature signature = signatureOf(kind, like);
  signature.count = 1;
  for (const int64_t size : like.sizes().slice(1)) {
    sizes.push_back(static_cast<size_t>(size));
    signature.count *= static_cast<size_t>(size);
  }
  signature.detail = digest(sizes);
  return signature;
}

}  // namespace bluefog
