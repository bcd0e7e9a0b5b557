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
  struct Entry {
    Request request;
    RemoteTransport::State state;
    std::shared_ptr<void> buried;  // when nobody looks any more
    std::list<Entry>::iterator self;
  };

  explicit Requests(const Library& mpi) : mpi_(mpi) {}

  // One that was just made, or null where MPI refused to. `is_short`: it may have ended already.
  Entry* add(Request request, bool is_short);
  // Knows of ends until the last askForAll(). Forgets one that has ended.
  RemoteTransport::State test(Entry* entry);
  void askForAll();
  // Keeps that memory until those have ended.
  void detach(const std::vector<Entry*>& entries, const std::shared_ptr<void>& memory);

 private:
  void noteEnded(Entry& entry, RemoteTransport::State state);

  const Library& mpi_;
  std::list<Entry> entries_;
  // Of those under way; kept for their memory.
  std::vector<Entry*> asked_;
  std::vector<Request> requests_;
  std::vector<int> ended_;
  std::vector<Status> statuses_;
};

}  // namespace bluefog::mpi
