"""This module makes a rank's backend for a group, alone or with an accelerator's beside it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import PrefixStore, _DistributedBackendOptions

from bluefog_pg._core import accelerator as accelerators
from bluefog_pg._core.loader import load

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend, Store

    from bluefog_pg._C import (
        Meeting,
        ProcessGroupBluefog,
        ProcessGroupComposed,
        ProcessGroupReconfigurable,
    )
    from bluefog_pg._core.accelerator import Accelerator


def make(
    store: Store,
    rank: int,
    size: int,
    options: ProcessGroupBluefog.Options,
    accelerator: Accelerator | None,
    inner_options: Any = None,
    *,
    source: Backend | None = None,
) -> ProcessGroupBluefog:
    """Make this rank's backend for a group whose ranks meet in the store.

    Args:
        store, rank, size, options: as for `ProcessGroupBluefog`.
        accelerator: the device whose tensors go to torch's own backend; None, for no device.
        inner_options: options of torch's own backend, or None.
        source: as in `accelerator.make`.
    """
    module = load()
    if accelerator is None:
        plain: ProcessGroupBluefog = module.ProcessGroupBluefog(store, rank, size, options)
        return plain
    options.accelerator = accelerator.name
    group: ProcessGroupComposed = module.ProcessGroupComposed(store, rank, size, options)
    _equip(group, store, accelerator, inner_options, source)
    return group


def make_reconfigurable(
    store: Store,
    rank: int,
    size: int,
    options: ProcessGroupBluefog.Options,
    accelerator: Accelerator | None,
    inner_options: Any = None,
) -> ProcessGroupReconfigurable:
    """Make this rank's backend for a group whose members torch.distributed._reconfigure says.

    The arguments are as for `make`; ranks do not meet yet.
    """
    module = load()

    def make_epoch(meeting: Meeting, options: ProcessGroupBluefog.Options) -> ProcessGroupBluefog:
        if accelerator is None:
            plain: ProcessGroupBluefog = module.ProcessGroupBluefog(meeting, options)
            return plain
        group: ProcessGroupComposed = module.ProcessGroupComposed(meeting, options)
        _equip(group, meeting.store, accelerator, inner_options, None)
        return group

    if accelerator is not None:
        options.accelerator = accelerator.name
    made: ProcessGroupReconfigurable = module.ProcessGroupReconfigurable(
        store, rank, size, options, make_epoch
    )
    return made


def _equip(
    group: ProcessGroupComposed,
    store: Store,
    accelerator: Accelerator,
    inner_options: Any,
    source: Backend | None,
) -> None:
    """Give the group torch's own backend for the accelerator."""
    options = group.options
    seat = _DistributedBackendOptions()
    seat.store = _unused_part_of(store, group)
    seat.group_rank = group.rank()
    seat.group_size = group.size()
    seat.timeout = options._timeout
    seat.group_id = options.group_name
    seat.global_ranks_in_group = options.global_ranks_in_group
    inner = accelerators.make(accelerator, seat, inner_options, source)
    group.set_accelerator(accelerator.device, inner, accelerator.plugin)


def _unused_part_of(store: Store, group: ProcessGroupComposed) -> Store:
    """Return a part of the store that no earlier group of this name has written to.

    Other backends would take the keys that such a group has left for their own. Collective: rank 0
    broadcasts the name of the part.
    """
    life = torch.tensor([secrets.randbits(62)], device="cpu")
    group.broadcast([life]).wait()
    return PrefixStore(f"accelerator/{life.item()}/", store)
