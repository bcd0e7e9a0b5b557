#include <algorithm>
#include <iterator>

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "process_group/host/Call.hpp"

namespace bluefog {
namespace {

// With a timeout and the names that the caller gave.
c10::intrusive_ptr<Options> optionsFrom(const c10::intrusive_ptr<c10d::Backend::Options>& given,
                                        std::vector<uint64_t> global_ranks) {
  auto options = c10::make_intrusive<Options>();
  options->timeout = given->timeout;
  options->group_name = given->group_name;
  options->global_ranks_in_group = std::move(global_ranks);
  return options;
}

}  // namespace

// Not in the store that torch gives: its prefix is the part's name, which comes again when a part
// of that name is gone, and is another one on ranks that were left out of a part before.
c10::intrusive_ptr<c10d::Backend> ProcessGroupBluefog::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  checkProcess("split");
  std::unique_lock lock(splits_mutex_);
  if (last_split_ && last_split_->store == store) {
    return last_split_->part.lock();
  }
  const std::string own = "split/" + c10::Join(",", ranks) + "/" + std::to_string(++splits_[ranks]);
  lock.unlock();
  auto part = splitIn(c10::make_intrusive<c10d::PrefixStore>(own, store_->clone()), ranks, opts);
  lock.lock();
  last_split_ = {store, c10::weak_intrusive_ptr<c10d::Backend>(part)};
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
  return c10::make_intrusive<ProcessGroupBluefog>(store, rank, size, std::move(options), hooks_);
}

}  // namespace bluefog
