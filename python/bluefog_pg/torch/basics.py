"""BlueFog's basics: the start and end of a program, who is who, and switches."""

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

    Collective. May be called again, after `shutdown` or before: then it sets the topology anew,
    unless there are windows.

    Args:
        topology_fn: the topology, or a function that makes it from the number of ranks; None is
            exponential-2. `topology` is its name in BlueFog's first versions.
        is_weighted: as in `set_topology`.
        options: as of `bluefog_pg.init`, such as `timeout`.

    Raises:
        TypeError: the default process group has another backend.
        ValueError: on every rank: ranks give unlike topologies.
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
    """Set the topology, as `bluefog_pg.set_topology`; while there are windows, do not: False.

    Collective: one all_gather of 8 bytes asks whether all ranks give the same graph.

    Raises:
        ValueError: on every rank: ranks give unlike graphs. The topology stays as it was.
    """
    if _has_windows("set_topology", group, asked=True):
        return False
    with _agreed("set_topology", group):
        topology_of_ranks.set_topology(topology, is_weighted, group)
    return True


def _has_windows(op: str, group: dist.ProcessGroup | None, *, asked: bool) -> bool:
    """Whether there are windows, for which the topology stays; told of where one was asked for."""
    names = get_current_created_window_names(group)
    if names and asked:
        _log.error("%s: the topology stays; free the windows first: %s", op, names)
    return bool(names)


@contextlib.contextmanager
def _agreed(op: str, group: dist.ProcessGroup | None) -> Iterator[None]:
    """Set a topology in it. Where ranks set unlike ones, or one fails to, none is set."""
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
    """The same of two topologies where they are the same to all ranks."""
    is_weighted = is_topo_weighted(group)
    weighted = load_topology(group).edges(data="weight", default=1.0)
    edges = sorted((int(i), int(j), float(w) if is_weighted else 1.0) for i, j, w in weighted)
    return repr((is_weighted, edges)).encode()


def shutdown() -> None:
    """Leave the default process group. `size`, `rank` and the like go on answering."""
    lifecycle.shutdown()
    handles.resume()


def is_initialized() -> bool:
    """Whether there is a default process group."""
    return dist.is_initialized()


def is_available() -> bool:
    """Whether the compiled module is there, for the torch that is installed."""
    try:
        load()
    except ImportError:
        return False
    return True


def check_extension(ext_name: str, pkg_path: str, *args: str) -> None:
    """Raise ImportError unless the compiled module is there. What it is called does not matter."""
    del ext_name, pkg_path, args
    load()


def suspend() -> None:
    """Refuse operations until `resume`: each raises ValueError. What is under way goes on.

    Raises:
        ValueError: before `init`.
    """
    size()
    handles.suspend()


def resume() -> None:
    """End what `suspend` began.

    Raises:
        ValueError: before `init`.
    """
    size()
    handles.resume()


def set_skip_negotiate_stage(value: bool) -> None:
    """Of no effect: nothing is negotiated, and what ranks disagree on is found all the same."""
    _Switch.skips_negotiation = bool(value)


def get_skip_negotiate_stage() -> bool:
    """What `set_skip_negotiate_stage` has set; False before."""
    return _Switch.skips_negotiation


def mpi_threads_supported() -> bool:
    """True: any thread may call operations. (Where MPI is used, it must allow that.)

    Raises:
        ValueError: before `init`.
    """
    size()
    return True


def unified_mpi_window_model_supported() -> bool:
    """True: what a rank puts into another's window is there, and needs nothing done for it.

    Raises:
        ValueError: before `init`.
    """
    size()
    return True


def nccl_built() -> bool:
    """Whether torch has NCCL, which CUDA tensors go to."""
    return dist.is_nccl_available()
