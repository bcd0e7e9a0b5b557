"""topology_util names the argument in errors for nonsense, and says what it must be."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from bluefog_pg import topology_util as tu

RING = tu.RingGraph(4)
NO_INTEGERS = (1.5, "3", b"3", True, None, [2], float("nan"))
NO_NUMBERS = ("0.5", b"1", True, None, [2])
HUGE = 2**70

SIZED: dict[str, Callable[[Any], Any]] = {
    name: getattr(tu, name)
    for name in (
        *("ExponentialTwoGraph", "ExponentialGraph", "SymmetricExponentialGraph", "RingGraph"),
        *("FullyConnectedGraph", "StarGraph", "MeshGrid2DGraph", "TorusGraph", "HypercubeGraph"),
        *("DeBruijnGraph", "BaseKGraphs", "OnePeerExponentialTwoGraphs"),
    )
} | {"ErdosRenyiGraph": lambda size: tu.ErdosRenyiGraph(size, 0.5)}


@pytest.mark.parametrize("name", SIZED)
def test_sizes(name: str) -> None:
    for size in NO_INTEGERS:
        with pytest.raises(TypeError, match="size must be an integer, not "):
            SIZED[name](size)
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"size must be at least 1, got {size}"):
            SIZED[name](size)
    with pytest.raises(ValueError, match=f"size must be at most 65536, got {HUGE}"):
        SIZED[name](HUGE)


# A bool is no bad style, as it says whether a ring goes to the left.
NO_STYLES = tuple(value for value in NO_INTEGERS if not isinstance(value, bool))
# Each entry has an argument, the call with it, and what it cannot be: TypeError or ValueError.
CALLS: list[tuple[str, Callable[[Any], Any], tuple[Any, ...]]] = [
    ("base", lambda x: tu.ExponentialGraph(4, x), (*NO_INTEGERS, 0, -1)),
    ("base", lambda x: tu.SymmetricExponentialGraph(4, x), (*NO_INTEGERS, 0, -1)),
    ("base", lambda x: tu.BaseKGraphs(4, x), (*NO_INTEGERS, 0, -1)),
    ("base", lambda x: tu.isPowerOf(4, x), (*NO_INTEGERS, 0, -1)),
    ("base", lambda x: tu.DeBruijnGraph(4, x), (*NO_INTEGERS, 0, -1, HUGE)),
    ("x", lambda x: tu.isPowerOf(x, 2), (*NO_INTEGERS, 0, -1)),
    ("size", tu.FullyConnectedGraph, (60000,)),
    ("connect_style", lambda x: tu.RingGraph(4, x), (*NO_STYLES, -1, HUGE)),
    ("center_rank", lambda x: tu.StarGraph(4, x), (*NO_INTEGERS, -1, HUGE)),
    ("shape", lambda x: tu.MeshGrid2DGraph(4, x), (0, 1.5, "22", True, [2], (2, "2"), (-2, -2))),
    ("shape", lambda x: tu.TorusGraph(4, x), (0, 1.5, "22", True, [2], (2, None), (HUGE, 1))),
    ("probability", lambda x: tu.ErdosRenyiGraph(4, x), (*NO_NUMBERS, -1, 2, float("nan"))),
    ("seed", lambda x: tu.ErdosRenyiGraph(4, 0.5, x), NO_INTEGERS),
    ("topology", lambda x: tu.GetDynamicOnePeerSendRecvRanks(x, 0), (4, "a", None, nx.Graph())),
    ("self_rank", lambda x: tu.GetDynamicOnePeerSendRecvRanks(RING, x), (*NO_INTEGERS, -1, 4)),
    *(
        (argument, call, (*NO_INTEGERS, -1, HUGE))
        for place, argument in enumerate(("world_size", "local_size", "self_rank"))
        for call in (
            lambda x, i=place: tu.GetExp2DynamicSendRecvMachineRanks(*with_([8, 4, 1, 1], i, x)),
            lambda x, i=place: tu.GetInnerOuterRingDynamicSendRecvRanks(*with_([8, 4, 1], i, x)),
            lambda x, i=place: tu.GetInnerOuterExpo2DynamicSendRecvRanks(*with_([8, 4, 1], i, x)),
        )
    ),
    ("local_rank", lambda x: tu.GetExp2DynamicSendRecvMachineRanks(8, 4, 1, x), NO_INTEGERS),
    ("rank", lambda x: tu.GetRecvWeights(RING, x), (*NO_INTEGERS, -1, 4)),
    ("rank", lambda x: tu.GetSendWeights(RING, x), (*NO_INTEGERS, -1, 4)),
    ("topology", lambda x: tu.GetRecvWeights(x, 0), (4, "a", None)),
    ("topo", tu.IsRegularGraph, (4, "a", None, nx.MultiDiGraph())),
    ("topo1", lambda x: tu.IsTopologyEquivalent(x, RING), (4, "a", [2], nx.MultiDiGraph())),
    ("topo2", lambda x: tu.IsTopologyEquivalent(RING, x), (4, "a", [2])),
    ("graph", tu.MetropolisHastingsWeights, (4, "a", None)),
    ("topology", tu.spectral_gap, (4, "a", None, nx.empty_graph(9000, nx.DiGraph))),
    ("tolerance", lambda x: tu.mixing_time(RING, x), (*NO_NUMBERS, 0, -1)),
    ("tolerance", lambda x: tu.is_doubly_stochastic(RING, x), (*NO_NUMBERS, -1, float("nan"))),
    ("topology", lambda x: tu.simulate_consensus(x, 4, 3), (4, "ab", b"a", None, [2], [])),
    ("n", lambda x: tu.simulate_consensus(RING, x, 3), (*NO_INTEGERS, 0, -1, HUGE)),
    ("steps", lambda x: tu.simulate_consensus(RING, 4, x), (*NO_INTEGERS, -1, HUGE)),
    ("seed", lambda x: tu.simulate_consensus(RING, 4, 3, x), (*NO_INTEGERS, -1)),
    (
        "topology",
        lambda x: tu.plot(x, "x.png"),
        (4, "ab", b"a", None, [2], [RING, tu.RingGraph(3)]),
    ),
    ("path", lambda x: tu.plot(RING, x), (4, 1.5, None, [2])),
]


def with_(arguments: list[Any], place: int, value: Any) -> list[Any]:
    return [*arguments[:place], value, *arguments[place + 1 :]]


@pytest.mark.parametrize(("argument", "call", "wrong"), CALLS, ids=[c[0] for c in CALLS])
def test_nonsense_is_named(
    argument: str,
    call: Callable[[Any], Any],
    wrong: tuple[Any, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in wrong:
        with pytest.raises((TypeError, ValueError)) as raised:
            call(value)
        assert re.search(rf"\b{argument}\b.* must (be|not|have)\b", str(raised.value)), value
    assert list(tmp_path.iterdir()) == []


def test_a_weight_that_is_no_number_is_named() -> None:
    graph = nx.DiGraph([(0, 1), (1, 0)])
    graph.edges[0, 1]["weight"] = "much"
    with pytest.raises(ValueError, match="edge 0 -> 1 has weight 'much', which must be a number"):
        tu.GetRecvWeights(graph, 1)
    with pytest.raises(ValueError, match="weights of topology must be numbers"):
        tu.spectral_gap(graph)


def test_a_base_beyond_the_size_is_as_good_as_the_size() -> None:
    for size in range(1, 14):
        few, many = tu.BaseKGraphs(size, max(2, size)), tu.BaseKGraphs(size, HUGE)
        assert all(map(tu.IsTopologyEquivalent, few, many)) and len(few) == len(many) == 1
