#pragma once

#include <cstddef>
#include <string>

#include "core/Env.hpp"
#include "core/SharedLibrary.hpp"

namespace bluefog::mpi {

using Comm = void*;
using Type = void*;
using Group = void*;
using Request = void*;
using Message = void*;
using ErrorHandler = void*;

// A Status has the layout of Open MPI's MPI_Status.
struct Status {
  int source;
  int tag;
  int error;
  int canceled;
  size_t bytes;
};

// Keeps UCX from patching the process's mmap, munmap and the like when it is loaded, with libmpi or
// as a component of it. UCX needs the patches only to register memory with a network, and TCP has
// no such registration. A user who has chosen UCX is left alone.
void leaveMmapAlone(env::Variables& variables);

// MpiLibrary holds the functions of Open MPI that are called, whose binary interface versions 4.1
// and 5 share. They are loaded rather than linked, because only a job that spans hosts needs them.
// Thread safety: any thread, once MPI_Init_thread has granted MPI_THREAD_MULTIPLE.
class MpiLibrary {
 public:
  // Throws std::runtime_error that says what is missing.
  explicit MpiLibrary(const std::string& path);

  int (*init_thread)(int* argc, char*** argv, int required, int* provided);
  int (*initialized)(int* flag);
  int (*get_library_version)(char* text, int* length);
  int (*comm_rank)(Comm, int* rank);
  int (*comm_set_errhandler)(Comm, ErrorHandler);
  int (*error_string)(int code, char* text, int* length);
  int (*isend)(const void*, int count, Type, int destination, int tag, Comm, Request*);
  int (*issend)(const void*, int count, Type, int destination, int tag, Comm, Request*);
  int (*improbe)(int source, int tag, Comm, int* flag, Message*, Status*);
  int (*imrecv)(void*, int count, Type, Message*, Request*);
  int (*test)(Request*, int* flag, Status*);
  int (*testsome)(int count, Request*, int* ended_n, int* ended, Status*);
  int (*comm_group)(Comm, Group*);
  int (*group_size)(Group, int* size);
  int (*group_free)(Group*);
  int (*group_translate_ranks)(Group from, int count, const int* ranks, Group to, int* found);
  // Only Open MPI 5 has these two functions. They are null in 4.1, which does not survive the death
  // of a process.
  int (*failure_ack)(Comm);
  int (*failure_get_acked)(Comm, Group*);

  Comm world;
  Type byte;
  ErrorHandler errors_return;

  static constexpr int kThreadMultiple = 3;
  static constexpr int kAny = -1;  // any source, or any tag
  static constexpr int kMostText = 256;

  // Returns a text like "Open MPI v5.0.11".
  std::string version() const;

 private:
  SharedLibrary library_;
};

}  // namespace bluefog::mpi
