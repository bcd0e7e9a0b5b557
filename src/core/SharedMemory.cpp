#include "core/SharedMemory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/Error.hpp"

namespace bluefog {
namespace {

bool isRefusal(int error) {
  return error == ENOSYS || error == EPERM || error == EACCES;
}

std::string mebibytes(size_t bytes) {
  return std::to_string((bytes >> 20) + 1) + " MiB";
}

// Returns a file without a name in `folder`. It is not valid where there is no such folder, or
// nothing may be written to it.
Fd unlinkedFile(const std::string& folder) {
  Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  // On a file system without O_TMPFILE the file is created with a name, which is then removed.
  if (!file.valid()) {
    std::string name = folder + "/bluefog-XXXXXX";
    file = Fd(::mkostemp(name.data(), O_CLOEXEC));
    if (file.valid()) {
      ::unlink(name.c_str());
    }
  }
  return file;
}

std::vector<std::string> folders() {
  std::vector<std::string> all{"/dev/shm"};
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  all.push_back(error ? "/tmp" : temporary.string());
  return all;
}

SharedMemory createFile(size_t whole, size_t dense, const std::string& refused) {
  std::string tried;
  for (const std::string& folder : folders()) {
    Fd file = unlinkedFile(folder);
    const int error =
        file.valid() ? ::posix_fallocate(file.get(), 0, static_cast<off_t>(dense)) : errno;
    if (error == 0) {
      // On a file system that cannot hold so large a file, this call fails and the file keeps its
      // `dense` bytes.
      [[maybe_unused]] const int is_short = ::ftruncate(file.get(), static_cast<off_t>(whole));
      return {std::move(file), refused + ", so the ranks of this host share a file in " + folder};
    }
    tried += (tried.empty() ? "" : ", ") + folder + " (" + std::strerror(error) + ")";
  }
  throw std::runtime_error(refused + ", and there is no room for a file of " + mebibytes(dense) +
                           " in " + tried +
                           "; allow memfd_create, or set TMPDIR to a folder that has room");
}

}  // namespace

SharedMemory SharedMemory::create(size_t whole, size_t dense) {
  SharedMemory memory{Fd(::memfd_create("bluefog", MFD_CLOEXEC | MFD_ALLOW_SEALING)), ""};
  if (!memory.fd.valid() && isRefusal(errno)) {
    const std::string why = std::strerror(errno);
    return createFile(whole, dense, "this system refuses memfd_create (" + why + ")");
  }
  if (!memory.fd.valid()) {
    throwErrno("making shared memory (memfd_create)");
  }
  const int fd = memory.fd.get();
  if (::fchmod(fd, 0600) != 0 || ::ftruncate(fd, static_cast<off_t>(whole)) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throwErrno("preparing " + mebibytes(dense) + " of shared memory");
  }
  return memory;
}

}  // namespace bluefog
