#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bootstrap/pmix/Job.hpp"
#include "bootstrap/pmix/Library.hpp"

namespace bluefog::pmix {

// A PMIx server for one host's ranks: gives MPI_Init what mpirun would have given. One in a
// process.
class Server {
 public:
  // All hosts' blobs, one after the other, or null when that cannot be.
  using Answer = std::function<void(const std::string* all)>;
  // Is called in a thread of PMIx with this host's blob, each time that all its ranks have come.
  using Fence = std::function<void(std::string blob, Answer answer)>;

  // Keeps its files in `folder`. Throws std::runtime_error.
  Server(const PmixLibrary& library, const Job& job, const std::string& folder, Fence fence);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // What that rank needs in its environment, as NAME=value.
  std::vector<std::string> environment(int rank) const;
  // Tells this host's ranks.
  void notifyDeath(int rank) const;

 private:
  void registerJob(const std::string& folder) const;
  void check(Status status, const char* call) const;

  const PmixLibrary& library_;
  const Job& job_;
};

}  // namespace bluefog::pmix
