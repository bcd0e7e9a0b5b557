#pragma once

#include <string>

namespace bluefog::env {

// The only reads of the environment. How many times torchrun has restarted this job: its attempts
// share one store, so their keys must differ.
std::string restartCount();

}  // namespace bluefog::env
