#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "core/Reduce.hpp"
#include "transport/tuning/StoreSample.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {

// A StorePolicy chooses whether frames are written through the caches or past them. Between cores
// that share a cache, through it is faster. Between far cores (other sockets, other core complexes)
// it may take much longer, to read what lies in the other core's cache, or to write where that core
// has read. Nobody can be asked which cores are far, and in a virtual machine that changes from one
// moment to the next. So a writer times a few frames of each period, half of which go the other
// way, and their readers time the reading (StoreSample). A rank applies what it finds to its own
// frames. Thread safety: only the thread that drives the engine may use it, except for preferred().
class StorePolicy {
 public:
  using Clock = std::chrono::steady_clock;

  // This many bytes at the beginning of a frame are timed.
  static constexpr size_t kTimed = 8 * 1024;

  explicit StorePolicy(Clock::time_point (*now)() = Clock::now) : now_(now) {}

  // Returns the stores that have proved faster. Any thread may call it.
  Stores preferred() const { return preferred_.load(std::memory_order_relaxed); }
  // Returns whether the frame that is being filled is timed, and the stores that it is written
  // with.
  bool isTrial() const;
  Stores stores() const;
  // Copies bytes into the frame that is being filled.
  void write(std::byte* to, const std::byte* from, size_t bytes);
  // Ends the frame, which that many peers read, and begins the next one. Returns what its header
  // tells them.
  StoreSample sendOff(int readers);
  // Times the reading of a peer's frame whose payload begins at `at`, if its header asks for it.
  void observe(StoreSample written, const std::byte* at, size_t bytes) {
    if (written != StoreSample::kNone && bytes >= kTimed) {
      read(written, at);
    }
  }

 private:
  using Duration = Clock::duration;

  // Times keeps the last few measurements, because peers differ: one may share this rank's core.
  class Times {
   public:
    void note(Duration time) { taken_[next_++ % taken_.size()] = time; }
    bool isFull() const { return next_ >= taken_.size(); }
    // Returns the sum without the longest, in which the thread may have been interrupted.
    Duration sum() const;

   private:
    std::array<Duration, 4> taken_{};
    size_t next_ = 0;
  };
  struct Way {  // for kTimed bytes
    Times writing;
    Times reading;

    bool isKnown() const { return writing.isFull() && reading.isFull(); }
    Duration whole(int readers) const { return writing.sum() + readers * reading.sum(); }
  };

  Way& way(Stores stores) { return stores == Stores::kStreamed ? streamed_ : cached_; }
  void read(StoreSample written, const std::byte* at);
  void choose();

  Clock::time_point (*now_)();
  std::atomic<Stores> preferred_ = Stores::kCached;
  unsigned sent_ = 0;
  bool is_timed_ = false;  // the frame that is being filled
  int readers_ = 1;
  Way cached_;
  Way streamed_;
};

}  // namespace bluefog
