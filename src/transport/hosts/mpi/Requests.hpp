#pragma once

#include <list>
#include <memory>
#include <vector>

#include "bootstrap/mpi/Library.hpp"
#include "transport/hosts/RemoteTransport.hpp"

namespace bluefog::mpi {

// Requests holds the MPI requests of this process that are under way. MPI is asked about all of
// them at once, because each question has it look at its sockets.
// Thread safety: one thread at a time; the Sorter's lock sees to it.
class Requests {
 public:
  // A TrackedRequest is a request and its last known state. It belongs to Requests, and its address
  // stays the same.
  struct TrackedRequest {
    Request request;
    RemoteTransport::RequestState state;
    std::shared_ptr<void> held;  // memory to hold for a request that was detached
    std::list<TrackedRequest>::iterator self;
  };

  explicit Requests(const MpiLibrary& mpi) : mpi_(mpi) {}

  // Adds a request that was just made, or null if MPI refused to make it, which counts as failed.
  // With `is_short`, MPI is asked at once whether it has ended.
  TrackedRequest* add(Request request, bool is_short);
  // Returns the state as of the last askForAll(). A request that has ended is removed, and `entry`
  // is invalid afterwards.
  RemoteTransport::RequestState test(TrackedRequest* entry);
  // Asks MPI which of the requests have ended.
  void askForAll();
  // Removes the requests from their caller's care, and holds `memory` until all have ended.
  void detach(const std::vector<TrackedRequest*>& entries, const std::shared_ptr<void>& memory);

 private:
  void noteEnded(TrackedRequest& entry, RemoteTransport::RequestState state);

  const MpiLibrary& mpi_;
  std::list<TrackedRequest> entries_;
  // These describe the requests of one askForAll(). They are members so that their memory is used
  // again.
  std::vector<TrackedRequest*> asked_;
  std::vector<Request> requests_;
  std::vector<int> ended_;
  std::vector<Status> statuses_;
};

}  // namespace bluefog::mpi
