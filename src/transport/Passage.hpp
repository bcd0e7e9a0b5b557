#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "core/Reduce.hpp"
#include "transport/Frame.hpp"

namespace bluefog {

// How the frames of a group's rings are best written. Between cores that share a cache, through it.
// From the cache of a far core (another socket, another core complex) reading may take longer than
// from memory: then past the caches. Nobody can be asked which it is, and in a virtual machine it
// changes: so now and then some frames are written in either way, and their readers time them. What
// a rank finds so of its peers' frames it does with its own.
class Passage {
 public:
  // Of the frame that is being filled.
  Stores stores() const;
  // It is sent off, with so many bytes: what its header says of it. The next one begins.
  Trial sendOff(size_t bytes);
  // Before a peer's frame is read, from there.
  void look(Trial trial, const std::byte* at, size_t bytes) {
    if (trial != Trial::kNone && bytes >= kLooksAt) {
      time(trial, at);
    }
  }

 private:
  using Duration = std::chrono::steady_clock::duration;

  static constexpr size_t kLooksAt = 8 * 1024;  // bytes
  // Of either way. Odd: the middle one counts, since a look may be interrupted.
  static constexpr size_t kLooks = 5;
  struct Times {
    std::array<Duration, kLooks> taken{};
    size_t count = 0;

    void note(Duration time);
    bool isFull() const { return count == kLooks; }
    Duration middle() const;
  };

  void time(Trial trial, const std::byte* at);

  Stores found_ = Stores::kCached;
  unsigned sent_ = 0;
  Times cached_;
  Times streamed_;
};

}  // namespace bluefog
