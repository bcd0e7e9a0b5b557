"""This module knows variables of BlueFog and Asyncddp that have another meaning here, or none."""

from __future__ import annotations

import functools
import logging
import os

from bluefog_pg._core import variables

_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_NEGOTIATION = "operations start at once and are not fused; give neighbor_allreduce a list"
_BACKEND = "CPU tensors go by shared memory and MPI, CUDA tensors by NCCL"
_TIMEOUT = "use init(timeout=seconds); a rank that died is named within a second"
_WINDOW = "windows wait for nobody, and are not restarted"
_BUILD = "the build needs none: torch's NCCL is used, CUDACXX names nvcc, BLUEFOG_MPI_HOME Open MPI"
_INSTEAD = {
    "BLUEFOG_ALLGATHER_BY_MPI": _BACKEND,
    "BLUEFOG_ALLREDUCE_BY_MPI": _BACKEND,
    "BLUEFOG_BROADCAST_BY_MPI": _BACKEND,
    "BLUEFOG_CYCLE_TIME": _NEGOTIATION,
    "BLUEFOG_FUSION_THRESHOLD": _NEGOTIATION,
    "BLUEFOG_LOG_HIDE_TIME": "configure Python's logger 'bluefog_pg'",
    "BLUEFOG_MAX_WIN_SENT_LENGTH": "windows are written without messages",
    "BLUEFOG_MPI_THREAD_LEVEL": "any thread may call operations",
    "BLUEFOG_NEIGHBOR_ALLGATHER_BY_MPI": _BACKEND,
    "BLUEFOG_NEIGHBOR_ALLREDUCE_BY_MPI": _BACKEND,
    "BLUEFOG_NUM_FINALIZER_THREADS": _BACKEND,
    "BLUEFOG_OPS_ON_CPU": _BACKEND,
    "BLUEFOG_SLEEP_USEC_FOR_WIN_PASSIVE": _WINDOW,
    "BLUEFOG_WIN_DISABLE_RESTART": _WINDOW,
    "BLUEFOG_WIN_ON_GPU": "the window of a CUDA tensor is on its GPU",
    "BLUEFOG_WIN_OPS_BY_MPI": _BACKEND,
    "BLUEFOG_WIN_RESTART_RETRIES": _WINDOW,
    "BLUEFOG_WIN_TIMEOUT_S": _TIMEOUT,
    "BLUEFOG_WIN_WARN_AFTER_S": _TIMEOUT,
    **dict.fromkeys(
        """BLUEFOG_CUDA_HOME BLUEFOG_CUDA_INCLUDE BLUEFOG_CUDA_LIB BLUEFOG_MPICXX_SHOW
        BLUEFOG_NCCL_HOME BLUEFOG_NCCL_INCLUDE BLUEFOG_NCCL_LIB BLUEFOG_NCCL_LINK
        BLUEFOG_WITHOUT_PYTORCH BLUEFOG_WITHOUT_TENSORFLOW BLUEFOG_WITH_NCCL
        BLUEFOG_WITH_TENSORFLOW""".split(),
        _BUILD,
    ),
}


@functools.cache  # It warns once.
def heed(rank: int) -> None:
    """Set the level of the log, and warn on rank 0 of variables that have no effect."""
    log = logging.getLogger("bluefog_pg")
    if (level := _LEVELS.get((variables.read("BLUEFOG_LOG_LEVEL") or "").lower())) is not None:
        log.setLevel(level)
    if rank == 0:
        for name in sorted(_INSTEAD.keys() & os.environ.keys()):
            log.warning("init: %s has no effect: %s", name, _INSTEAD[name])
