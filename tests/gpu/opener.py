"""This program is the other process of test_handles.

It adds one to each byte that a handle names.
"""

from __future__ import annotations

import sys
from ctypes import byref

import torch

from tests.gpu.kernels import DEVICE, Handle, kernels, stream


def main() -> None:
    handle, count = Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), int(sys.argv[2])
    mine = torch.zeros(count, dtype=torch.uint8, device=DEVICE)
    api = kernels()
    theirs = api.given("open", byref(handle))
    api.copy(mine.data_ptr(), theirs, count, stream())
    mine += 1
    api.copy(theirs, mine.data_ptr(), count, stream())
    api.stream_wait(stream())
    api.close(theirs)


if __name__ == "__main__":
    main()
