#include "bootstrap/pmix/Client.hpp"

#include <future>

#include "bootstrap/pmix/abi.hpp"
#include "core/SharedLibrary.hpp"

namespace bluefog::pmix {
namespace {

// No other handler is asked: Open MPI's own would abort.
void ignore(size_t, Status, const Proc*, Info*, size_t, Info*, size_t, EventDone done, void* data) {
  done(kEventActionComplete, nullptr, 0, nullptr, nullptr, data);
}

void registered(Status, size_t, void* data) {
  static_cast<std::promise<void>*>(data)->set_value();
}

}  // namespace

void surviveServer(const std::string& library) {
  // Loaded already, by MPI.
  const SharedLibrary pmix(library);
  Status (*register_event_handler)(Status*, size_t, Info*, size_t, EventHandler, HandlerRegistered,
                                   void*);
  pmix.find("PMIx_Register_event_handler", register_event_handler);
  Status lost = kErrLostConnection;
  std::promise<void> done;
  if (register_event_handler(&lost, 1, nullptr, 0, ignore, registered, &done) == kSuccess) {
    done.get_future().wait();
  }
}

}  // namespace bluefog::pmix
