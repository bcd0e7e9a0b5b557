#include "bootstrap/pmix/Client.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <stdexcept>

namespace bluefog::pmix {
namespace {

// Ends the chain of handlers for an event, because the next one, Open MPI's own, would abort.
void ignore(size_t, Status, const Proc*, Info*, size_t, Info*, size_t, EventDone done, void* data) {
  done(kEventActionComplete, nullptr, 0, nullptr, nullptr, data);
}

void registered(Status, size_t, void* data) {
  static_cast<std::promise<void>*>(data)->set_value();
}

// Frees a value that PMIx has made.
struct Free {
  void operator()(Value* value) const {
    if (value->type == kTypeString) {
      std::free(value->data.string);
    }
    std::free(value);
  }
};
using OwnValue = std::unique_ptr<Value, Free>;

}  // namespace

void surviveServer(const std::string& library) {
  // MPI has loaded this library already.
  const SharedLibrary pmix(library, SharedLibrary::Symbols::kForAll);
  Status (*register_event_handler)(Status*, size_t, Info*, size_t, EventHandler, HandlerRegistered,
                                   void*);
  pmix.find("PMIx_Register_event_handler", register_event_handler);
  Status lost = kErrLostConnection;
  std::promise<void> done;
  if (register_event_handler(&lost, 1, nullptr, 0, ignore, registered, &done) == kSuccess) {
    done.get_future().wait();
  }
}

Client::Client(const std::string& library)
    : library_(library, SharedLibrary::Symbols::kForAll), owner_(::getpid()) {
  Status (*init)(Proc*, Info*, size_t);
  library_.find("PMIx_Init", init);
  library_.find("PMIx_Put", put_);
  library_.find("PMIx_Commit", commit_);
  library_.find("PMIx_Get", get_);
  library_.find("PMIx_Finalize", finalize_);
  library_.find("PMIx_Initialized", is_initialized_);
  library_.find("PMIx_Error_string", error_string_);
  check("PMIx_Init", init(&self_, nullptr, 0));
}

void Client::publish(const std::string& key, const std::string& text) const {
  std::string copy = text;
  Value value{};
  value.type = kTypeString;
  value.data.string = copy.data();
  check("PMIx_Put", put_(kScopeGlobal, key.c_str(), &value));
  check("PMIx_Commit", commit_());
}

std::optional<std::string> Client::look(int rank, const std::string& key,
                                        std::chrono::seconds limit) const {
  Proc of = self_;
  of.rank = static_cast<Rank>(rank);
  Info timeout{};
  std::strcpy(timeout.key, "pmix.timeout");
  timeout.value.type = kTypeInt;
  timeout.value.data.integer = static_cast<int>(limit.count());
  Value* found = nullptr;
  const Status status = get_(&of, key.c_str(), &timeout, 1, &found);
  if (status == kErrLostConnection || status == kErrUnreachable) {
    check("PMIx_Get of " + key, status);
  }
  // For a rank on another host, any error may mean that it has not published the text yet.
  if (status != kSuccess) {
    return std::nullopt;
  }
  const OwnValue value(found);
  return value->type == kTypeString ? std::optional<std::string>(value->data.string) : std::nullopt;
}

void Client::leave() const {
  while (owner_ == ::getpid() && is_initialized_() != 0 && finalize_(nullptr, 0) == kSuccess) {
  }
}

uint32_t Client::ofJob(const char* key) const {
  Proc all = self_;
  all.rank = kRankWildcard;
  return number(all, key);
}

uint32_t Client::number(const Proc& of, const char* key) const {
  Value* found = nullptr;
  check(key, get_(&of, key, nullptr, 0, &found));
  const OwnValue value(found);
  return value->type == kTypeUint16 ? value->data.uint16 : value->data.uint32;
}

void Client::check(const std::string& what, Status status) const {
  if (status != kSuccess) {
    throw std::runtime_error(what + ": " + error_string_(status));
  }
}

}  // namespace bluefog::pmix
