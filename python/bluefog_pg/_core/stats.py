"""This module has `stats`, which says how much this rank has done in a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg._core.groups import backend_of, resolve

if TYPE_CHECKING:
    import torch.distributed as dist


def stats(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """Return what this rank has done in the group since it was made.

    Any thread may call it; operations that are under way may be counted or not.

    Args:
        group: the process group; None, the default one.

    Returns:
        "bytes_sent": payload bytes handed to peers; "operations": operations issued. Two more count
        neighbor and point-to-point operations. "bytes_read" says how many bytes of what peers have
        sent were read, to add them up or to copy them. "bytes_written" says how many bytes of
        results and such copies were written.

    Raises:
        NotRunning: there is no default process group.
        TypeError: the group has another backend.

    Example:
        >>> before = bf.stats()
        >>> _ = bf.neighbor_allreduce(torch.ones(1000))
        >>> after = bf.stats()
        >>> after["operations"] - before["operations"]
        1
        >>> sorted(after)
        ['bytes_read', 'bytes_sent', 'bytes_written', 'operations']
    """
    backend = backend_of(resolve(group))
    return {
        "bytes_sent": backend.bytes_sent,
        "bytes_read": backend.bytes_read,
        "bytes_written": backend.bytes_written,
        "operations": backend.operations_issued,
    }
