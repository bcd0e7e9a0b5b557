"""This module starts and ends a program's default process group, each in one call."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.group_state import member_of
from bluefog_pg.launch.world import remember
from bluefog_pg.topology.graphs.arguments import require_graph
from bluefog_pg.topology.group_topology import set_topology

if TYPE_CHECKING:
    import networkx as nx


_PLACES = {"store", "init_method", "rank", "world_size"}


def init(
    topology_fn: Callable[[int], nx.DiGraph[int]] | nx.DiGraph[int] | None = None,
    is_weighted: bool = False,
    **options: Any,
) -> None:
    """Make the default process group with backend "bluefog", unless it is there, and its topology.

    The group has all ranks under torchrun, mpirun or srun, or where RANK and its like are set. A
    process that nothing of that kind has started makes a group of its own. The call is collective;
    it may be repeated to set another topology. BlueFog has this function.

    Args:
        topology_fn: the topology, or a function that makes it from the number of ranks; None is
            exponential-2.
        is_weighted: as in `set_topology`.
        options: `timeout` (a timedelta, or seconds) and others of
            torch.distributed.init_process_group. They have no effect where the group is there.

    Raises:
        TypeError: the default process group has another backend; `topology_fn` is neither a
            function nor a networkx.DiGraph.
        RuntimeError: a launcher without PMIx has started several such processes.
        ArgumentError: BLUEFOG_NODES_PER_MACHINE is no number.

    Example:
        >>> bf.init(bf.topology_util.RingGraph)
        >>> len(bf.in_neighbor_ranks())
        2
    """
    import torch.distributed as dist
    from torch._C._distributed_c10d import HashStore

    if topology_fn is not None and not callable(topology_fn):
        require_graph("[bluefog] init: topology_fn", topology_fn)
    if not dist.is_initialized():
        if not _PLACES & set(options) and not _was_launched():
            options |= {"store": HashStore(), "rank": 0, "world_size": 1}
        if isinstance(timeout := options.get("timeout"), int | float):
            options["timeout"] = timedelta(seconds=timeout)
        dist.init_process_group("bluefog", **options)
    member = member_of(None)
    _ = member.machines  # The environment is read now, and not when they are first asked for.
    graph = topology_fn(member.size) if callable(topology_fn) else topology_fn
    set_topology(graph, is_weighted=is_weighted)


def shutdown() -> None:
    """Leave the default process group, if there is one; `init` may make another one.

    `rank`, `size` and the like go on answering, for the last lines of a program. BlueFog has this
    function.

    Example:
        >>> bf.shutdown()
        >>> torch.distributed.is_initialized(), bf.size()
        (False, 4)
    """
    import torch.distributed as dist

    if dist.is_initialized():
        remember()
        dist.destroy_process_group()


def _was_launched() -> bool:
    if any(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "PMIX_RANK")):
        return True
    for name in ("PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        if os.environ.get(name, "1") != "1":
            raise RuntimeError(
                f"[bluefog] {name}={os.environ[name]}, but the launcher offers no PMIx: start with "
                "srun --mpi=pmix or Open MPI's mpirun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
                "MASTER_PORT"
            )
    return False
