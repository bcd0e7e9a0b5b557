"""This module calls bluefog's own functions wrongly: averages, topologies, and checks in Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from tests.support.messages.bodies import Calls
from tests.support.messages.tensors import f, meta, sparse


def neighbors(b: Any) -> Calls:
    import bluefog_pg

    # This is rank 1 of four in an exponential-2 graph. Its in-neighbors are 0 and 3.
    def call(x: Any = None, **kwargs: Any) -> Any:
        return bluefog_pg.neighbor_allreduce(f(3) if x is None else x, **kwargs)

    def direct(sources: Any = (), destinations: Any = ()) -> Any:
        return b.edges(1.0, list(sources), list(destinations), 1.0)

    dynamic: dict[str, Any] = {"self_weight": 0.5, "src_weights": {0: 0.5}}
    return {
        "only self_weight": lambda: call(self_weight=0.5),
        "only src_weights": lambda: call(src_weights={0: 0.5}),
        "dst without src": lambda: call(dst_weights=[2]),
        "dst and self without src": lambda: call(self_weight=0.5, dst_weights=[2]),
        "a stranger": lambda: call(self_weight=0.5, src_weights={2: 0.5}),
        "oneself in src": lambda: call(self_weight=0.5, src_weights={1: 0.5}),
        "oneself in dst": lambda: call(**dynamic, dst_weights=[1]),
        "src rank 4": lambda: call(self_weight=0.5, src_weights={4: 1.0}, dst_weights=[]),
        "src rank -1": lambda: call(self_weight=0.5, src_weights={-1: 1.0}, dst_weights=[]),
        "dst rank 4": lambda: call(**dynamic, dst_weights={4: 1.0}),
        "dst rank -1": lambda: call(**dynamic, dst_weights={-1: 1.0}),
        "dst twice": lambda: call(**dynamic, dst_weights=[2, 2]),
        "dst a type": lambda: call(**dynamic, dst_weights=[int]),
        "dst a name": lambda: call(**dynamic, dst_weights=["two"]),
        "src a float": lambda: call(self_weight=0.5, src_weights={0.5: 1.0}),
        "self NaN": lambda: call(self_weight=math.nan, src_weights={0: 0.5}),
        "src infinite": lambda: call(self_weight=0.5, src_weights={0: math.inf}),
        "dst NaN": lambda: call(**dynamic, dst_weights={2: math.nan}),
        "src a list": lambda: call(self_weight=0.5, src_weights=[0]),
        "self a string": lambda: call(self_weight="half", src_weights={0: 0.5}),
        "self a number in a string": lambda: call(self_weight="0.5", src_weights={0: 0.5}),
        "src weight too large": lambda: call(self_weight=0.5, src_weights={0: 10**400}),
        "src weight a string": lambda: call(self_weight=0.5, src_weights={0: "half"}),
        "dst weight None": lambda: call(**dynamic, dst_weights={2: None}),
        "int32": lambda: call(f(3, dtype=torch.int32)),
        "bool": lambda: call(f(3, dtype=torch.bool)),
        "float8": lambda: call(f(3, dtype=torch.float8_e5m2)),
        "sparse": lambda: call(sparse()),
        "meta": lambda: call(meta()),
        "an array": lambda: call(f(3).numpy()),
        "a list of numbers": lambda: call([1.0, 2.0]),
        "an empty list": lambda: call([]),
        "a list with integers": lambda: call([f(3), f(3, dtype=torch.int32)]),
        "no group": lambda: call(group=dist.GroupMember.NON_GROUP_MEMBER),
        "direct source 9": lambda: direct([(9, 1.0)]),
        "direct source itself": lambda: direct([(1, 1.0)]),
        "direct destination -1": lambda: direct([], [(-1, 1.0)]),
        "direct destination twice": lambda: direct([], [(2, 1.0), (2, 1.0)]),
    }


def gatherings() -> Calls:
    import bluefog_pg

    gather, swap = bluefog_pg.neighbor_allgather, bluefog_pg.neighbor_alltoall
    pair: dict[str, Any] = {"src_ranks": [0, 3], "dst_ranks": [2, 3]}
    return {
        "allgather, src alone": lambda: gather(f(3), src_ranks=[0]),
        "allgather, dst alone": lambda: gather(f(3), dst_ranks=[0]),
        "allgather, src twice": lambda: gather(f(3), src_ranks=[0, 0], dst_ranks=[]),
        "allgather, oneself": lambda: gather(f(3), src_ranks=[], dst_ranks=[1]),
        "allgather, rank 4": lambda: gather(f(3), src_ranks=[4], dst_ranks=[]),
        "allgather, no dimension": lambda: gather(torch.tensor(1.0)),
        "allgather, sparse": lambda: gather(sparse()),
        "alltoall, one of two": lambda: swap([f(3)], **pair),
        "alltoall, two types": lambda: swap([f(3), f(3, dtype=torch.int32)], **pair),
        "alltoall, two shapes": lambda: swap([f(3, 2), f(3)], **pair),
        "alltoall, odd rows": lambda: swap(f(3), **pair),
        "alltoall, an empty list": lambda: swap([], **pair),
        "alltoall, numbers": lambda: swap([1, 2], **pair),
    }


def pairs() -> Calls:
    import bluefog_pg

    gossip = bluefog_pg.pair_gossip
    return {
        "gossip with rank 4": lambda: gossip(f(3), 4),
        "gossip with oneself": lambda: gossip(f(3), 1),
        "gossip with a name": lambda: gossip(f(3), "two"),
        "gossip, self_weight alone": lambda: gossip(f(3), 2, self_weight=0.5),
        "gossip, pair_weight alone": lambda: gossip(f(3), 2, pair_weight=0.5),
        "gossip, NaN": lambda: gossip(f(3), 2, self_weight=0.5, pair_weight=math.nan),
        "gossip, int64": lambda: gossip(f(3, dtype=torch.int64), 2),
    }


# All four ranks are on one machine.
def machines() -> Calls:
    import networkx as nx

    import bluefog_pg
    from bluefog_pg._core.machines import Machines

    def by(blocks: str) -> Any:
        with mock.patch.dict("os.environ", {"BLUEFOG_NODES_PER_MACHINE": blocks}):
            return Machines.of([[0, 1, 2, 3]], 1, "[bluefog] rank 1/4")

    return {
        "no machines' topology": lambda: bluefog_pg.hierarchical_neighbor_allreduce(f(3)),
        "None": lambda: bluefog_pg.set_machine_topology(None),
        "two machines": lambda: bluefog_pg.set_machine_topology(nx.DiGraph([(0, 1)])),
        "blocks of 0": lambda: by("0"),
        "blocks of two": lambda: by("two"),
    }


def topologies() -> Calls:
    import networkx as nx

    import bluefog_pg

    util = bluefog_pg.topology_util
    square = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0)])
    infinite, huge, nan = square.copy(), square.copy(), square.copy()
    infinite[0][1]["weight"] = math.inf
    huge[0][1]["weight"] = 10**400
    nan[2][3]["weight"] = math.nan

    def take(graph: Any, is_weighted: bool = False) -> Any:
        return bluefog_pg.set_topology(graph, is_weighted)

    return {
        "a matrix": lambda: take([[0, 1], [1, 0]]),
        "a Graph": lambda: take(nx.Graph([(0, 1), (1, 2), (2, 3)])),
        "three nodes": lambda: take(nx.DiGraph([(0, 1), (1, 2)])),
        "five nodes": lambda: take(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4)])),
        "names": lambda: take(nx.relabel_nodes(square, dict(enumerate("abcd")))),
        "fractions": lambda: take(nx.relabel_nodes(square, dict(enumerate([0.0, 1.0, 2.0, 3.0])))),
        "a huge weight": lambda: take(huge, True),
        "infinity": lambda: take(infinite, True),
        "NaN": lambda: take(nan, True),
        "set_topology of no group": lambda: bluefog_pg.set_topology(group=-100),
        "load_topology of no group": lambda: bluefog_pg.load_topology(group="world"),
        "in_neighbor_ranks of no group": lambda: bluefog_pg.in_neighbor_ranks(group=0),
        "exponential of 0": lambda: util.ExponentialTwoGraph(0),
        "ring of -1": lambda: util.RingGraph(-1),
        "ring in style 3": lambda: util.RingGraph(4, 3),
    }


def of_python(gloo: Any) -> Calls:
    import bluefog_pg
    from bluefog_pg._core import loader
    from bluefog_pg.launch import creator

    def for_other_torch() -> None:
        with mock.patch.object(torch.version, "__version__", "9.8.7+cpu"):
            loader._fitting({version: Path() for version in ("2.9", "2.14", "2.13")})

    def for_one_other_torch() -> None:
        with mock.patch.object(torch.version, "__version__", "9.8.7+cpu"):
            loader._fitting({"2.13": Path()})

    def unbuilt() -> None:
        loader._fitting({})

    def barrier(timeout: Any, **kwargs: Any) -> Any:
        return bluefog_pg.monitored_barrier(timeout=timeout, **kwargs)

    return {
        "monitored_barrier, time a number": lambda: barrier(3),
        "monitored_barrier, time a string": lambda: barrier("3 s"),
        "monitored_barrier, no group": lambda: barrier(None, group=-100),
        "monitored_barrier, gloo": lambda: barrier(None, group=gloo),
        "neighbor_allreduce, gloo": lambda: bluefog_pg.neighbor_allreduce(f(3), group=gloo),
        "stats, gloo": lambda: bluefog_pg.stats(gloo),
        "pg_options a dict": lambda: creator.create(None, {}),
        "unknown name": lambda: bluefog_pg.nothing,
        "another torch": for_other_torch,
        "another torch, one module": for_one_other_torch,
        "not built": unbuilt,
    }
