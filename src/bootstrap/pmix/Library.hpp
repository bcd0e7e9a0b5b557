#pragma once

#include <sys/types.h>

#include <string>

#include "bootstrap/pmix/abi.hpp"
#include "core/SharedLibrary.hpp"

namespace bluefog::pmix {

// PmixLibrary holds the functions of libpmix that a server calls.
// Thread safety: any thread.
class PmixLibrary {
 public:
  // Throws std::runtime_error where the library cannot be loaded.
  explicit PmixLibrary(const std::string& path);

  Status (*server_init)(ServerModule* module, Info* info, size_t count);
  Status (*server_finalize)();
  Status (*generate_regex)(const char* list, char** regex);
  Status (*generate_ppn)(const char* list, char** regex);
  Status (*register_nspace)(const char* nspace, int local, Info* info, size_t count, OpCallback,
                            void* data);
  Status (*register_client)(const Proc* proc, uid_t, gid_t, void* object, OpCallback, void* data);
  Status (*setup_fork)(const Proc* proc, char*** environment);
  Status (*notify_event)(Status event, const Proc* source, uint8_t range, const Info* info,
                         size_t count, OpCallback, void* data);
  const char* (*error_string)(Status status);

 private:
  SharedLibrary library_;
};

}  // namespace bluefog::pmix
