#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

// A RankRecord is the description of itself that a process publishes when it makes a group. It says
// which process it is, where it runs and how to reach it.
// Thread safety: a plain value.
struct RankRecord {
  std::string version;  // of this library
  std::string id;       // differs for each process, and for each group that it makes
  // The id of rank 0's process that this process has seen; empty until then.
  std::string answers;
  std::string host;  // the host's name, for error messages
  // Ranks whose places are equal can share memory. A place names the boot of one kernel, and a
  // network namespace, to which the unix sockets that pass the memory belong. A host name tells
  // neither.
  std::string place;
  pid_t pid = 0;
  std::string pid_space;  // the PID namespace in which `pid` is valid
  int64_t made_at = 0;    // nanoseconds on the boot clock of its host
  std::string secret;     // proves to the listener that the caller has read this record
  // The MPI world that the process is in, or that mpirun has started it for, and its rank there.
  std::string world;
  int world_rank = -1;
  uint32_t number = 0;  // differs for each group that its process makes
  // An accelerator and the backend for its tensors, for example "cuda:nccl". It is empty where the
  // group takes only tensors of the CPU.
  std::string accelerator;
  // The global ranks of the group's members, as this rank was told them.
  std::vector<int> members;

  // Returns the name of the process's abstract unix address. An MPI world that the process starts
  // has the same name.
  std::string name() const { return "bluefog-" + id; }

  // Returns whether both records are of one process, which may have written them for different
  // groups.
  bool isSameProcessAs(const RankRecord& other) const {
    return pid == other.pid && pid_space == other.pid_space && place == other.place;
  }

  std::string encode() const;
  // Throws std::exception where the text is no record of this version.
  static RankRecord decode(const std::string& text);
};

// Returns whether the system forbids unix sockets, by which memory is passed.
bool areUnixSocketsRefused();
// Returns whether each process counts as a host of its own. BLUEFOG_TRANSPORT=mpi asks for that,
// and a system without unix sockets requires it.
bool sharesNoMemory();

// Returns a record of this process with a fresh id and secret.
RankRecord describeThisRank(std::string accelerator = "", std::vector<int> members = {});

}  // namespace bluefog
