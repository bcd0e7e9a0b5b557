"""Process groups as users give them: which one is meant, its backend, and who speaks in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bluefog_pg._errors import NotRunning

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._C import ProcessGroupBluefog


def resolve(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group, or the default one.

    Raises:
        TypeError: this rank has no part in it.
        NotRunning: there is no default group.
    """
    from torch.distributed import distributed_c10d

    if group is not None:
        stranger: object = distributed_c10d.GroupMember.NON_GROUP_MEMBER
        if group is stranger:
            raise TypeError(
                f"[bluefog] rank {distributed_c10d.get_rank()} is no member of this group: "
                "only its members may call with it"
            )
        if not isinstance(group, distributed_c10d.ProcessGroup):
            raise TypeError(f"[bluefog] group must be a process group of this rank, not {group!r}")
        return group
    if not distributed_c10d.is_initialized():
        raise NotRunning(
            "[bluefog] there is no default process group; make it by bluefog_pg.init() or "
            'init_process_group("bluefog"), or pass group='
        )
    default: dist.ProcessGroup = distributed_c10d._get_default_group()
    return default


def backend_of(group: dist.ProcessGroup) -> ProcessGroupBluefog:
    """What serves the group's CPU tensors; TypeError where it is another backend."""
    import torch

    from bluefog_pg._loader import load

    backend: Any = group._get_backend(torch.device("cpu"))
    # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around the backend.
    backend = getattr(backend, "wrapped_pg", backend)
    if not isinstance(backend, load().ProcessGroupBluefog):
        raise TypeError(
            f"{who(group)}: the group's backend for CPU tensors is "
            f'"{backend.name()}"; make the group with backend="bluefog"'
        )
    found: ProcessGroupBluefog = backend
    return found


def who(group: dist.ProcessGroup) -> str:
    """`[bluefog] rank 0/4`; of other groups than the default one with the global rank first."""
    from torch.distributed import distributed_c10d

    place = f"{group.rank()}/{group.size()}"
    if group is distributed_c10d.GroupMember.WORLD:
        return f"[bluefog] rank {place}"
    rank = distributed_c10d.get_global_rank(group, group.rank())
    return f"[bluefog] rank {rank} ({place} of group {group.group_name})"
