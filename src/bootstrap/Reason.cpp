#include "bootstrap/Reason.hpp"

#include <iterator>
#include <sstream>

namespace bluefog {

std::string Reason::encode() const {
  std::ostringstream encoded;
  encoded << static_cast<int>(cause) << ' ' << ranks.size();
  for (const int rank : ranks) {
    encoded << ' ' << rank;
  }
  encoded << '\n' << text;
  return encoded.str();
}

Reason Reason::decode(const std::string& encoded) {
  std::istringstream words(encoded);
  Reason reason;
  int cause = 0;
  size_t count = 0;
  words >> cause >> count;
  reason.cause = static_cast<Cause>(cause & 3);
  for (int rank = 0; reason.ranks.size() < count && words >> rank;) {
    reason.ranks.push_back(rank);
  }
  words.get();
  reason.text.assign(std::istreambuf_iterator<char>(words), {});
  return reason;
}

}  // namespace bluefog
