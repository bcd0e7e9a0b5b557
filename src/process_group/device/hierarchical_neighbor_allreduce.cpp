#include <algorithm>
#include <utility>

#include "process_group/device/Exchange.hpp"
#include "process_group/device/WeightedSum.hpp"
#include "process_group/host/Flat.hpp"

namespace bluefog {

// Each rank of a machine sums a part over the machine, swaps that with the ranks of the same place
// on other machines, and hands the result out, just as it is done on the CPU.
Accelerator::WorkPtr Accelerator::hierarchicalNeighborAllreduce(const at::Tensor& input,
                                                                const std::vector<int>& locals,
                                                                const Edges& between,
                                                                Notices& notices, bool async_op) {
  const at::NoGradGuard no_grad;
  const int rank = backend_->getRank();
  const auto n = static_cast<int64_t>(locals.size());
  const at::Tensor output = at::empty(input.sizes(), input.options());
  return run({input}, {output}, notices, async_op, [&] {
    const at::Tensor flat = Flat::input(input).tensor().reshape({-1});
    const at::Tensor whole = output.view({-1});
    const auto partOf = [&](const at::Tensor& of, int64_t i) {
      return of.slice(0, i * of.numel() / n, (i + 1) * of.numel() / n);
    };
    const int64_t self = std::find(locals.begin(), locals.end(), rank) - locals.begin();
    const auto forEachOther = [&](const auto& visit) {
      for (int64_t i = 0; i < n; ++i) {
        if (i != self) {
          visit(i, locals[static_cast<size_t>(i)]);
        }
      }
    };

    Edges within{1.0, {}, {}, static_cast<double>(n)};
    forEachOther([&](int64_t, int other) { within.sources.push_back({other, 1.0}); });
    const at::Tensor own = partOf(flat, self);
    const Exchange::Rooms shares = Exchange::roomsFor(own, within);
    const at::Tensor part = at::empty_like(own);
    const Exchange::Rooms parts = Exchange::roomsFor(part, between);
    notices.tell();

    Exchange inward(*this);
    forEachOther([&](int64_t i, int other) {
      inward.send(partOf(flat, i), other);
      inward.receive(shares.at(other), other);
    });
    inward.run();
    sumOverEdges(*plugin_, part, within, rank, own, shares);

    Exchange outward(*this);
    outward.swap(part, between, parts);
    outward.run();
    sumOverEdges(*plugin_, partOf(whole, self), between, rank, part, parts);

    Exchange hand_out(*this);
    forEachOther([&](int64_t i, int other) {
      hand_out.send(partOf(whole, self), other);
      hand_out.receive(partOf(whole, i), other);
    });
    hand_out.run();
  });
}

}  // namespace bluefog
