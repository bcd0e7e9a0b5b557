"""This module has a barrier that names the ranks that did not come."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from bluefog_pg._core.groups import backend_of, resolve, who

if TYPE_CHECKING:
    from typing import Any

    import torch.distributed as dist

_LONGEST = datetime.timedelta(days=3650)  # The backend cannot count as far as timedelta.max.


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: datetime.timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Wait until all ranks are here, or raise an error that names the missing ones.

    The group goes on afterwards as it was before. torch 2.13 keeps its function of this name,
    `torch.distributed.monitored_barrier`, to gloo. Since 2.14 that one works, too, but waits 30
    minutes, not the group's timeout, where no timeout is given.

    Args:
        group: the process group; None, the default one.
        timeout: how long to wait, the same on all ranks; None, the group's timeout.
        wait_all_ranks: wait out the time and name all that did not come, not the first. (A rank 0
            that comes when others have given up is named alone.)

    Raises:
        CollectiveTimeout: ranks did not come in time. Every rank gets it, also those that come
            later.
        PeerFailed: a rank died, or left.
        Mismatch: a rank waits for this one in another operation. If that is a collective, the
            group's collectives have failed.
        NotRunning: there is no default process group.
        TypeError: the group has another backend.

    Example:
        >>> from datetime import timedelta
        >>> bf.monitored_barrier(timeout=timedelta(seconds=20))
    """
    resolved = resolve(group)
    backend: Any = backend_of(resolved)  # torch's stub lacks monitored_barrier.
    limit = backend.options._timeout if timeout is None else timeout
    if not isinstance(limit, datetime.timedelta):
        raise TypeError(
            f"{who(resolved)} monitored_barrier: "
            f"timeout must be a datetime.timedelta, not {limit!r}"
        )
    backend.monitored_barrier(max(min(limit, _LONGEST), datetime.timedelta(0)), wait_all_ranks)
