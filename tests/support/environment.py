"""This module reads the tests' settings, and makes the environment of ranks and programs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support import simulated
from tests.support.inrank import SLOW

ROOT = Path(__file__).parents[2]
# The value "mpi" means that ranks share no memory, as if each were on a host of its own.
TRANSPORT = os.environ.get("BLUEFOG_TRANSPORT", "")
# The neighbor operations are made of gloo's messages with "cpu:gloo", as a GPU's are of NCCL's.
ACCELERATOR = os.environ.get("BLUEFOG_ACCELERATOR", "")
# Tensors lie on this device, "simulated" or "cuda", where tests name none.
DEVICE = os.environ.get("BLUEFOG_TEST_DEVICE", "")
# Tests that run side by side share the cores, so what a test expects at most is stretched further
# there. The tests marked `alone` hold the library to what it promises.
STRETCH = float(
    os.environ.get("RANKS_STRETCH", SLOW * (5 if "PYTEST_XDIST_WORKER" in os.environ else 1))
)
# Inductor keeps here what g++ has compiled, for all processes and runs. It puts its precompiled
# header into TMPDIR as it was when Inductor was imported, so the fork server starts with this one.
COMPILED = ROOT / "build" / "inductor"


def simulated_accelerator() -> str:
    """Build the simulated accelerator; return the BLUEFOG_ACCELERATOR that chooses it."""
    simulated.build()
    return f"simulated:simccl:{simulated.PLUGIN}"


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with `extra`, without settings of tests and launchers."""
    drop = ("PYTEST", "BLUEFOG", "RANKS_", "TORCHELASTIC", "MASTER_", "LOCAL_", "OMPI_", "PMIX_")
    drop += ("TORCH_DISTRIBUTED_DEBUG",)
    env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    for name in ("RANK", "WORLD_SIZE", "GROUP_RANK"):
        env.pop(name, None)
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    env |= {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # No worker outlives a test.
    env |= {"TORCHINDUCTOR_CACHE_DIR": str(COMPILED)}
    # The processor says which instructions it has. Trying each of them takes compilers 20 s.
    env |= {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
    env |= {"BLUEFOG_TEST_SLOW": str(SLOW), "RANKS_STRETCH": str(STRETCH)}
    env |= {"BLUEFOG_TRANSPORT": TRANSPORT} if TRANSPORT else {}
    env |= {"BLUEFOG_ACCELERATOR": ACCELERATOR} if ACCELERATOR else {}
    env |= {"RANKS_DEVICE": DEVICE} if DEVICE else {}
    env |= {"BLUEFOG_ACCELERATOR": simulated_accelerator()} if DEVICE == "simulated" else {}
    env |= {"GLOO_SOCKET_IFNAME": "lo"} if DEVICE or ACCELERATOR.endswith("gloo") else {}
    return env | (extra or {})
