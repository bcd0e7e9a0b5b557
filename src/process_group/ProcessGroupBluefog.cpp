#include "process_group/ProcessGroupBluefog.hpp"

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <map>
#include <numeric>

#include "bootstrap/NoStore.hpp"
#include "bootstrap/Rendezvous.hpp"
#include "bootstrap/TorchStore.hpp"
#include "process_group/Registry.hpp"
#include "process_group/host/Call.hpp"
#include "process_group/work/WorkBluefog.hpp"
#include "transport/hosts/mpi/MpiTransport.hpp"
#include "transport/operations/GroupFailure.hpp"
#include "transport/tuning/Tuning.hpp"

#ifndef RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP  // torch 2.11
#define RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(sequence, group, inputs, outputs, rank, name, in,   \
                                              out, type, in_splits, out_splits, start, stride,    \
                                              size, async_op)                                     \
  RECORD_PARAM_COMMS_DATA(sequence, group, inputs, outputs, rank, name, in, out, type, in_splits, \
                          out_splits, start, stride, size)
#endif

namespace bluefog {
namespace {

Membership membership(int rank, int size, const Options& options) {
  Membership members;
  members.rank = rank;
  members.size = size;
  members.global_ranks.assign(options.global_ranks_in_group.begin(),
                              options.global_ranks_in_group.end());
  if (members.global_ranks.size() != static_cast<size_t>(size)) {
    members.global_ranks.resize(static_cast<size_t>(size));
    std::iota(members.global_ranks.begin(), members.global_ranks.end(), 0);
  }
  // torch calls the default group "0" or "default_pg".
  if (options.group_name != "0" && options.group_name != "default_pg") {
    members.group = options.group_name;
  }
  return members;
}

// Returns a number for each rank. Ranks of the same host have the same number.
std::vector<int> hostsOf(const Rendezvous& rendezvous) {
  std::vector<int> numbers;
  std::map<std::string, int> known;
  for (int rank = 0; rank < rendezvous.size(); ++rank) {
    const auto next = static_cast<int>(known.size());
    numbers.push_back(known.emplace(rendezvous.record(rank).place, next).first->second);
  }
  return numbers;
}

// Makes the transport by which the ranks reach other hosts. All ranks of the group must call it.
std::unique_ptr<RemoteTransport> remoteTransportOf(Rendezvous& rendezvous,
                                                   const mpi::World::FindHome& find_mpi) {
  mpi::World& world = mpi::World::join(rendezvous, find_mpi);
  std::vector<int> places = world.placesOf(rendezvous);
  const int number = mpi::MpiTransport::numberOf(places.front(), rendezvous.record(0).number);
  return std::make_unique<mpi::MpiTransport>(world, number, std::move(places));
}

// Warns if the system refuses something that makes the group slower. It warns once in a process,
// because all groups of a process lack the same.
void warnOf(const Rendezvous& rendezvous, const Membership& members, const std::string& note) {
  const RankRecord& own = rendezvous.record(members.rank);
  bool is_alone = true;
  for (int rank = 0; rank < members.size; ++rank) {
    is_alone = is_alone && (rank == members.rank || rendezvous.record(rank).host != own.host);
  }
  if (!is_alone && areUnixSocketsRefused()) {
    TORCH_WARN_ONCE(members.who(),
                    ": this system refuses unix sockets, so the ranks of this host share no memory "
                    "and reach each other over MPI, which is slower; allow socket(AF_UNIX)");
  }
  if (!note.empty()) {
    TORCH_WARN_ONCE(members.who(), ": ", note);
  }
}

// Makes the group of the ranks that meet in the rendezvous.
std::shared_ptr<Engine> meet(Rendezvous& rendezvous, Membership members, const Language& language) {
  try {
    rendezvous.meet();
    const bool leads = members.rank == rendezvous.leader();
    std::string note;
    const Fd memory = rendezvous.share(leads ? Segment::create(members.size, &note) : Fd());
    warnOf(rendezvous, members, note);
    Segment shared(memory, members.size);
    if (!rendezvous.spansHosts()) {
      Segments segments(std::move(shared), members.rank);
      return Engine::make(std::move(segments), std::move(members), rendezvous.takeLinks(), nullptr,
                          language.interrupt);
    }
    std::unique_ptr<RemoteTransport> transport = remoteTransportOf(rendezvous, language.find_mpi);
    Segment own(Segment::create(members.size), members.size);
    Links links = rendezvous.takeLinks();
    HostMap hosts(members.rank, hostsOf(rendezvous));
    for (const int rank : hosts.elsewhere()) {
      links.addElsewhere(rank, rendezvous.record(rank).pid, rendezvous.record(rank).host);
    }
    return Engine::make(Segments(std::move(shared), std::move(own), std::move(hosts)),
                        std::move(members), std::move(links), std::move(transport),
                        language.interrupt);
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {  // thrown by the store
    rendezvous.abandon(error.what_without_backtrace());
    throw;
  } catch (const std::runtime_error& error) {
    rendezvous.abandon(error.what());
    throw;
  }
}

// Returns what `make` returns. Errors get `who` in front.
template <class Make>
std::shared_ptr<Engine> named(const std::string& who, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw Error(error.cause(), error.ranks(), who + error.what());
  } catch (const c10::Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(who + error.what());
  }
}

std::shared_ptr<Engine> join(const c10::intrusive_ptr<c10d::Store>& store,
                             const Membership& members, Deadline deadline, const Language& language,
                             const std::string& accelerator) {
  const std::string who =
      members.who() + (members.group.empty() ? " init_process_group: " : " new_group: ");
  return named(who, [&] {
    // Survivors that meet again are fewer. With the size in the prefix they do not take records of
    // the former group for their own.
    const std::string prefix = "bluefog/" + std::to_string(members.size) + "/";
    TorchStore texts(store, prefix, deadline, language.interrupt);
    Rendezvous rendezvous(texts, describeThisRank(accelerator, members.global_ranks), members.rank,
                          deadline, language.interrupt);
    return meet(rendezvous, members, language);
  });
}

std::shared_ptr<Engine> join(const Meeting& meeting, const Membership& members,
                             const Language& language) {
  return named(members.who() + " reconfigure: ", [&] {
    const Deadline deadline = Deadline::in(meeting.timeout);
    const auto interrupt = [&] {
      language.lookForInterruption();
      if (meeting.is_aborted()) {
        throw std::runtime_error("another thread of this rank has aborted it");
      }
    };
    // The store may have ended with the rank that held it, so ranks of one host do without.
    std::unique_ptr<KeyValueStore> texts = std::make_unique<NoStore>();
    if (!meeting.epoch.isOnOneHost()) {
      texts = std::make_unique<TorchStore>(meeting.store, "bluefog/", deadline, interrupt);
    }
    Rendezvous rendezvous(*texts, *meeting.endpoint, meeting.epoch, deadline, interrupt);
    return meet(rendezvous, members, language);
  });
}

// Refuses bad settings before any rank has met this one.
void check(const Options& options) {
  TORCH_CHECK_VALUE(options.timeout.count() > 0, "[bluefog] init_process_group: timeout ",
                    options.timeout.count(), " ms is not a positive time");
  tuning::isAdaptive();  // refuses a bad value of BLUEFOG_TUNING
}

int64_t elementsOf(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(), int64_t{0},
      [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
}

}  // namespace

ProcessGroupBluefog::ProcessGroupBluefog(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, c10::intrusive_ptr<bluefog::Options> options,
                                         Language language)
    : c10d::Backend(rank, size),
      store_(store),
      options_(std::move(options)),
      timeout_ms_(options_->timeout.count()),
      language_(std::move(language)) {
  TORCH_CHECK_VALUE(size >= 1 && size <= static_cast<int>(kMostRanks),
                    "[bluefog] init_process_group: ", size, " ranks; a group has 1 to ",
                    kMostRanks);
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, "[bluefog] init_process_group: rank ", rank,
                    " is not in a group of ", size);
  check(*options_);
  start(join(store, membership(rank, size, *options_), deadline(c10d::kUnsetTimeout), language_,
             options_->accelerator));
}

ProcessGroupBluefog::ProcessGroupBluefog(const Meeting& meeting,
                                         c10::intrusive_ptr<bluefog::Options> options,
                                         Language language)
    : c10d::Backend(meeting.epoch.rank, meeting.epoch.size()),
      store_(meeting.store),
      options_(std::move(options)),
      timeout_ms_(options_->timeout.count()),
      language_(std::move(language)) {
  check(*options_);
  start(join(meeting, membership(rank_, size_, *options_), language_));
}

void ProcessGroupBluefog::start(std::shared_ptr<Engine> engine) {
  engine_ = std::move(engine);
  heap_ = engine_->makeHeap();
  windows_.setEngine(engine_, language_.interrupt);
  outputs_ = OutputPool(heap_);
  registry::enroll(engine_);
  init();
}

ProcessGroupBluefog::~ProcessGroupBluefog() {
  leave();
}

void ProcessGroupBluefog::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "[bluefog] set_timeout: ", timeout.count(),
                    " ms is not a positive time");
  options_->timeout = timeout;
  timeout_ms_ = timeout.count();
}

