#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bluefog::env {

// Only this file and its functions read or write single environment variables.

// Returns true for BLUEFOG_TRANSPORT=mpi: then no two ranks share memory, as if each had a host of
// its own. Throws std::invalid_argument where the variable has any other value.
bool isMpiForced();
// Returns true for BLUEFOG_CHECK=before: then neighbor calls on an accelerator wait for the other
// ranks' notices before they exchange. Throws std::invalid_argument where the variable has any
// other value.
bool checksBefore();
// Returns true for BLUEFOG_TUNING=off: then the transport makes no choices that adapt to what it
// measures. Throws std::invalid_argument where the variable has any other value.
bool isTuningOff();
// Returns the network interfaces that the user wants MPI's TCP component to use
// (OMPI_MCA_btl_tcp_if_include), or nothing.
std::optional<std::string> mpiInterfaces();
// Returns whether the user has listed interfaces that MPI must not use
// (OMPI_MCA_btl_tcp_if_exclude).
bool excludesMpiInterfaces();
// Returns whether TMPDIR names a folder that does not exist.
bool lacksTemporaryFolder();
// Returns whether the user has chosen UCX as the component by which MPI sends.
bool choosesUcx();
// An MpiPlace is the MPI world in which mpirun or srun has started this process, and the rank in
// that world. The world is empty where neither has started it.
struct MpiPlace {
  std::string world;
  int rank = -1;
};
MpiPlace mpiPlace();

// A Variables object sets environment variables for a library to read. Its destructor restores the
// values that they had before.
// Thread safety: one thread at a time. The variables themselves belong to the whole process.
class Variables {
 public:
  Variables() = default;
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  void set(const std::string& name, const std::string& value);
  // Sets the variable unless the user has set it.
  void setDefault(const std::string& name, const std::string& value);

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace bluefog::env
