#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/Rendezvous.hpp"
#include "bootstrap/mpi/Home.hpp"
#include "bootstrap/pmix/Job.hpp"
#include "bootstrap/pmix/ServerProcess.hpp"
#include "core/Env.hpp"

namespace bluefog::mpi {

// A Launch gives MPI_Init what mpirun would have given it, as long as the object lives. That is a
// PMIx server on each host, which the host's first rank starts, and the server's address in the
// environment. Fences between the servers go over the job's Store.
//
// The rendezvous whose records it uses must outlive it.
// Thread safety: one thread at a time; a thread of its own serves the fences.
class Launch {
 public:
  // The constructor is collective over the ranks of `rendezvous`, which must have met. The
  // environment's changes are added to `variables`.
  Launch(Rendezvous& rendezvous, const Home& home, const std::string& world,
         env::Variables& variables);
  // Ends without waiting for other hosts.
  ~Launch() { ends_ = true; }
  void noteMpiIsUp() {
    if (server_) {
      server_->noteMpiIsUp();
    }
  }
  // Returns the ranks of the hosts that have not come to a fence that others have come to. It is
  // empty where all have.
  std::vector<int> late() const;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

 private:
  void startServer(const Rendezvous& rendezvous, const Home& home);
  void enter(const std::string& environments, int rank, env::Variables& variables) const;

  Records& records_;
  pmix::Job job_;
  std::atomic<bool> ends_{false};
  std::unique_ptr<pmix::ServerProcess> server_;  // null but on the first rank of each host
};

}  // namespace bluefog::mpi
