#pragma once

#include <string>

namespace bluefog::pmix {

// MPI would end this process when its server dies, which it needs no more once MPI has started.
void surviveServer(const std::string& library);

}  // namespace bluefog::pmix
