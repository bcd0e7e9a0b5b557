#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bluefog::env {

// The only reads and writes of the environment.

// BLUEFOG_TRANSPORT=mpi: no two ranks share memory, as if each had a host of its own. Throws
// std::invalid_argument where it is anything else.
bool isMpiForced();
// BLUEFOG_CHECK=before: whether calls of neighbors on an accelerator wait for what the others tell
// of them. Throws std::invalid_argument where it is anything else.
bool checksBefore();
// The interfaces that the user has MPI's TCP use; and whether he has named such as it shall not.
std::optional<std::string> mpiInterfaces();
bool excludesMpiInterfaces();
// Whether TMPDIR names a folder that does not exist.
bool lacksTemporaryFolder();
// Whether the user has MPI send by UCX.
bool choosesUcx();
// The MPI world, and the rank in it, that mpirun or srun has started this process in; or none.
struct MpiPlace {
  std::string world;
  int rank = -1;
};
MpiPlace mpiPlace();

// Variables that a library reads while this lives.
class Variables {
 public:
  Variables() = default;
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  void set(const std::string& name, const std::string& value);
  // Where the user has not set it.
  void setDefault(const std::string& name, const std::string& value);

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace bluefog::env
