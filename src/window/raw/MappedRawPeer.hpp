#pragma once

#include <memory>
#include <utility>

#include "window/raw/RawPart.hpp"
#include "window/raw/RawPeer.hpp"

namespace bluefog {

// A MappedRawPeer reaches the part of a rank on this host, or this rank's own, by writing into that
// rank's memory itself. It waits for nobody. It shares ownership of this rank's RawPart and of the
// mapping that it writes to; the memory of the room must outlive it.
// Thread safety: any thread may call any method.
class MappedRawPeer final : public RawPeer {
 public:
  // `memory` is where that rank's memory begins; it may be null if the memory has no bytes.
  MappedRawPeer(std::shared_ptr<RawPart> own, int rank, RawRoom room,
                std::shared_ptr<std::byte> memory)
      : own_(std::move(own)), rank_(rank), room_(room), memory_(std::move(memory)) {}

  std::optional<PendingOp> put(uint64_t at, ConstSpan data,
                               const PeerWindow::Issue& issue) override;
  std::optional<PendingOp> signal(const PeerWindow::Issue& issue) override;
  int rank() const { return rank_; }
  // Returns the peer's memory, with ownership of the mapping.
  const std::shared_ptr<std::byte>& memory() const { return memory_; }
  // Returns whether that rank is writing to this rank's part. Once this rank's part is not open,
  // and this has returned false, it writes there no more. (A rank closes its own part only when
  // none of its calls writes to others.)
  bool isWriting() const {
    return room_.isOpen(own_->number()) && room_.writing(own_->rank()).load() != 0;
  }

 private:
  class WriteNotice;

  const std::shared_ptr<RawPart> own_;
  const int rank_;
  const RawRoom room_;
  const std::shared_ptr<std::byte> memory_;
};

}  // namespace bluefog
