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

// While it lives, MPI_Init finds what mpirun would have given it: a PMIx server on each host, which
// its first rank starts, and that server's address in the environment. The servers' fences go over
// the job's Store.
class Launch {
 public:
  // Collective over ranks that have met.
  Launch(Rendezvous& rendezvous, const Home& home, const std::string& world,
         env::Variables& variables);
  // Waits for no other host.
  ~Launch() { ends_ = true; }
  void noteMpiIsUp() {
    if (server_) {
      server_->noteMpiIsUp();
    }
  }
  // The ranks whose hosts have not come to a fence that others have come to; none where all have.
  std::vector<int> late() const;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

 private:
  void startServer(const Rendezvous& rendezvous, const Home& home);
  void enter(const std::string& environments, int rank, env::Variables& variables) const;

  Records& records_;
  pmix::Job job_;
  std::atomic<bool> ends_{false};
  std::unique_ptr<pmix::ServerProcess> server_;  // on the first rank of each host
};

}  // namespace bluefog::mpi
