#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "bootstrap/pmix/abi.hpp"
#include "core/SharedLibrary.hpp"

namespace bluefog::pmix {

// MPI would end this process when its server dies, which it needs no more once MPI has started.
void surviveServer(const std::string& library);

// This process among those that a launcher with PMIx (mpirun, srun) has started with it. May be
// used by several threads.
class Client {
 public:
  // Throws std::runtime_error where there is no such launcher.
  explicit Client(const std::string& library);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int rank() const { return static_cast<int>(self_.rank); }
  int size() const { return static_cast<int>(ofJob("pmix.job.size")); }
  // On this host.
  int localRank() const { return static_cast<int>(number(self_, "pmix.lrank")); }
  int localSize() const { return static_cast<int>(ofJob("pmix.local.size")); }

  // What the others may look for.
  void publish(const std::string& key, const std::string& text) const;
  // What that rank has published; none where it has not within that time. Throws
  // std::runtime_error where the launcher cannot be reached.
  std::optional<std::string> look(int rank, const std::string& key,
                                  std::chrono::seconds limit) const;

  // Before the process ends: a launcher takes one that does not say so for one that has crashed.
  // Also where MPI uses PMIx, too, and will not say so. Nothing in a forked child.
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
