#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace bluefog {

// An Fd owns a file descriptor and closes it when it is destroyed.
// Thread safety: one thread at a time.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Returns another descriptor of the same file. The result is not valid where the process may open
  // no more files.
  Fd duplicate() const { return Fd(::fcntl(fd_, F_DUPFD_CLOEXEC, 0)); }
  void reset() {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }

 private:
  int fd_ = -1;
};

// A Mapping owns memory from mmap() and unmaps it when it is destroyed, unless that happens in a
// forked child.
// Thread safety: one thread at a time. The mapped memory itself may be used by several threads.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, size_t size) : data_(data), size_(size), owner_(::getpid()) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_), owner_(other.owner_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    // A forked child lacks a mapping marked MADV_DONTFORK, and may have mapped something else at
    // that address by now.
    if (data_ != nullptr && ::getpid() == owner_) {
      ::munmap(data_, size_);
    }
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  pid_t owner_ = 0;
};

}  // namespace bluefog
