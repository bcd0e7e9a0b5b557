#include "process_group/ProcessGroupReconfigurable.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <variant>

namespace bluefog {
namespace {

// A Reconfigured is the Work of a reconfigure(), which has done everything before it returns.
class Reconfigured : public c10d::Work {
 public:
  explicit Reconfigured(int rank) : c10d::Work(rank, c10d::OpType::UNKNOWN) { finish(); }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return {}; }
};

constexpr auto kWho = "[bluefog] reconfigure: ";

}  // namespace

ProcessGroupReconfigurable::ProcessGroupReconfigurable(c10::intrusive_ptr<c10d::Store> store,
                                                       int rank, int size,
                                                       c10::intrusive_ptr<bluefog::Options> options,
                                                       MakeGroup make)
    : c10d::Backend(rank, size),
      store_(std::move(store)),
      options_(std::move(options)),
      make_(std::move(make)),
      endpoint_(std::make_shared<Endpoint>(options_->accelerator)) {
  init();
}

ProcessGroupReconfigurable::~ProcessGroupReconfigurable() {
  shutdown();
}

void ProcessGroupReconfigurable::checkProcess() const {
  TORCH_CHECK(!process_.isForked(), kWho,
              "this process was forked after the process group was made; make a new group in it");
}

ProcessGroupReconfigurable::GroupPtr ProcessGroupReconfigurable::current() const {
  const std::lock_guard lock(mutex_);
  return group_;
}

ProcessGroupReconfigurable::GroupPtr ProcessGroupReconfigurable::group() const {
  GroupPtr group = current();
  TORCH_CHECK(group != nullptr,
              "[bluefog] this group has no members now; all its future members must call "
              "torch.distributed._reconfigure with the same new uuid and the same handles");
  return group;
}

c10d::ReconfigureHandle ProcessGroupReconfigurable::get_reconfigure_handle() const {
  return endpoint()->handle();
}

std::shared_ptr<Endpoint> ProcessGroupReconfigurable::endpoint() const {
  checkProcess();
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(endpoint_ != nullptr, kWho, "this rank has left the group; make a new one");
  return endpoint_;
}

std::vector<std::string> ProcessGroupReconfigurable::ordered(const c10d::ReconfigureOptions& opts) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&opts.handles)) {
    return *list;
  }
  const auto& set = std::get<std::unordered_set<std::string>>(opts.handles);
  std::vector<std::string> handles(set.begin(), set.end());
  std::sort(handles.begin(), handles.end());
  return handles;
}

Epoch ProcessGroupReconfigurable::epochOf(const c10d::ReconfigureOptions& opts,
                                          const RankRecord& self) {
  const std::vector<std::string> handles = ordered(opts);
  TORCH_CHECK_VALUE(!handles.empty() && handles.size() <= kMostRanks, kWho, handles.size(),
                    " handles; a group has 1 to ", kMostRanks, " ranks");
  TORCH_CHECK_VALUE(!opts.timeout || opts.timeout->count() > 0, kWho, "timeout ",
                    opts.timeout ? opts.timeout->count() : 0, " ms is not a positive time");
  try {
    return Epoch::of(opts.uuid, handles, self);
  } catch (const std::invalid_argument& error) {
    C10_THROW_ERROR(ValueError, std::string(kWho) + error.what());
  }
}

WorkPtr ProcessGroupReconfigurable::reconfigure(const c10d::ReconfigureOptions& opts) {
  const std::lock_guard turn(reconfiguring_);
  const std::shared_ptr<Endpoint> endpoint = this->endpoint();
  Epoch epoch = epochOf(opts, endpoint->record());
  TORCH_CHECK(uuids_.insert(opts.uuid).second, kWho, "uuid ", opts.uuid,
              " was already used by this group; pass a fresh one each time");
  {
    const std::lock_guard lock(mutex_);
    gives_up_ = endpoint_ == nullptr;
  }
  leaveEpoch();
  auto options = c10::make_intrusive<bluefog::Options>(*options_);
  options->global_ranks_in_group.resize(epoch.members.size());
  std::iota(options->global_ranks_in_group.begin(), options->global_ranks_in_group.end(), 0);
  const std::string name = "reconfigure/" + epoch.name() + "/";
  Meeting meeting{endpoint, std::move(epoch), c10::make_intrusive<c10d::PrefixStore>(name, store_),
                  opts.timeout.value_or(options_->timeout), [this] { return gives_up_.load(); }};
  GroupPtr group = make_(meeting, std::move(options));
  group->setHooks(hooks_);
  group->setBoundDeviceId(getBoundDeviceId());
  group->setGroupUid(getGroupUid());
  group->setGroupDesc(getGroupDesc());
  rank_ = group->getRank();
  size_ = group->getSize();
  {
    const std::lock_guard group_lock(mutex_);
    if (endpoint_ != nullptr && !gives_up_) {
      group_ = group;
      is_aborted_ = false;
    }
  }
  if (current() != group) {
    group->shutdown();
    TORCH_CHECK(false, kWho, "another thread of this rank has aborted it");
  }
  return c10::make_intrusive<Reconfigured>(rank_);
}

void ProcessGroupReconfigurable::leaveEpoch() {
  GroupPtr ended;
  std::vector<std::function<void()>> changed;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(group_, nullptr);
    changed = std::exchange(changed_, {});
  }
  if (ended) {
    ended->shutdown();
  }
  for (const auto& call : changed) {
    call();
  }
}

void ProcessGroupReconfigurable::onChange(std::function<void()> changed) {
  const std::lock_guard lock(mutex_);
  changed_.push_back(std::move(changed));
}

void ProcessGroupReconfigurable::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "[bluefog] set_timeout: ", timeout.count(),
                    " ms is not a positive time");
  options_->timeout = timeout;
  if (const GroupPtr now = current()) {
    now->setTimeout(timeout);
  }
}

bool ProcessGroupReconfigurable::supportsCoalescing() const {
  const GroupPtr now = current();
  return now != nullptr && now->supportsCoalescing();
}

c10d::ErrorType ProcessGroupReconfigurable::getError() {
  const GroupPtr now = current();
  return now != nullptr && !is_aborted_ ? now->getError() : c10d::ErrorType::SUCCESS;
}

void ProcessGroupReconfigurable::abort() {
  if (process_.isForked()) {
    return;
  }
  GroupPtr now;
  {
    const std::lock_guard lock(mutex_);
    now = group_;
    gives_up_ = now == nullptr;
    is_aborted_ = now != nullptr;
  }
  if (now) {
    now->abort();
  }
}

void ProcessGroupReconfigurable::shutdown() {
  if (process_.isForked()) {
    return;
  }
  std::shared_ptr<Endpoint> endpoint;
  {
    const std::lock_guard lock(mutex_);
    endpoint = std::exchange(endpoint_, nullptr);
    gives_up_ = true;
  }
  leaveEpoch();
  if (endpoint) {
    endpoint->close();
  }
}

}  // namespace bluefog

#endif  // C10D_BACKEND_HAS_RECONFIGURE
