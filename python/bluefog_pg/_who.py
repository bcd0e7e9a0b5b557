"""Who speaks in an error's text, in the words of the compiled part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch.distributed as dist


def who(group: dist.ProcessGroup) -> str:
    """`[bluefog] rank 0/4`; of other groups than the default one with the global rank first."""
    from torch.distributed import distributed_c10d

    place = f"{group.rank()}/{group.size()}"
    if group is distributed_c10d.GroupMember.WORLD:
        return f"[bluefog] rank {place}"
    rank = distributed_c10d.get_global_rank(group, group.rank())
    return f"[bluefog] rank {rank} ({place} of group {group.group_name})"
