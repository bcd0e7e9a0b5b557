"""bluefog_pg.torch has BlueFog's names with BlueFog's signatures; what is missing says so."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import bluefog_pg

NAME = "name=None"
REDUCED = f"(tensor, average=True, is_hierarchical_local=False, {NAME})"
WEIGHTS = (
    "(tensor, self_weight=None, src_weights=None, dst_weights=None, enable_topo_check=True, "
    f"{NAME}, *, average=None)"
)
RANKS = f"(tensor, {NAME}, *, src_ranks=None, dst_ranks=None, enable_topo_check=True)"
MACHINES = (
    "(tensor, self_weight=None, src_machine_weights=None, dst_machine_weights=None, "
    f"enable_topo_check=False, {NAME})"
)
PAIR = f"(tensor, target_rank, self_weight=None, pair_weight=None, {NAME})"
ROOT = f"(tensor, root_rank, {NAME})"
PLACE = "(world_size, local_size, self_rank"

EVERY = "num_steps_per_communication=1"
KIND = "<CommunicationType.neighbor_allreduce: 'neighbor.allreduce'>"
COMPRESSED = "*, compression=None"
TYPED = f"(optimizer, model, communication_type={KIND}, {EVERY}, {COMPRESSED})"
OLDER = f"(optimizer, model=None, {EVERY}, named_parameters=None)"

SUBMODULES = ("ddp", "mpi_ops", "optim", "optimizers", "topology_util", "utility")
SIGNATURES = {
    "DistributedAdaptThenCombineOptimizer": TYPED,
    "DistributedAdaptWithCombineOptimizer": TYPED,
    "DistributedAllreduceOptimizer": OLDER,
    "DistributedBluefogOptimizer": "(optimizer, named_parameters=None)",
    "DistributedConsensusOptimizer": "(optimizer, named_parameters=None)",
    "DistributedGradientAllreduceOptimizer": f"(optimizer, model, {EVERY})",
    "DistributedHierarchicalNeighborAllreduceOptimizer": f"(optimizer, model, {EVERY})",
    "DistributedNeighborAllreduceOptimizer": f"{OLDER[:-1]}, {COMPRESSED})",
    "DistributedPullGetOptimizer": f"(optimizer, model, {EVERY}, window_prefix=None)",
    "DistributedPushSumOptimizer": f"(optimizer, model, {EVERY})",
    "DistributedWinPutOptimizer": f"(optimizer, model, {EVERY}, window_prefix=None)",
    "allreduce_parameters": "(params)",
    "broadcast_optimizer_state": "(optimizer, root_rank)",
    "broadcast_parameters": "(params, root_rank)",
    "init": "(topology_fn=None, is_weighted=False, **options)",
    "set_topology": "(topology=None, is_weighted=False)",
    "set_machine_topology": "(topology, is_weighted=False)",
    "set_skip_negotiate_stage": "(value)",
    "check_extension": "(ext_name, pkg_path, *args)",
    "timeline_start_activity": "(tensor_name, activity_name)",
    "timeline_end_activity": "(tensor_name)",
    "timeline_context": "(tensor_name, activity_name)",
    "allreduce": REDUCED,
    "allreduce_nonblocking": REDUCED,
    "allreduce_": REDUCED,
    "allreduce_nonblocking_": REDUCED,
    "broadcast": ROOT,
    "broadcast_nonblocking": ROOT,
    "broadcast_": ROOT,
    "broadcast_nonblocking_": ROOT,
    "allgather": f"(tensor, {NAME})",
    "allgather_nonblocking": f"(tensor, {NAME})",
    "neighbor_allreduce": WEIGHTS,
    "neighbor_allreduce_nonblocking": WEIGHTS,
    "neighbor_allgather": RANKS,
    "neighbor_allgather_nonblocking": RANKS,
    "hierarchical_neighbor_allreduce": MACHINES,
    "hierarchical_neighbor_allreduce_nonblocking": MACHINES,
    "pair_gossip": PAIR,
    "pair_gossip_nonblocking": PAIR,
    "poll": "(handle)",
    "synchronize": "(handle)",
    "wait": "(handle)",
    "broadcast_object": f"(obj, src=0, device=None, {NAME})",
    "broadcast_object_list": f"(object_list, src=None, device=None, {NAME})",
    # BlueFog's first versions have these.
    "allreduce_async": f"(tensor, average=True, {NAME})",
    "allgather_async": f"(tensor, {NAME})",
    "broadcast_async": ROOT,
    "broadcast_async_": ROOT,
    "neighbor_allgather_async": f"(tensor, {NAME})",
    "neighbor_allreduce_async": f"(tensor, self_weight=None, neighbor_weights=None, {NAME}, "
    "*, average=None)",
    # Graphs and windows have these.
    "win_create": "(tensor, name, zero_init=False)",
    "win_free": "(name=None)",
    "win_lock": "(name)",
    "win_fence": "(name)",
    "win_poll": "(handle)",
    "win_wait": "(handle)",
    "win_cancel": "(handle)",
    "win_mutex": "(name=None, for_self=False, ranks=None, exclusive=True)",
    "win_associated_p": "(name)",
    "get_win_version": "(name)",
    "win_read_neighbor": "(name, rank_, require_mutex=True)",
    "GetRecvWeights": "(topo, rank)",
    "GetSendWeights": "(topo, rank)",
    "IsRegularGraph": "(topo)",
    "IsTopologyEquivalent": "(topo1, topo2)",
    "ExponentialTwoGraph": "(size)",
    "ExponentialGraph": "(size, base=2)",
    "SymmetricExponentialGraph": "(size, base=4)",
    "FullyConnectedGraph": "(size)",
    "MeshGrid2DGraph": "(size, shape=None)",
    "RingGraph": "(size, connect_style=0)",
    "StarGraph": "(size, center_rank=0)",
    "PowerTwoRingGraph": "(size)",
    "GetDynamicOnePeerSendRecvRanks": "(topo, self_rank)",
    "GetDynamicSendRecvRanks": "(topo, self_rank)",
    "GetExp2DynamicSendRecvMachineRanks": f"{PLACE}, local_rank)",
    "GetInnerOuterRingDynamicSendRecvRanks": f"{PLACE})",
    "GetInnerOuterExpo2DynamicSendRecvRanks": f"{PLACE})",
    "InferSourceFromDestinationRanks": "(dst_ranks, construct_adjacency_matrix=False)",
    "InferDestinationFromSourceRanks": "(src_ranks, construct_adjacency_matrix=False)",
    **dict.fromkeys(
        """neighbor_win_put neighbor_win_put_nonblocking win_put win_put_nonblocking win_put_async
        neighbor_win_accumulate neighbor_win_accumulate_nonblocking win_accumulate
        win_accumulate_nonblocking win_accumulate_async""".split(),
        "(tensor, name, self_weight=None, dst_weights=None, require_mutex=False)",
    ),
    **dict.fromkeys(
        """neighbor_win_get neighbor_win_get_nonblocking win_get win_get_nonblocking
        win_get_async""".split(),
        "(name, src_weights=None, require_mutex=False)",
    ),
    **dict.fromkeys(
        ["win_update", "win_sync"],
        "(name, self_weight=None, neighbor_weights=None, reset=False, clone=False, "
        "require_mutex=False)",
    ),
    **dict.fromkeys(
        ["win_update_then_collect", "win_sync_then_collect"], "(name, require_mutex=True)"
    ),
} | dict.fromkeys(
    """barrier get_current_created_window_names turn_on_win_ops_with_associated_p
    turn_off_win_ops_with_associated_p
    get_skip_negotiate_stage in_neighbor_machine_ranks in_neighbor_ranks is_available
    is_homogeneous is_initialized is_machine_topo_weighted is_topo_weighted load_machine_topology
    load_topology local_rank local_size machine_rank machine_size mpi_threads_supported nccl_built
    out_neighbor_machine_ranks out_neighbor_ranks rank resume shutdown size suspend
    unified_mpi_window_model_supported""".split(),
    "()",
)


@pytest.fixture
def bf() -> Any:
    """Return the facade. It imports torch._dynamo, too slowly for a process that collects tests."""
    return importlib.import_module("bluefog_pg.torch")


def signature(function: Callable[..., Any]) -> str:
    """Return the signature without types, and without what only `bluefog_pg` has."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    text = str(inspect.Signature(parameters))
    return re.sub(r"(, \*)?(, )?group=None\)$", ")", text)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(bf: Any, name: str) -> None:
    assert signature(getattr(bf, name)) == SIGNATURES[name]


