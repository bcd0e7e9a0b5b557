#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/Reason.hpp"
#include "core/Fd.hpp"
#include "core/Process.hpp"

namespace bluefog {

// A Departure describes how a rank has left the group.
struct Departure {
  enum class How {
    kDied,
    kLeft,    // by destroy_process_group or a normal exit
    kGaveUp,  // while the group was being made, because of `reason`
  };

  int rank = 0;
  pid_t pid = 0;
  How how = How::kDied;
  Reason reason;
  std::string host = {};  // only set for a rank on another host

  // Returns a text like "rank 2 (pid 812) died" or "rank 2 (pid 812 on b) died".
  std::string describe(int global_rank) const;
};

// Links holds one unix socket and one pidfd for each peer on this host, and owns both. The sockets
// pass memory when a group is made, and the end of its stream or of the process shows at once that
// a peer has died. The pidfd is needed because a forked DataLoader worker keeps a dead peer's
// sockets open.
// Thread safety: one thread at a time.
class Links {
 public:
  explicit Links(int size);

  // Adds a peer on this host. `socket` is connected to the process of that rank.
  void add(int rank, Fd socket, pid_t pid);
  // Adds a peer on another host. Somebody else must report its departure by noteElsewhere().
  void addElsewhere(int rank, pid_t pid, const std::string& host);
  void noteElsewhere(int rank, Departure::How how);
  bool has(int rank) const { return peers_[static_cast<size_t>(rank)] != nullptr; }
  // Tells a peer that has called this process that it is linked.
  void welcome(int rank);
  // Returns whether both sides have the link: this process has welcomed the peer, or the peer has
  // welcomed this process.
  bool isMutual(int rank) const {
    return has(rank) && peers_[static_cast<size_t>(rank)]->is_mutual;
  }
  // Returns the sockets of the peers that have not gone.
  std::vector<int> sockets() const;

  // Checks, without waiting, which peers have gone. Returns all departures that are known, in the
  // order in which they were noticed.
  const std::vector<Departure>& look();

  // Returns the process of that rank, or none where it is on another host.
  Process processOf(int rank) const;

  void sendFile(int rank, const Fd& file);
  // Returns the file that `rank` has sent, or an invalid Fd where none has come yet. Throws
  // std::runtime_error where this process may open no more files.
  Fd receiveFile(int rank);

  // Tells the peers that this rank leaves in order.
  void sayGoodbye();
  // Tells the peers, while a group is being made, why this rank gives up.
  void sayFailed(const Reason& reason);
  // These two tell the same to a process that is no peer yet, and hear it from such a process.
  static void sayFailed(const Fd& socket, const Reason& reason);
  static std::optional<Reason> hearFailed(const Fd& socket);

 private:
  struct Peer {
    Fd socket;
    Process process;
    bool gone = false;
    bool is_mutual = false;
    Fd received_file;
    Departure departure;
  };

  // Reads all that the peer has sent. Returns true at the end of the stream.
  bool read(Peer& peer);
  void hear(Peer& peer, const std::string& message);
  void sayToAll(const std::string& message);
  void note(Peer& peer);

  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Departure> departures_;
};

}  // namespace bluefog
