#include "core/Error.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace bluefog {

std::optional<Error> errorIn(const std::exception_ptr& error) {
  try {
    if (error) {
      std::rethrow_exception(error);
    }
  } catch (const Error& known) {
    return known;
  } catch (...) {
  }
  return std::nullopt;
}

std::string inSeconds(std::chrono::milliseconds time) {
  char text[32];
  const double seconds = static_cast<double>(time.count()) / 1000;
  std::snprintf(text, sizeof text, seconds < 0.1 ? "%.3f s" : "%.1f s", seconds);
  return text;
}

std::string rankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

void throwErrno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace bluefog
