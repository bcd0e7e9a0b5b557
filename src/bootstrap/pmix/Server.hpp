#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bootstrap/pmix/Job.hpp"
#include "bootstrap/pmix/Library.hpp"

namespace bluefog::pmix {

// A Server is the PMIx server for the ranks of one host: it gives MPI_Init what mpirun would have
// given it. A process can have only one. The library and the job must outlive it.
// Thread safety: one thread at a time.
class Server {
 public:
  // Takes the blobs of all hosts, one after the other, or null where the fence has failed.
  using Answer = std::function<void(const std::string* all)>;
  // PMIx calls a Fence in a thread of its own, with this host's blob, each time that all ranks of
  // this host have come to a fence.
  using Fence = std::function<void(std::string blob, Answer answer)>;

  // Keeps its files in `folder`. Throws std::runtime_error where PMIx reports an error.
  Server(const PmixLibrary& library, const Job& job, const std::string& folder, Fence fence);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Returns what the rank needs in its environment, as texts NAME=value.
  std::vector<std::string> environment(int rank) const;
  // Tells the ranks of this host that `rank` has died.
  void notifyDeath(int rank) const;

 private:
  void registerJob(const std::string& folder) const;
  void check(Status status, const char* call) const;

  const PmixLibrary& library_;
  const Job& job_;
};

}  // namespace bluefog::pmix
