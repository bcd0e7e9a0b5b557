#pragma once

#include <memory>
#include <utility>

#include "process_group/host/Flat.hpp"
#include "window/memory/Space.hpp"
#include "window/peer/PeerWindow.hpp"

namespace bluefog {

// WindowValues is what a call puts into other ranks' slots. Its values lie where the tensor does. A
// copy in the host's memory is made for the ranks that take them from there.
// Thread safety: one thread at a time.
class WindowValues {
 public:
  WindowValues(Flat flat, std::shared_ptr<Space> space)
      : flat_(std::make_shared<Flat>(std::move(flat))), space_(std::move(space)) {}

  struct View {
    const void* data;
    std::shared_ptr<void> owner;
  };
  // Returns the values for that rank's window, and what owns them.
  View viewFor(const PeerWindow& window) {
    if (flat_->tensor().is_cpu() || window.takesFromDevice()) {
      return {flat_->readable(), flat_};
    }
    if (staged_ == nullptr) {
      const size_t bytes = flat_->tensor().nbytes();
      staged_ = HostSpace::get()->make(bytes);
      space_->toHost(staged_.get(), flat_->readable(), bytes);
    }
    return {staged_.get(), staged_};
  }

 private:
  const std::shared_ptr<Flat> flat_;
  const std::shared_ptr<Space> space_;
  std::shared_ptr<std::byte> staged_;
};

}  // namespace bluefog
