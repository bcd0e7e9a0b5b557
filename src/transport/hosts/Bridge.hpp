#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/Links.hpp"
#include "core/Deadline.hpp"
#include "transport/boards/Board.hpp"
#include "transport/hosts/RemoteTransport.hpp"
#include "transport/memory/Segments.hpp"
#include "transport/operations/GroupFailure.hpp"

namespace bluefog {

// A Bridge joins the rings of this rank with those of the group's ranks on other hosts. It carries
// each frame and control message that is written for such a rank to that rank's host. The bridge
// there writes it as a rank of that host would, so algorithms see no difference. It owns the
// transport.
// Thread safety: only the driving thread uses it, or a thread that holds the engine's lock while
// nobody drives.
class Bridge {
 public:
  // `boards` are the group's boards in the order of Segment::board(). Sends a greeting to all peers
  // on other hosts. `members` and `links` must outlive the bridge.
  Bridge(std::shared_ptr<const Segments> segments, const Membership& members,
         const std::vector<const Board*>& boards, Links& links,
         std::unique_ptr<RemoteTransport> transport);
  // Does not wait for what is still under way: the transport keeps its memory as long as needed.
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  // Takes in what has come, and returns whether something moved. Throws Failure when a peer has
  // sent what cannot be.
  bool receive();
  // Sends what was written for other hosts, and returns whether something moved.
  bool send();

  // Tells the peers on other hosts the first failure of the collectives.
  void tell(const GroupFailure& group_failure);
  // Tells the peers on other hosts that this rank leaves, after all that it has written. Returns
  // when this process can end without losing any of it, or when the limit has passed.
  void leave(Deadline limit);

 private:
  class RemotePeer;
  using Peers = std::vector<std::unique_ptr<RemotePeer>>;  // by rank; null for those of this host

  bool receiveFrom(RemotePeer& peer);
  void hear(RemotePeer& peer, const std::string& text);
  bool livesHere(int global_rank);
  GroupFailure asSeenHere(GroupFailure group_failure, int from);
  bool noteIfGone(RemotePeer& peer, bool moves);
  bool hasSentAll();

  const std::shared_ptr<const Segments> segments_;
  const Membership& members_;
  Links& links_;
  const std::unique_ptr<RemoteTransport> transport_;
  Peers peers_;
};

}  // namespace bluefog
