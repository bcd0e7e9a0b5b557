#include "core/Env.hpp"

#include <cstdlib>

namespace bluefog::env {

std::string restartCount() {
  const char* value = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return value == nullptr ? "0" : value;
}

}  // namespace bluefog::env
