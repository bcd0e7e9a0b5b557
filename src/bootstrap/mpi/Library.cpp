#include "bootstrap/mpi/Library.hpp"

#include <array>

namespace bluefog::mpi {

void leaveMmapAlone(env::Variables& variables) {
  if (!env::choosesUcx()) {
    variables.setDefault("UCX_MEM_MMAP_HOOK_MODE", "none");
  }
}

namespace {

SharedLibrary load(const std::string& path) {
  env::Variables variables;
  leaveMmapAlone(variables);
  return {path, SharedLibrary::Symbols::kForAll};
}

}  // namespace

MpiLibrary::MpiLibrary(const std::string& path) : library_(load(path)) {
  library_.find("MPI_Init_thread", init_thread);
  library_.find("MPI_Initialized", initialized);
  library_.find("MPI_Get_library_version", get_library_version);
  library_.find("MPI_Comm_rank", comm_rank);
  library_.find("MPI_Comm_set_errhandler", comm_set_errhandler);
  library_.find("MPI_Error_string", error_string);
  library_.find("MPI_Isend", isend);
  library_.find("MPI_Issend", issend);
  library_.find("MPI_Improbe", improbe);
  library_.find("MPI_Imrecv", imrecv);
  library_.find("MPI_Test", test);
  library_.find("MPI_Testsome", testsome);
  library_.find("MPI_Comm_group", comm_group);
  library_.find("MPI_Group_size", group_size);
  library_.find("MPI_Group_free", group_free);
  library_.find("MPI_Group_translate_ranks", group_translate_ranks);
  library_.findIfAny("MPIX_Comm_failure_ack", failure_ack);
  library_.findIfAny("MPIX_Comm_failure_get_acked", failure_get_acked);
  library_.find("ompi_mpi_comm_world", world);
  library_.find("ompi_mpi_byte", byte);
  library_.find("ompi_mpi_errors_return", errors_return);
}

std::string MpiLibrary::version() const {
  std::array<char, kMostText + 1> text{};
  int length = 0;
  get_library_version(text.data(), &length);
  const std::string whole = text.data();
  return whole.substr(0, whole.find(','));
}

}  // namespace bluefog::mpi
