"""This program prints as JSON what there is to build with and to run on."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def program(name: str) -> str:
    """Return the program's path, or nothing where it is not found.

    CUDA may lie outside of PATH, or come from pip.
    """
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    roots += [str(Path(folder) / "nvidia/cu13") for folder in sys.path]
    places = [os.environ.get("PATH", ""), *(f"{root}/bin" for root in roots if root)]
    return shutil.which(name, path=os.pathsep.join(places)) or ""


def tools_missing() -> list[str]:
    """Return the tools that are missing to build and to test."""
    found = [name for name in ("cmake", "g++", "nvcc") if not program(name)]
    if not program("ninja") and not program("make"):
        found.append("ninja or make")
    modules = ("pytest", "pytest_timeout", "numpy", "networkx")
    return found + [name for name in modules if not is_there(name)]


def driver() -> str:
    file = Path("/proc/driver/nvidia/version")
    told = re.search(r"\d+\.\d[\d.]*", file.read_text()) if file.exists() else None
    return told[0] if told else ""


def described() -> dict[str, str | int]:
    """Return a description of this machine. The device's name is empty where there is no device."""
    import torch

    found: dict[str, str | int] = {
        "device": "", "torch": torch.__version__, "python": sys.version.split()[0],
        "cores": os.cpu_count() or 1,
    }  # fmt: skip
    if torch.cuda.is_available():
        capability = torch.cuda.get_device_capability()
        memory = torch.cuda.get_device_properties(0).total_memory
        nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()
        found |= {
            "device": torch.cuda.get_device_name(), "memory_gib": round(memory / 2**30),
            "capability": "".join(map(str, capability)), "driver": driver(),
            "torch_cuda": torch.version.cuda or "", "nccl": ".".join(map(str, nccl)),
        }  # fmt: skip
    return found


if __name__ == "__main__":
    print(json.dumps(described()))
