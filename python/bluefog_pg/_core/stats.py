"""What this rank has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg._core.groups import backend_of, resolve

if TYPE_CHECKING:
    import torch.distributed as dist


def stats(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """What this rank has done in the group since it was made.

    Returns:
        "bytes_sent": payload bytes handed to peers; "operations": operations issued. Of neighbour
        and point-to-point operations, "bytes_read": how much was read of what peers have sent, to
        add it up or to copy it; "bytes_written": how much was written of results and such copies.
    """
    backend = backend_of(resolve(group))
    return {
        "bytes_sent": backend.bytes_sent,
        "bytes_read": backend.bytes_read,
        "bytes_written": backend.bytes_written,
        "operations": backend.operations_issued,
    }
