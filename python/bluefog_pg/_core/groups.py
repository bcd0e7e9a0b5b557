"""Process groups as users give them: which one is meant, its backend, and who speaks in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bluefog_pg._core.errors import NotRunning

if TYPE_CHECKING:
    import torch
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
    """The group's bluefog backend, of whichever device; TypeError where it has none."""
    from bluefog_pg._core.loader import load

    backends = [_unwrapped(group, device) for device in group._device_types]
    ours: type[ProcessGroupBluefog] = load().ProcessGroupBluefog
    for backend in backends:
        if isinstance(backend, ours):
            return backend
    named = " and ".join(sorted({f'"{backend.name()}"' for backend in backends}))
    raise TypeError(
        f'{who(group)}: the group\'s backend is {named}; make the group with backend="bluefog"'
    )


def _unwrapped(group: dist.ProcessGroup, device: torch.device) -> Any:
    backend = group._get_backend(device)
    # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around the backend.
    return getattr(backend, "wrapped_pg", backend)


def who(group: dist.ProcessGroup) -> str:
    """`[bluefog] rank 0/4`; of other groups than the default one with the global rank first."""
    from torch.distributed import distributed_c10d

    place = f"{group.rank()}/{group.size()}"
    if group is distributed_c10d.GroupMember.WORLD:
        return f"[bluefog] rank {place}"
    rank = distributed_c10d.get_global_rank(group, group.rank())
    return f"[bluefog] rank {rank} ({place} of group {group.group_name})"
