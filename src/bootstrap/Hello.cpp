#include "bootstrap/Hello.hpp"

#include <cstdlib>
#include <sstream>

namespace bluefog {

std::string Hello::encode() const {
  return secret + "/" + epoch + "/" + id + "/" + std::to_string(rank);
}

std::optional<Hello> Hello::decode(const std::string& text) {
  std::istringstream fields(text);
  Hello hello;
  std::string rank;
  for (std::string* field : {&hello.secret, &hello.epoch, &hello.id, &rank}) {
    std::getline(fields, *field, '/');
  }
  if (rank.empty()) {
    return std::nullopt;
  }
  hello.rank = std::atoi(rank.c_str());
  return hello;
}

}  // namespace bluefog
