#include "process_group/device/WeightedSum.hpp"

#include <ATen/ATen.h>

#include <optional>

#include "algorithms/Terms.hpp"
#include "core/RankSet.hpp"
#include "device/PluginsType.hpp"
#include "process_group/device/Launch.hpp"
#include "process_group/host/Validate.hpp"

namespace bluefog {
namespace {

struct Term {
  at::Tensor tensor;
  double weight;
};

at::Tensor asReal(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

static_assert(kMostRanks <= BLUEFOG_MOST_INPUTS);

// Returns false if the plugin has no kernel for the type, and has done nothing then.
bool sumByPlugin(const Plugin& plugin, const at::Tensor& output, const std::vector<Term>& terms,
                 double divisor) {
  const auto type = pluginsType(dtypeOf(output));
  if (!type || plugin.api() == nullptr) {
    return false;
  }
  std::vector<const void*> inputs;
  std::vector<double> weights;
  for (const Term& term : terms) {
    inputs.push_back(term.tensor.const_data_ptr());
    weights.push_back(term.weight);
  }
  launch(plugin, "weighted sum", output, [&](const bluefog_device_api& api, bluefog_stream stream) {
    return api.weighted_sum(output.mutable_data_ptr(), inputs.data(), weights.data(),
                            static_cast<int>(terms.size()), divisor,
                            static_cast<size_t>(output.numel()), *type, stream);
  });
  return true;
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

void sumOverEdges(const Plugin& plugin, const at::Tensor& output, const Edges& edges, int rank,
                  const at::Tensor& own, const std::map<int, at::Tensor>& received) {
  std::vector<Term> terms;
  forEachTerm(
      edges.sources, edges.self_weight, rank, [](size_t) { return 1.0; },
      [&](double weight) { terms.push_back({asReal(own), weight}); },
      [&](size_t i, double weight) {
        terms.push_back({asReal(received.at(edges.sources[i].rank)), weight});
      });
  if (terms.empty()) {
    output.zero_();
  } else if (!sumByPlugin(plugin, asReal(output), terms, edges.divisor)) {
    sumInto(asReal(output), terms, edges.divisor);
  }
}

}  // namespace bluefog
