#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/Records.hpp"
#include "bootstrap/Rendezvous.hpp"
#include "bootstrap/mpi/Connections.hpp"
#include "bootstrap/mpi/Home.hpp"
#include "bootstrap/mpi/Library.hpp"
#include "core/Env.hpp"

namespace bluefog::mpi {

// MPI in this process: started once, by its first group that spans hosts, for the ranks of that
// group; and never finalized, which could wait for the dead.
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
  static World& join(Rendezvous& rendezvous, Records& records, const FindHome& find);
  // Where its ranks are in the world that they have joined.
  std::vector<int> placesOf(const Rendezvous& rendezvous) const;

  // By join(). `rank` is what this process must be in it.
  World(const Home& home, std::string name, int rank);
  const Library& mpi() const { return mpi_; }
  Connections& connections() { return *connections_; }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  // Of what a function has returned.
  std::string describe(int code) const;

 private:
  Library mpi_;
  std::optional<Connections> connections_;
  std::string name_;
  int rank_;
  const pid_t owner_;
};

}  // namespace bluefog::mpi