def test_nothing_else_is_exported(bf: Any) -> None:
    others = {"CommunicationType", *SUBMODULES}
    assert set(bf.__all__) == set(SIGNATURES) | others
    assert sorted(bf.__all__, key=str.lower) == sorted(set(bf.__all__), key=str.lower)
    assert all(getattr(bf, name).__doc__ for name in bf.__all__)


def test_submodules(bf: Any) -> None:
    """The names are the package's own submodules, and not PyTorch's."""
    assert isinstance(bluefog_pg.torch, types.ModuleType)
    assert bluefog_pg.torch is bf
    assert bf is not torch
    assert bf.mpi_ops is sys.modules["bluefog_pg.torch.mpi_ops"]
    for name in ("pair_gossip", "is_topo_weighted", "init", "synchronize", "neighbor_allreduce"):
        assert getattr(bf.mpi_ops, name) is getattr(bf, name)
    assert bf.topology_util.RingGraph is bluefog_pg.topology_util.RingGraph
    assert bf.topology_util.__all__ == [
        "InferDestinationFromSourceRanks",
        "InferSourceFromDestinationRanks",
    ]
    assert [kind.value for kind in bf.CommunicationType] == [
        "neighbor.allreduce",
        "hierarchical.neighbor.allreduce",
        "allreduce",
        "empty",
    ]


