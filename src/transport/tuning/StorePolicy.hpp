#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "core/Reduce.hpp"
#include "transport/tuning/StoreSample.hpp"
#include "transport/tuning/Tuning.hpp"

namespace bluefog {

// How the frames of a ring are best written. Between cores that share a cache, through it. With a
// far core (another socket, another core complex) that may take much longer than past the caches:
// to read what lies in its cache, or to write where it has read. Nobody can be asked which it is,
// and in a virtual machine it changes from one moment to the next: so a writer times what it does,
// now and then a frame goes the other way, and of the frames around that one readers time their
// part. What a rank finds so, writing its own and reading its peers', it does with its own.
class StorePolicy {
 public:
  using Clock = std::chrono::steady_clock;

  // What is timed of a frame, at its begin.
  static constexpr size_t kTimed = 8 * 1024;

  explicit StorePolicy(Clock::time_point (*now)() = Clock::now) : now_(now) {}

  // What has proved better. Readable from any thread.
  Stores preferred() const { return preferred_.load(std::memory_order_relaxed); }
  // Whether the frame that is being filled is timed, and how it is written.
  bool isTrial() const;
  Stores stores() const;
  // Into it.
  void write(std::byte* to, const std::byte* from, size_t bytes);
  // It is sent off, to so many peers that read it: what its header says of it. The next one begins.
  StoreSample sendOff(int readers);
  // Before a peer's frame is read, from there.
  void observe(StoreSample written, const std::byte* at, size_t bytes) {
    if (written != StoreSample::kNone && bytes >= kTimed) {
      read(written, at);
    }
  }

 private:
  using Duration = Clock::duration;

  // The last few: peers differ, one may share this rank's core.
  class Times {
   public:
    void note(Duration time) { taken_[next_++ % taken_.size()] = time; }
    bool isFull() const { return next_ >= taken_.size(); }
    // Without the longest: a thread may be interrupted.
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
