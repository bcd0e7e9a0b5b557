"""This module has BlueFog's basics: the start and end of a program, ranks, and switches."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from bluefog_pg import topology as topology_of_ranks
from bluefog_pg._core import group_check, timeline
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.loader import load
from bluefog_pg._core.renamed import renamed
from bluefog_pg._core.timeline import (
    timeline_context,
    timeline_end_activity,
    timeline_start_activity,
)
from bluefog_pg.launch import lifecycle
from bluefog_pg.launch.world import (
    is_homogeneous,
    local_rank,
    local_size,
    machine_rank,
    machine_size,
    rank,
    size,
)
from bluefog_pg.topology.group_topology import (
    in_neighbor_machine_ranks,
    in_neighbor_ranks,
    is_machine_topo_weighted,
    is_topo_weighted,
    load_machine_topology,
    load_topology,
    out_neighbor_machine_ranks,
    out_neighbor_ranks,
    set_machine_topology,
)
from bluefog_pg.torch import _old_variables
from bluefog_pg.torch._run import handles
from bluefog_pg.torch._windows_by_name import get_current_created_window_names

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "check_extension",
    "get_skip_negotiate_stage",
    "in_neighbor_machine_ranks",
    "in_neighbor_ranks",
    "init",
    "is_available",
    "is_homogeneous",
    "is_initialized",
    "is_machine_topo_weighted",
    "is_topo_weighted",
    "load_machine_topology",
    "load_topology",
    "local_rank",
    "local_size",
    "machine_rank",
    "machine_size",
    "mpi_threads_supported",
    "nccl_built",
    "out_neighbor_machine_ranks",
    "out_neighbor_ranks",
    "rank",
    "resume",
    "set_machine_topology",
    "set_skip_negotiate_stage",
    "set_topology",
    "shutdown",
    "size",
    "suspend",
    "timeline_context",
    "timeline_end_activity",
    "timeline_start_activity",
    "unified_mpi_window_model_supported",
]


_log = logging.getLogger("bluefog_pg")


class _Switch:
    skips_negotiation = False


@renamed(topology="topology_fn")
def init(
    topology_fn: Callable[[int], nx.DiGraph[int]] | nx.DiGraph[int] | None = None,
    is_weighted: bool = False,
    **options: Any,
) -> None:
    """Make the default process group with backend "bluefog", unless it is there, and its topology.

    The call is collective. It may be repeated, after `shutdown` or before: then it sets the
    topology anew, unless there are windows.

    Args:
        topology_fn: the topology, or a function that makes it from the number of ranks; None is
            exponential-2. `topology` is its name in BlueFog's first versions.
        is_weighted: as in `set_topology`.
        options: as in `bluefog_pg.init`, such as `timeout`.

    Raises:
        TypeError: the default process group has another backend.
        ValueError: ranks give unlike topologies. Every rank gets it.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.init(topology_fn=bf.RingGraph)
        >>> bf.in_neighbor_ranks() == sorted([(bf.rank() - 1) % 4, (bf.rank() + 1) % 4])
        True
    """
    if not (dist.is_initialized() and _has_windows("init", None, asked=topology_fn is not None)):
        with _agreed("init", None):
            lifecycle.init(topology_fn, is_weighted, **options)
    timeline.start(rank())
    _old_variables.heed(rank())


def set_topology(
    topology: nx.DiGraph[int] | None = None,
    is_weighted: bool = False,
    group: dist.ProcessGroup | None = None,
) -> bool:
    """Set the topology, as `bluefog_pg.set_topology`, unless there are windows.

    Collective: one all_gather of 8 bytes asks whether all ranks give the same graph.

    Args:
        topology, is_weighted, group: as in `bluefog_pg.set_topology`.

    Returns:
        True; or False while there are windows, for which the topology stays.

    Raises:
        ValueError: ranks give unlike graphs. Every rank gets it, and the topology stays as it was.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.set_topology(bf.StarGraph(bf.size()), is_weighted=True)
        True
        >>> bf.win_create(torch.ones(2), "w")
        True
        >>> bf.set_topology(bf.RingGraph(bf.size()))
        False
        >>> bf.win_free("w")
        True
    """
    if _has_windows("set_topology", group, asked=True):
        return False
    with _agreed("set_topology", group):
        topology_of_ranks.set_topology(topology, is_weighted, group)
    return True


def _has_windows(op: str, group: dist.ProcessGroup | None, *, asked: bool) -> bool:
    """Return whether there are windows, for which the topology stays; log that if `asked`."""
    names = get_current_created_window_names(group)
    if names and asked:
        _log.error("%s: the topology stays; free the windows first: %s", op, names)
    return bool(names)


@contextlib.contextmanager
def _agreed(op: str, group: dist.ProcessGroup | None) -> Iterator[None]:
    """Let a block set a topology; if ranks set unlike ones, or one fails to, restore the old one.

    Collective: it makes one all_gather of 8 bytes.

    Raises:
        ValueError: ranks set unlike topologies, or one has failed (on every rank).
    """
    before = member_of(group).topology if dist.is_initialized() else None
    failure, given = None, None
    try:
        yield
        given = _described(group)
    except (TypeError, ValueError) as error:
        if not dist.is_initialized():
            raise
        failure = error
    member = member_of(group)
    try:
        group_check.require_one(member, op, "topologies", given)
    except BaseException as error:
        member.topology = before
        raise failure or error from None


def _described(group: dist.ProcessGroup | None) -> bytes:
    """Return bytes that are equal if two ranks have set the same topology."""
    is_weighted = is_topo_weighted(group)
    weighted = load_topology(group).edges(data="weight", default=1.0)
    edges = sorted((int(i), int(j), float(w) if is_weighted else 1.0) for i, j, w in weighted)
    return repr((is_weighted, edges)).encode()


def shutdown() -> None:
    """Leave the default process group. `size`, `rank` and the like go on answering.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.shutdown()
        >>> bf.is_initialized(), bf.size()
        (False, 4)
    """
    lifecycle.shutdown()
    handles.resume()


def is_initialized() -> bool:
    """Return whether there is a default process group. Asyncddp has this function.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.is_initialized()
        True
    """
    return dist.is_initialized()


def is_available() -> bool:
    """Return whether the compiled module is there, for the torch that is installed.

    Asyncddp has this function.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.is_available()
        True
    """
    try:
        load()
    except ImportError:
        return False
    return True


def check_extension(ext_name: str, pkg_path: str, *args: str) -> None:
    """Raise ImportError unless the compiled module is there. The arguments do not matter.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.check_extension("bluefog.torch", "setup.py", "mpi_lib")
    """
    del ext_name, pkg_path, args
    load()


def suspend() -> None:
    """Refuse operations until `resume`: each raises ValueError. Those under way go on.

    Raises:
        ValueError: `init` was not called.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.suspend()
        >>> try:
        ...     bf.barrier()
        ... except ValueError as error:
        ...     print(error)
        [bluefog] barrier: operations are suspended; call resume() first
        >>> bf.resume()
    """
    size()
    handles.suspend()


def resume() -> None:
    """End what `suspend` began.

    Raises:
        ValueError: `init` was not called.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.suspend()
        >>> bf.resume()
        >>> bf.allreduce(torch.ones(1)).item()
        1.0
    """
    size()
    handles.resume()


def set_skip_negotiate_stage(value: bool) -> None:
    """Set what `get_skip_negotiate_stage` returns, and nothing else.

    Nothing is negotiated here, and what ranks disagree on is found all the same.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.set_skip_negotiate_stage(True)
        >>> bf.get_skip_negotiate_stage()
        True
        >>> bf.set_skip_negotiate_stage(False)
    """
    _Switch.skips_negotiation = bool(value)


def get_skip_negotiate_stage() -> bool:
    """Return what `set_skip_negotiate_stage` has set; False before.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.get_skip_negotiate_stage()
        False
    """
    return _Switch.skips_negotiation


def mpi_threads_supported() -> bool:
    """Return True: any thread may call operations. (Where MPI is used, it must allow that.)

    Raises:
        ValueError: `init` was not called.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.mpi_threads_supported()
        True
    """
    size()
    return True


def unified_mpi_window_model_supported() -> bool:
    """Return True: what a rank puts into another's window is there, and needs nothing done for it.

    Raises:
        ValueError: `init` was not called.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.unified_mpi_window_model_supported()
        True
    """
    size()
    return True


def nccl_built() -> bool:
    """Return whether torch has NCCL, which CUDA tensors go to.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.nccl_built() == torch.distributed.is_nccl_available()
        True
    """
    return dist.is_nccl_available()
