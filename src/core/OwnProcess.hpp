#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "core/Error.hpp"
#include "core/Fd.hpp"

namespace bluefog {

// Tells the process that it was made in from a child forked later, by a page that the kernel
// empties for the child. Measured: to ask for the process's number takes 0.2 us in a virtual
// machine. Kernels that empty no pages (gVisor) are asked for it.
class OwnProcess {
 public:
  OwnProcess() : page_(wipedPage()) {
    if (page_.data() != nullptr) {
      *page_.data() = kHere;
    }
  }

  bool isForked() const {
    return page_.data() != nullptr ? *static_cast<const volatile std::byte*>(page_.data()) != kHere
                                   : ::getpid() != number_;
  }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr std::byte kHere{1};

  static Mapping wipedPage() {
    void* data = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throwErrno("allocating a page");
    }
    Mapping page(data, kPage);
    return ::madvise(data, kPage, MADV_WIPEONFORK) == 0 ? std::move(page) : Mapping();
  }

  Mapping page_;
  const pid_t number_ = ::getpid();
};

}  // namespace bluefog
