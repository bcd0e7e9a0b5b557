#pragma once

#include <sys/mman.h>

#include "core/Error.hpp"
#include "core/Fd.hpp"

namespace bluefog {

// Tells the process that it was made in from a child forked later, by a page that the kernel
// empties for the child. Measured: to ask for the process's number takes 0.2 us in a virtual
// machine.
class OwnProcess {
 public:
  OwnProcess() : page_(freshPage()) { *page_.data() = kHere; }

  bool isForked() const { return *static_cast<const volatile std::byte*>(page_.data()) != kHere; }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr std::byte kHere{1};

  static Mapping freshPage() {
    void* data = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throwErrno("allocating a page");
    }
    Mapping page(data, kPage);
    if (::madvise(data, kPage, MADV_WIPEONFORK) != 0) {
      throwErrno("having a page emptied in forked children (MADV_WIPEONFORK)");
    }
    return page;
  }

  Mapping page_;
};

}  // namespace bluefog
