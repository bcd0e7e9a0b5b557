#include "core/BootClock.hpp"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace bluefog::boot_clock {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

int64_t startOfThisProcess() {
  std::ifstream file("/proc/self/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // The second field is the program's name in brackets, which may itself contain spaces and
  // brackets.
  std::istringstream fields(text.empty() ? text : text.substr(text.rfind(')') + 1));
  constexpr int kStart = 22;  // the field "starttime" of proc(5)
  std::string field;
  for (int number = 3; number <= kStart; ++number) {
    fields >> field;
  }
  return field.empty() ? now() : std::stoll(field) * (kSecond / ::sysconf(_SC_CLK_TCK));
}

}  // namespace bluefog::boot_clock
