"""This module chooses the device that an example computes on."""

import os
import sys

import torch


def own_device(kind: str) -> torch.device:
    """Return this rank's device for "cpu" or "cuda"; the ranks of a host take its GPUs in turn.

    This is a type for argparse: if there is no such device, the program says so and exits with 2.
    """
    if kind == "cpu":
        return torch.device(kind)
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None or found.type != kind:
        print(
            f"--device {kind}: torch finds none here (python -m bluefog_pg says more); "
            "there is --device cpu",
            file=sys.stderr,
        )
        sys.exit(2)
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(kind, index)
