#include "process_group/accelerator/WeightedSum.hpp"

#include <ATen/ATen.h>

#include "algorithms/Terms.hpp"

namespace bluefog {
namespace {

struct Term {
  at::Tensor tensor;
  double weight;
};

at::Tensor asReal(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

at::Tensor asScalar(double weight) {
  return at::scalar_tensor(weight, at::kDouble);
}

void sumInto(const at::Tensor& output, const std::vector<Term>& terms, double divisor) {
  const at::ScalarType type = output.scalar_type();
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  const auto wide = [&](const at::Tensor& tensor) {
    return is_half ? tensor.to(at::kFloat) : tensor;
  };
  at::Tensor sum = is_half ? at::empty_like(output, at::kFloat) : output;
  at::mul_out(sum, wide(terms.front().tensor), asScalar(terms.front().weight));
  for (size_t i = 1; i < terms.size(); ++i) {
    sum.add_(wide(terms[i].tensor), terms[i].weight);
  }
  if (divisor != 1) {
    sum.div_(divisor);
  }
  if (is_half) {
    output.copy_(sum);
  }
}

}  // namespace

void sumOverEdges(const at::Tensor& output, const Edges& edges, int rank, const at::Tensor& own,
                  const std::vector<at::Tensor>& received) {
  std::vector<Term> terms;
  forEachTerm(
      edges.sources, edges.self_weight, rank, [](size_t) { return 1.0; },
      [&](double weight) { terms.push_back({asReal(own), weight}); },
      [&](size_t i, double weight) { terms.push_back({asReal(received[i]), weight}); });
  if (terms.empty()) {
    output.zero_();
  } else {
    sumInto(asReal(output), terms, edges.divisor);
  }
}

}  // namespace bluefog
