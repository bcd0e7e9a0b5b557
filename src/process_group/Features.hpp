#pragma once

#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

// c10d says by C10D_BACKEND_HAS_HOOKS, _RECONFIGURE and _WINDOW that it has what came with torch
// 2.14. This header is included wherever one of these is asked for. c10d has no such macro for the
// completion hooks and the keys of Works that came with 2.15.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define BLUEFOG_C10D_HAS_COMPLETION_HOOKS 1
#endif
