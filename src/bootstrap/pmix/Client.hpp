#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "bootstrap/pmix/abi.hpp"
#include "core/SharedLibrary.hpp"

namespace bluefog::pmix {

// Keeps MPI from ending this process when its PMIx server dies. The process no longer needs the
// server once MPI has started.
void surviveServer(const std::string& library);

// A Client is this process among the processes that a launcher with PMIx (mpirun, srun) has started
// together.
// Thread safety: any thread.
class Client {
 public:
  // Throws std::runtime_error where there is no such launcher.
  explicit Client(const std::string& library);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int rank() const { return static_cast<int>(self_.rank); }
  int size() const { return static_cast<int>(ofJob("pmix.job.size")); }
  // Returns the rank among the processes on this host.
  int localRank() const { return static_cast<int>(number(self_, "pmix.lrank")); }
  int localSize() const { return static_cast<int>(ofJob("pmix.local.size")); }

  // Publishes a text for the other processes to look up.
  void publish(const std::string& key, const std::string& text) const;
  // Returns what that rank has published, or nothing where it has not within `limit`. Throws
  // std::runtime_error where the launcher cannot be reached.
  std::optional<std::string> look(int rank, const std::string& key,
                                  std::chrono::seconds limit) const;

  // Tells the launcher that this process ends in order; otherwise it takes the process for one that
  // has crashed. It works also where MPI uses PMIx and will not do so. It does nothing in a forked
  // child.
  void leave() const;

 private:
  uint32_t ofJob(const char* key) const;
  uint32_t number(const Proc& of, const char* key) const;
  void check(const std::string& what, Status status) const;

  SharedLibrary library_;
  Status (*put_)(uint8_t scope, const char* key, Value*);
  Status (*commit_)();
  Status (*get_)(const Proc*, const char* key, const Info*, size_t, Value**);
  Status (*finalize_)(const Info*, size_t);
  int (*is_initialized_)();
  const char* (*error_string_)(Status);
  Proc self_{};
  const pid_t owner_;
};

}  // namespace bluefog::pmix
