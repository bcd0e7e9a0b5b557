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

struct Status {
  int source;
  int tag;
  int error;
  int cancelled;
  size_t bytes;
};

// UCX patches the process's mmap, munmap and their like when it is loaded, with libmpi or as a
// component of it. Only its registrations of memory with a network need that; TCP has none.
void leaveMmapAlone(env::Variables& variables);

// The functions of Open MPI that are called, whose binary interface 4.1 and 5 share. Loaded, not
// linked: only a job that spans hosts needs them.
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
  // Open MPI 5 alone has these; null in 4.1, which does not survive the death of a process.
  int (*failure_ack)(Comm);
  int (*failure_get_acked)(Comm, Group*);

  Comm world;
  Type byte;
  ErrorHandler errors_return;

  static constexpr int kThreadMultiple = 3;
  static constexpr int kAny = -1;  // source, tag
  static constexpr int kMostText = 256;

  // "Open MPI v5.0.11"
  std::string version() const;

 private:
  SharedLibrary library_;
};

}  // namespace bluefog::mpi
