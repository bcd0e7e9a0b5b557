#pragma once

#include <list>
#include <memory>
#include <vector>

#include "bootstrap/mpi/Library.hpp"
#include "transport/hosts/RemoteTransport.hpp"

namespace bluefog::mpi {

// MPI's requests under way. It is asked for all of them at once: each question has it look at its
// sockets. Used by one thread at a time.
class Requests {
 public:
  struct TrackedRequest {
    Request request;
    RemoteTransport::RequestState state;
    std::shared_ptr<void> buried;  // when nobody looks any more
    std::list<TrackedRequest>::iterator self;
  };

  explicit Requests(const MpiLibrary& mpi) : mpi_(mpi) {}

  // One that was just made, or null where MPI refused to. `is_short`: it may have ended already.
  TrackedRequest* add(Request request, bool is_short);
  // Knows of ends until the last askForAll(). Forgets one that has ended.
  RemoteTransport::RequestState test(TrackedRequest* entry);
  void askForAll();
  // Keeps that memory until those have ended.
  void detach(const std::vector<TrackedRequest*>& entries, const std::shared_ptr<void>& memory);

 private:
  void noteEnded(TrackedRequest& entry, RemoteTransport::RequestState state);

  const MpiLibrary& mpi_;
  std::list<TrackedRequest> entries_;
  // Of those under way; kept for their memory.
  std::vector<TrackedRequest*> asked_;
  std::vector<Request> requests_;
  std::vector<int> ended_;
  std::vector<Status> statuses_;
};

}  // namespace bluefog::mpi