c10d::ErrorType ProcessGroupBluefog::getError() {
  checkProcess("get_error");
  const auto failed = readGroupFailure(engine_->segments()->shared().groupFailure());
  if (!failed) {
    return engine_->hasStopped() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
  }
  switch (failed->failure.cause) {
    case Cause::kTimeout:
      return c10d::ErrorType::TIMEOUT;
    case Cause::kPeerFailed:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

Deadline ProcessGroupBluefog::deadline(std::chrono::milliseconds timeout) const {
  return Deadline::in(timeout.count() > 0 ? timeout : groupsTimeout());
}

void ProcessGroupBluefog::checkProcess(const char* op) const {
  TORCH_CHECK(!engine_->isForked(), "[bluefog] ", op,
              ": this process was forked after the process group was made; make a new group in it");
}

std::shared_ptr<Edges> ProcessGroupBluefog::edges(Edges&& edges) const {
  edges.complete(Validate(engine_->members(), "edges"), rank_);
  return std::make_shared<Edges>(std::move(edges));
}

const char* ProcessGroupBluefog::profilingTitle(OpKind kind) {
  switch (kind) {
    case OpKind::kNeighborAllGather:
      return "bluefog:neighbor_allgather";
    case OpKind::kNeighborAllToAll:
      return "bluefog:neighbor_alltoall";
    case OpKind::kPairGossip:
      return "bluefog:pair_gossip";
    case OpKind::kHierarchicalNeighborAllReduce:
      return "bluefog:hierarchical_neighbor_allreduce";
    default:
      return "bluefog:neighbor_allreduce";
  }
}

WorkPtr ProcessGroupBluefog::post(Call&& call, bool async_op) {
  return at::hasCallbacks() ? issueRecorded(std::move(call), async_op)
                            : issue(std::move(call), async_op);
}

// Issues the call, and tells profilers which group moves how much.
WorkPtr ProcessGroupBluefog::issueRecorded(Call&& call, bool async_op) {
  const Membership& members = engine_->members();
  const std::vector<at::Tensor>& known = call.inputs.empty() ? call.outputs : call.inputs;
  const std::vector<int64_t> no_splits;
  const int start = members.global(0);
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
      std::make_tuple(static_cast<int64_t>(issued_.load() + 1), call.op->asMessage() != nullptr),
      std::make_tuple(options_->group_name, getGroupDesc()), call.inputs, call.outputs, rank_,
      name(call.op->signature.kind), elementsOf(call.inputs), elementsOf(call.outputs),
      known.empty() ? at::kByte : known.front().scalar_type(), no_splits, no_splits, start,
      size_ > 1 ? members.global(1) - start : 1, size_, async_op);
  return issue(std::move(call), async_op);
}

WorkPtr ProcessGroupBluefog::issue(Call&& call, bool async_op) {
  ++issued_;
  const bool coalesced = coalescing_.isOn();
  const bool waits = !async_op && !coalesced;
  const WorkBluefog::Context context{language_.raised, events_};
  auto work =
      c10::make_intrusive<WorkBluefog>(engine_, context, call.op, call.type, call.profiling_title,
                                       call.inputs, std::move(call.outputs), call.source);
  if (!waits) {
    call.op->finished = [work](Op&) { work->conclude(); };
  }
  try {
    engine_->post(call.op, waits ? Engine::Who::kCaller : Engine::Who::kEngine);
  } catch (...) {
    call.op->release();  // otherwise the Op and the Work would keep each other alive
    throw;
  }
  log_.add(call.profiling_title, call.op, call.inputs, work->outputs());
  if (coalesced) {
    coalescing_.add(work);
  }
  if (!waits) {
    return work;
  }
  engine_->wait(*call.op, Deadline::never());
  work->conclude();
  work->check();
  return work;
}

WorkPtr ProcessGroupBluefog::postAll(const Validate& validate, std::vector<Call>&& calls,
                                     Call&& all, bool async_op) {
  TORCH_CHECK_VALUE(!calls.empty(), validate.who(), "expected at least one tensor, got none");
  const std::shared_ptr<Op> last = calls.back().op;
  calls.pop_back();
  for (const Call& call : calls) {
    engine_->post(call.op, async_op ? Engine::Who::kEngine : Engine::Who::kCaller);
  }
  all.op = last;
  return post(std::move(all), async_op);
}

WindowResources ProcessGroupBluefog::windowResources(const at::Tensor& /*tensor*/) {
  checkProcess("win_create");
  return windows_.onHost(heap_, groupsTimeout());
}

void ProcessGroupBluefog::setPart(c10::intrusive_ptr<ProcessGroupBluefog> part) {
  const std::lock_guard lock(part_mutex_);
  part_ = std::move(part);
}

c10::intrusive_ptr<ProcessGroupBluefog> ProcessGroupBluefog::part() const {
  const std::lock_guard lock(part_mutex_);
  return part_;
}

void ProcessGroupBluefog::abort() {
  if (!engine_->isForked()) {
    events_->noteAbort();
    if (const auto ours = part()) {
      ours->abort();
    }
    engine_->stop(aborted("abort() was called on this rank"));
    shutdown();
  }
}

void ProcessGroupBluefog::shutdown() {
  if (const auto ours = engine_->isForked() ? nullptr : part()) {
    ours->shutdown();
  }
  leave();
}

void ProcessGroupBluefog::leave() {
  if (engine_) {
    events_->noteLeaving();
    windows_.leave();
    engine_->shutdown();
    windows_.release();
    if (heap_) {
      heap_->noteEnd();
    }
    outputs_.close();
  }
}

}  // namespace bluefog
