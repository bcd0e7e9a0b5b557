#include "core/Error.hpp"

#include <cerrno>
#include <system_error>

namespace bluefog {

std::string rankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

void throwErrno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), "[bluefog] " + what);
}

}  // namespace bluefog
