#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace bluefog::pmix {

// A Job describes the processes that the PMIx server of one host serves, and where the others run.
// Thread safety: a plain value.
struct Job {
  struct Host {
    std::string name;
    std::vector<int> ranks;  // ascending
  };

  std::string library;  // path of libpmix
  std::string nspace;   // the namespace: one for all hosts, and never used before
  std::vector<Host> hosts;
  size_t here = 0;          // index in `hosts` of the server's own host
  std::vector<pid_t> pids;  // process ids of the ranks on this host

  const Host& host() const { return hosts[here]; }
  size_t size() const;

  std::string encode() const;
  // Throws std::runtime_error where the text is no job.
  static Job decode(const std::string& text);
};

}  // namespace bluefog::pmix
