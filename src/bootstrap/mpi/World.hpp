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

// A World is MPI in this process. It is started once: by the first group that spans hosts, for the
// ranks of that group, or before any group under mpirun. It is never finalized, because
// MPI_Finalize could wait for dead ranks. It owns the MPI library and lives as long as the process.
// Thread safety: any thread may call running(), place(), nextNumber(), leave() and the const
// functions. Only one thread at a time may call join() or startEarly().
class World {
 public:
  // Returns where Open MPI is installed, or throws an error that says what to install.
  using FindHome = std::function<Home()>;

  // Returns the world of this process, or null before it was started.
  static World* running();
  // Returns this process's place in an MPI world: in the running one, or in that of mpirun.
  static env::MpiPlace place();
  // Returns another number at each call.
  static uint32_t nextNumber();
  // Returns the world, and starts it if need be. The call is collective over the ranks of
  // `rendezvous`, which must have met.
  static World& join(Rendezvous& rendezvous, const FindHome& find);
  // Starts the world before any group is made, in a process that mpirun or srun has started. It
  // waits for the other processes; `interrupt` is called now and then, and may throw.
  static void startEarly(const FindHome& find, Deadline limit,
                         const std::function<void()>& interrupt);
  // Tells the launcher that this process ends in order. Otherwise mpirun and srun take the process
  // for one that has crashed.
  static void leave();
  // Returns the ranks that the members of the rendezvous have in the world that they have joined.
  std::vector<int> placesOf(const Rendezvous& rendezvous) const;

  // Only start() calls this constructor. `rank` is the rank that this process must get in the
  // world. `is_launched` says that mpirun or srun has started the process.
  World(const Home& home, std::string name, int rank, bool is_launched);
  const MpiLibrary& mpi() const { return mpi_; }
  Connections& connections() { return *connections_; }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  // Returns MPI's text for an error code that one of its functions has returned.
  std::string describe(int code) const;

 private:
  // Starts MPI in another thread, and calls `meanwhile` again and again until it runs. `meanwhile`
  // may throw to give up.
  static void start(const Home& home, const std::function<void()>& meanwhile);
  static void start(const Home& home, const env::MpiPlace& place, bool is_launched,
                    const std::shared_ptr<env::Variables>& variables,
                    const std::function<void()>& meanwhile);

  MpiLibrary mpi_;
  std::optional<Connections> connections_;
  std::string name_;
  int rank_;
  // The path of libpmix, which is empty unless mpirun or srun has started this process.
  std::string launcher_library_;
  const pid_t owner_;
};

}  // namespace bluefog::mpi
