#include "bootstrap/mpi/World.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/mpi/Launch.hpp"
#include "bootstrap/mpi/interfaces.hpp"
#include "bootstrap/pmix/Client.hpp"

namespace bluefog::mpi {
namespace {

const std::string kVersion = "mpi version";
const std::string kUp = "mpi is up";

// The world lives as long as the process, because threads of MPI do.
std::atomic<World*> the_world{nullptr};
// MPI_Init can be called only once in a process.
std::atomic<bool> was_begun{false};

// Returns whether all ranks are in one MPI world, each with a rank of its own there. Ranks that
// torchrun has started under srun are not, because they all have the place of their torchrun.
bool areOneWorld(const Rendezvous& rendezvous) {
  std::set<int> places;
  for (int rank = 0; rank < rendezvous.size(); ++rank) {
    const RankRecord& record = rendezvous.record(rank);
    if (record.world.empty() || record.world != rendezvous.record(0).world) {
      return false;
    }
    places.insert(record.world_rank);
  }
  return static_cast<int>(places.size()) == rendezvous.size();
}

// Sets the variables that MPI_Init reads. `network` is the interface by which this host reaches the
// others, where that is known.
void choose(env::Variables& variables, const Home& home,
            const std::optional<std::string>& network) {
  if (const auto interfaces = env::mpiInterfaces()) {
    interfaces::requireAny(*interfaces);
  } else if (network && !env::excludesMpiInterfaces()) {
    variables.set("OMPI_MCA_btl_tcp_if_include", *network);
  }
  if (!home.prefix.empty()) {
    variables.setDefault("OPAL_PREFIX", home.prefix);
  }
  leaveMmapAlone(variables);
  // MPI_Init fails where these are missing, as in services and in containers of batch systems.
  variables.setDefault("HOME", "/");
  if (env::lacksTemporaryFolder()) {
    variables.set("TMPDIR", "/tmp");
  }
  variables.setDefault("OMPI_MCA_mpi_ft_enable", "1");
  // An error in MPI_Init is returned to this library instead of ending the process.
  variables.setDefault("OMPI_MCA_mpi_initial_errhandler", "mpi_errors_return");
  variables.setDefault("OMPI_MCA_osc", "^ucx");
  // These components survive the death of a process. A search for fabrics would also take a second.
  variables.setDefault("OMPI_MCA_pml", "ob1");
  variables.setDefault("OMPI_MCA_btl", "self,tcp");
  // These flags select send and send-in-place rather than put. With put, the two directions of a
  // connection share one half of a link.
  variables.setDefault("OMPI_MCA_btl_tcp_flags", "9");
}

// Calls MPI_Init in a thread of its own, because it waits without limit. The thread keeps the
// variables, which MPI_Init reads until it ends.
std::future<World*> startInThread(const Home& home, const std::string& name, int rank,
                                  bool is_launched, std::shared_ptr<env::Variables> variables) {
  auto made = std::make_shared<std::promise<World*>>();
  std::future<World*> future = made->get_future();
  std::thread([made, home, name, rank, is_launched, variables = std::move(variables)]() mutable {
    try {
      auto world = std::make_unique<World>(home, name, rank, is_launched);
      variables.reset();
      made->set_value(world.release());
    } catch (...) {
      variables.reset();
      made->set_exception(std::current_exception());
    }
  }).detach();
  return future;
}

std::vector<int> others(const Rendezvous& rendezvous) {
  std::vector<int> ranks;
  for (int rank = 0; rank < rendezvous.size(); ++rank) {
    if (rank != rendezvous.rank()) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void requireSameLibrary(Rendezvous& rendezvous, const std::string& own) {
  rendezvous.records().publish(kVersion, own);
  const std::string first = rendezvous.await(kVersion, 0);
  if (first != own) {
    const std::string& here = rendezvous.record(rendezvous.rank()).host;
    throw std::runtime_error("hosts have different MPI libraries: " + own + " on " + here + ", " +
                             first + " on " + rendezvous.record(0).host +
                             "; all need the same one (BLUEFOG_MPI_HOME chooses)");
  }
}

}  // namespace

World* World::running() {
  return the_world.load(std::memory_order_acquire);
}

env::MpiPlace World::place() {
  const World* world = running();
  return world == nullptr ? env::mpiPlace() : env::MpiPlace{world->name(), world->rank()};
}

uint32_t World::nextNumber() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

void World::startEarly(const FindHome& find, Deadline limit,
                       const std::function<void()>& interrupt) {
  if (running() != nullptr) {
    return;
  }
  start(find(), [&] {
    if (limit.passed()) {
      throw std::runtime_error("not all of the launcher's processes came to MPI_Init in time");
    }
    interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

void World::start(const Home& home, const std::function<void()>& meanwhile) {
  const auto variables = std::make_shared<env::Variables>();
  choose(*variables, home, std::nullopt);
  start(home, env::mpiPlace(), true, variables, meanwhile);
}

void World::start(const Home& home, const env::MpiPlace& place, bool is_launched,
                  const std::shared_ptr<env::Variables>& variables,
                  const std::function<void()>& meanwhile) {
  if (was_begun.exchange(true)) {
    throw std::runtime_error(
        "MPI_Init was begun in this process for a group that was given up, and cannot be called "
        "again; start the process anew");
  }
  std::future<World*> made = startInThread(home, place.world, place.rank, is_launched, variables);
  while (made.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    meanwhile();
  }
  the_world.store(made.get(), std::memory_order_release);
}

World& World::join(Rendezvous& rendezvous, const FindHome& find) {
  const bool are_one_world = areOneWorld(rendezvous);
  if (World* world = running()) {
    if (world->owner_ != ::getpid()) {
      throw std::runtime_error(
          "this process was forked from one that uses MPI; start it anew (spawn) to reach other "
          "hosts");
    }
    if (!are_one_world) {
      throw std::runtime_error(
          "MPI runs in this process for other ranks already; make the largest group that spans "
          "hosts first (init_process_group)");
    }
    return *world;
  }
  const Home home = find();
  requireSameLibrary(rendezvous, MpiLibrary(home.library).version());
  std::optional<Launch> launch;
  const auto meanwhile = [&] {
    rendezvous.watch();
    rendezvous.pause([&] {
      const std::vector<int> late = launch ? launch->late() : std::vector<int>();
      return late.empty() ? others(rendezvous) : late;
    });
  };
  if (are_one_world) {
    start(home, meanwhile);
  } else {
    const std::string name = rendezvous.record(0).name();
    const auto variables = std::make_shared<env::Variables>();
    choose(*variables, home, interfaces::toward(rendezvous.records().keeper()));
    // In the PMIx of Ubuntu 24.04 the other ways to keep what ranks publish are broken, so that
    // MPI_Init fails.
    variables->setDefault("PMIX_MCA_gds", "hash");
    launch.emplace(rendezvous, home, name, *variables);
    start(home, {name, rendezvous.rank()}, false, variables, meanwhile);
  }
  rendezvous.records().publish(kUp, "");
  for (const int rank : others(rendezvous)) {
    rendezvous.await(kUp, rank);
  }
  if (launch) {
    launch->noteMpiIsUp();
  }
  return *running();
}

void World::leave() {
  const World* world = running();
  if (world != nullptr && world->owner_ == ::getpid() && !world->launcher_library_.empty()) {
    pmix::Client(world->launcher_library_).leave();
  }
}

std::vector<int> World::placesOf(const Rendezvous& rendezvous) const {
  std::vector<int> places;
  for (int rank = 0; rank < rendezvous.size(); ++rank) {
    const RankRecord& record = rendezvous.record(rank);
    places.push_back(record.world == name_ ? record.world_rank : rank);
  }
  return places;
}

World::World(const Home& home, std::string name, int rank, bool is_launched)
    : mpi_(home.library),
      name_(std::move(name)),
      rank_(rank),
      launcher_library_(is_launched ? home.pmix_library : ""),
      owner_(::getpid()) {
  const Connections::Ports before = Connections::listening();
  int already = 0;
  mpi_.initialized(&already);
  if (already != 0) {
    throw std::runtime_error(
        "MPI is initialized in this process already (mpi4py?): make the group first, and use "
        "another communicator than MPI_COMM_WORLD");
  }
  int level = 0;
  if (const int code = mpi_.init_thread(nullptr, nullptr, MpiLibrary::kThreadMultiple, &level)) {
    throw std::runtime_error("MPI_Init_thread: " + describe(code));
  }
  if (level != MpiLibrary::kThreadMultiple) {
    throw std::runtime_error(home.library + " gives no MPI_THREAD_MULTIPLE");
  }
  mpi_.comm_set_errhandler(mpi_.world, mpi_.errors_return);
  int found = 0;
  mpi_.comm_rank(mpi_.world, &found);
  if (found != rank_) {
    throw std::runtime_error(home.library + " started as rank " + std::to_string(found) +
                             " of its world, not as rank " + std::to_string(rank_) +
                             ": it does not take its rank from a PMIx server");
  }
  Connections::Ports own = Connections::listening();
  for (const std::string& port : before) {
    own.erase(port);
  }
  connections_.emplace(std::move(own));
  pmix::surviveServer(home.pmix_library);
}

std::string World::describe(int code) const {
  std::array<char, MpiLibrary::kMostText + 1> text{};
  int length = 0;
  mpi_.error_string(code, text.data(), &length);
  return text.data();
}

}  // namespace bluefog::mpi
