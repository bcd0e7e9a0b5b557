#include <algorithm>
#include <iterator>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "process_group/host/Call.hpp"

namespace bluefog {
namespace {

// Returns options for a new group, with the timeout and the name that the caller gave.
c10::intrusive_ptr<Options> optionsFrom(const c10::intrusive_ptr<c10d::Backend::Options>& given,
                                        std::vector<uint64_t> global_ranks) {
  auto options = c10::make_intrusive<Options>();
  options->timeout = given->timeout;
  options->group_name = given->group_name;
  options->global_ranks_in_group = std::move(global_ranks);
  return options;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> ProcessGroupBluefog::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  checkProcess("split");
  if (const std::optional<Splits::BackendPtr> made = splits_.madeWith(store)) {
    return *made;
  }
  auto part =
      splitIn(c10::make_intrusive<c10d::PrefixStore>(splits_.nameOfNext(ranks), store_->clone()),
              ranks, opts);
  splits_.note(store, part);
  return part;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupBluefog::splitIn(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const Validate validate(engine_->members(), "split");
  std::vector<uint64_t> global_ranks;
  for (const int rank : ranks) {
    validate.rank(rank, "a member's");
    global_ranks.push_back(static_cast<uint64_t>(engine_->members().global(rank)));
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) {
    return nullptr;
  }
  return sibling(store, static_cast<int>(std::distance(ranks.begin(), own)),
                 static_cast<int>(ranks.size()), optionsFrom(opts, std::move(global_ranks)));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupBluefog::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts, const int& rank, const int& size) {
  checkProcess("merge");
  return sibling(store, rank, size, optionsFrom(opts, opts->global_ranks_in_group));
}

c10::intrusive_ptr<ProcessGroupBluefog> ProcessGroupBluefog::sibling(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    c10::intrusive_ptr<bluefog::Options> options) const {
  return c10::make_intrusive<ProcessGroupBluefog>(store, rank, size, std::move(options), language_);
}

}  // namespace bluefog
