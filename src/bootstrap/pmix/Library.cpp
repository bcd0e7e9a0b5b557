#include "bootstrap/pmix/Library.hpp"

namespace bluefog::pmix {

PmixLibrary::PmixLibrary(const std::string& path)
    : library_(path, SharedLibrary::Symbols::kForAll) {
  library_.find("PMIx_server_init", server_init);
  library_.find("PMIx_server_finalize", server_finalize);
  library_.find("PMIx_generate_regex", generate_regex);
  library_.find("PMIx_generate_ppn", generate_ppn);
  library_.find("PMIx_server_register_nspace", register_nspace);
  library_.find("PMIx_server_register_client", register_client);
  library_.find("PMIx_server_setup_fork", setup_fork);
  library_.find("PMIx_Notify_event", notify_event);
  library_.find("PMIx_Error_string", error_string);
}

}  // namespace bluefog::pmix
