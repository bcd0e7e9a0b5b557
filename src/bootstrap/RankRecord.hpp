#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

// A process describes itself by this when it makes a group: who and where it is, how to reach it.
struct RankRecord {
  std::string version;  // of this library
  std::string id;       // another one for each process and each group that it makes
  // The id of the process of rank 0 that this one has seen; empty before it has.
  std::string answers;
  std::string host;  // for messages
  // Ranks can share memory where these are equal: the boot of one kernel, and a network namespace,
  // in which the unix sockets that pass the memory live. A host name says neither.
  std::string place;
  pid_t pid = 0;
  std::string pid_space;  // the PID namespace in which that number means it
  int64_t made_at = 0;    // on the boot clock of its host
  std::string secret;     // proves to the listener that the caller has read this record
  // Its place in an MPI world, where its process is in one, or was started in one by mpirun.
  std::string world;
  int world_rank = -1;
  uint32_t number = 0;  // another one for each group that its process makes
  // "cuda:nccl": whose tensors its groups also take, and what carries them; empty: none.
  std::string accelerator;
  // The group's global ranks, as this rank has them.
  std::vector<int> members;

  // Its abstract unix address, and the name of an MPI world that it starts.
  std::string name() const { return "bluefog-" + id; }

  // Both are of one process, though perhaps of two groups that it makes.
  bool isSameProcessAs(const RankRecord& other) const {
    return pid == other.pid && pid_space == other.pid_space && place == other.place;
  }

  std::string encode() const;
  // Throws std::exception where that is no record of this version.
  static RankRecord decode(const std::string& text);
};

// The system lets nobody make unix sockets, by which memory is passed.
bool areUnixSocketsRefused();
// Each process is a host of its own then: so BLUEFOG_TRANSPORT=mpi says, or there are no sockets.
bool sharesNoMemory();

// This process, with a fresh id and secret.
RankRecord describeThisRank(std::string accelerator = "", std::vector<int> members = {});

}  // namespace bluefog
