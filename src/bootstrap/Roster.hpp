#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

// One rank's line in the roster: who it is, where it is and how to reach it.
struct RankRecord {
  std::string version;  // of this library
  std::string host;     // for messages
  // Ranks can share memory where these are equal: the boot of one kernel, and a network namespace,
  // in which the unix sockets that pass the memory live. A host name says neither.
  std::string place;
  pid_t pid = 0;
  std::string socket;  // abstract unix address
  std::string secret;  // proves to the listener that the caller has read this record
  // Its place in an MPI world, where its process is in one, or was started in one by mpirun.
  std::string world;
  int world_rank = -1;
  uint32_t number = 0;  // another one for each group that its process makes
  // "cuda:nccl": whose tensors its groups also take, and what carries them; empty: none.
  std::string accelerator;
  // The group's global ranks, as this rank has them.
  std::vector<int> members;

  std::string encode() const;
  static RankRecord decode(const std::string& text);
};

// This process, with fresh random socket address and secret.
RankRecord describeThisRank(std::string accelerator = "", std::vector<int> members = {});

}  // namespace bluefog