def test_a_misspelt_name(bf: Any) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'neighbour_allreduce'"):
        bf.neighbour_allreduce  # noqa: B018


BEFORE_INIT: dict[str, Callable[[Any], Any]] = {
    "size": lambda bf: bf.size(),
    "rank": lambda bf: bf.rank(),
    "local_size": lambda bf: bf.local_size(),
    "local_rank": lambda bf: bf.local_rank(),
    "machine_size": lambda bf: bf.machine_size(),
    "machine_rank": lambda bf: bf.machine_rank(),
    "is_homogeneous": lambda bf: bf.is_homogeneous(),
    "mpi_threads_supported": lambda bf: bf.mpi_threads_supported(),
    "unified_mpi_window_model_supported": lambda bf: bf.unified_mpi_window_model_supported(),
    "set_topology": lambda bf: bf.set_topology(),
    "load_topology": lambda bf: bf.load_topology(),
    "set_machine_topology": lambda bf: bf.set_machine_topology(bf.RingGraph(2)),
    "in_neighbor_ranks": lambda bf: bf.in_neighbor_ranks(),
    "out_neighbor_machine_ranks": lambda bf: bf.out_neighbor_machine_ranks(),
    "suspend": lambda bf: bf.suspend(),
    "resume": lambda bf: bf.resume(),
    "barrier": lambda bf: bf.barrier(),
    "allreduce": lambda bf: bf.allreduce(torch.ones(1)),
    "allreduce_nonblocking_": lambda bf: bf.allreduce_nonblocking_(torch.ones(1)),
    "broadcast": lambda bf: bf.broadcast(torch.ones(1), 0),
    "allgather_nonblocking": lambda bf: bf.allgather_nonblocking(torch.ones(1)),
    "neighbor_allreduce": lambda bf: bf.neighbor_allreduce(torch.ones(1)),
    "neighbor_allgather": lambda bf: bf.neighbor_allgather(torch.ones(1)),
    "hierarchical": lambda bf: bf.hierarchical_neighbor_allreduce(torch.ones(1)),
    "pair_gossip": lambda bf: bf.pair_gossip(torch.ones(1), 0),
    "broadcast_object": lambda bf: bf.broadcast_object(1),
    "infer": lambda bf: bf.InferSourceFromDestinationRanks([]),
    "poll": lambda bf: bf.poll(1),
    "synchronize": lambda bf: bf.synchronize(1),
}


@pytest.mark.parametrize("name", BEFORE_INIT)
def test_before_init(bf: Any, name: str) -> None:
    """This process has no group."""
    assert not bf.is_initialized()
    with pytest.raises(ValueError, match=r"^\[bluefog\] "):
        BEFORE_INIT[name](bf)


def test_what_needs_no_group(bf: Any) -> None:
    assert bf.is_available()
    assert bf.nccl_built() is dist.is_nccl_available()
    bf.check_extension("bluefog_pg.torch", __file__, "mpi_lib")
    assert bf.get_skip_negotiate_stage() is False
    bf.set_skip_negotiate_stage(True)
    assert bf.get_skip_negotiate_stage() is True
    bf.set_skip_negotiate_stage(False)
