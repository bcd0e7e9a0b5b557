#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace bluefog::pmix {

// What a host's server has to know.
struct Job {
  struct Host {
    std::string name;
    std::vector<int> ranks;  // ascending
  };

  std::string library;  // path of libpmix
  std::string nspace;   // one for all hosts, and never used before
  std::vector<Host> hosts;
  size_t here = 0;          // which of them this is
  std::vector<pid_t> pids;  // of the ranks here

  const Host& host() const { return hosts[here]; }
  size_t size() const;

  std::string encode() const;
  // Throws std::runtime_error.
  static Job decode(const std::string& text);
};

}  // namespace bluefog::pmix
