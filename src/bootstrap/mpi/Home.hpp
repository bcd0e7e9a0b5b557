#pragma once

#include <string>

namespace bluefog::mpi {

// A Home says where the Open MPI of this machine is installed. All members are paths.
struct Home {
  std::string library;         // libmpi
  std::string pmix_library;    // libpmix
  std::string prefix;          // set where an Open MPI was moved after it was built, as pip does
  std::string server_program;  // bluefog-pmixd
};

}  // namespace bluefog::mpi
