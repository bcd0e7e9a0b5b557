"""This module makes a group's backend for the ranks of this machine alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import GroupName

from bluefog_pg._core.accelerator import found
from bluefog_pg._core.backend import make

if TYPE_CHECKING:
    from bluefog_pg._C import ProcessGroupBluefog
    from bluefog_pg._core.group_state import GroupState


def machine_backend_of(member: GroupState) -> ProcessGroupBluefog:
    """Return the backend of the machine's ranks; the first call makes it, on all of them.

    It ends with the group. It is no group of c10d: a program that destroys the group would have to
    destroy that one, too. Besides, `torch.distributed.new_group` names a group by how many groups
    its members have made, which may differ.

    Raises:
        CollectiveTimeout: a rank of the machine did not ask in time.
        DistBackendError: an earlier call failed or was interrupted; ranks that tried again would
            meet in unlike calls.
    """
    if len(member.machines.all) == 1:
        return member.backend
    with member.machine_lock:
        if member.machine_failure is not None:
            raise dist.DistBackendError(
                f"{member.who} the ranks of this machine could not make their part of the group "
                f"before; make a new group ({member.machine_failure})"
            )
        if member.machine_backend is None:
            try:
                member.machine_backend = _make(member)
            except BaseException as error:
                member.machine_failure = str(error) or type(error).__name__
                raise
            member.backend.set_part(member.machine_backend)
        return member.machine_backend


def _make(member: GroupState) -> ProcessGroupBluefog:
    group, machines = member.group, member.machines
    name = f"{group.group_name}/machine{machines.machine_rank}"
    options = member.backend.Options()
    options._timeout = member.backend.options._timeout
    options.group_name = GroupName(name)
    options.global_ranks_in_group = [dist.get_global_rank(group, r) for r in machines.locals]
    store = PrefixStore(name, group.get_group_store())
    return make(store, machines.local_rank, len(machines.locals), options, found())
