"""What this rank has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg._groups import backend_of, resolve

if TYPE_CHECKING:
    import torch.distributed as dist


def stats(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """What this rank has done in the group since it was made.

    Returns:
        "bytes_sent": payload bytes handed to peers; "operations": operations issued.
    """
    backend = backend_of(resolve(group))
    return {"bytes_sent": backend.bytes_sent, "operations": backend.operations_issued}
