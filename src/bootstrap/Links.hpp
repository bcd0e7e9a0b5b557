#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/Reason.hpp"
#include "core/Fd.hpp"
#include "core/Process.hpp"

namespace bluefog {

// What is known of a rank that is not there any more.
struct Departure {
  enum class How {
    kDied,
    kLeft,    // by destroy_process_group or a normal exit
    kGaveUp,  // while the group was being made, for that reason
  };

  int rank = 0;
  pid_t pid = 0;
  How how = How::kDied;
  Reason reason;
  std::string host = {};  // of a rank elsewhere

  // "rank 2 (pid 812) died", or "rank 2 (pid 812 on b) died"
  std::string describe(int global_rank) const;
};

// One unix socket and one pidfd per peer: how memory is passed when a group is made, and how the
// death of a peer is seen at once. (The pidfd because a forked DataLoader worker keeps a dead
// peer's sockets open.) Used by one thread at a time.
class Links {
 public:
  explicit Links(int size);

  // `socket` is connected to that rank's process.
  void add(int rank, Fd socket, pid_t pid);
  // One on another host, of whose departure somebody else hears.
  void addElsewhere(int rank, pid_t pid, const std::string& host);
  void noteElsewhere(int rank, Departure::How how);
  bool has(int rank) const { return peers_[static_cast<size_t>(rank)] != nullptr; }

  // Looks, without waiting, who is gone; returns all departures known.
  const std::vector<Departure>& look();

  // That rank's process; none where it is on another host.
  Process processOf(int rank) const;

  void sendFile(int rank, const Fd& file);
  // The file that `rank` has sent, when it is there; an invalid Fd otherwise.
  Fd receiveFile(int rank);

  // Tells the peers that this rank leaves in order.
  void sayGoodbye();
  // Tells the peers, while a group is being made, why this rank gives up.
  void sayFailed(const Reason& reason);

 private:
  struct Peer {
    Fd socket;
    Process process;
    bool gone = false;
    Fd received_file;
    Departure departure;
  };

  // Reads what the peer has sent; true at the end of the stream.
  bool read(Peer& peer);
  void hear(Peer& peer, const std::string& message);
  void sayToAll(const std::string& message);
  void note(Peer& peer);

  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Departure> departures_;
};

}  // namespace bluefog
