#include "window/raw/MappedRawPeer.hpp"

#include <cstring>

namespace bluefog {

// A WriteNotice tells the owner of a part, while it exists, that this rank may be writing there.
// The notice lies in this rank's own room, because the owner's memory may have gone. Either the
// owner sees the notice after it has closed its part, or this rank sees that the part is closed.
class MappedRawPeer::WriteNotice {
 public:
  explicit WriteNotice(const MappedRawPeer& peer)
      : writing_(peer.own_->room().writing(peer.rank_)) {
    writing_.fetch_add(1);
    is_open_ = peer.room_.isOpen(peer.own_->number());
  }
  ~WriteNotice() { writing_.fetch_sub(1, std::memory_order_release); }
  WriteNotice(const WriteNotice&) = delete;
  WriteNotice& operator=(const WriteNotice&) = delete;

  bool isOpen() const { return is_open_; }

 private:
  std::atomic<uint32_t>& writing_;
  bool is_open_;
};

std::optional<PendingOp> MappedRawPeer::put(uint64_t at, ConstSpan data,
                                            const PeerWindow::Issue& /*issue*/) {
  const WriteNotice notice(*this);
  if (!notice.isOpen()) {
    return std::nullopt;
  }
  // The data may overlap with where it goes if this rank puts to itself.
  std::memmove(memory_.get() + at, data.data, data.bytes);
  return PendingOp();
}

std::optional<PendingOp> MappedRawPeer::signal(const PeerWindow::Issue& /*issue*/) {
  const WriteNotice notice(*this);
  if (!notice.isOpen()) {
    return std::nullopt;
  }
  RawPart::signalTo(room_, own_->rank());
  return PendingOp();
}

}  // namespace bluefog
