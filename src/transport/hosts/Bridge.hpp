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

// Joins the rings of this rank with those of its group's ranks on other hosts: carries each frame
// and answer that is written for one of them to that rank's host, where its own bridge writes it as
// a neighbour's would be. So algorithms see no difference. Used by the driving thread alone.
class Bridge {
 public:
  // `boards` are those of Segment, in their order. Says hello to all peers.
  Bridge(std::shared_ptr<const Segments> segments, const Membership& members,
         const std::vector<const Board*>& boards, Links& links,
         std::unique_ptr<RemoteTransport> transport);
  // What is still under way keeps the memory.
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  // Takes in what has come; sends off what was written. True when something moved.
  bool receive();
  bool send();

  // Tells the peers of the first failure of the collectives.
  void tell(const GroupFailure& group_failure);
  // Tells the peers that this rank leaves, once what it has written is on its way. Waits until it
  // is, and no longer.
  void leave(Deadline limit);

 private:
  class Peer;
  using Peers = std::vector<std::unique_ptr<Peer>>;  // by rank; null for those of this host

  bool receiveFrom(Peer& peer);
  void hear(Peer& peer, const std::string& text);
  bool livesHere(int global_rank);
  GroupFailure asSeenHere(GroupFailure group_failure, int from);
  bool noteIfGone(Peer& peer, bool moves);
  bool hasSentAll();

  const std::shared_ptr<const Segments> segments_;
  const Membership& members_;
  Links& links_;
  const std::unique_ptr<RemoteTransport> transport_;
  Peers peers_;
};

}  // namespace bluefog
