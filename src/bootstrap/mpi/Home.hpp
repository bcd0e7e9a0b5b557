#pragma once

#include <string>

namespace bluefog::mpi {

// Where the Open MPI of this machine is.
struct Home {
  std::string library;       // libmpi
  std::string pmix_library;  // libpmix
  std::string prefix;  // of an Open MPI that was moved since it was built, as pip does; or empty
  std::string server_program;  // bluefog-pmixd
};

}  // namespace bluefog::mpi
