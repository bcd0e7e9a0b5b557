#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/Rendezvous.hpp"
#include "bootstrap/mpi/Connections.hpp"
#include "bootstrap/mpi/Home.hpp"
#include "bootstrap/mpi/Library.hpp"
#include "core/Deadline.hpp"
#include "core/Env.hpp"

namespace bluefog::mpi {

// MPI in this process: started once, by its first group that spans hosts, for the ranks of that
// group, or before any group under mpirun; and never finalized, which could wait for the dead.
class World {
 public:
  // Says where Open MPI is, or throws what to install.
  using FindHome = std::function<Home()>;

  // Null before it was started.
  static World* running();
  // This process's place in an MPI world: the running one, or that of mpirun.
  static env::MpiPlace place();
  // Another one at each call.
  static uint32_t nextNumber();
  // Collective over ranks that have met.
  static World& join(Rendezvous& rendezvous, const FindHome& find);
  // In a process that mpirun or srun has started, before any group is made. Waits for the others;
  // `interrupt` is called now and then, and may throw.
  static void startEarly(const FindHome& find, Deadline limit,
                         const std::function<void()>& interrupt);
  // Before the process ends: mpirun and srun take one that does not say so for one that has
  // crashed.
  static void leave();
  // Where its ranks are in the world that they have joined.
  std::vector<int> placesOf(const Rendezvous& rendezvous) const;

  // By start(). `rank` is what this process must be in it. `is_launched`: by mpirun or srun.
  World(const Home& home, std::string name, int rank, bool is_launched);
  const MpiLibrary& mpi() const { return mpi_; }
  Connections& connections() { return *connections_; }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  // Of what a function has returned.
  std::string describe(int code) const;

 private:
  // `meanwhile`, again and again, may throw to give up.
  static void start(const Home& home, const std::function<void()>& meanwhile);
  static void start(const Home& home, const env::MpiPlace& place, bool is_launched,
                    const std::shared_ptr<env::Variables>& variables,
                    const std::function<void()>& meanwhile);

  MpiLibrary mpi_;
  std::optional<Connections> connections_;
  std::string name_;
  int rank_;
  std::string launcher_library_;  // libpmix, where mpirun or srun has started this process
  const pid_t owner_;
};

}  // namespace bluefog::mpi
