"""This module finds the process group that a user means, its backend, and its name in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bluefog_pg._core.errors import NotRunning

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from bluefog_pg._C import ProcessGroupBluefog, ProcessGroupReconfigurable


def resolve(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return the group, or the default one for None.

    Raises:
        TypeError: this rank is no member of the group, or it is no process group.
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
    """Return the group's bluefog backend, for whichever device.

    It is that of the present members where the group's members change.

    Raises:
        TypeError: the group has another backend.
        RuntimeError: the group's members change, and it has none now.
    """
    from bluefog_pg._core.loader import load

    if (changing := reconfigurable_of(group)) is not None:
        return changing.group
    ours: type[ProcessGroupBluefog] = load().ProcessGroupBluefog
    backends = _backends(group)
    for backend in backends:
        if isinstance(backend, ours):
            return backend
    named = " and ".join(sorted({f'"{backend.name()}"' for backend in backends}))
    raise TypeError(
        f'{who(group)}: the group\'s backend is {named}; make the group with backend="bluefog"'
    )


def reconfigurable_of(group: dist.ProcessGroup) -> ProcessGroupReconfigurable | None:
    """Return the group's backend if the group's members change, or else None."""
    from bluefog_pg._core.loader import load

    ours = getattr(load(), "ProcessGroupReconfigurable", ())  # torch 2.13 cannot reconfigure.
    return next((each for each in _backends(group) if isinstance(each, ours)), None)


def _backends(group: dist.ProcessGroup) -> list[Any]:
    return [_unwrapped(group, device) for device in group._device_types]


def _unwrapped(group: dist.ProcessGroup, device: torch.device) -> Any:
    backend = group._get_backend(device)
    # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around the backend.
    return getattr(backend, "wrapped_pg", backend)


def who(group: dist.ProcessGroup) -> str:
    """Return "[bluefog] rank 0/4"; a group other than the default one has the global rank first."""
    from torch.distributed import distributed_c10d

    place = f"{group.rank()}/{group.size()}"
    if group is distributed_c10d.GroupMember.WORLD:
        return f"[bluefog] rank {place}"
    rank = distributed_c10d.get_global_rank(group, group.rank())
    return f"[bluefog] rank {rank} ({place} of group {group.group_name})"
