#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bluefog {

// A Cause says why a communication failed: a peer died or gave up, time ran out, the calls of the
// ranks did not match, or the group was aborted or can no longer be used.
enum class Cause : uint8_t { kPeerFailed, kTimeout, kMismatch, kAborted };

// An Error says that a communication failed. Wrong arguments are not reported by this type: they
// raise ValueError or TypeError in the caller before any byte moves.
// Thread safety: immutable.
class Error : public std::runtime_error {
 public:
  Error(Cause cause, std::vector<int> ranks, const std::string& text)
      : std::runtime_error(text), cause_(cause), ranks_(std::move(ranks)) {}

  Cause cause() const { return cause_; }
  // Returns the global ranks that are blamed, in ascending order.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  Cause cause_;
  std::vector<int> ranks_;
};

// Returns the Error that `error` holds, or nothing where it holds another exception or none.
std::optional<Error> errorIn(const std::exception_ptr& error);

// Returns the time as a text like "30.0 s".
std::string inSeconds(std::chrono::milliseconds time);
// Returns a text like "rank 3" or "ranks 3, 5, 7".
std::string rankList(const std::vector<int>& ranks);

// Throws std::system_error with errno, for a system call that cannot fail in a healthy process.
[[noreturn]] void throwErrno(const std::string& what);

}  // namespace bluefog
