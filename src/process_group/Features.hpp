#pragma once

#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

// c10d says by C10D_BACKEND_HAS_HOOKS, _RECONFIGURE and _WINDOW that it has what came with torch
// 2.14. This header is included wherever one of these is asked for.
