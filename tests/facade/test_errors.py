"""Wrong calls of bluefog_pg.torch raise, and what BlueFog's tests rely on holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import torch

from tests.support import harness, inrank


def wrong_calls(rank: int, world: int) -> dict[str, Callable[[], Any]]:
    """Return wrong calls on a ring of four.

    Every rank makes them all, and none reaches another rank.
    """
    import bluefog_pg.torch as bf

    x, ints = torch.ones(2), torch.ones(2, dtype=torch.int64)
    left, right, far = (rank - 1) % world, (rank + 1) % world, (rank + 2) % world
    own = {"self_weight": 0.5}
    return {
        "set_topology, a matrix": lambda: bf.set_topology(np.ones((4, 4))),
        "set_topology, a Graph": lambda: bf.set_topology(nx.complete_graph(4)),
        "set_topology, another size": lambda: bf.set_topology(bf.RingGraph(3)),
        "set_machine_topology, None": lambda: bf.set_machine_topology(None),
        "set_machine_topology, a matrix": lambda: bf.set_machine_topology(np.ones((1, 1))),
        "set_machine_topology, another size": lambda: bf.set_machine_topology(bf.RingGraph(2)),
        "allreduce, sparse": lambda: bf.allreduce(x.to_sparse()),
        "allreduce, elsewhere": lambda: bf.allreduce(torch.ones(2, device="meta")),
        "allreduce, no tensor": lambda: bf.allreduce([1.0]),
        "allreduce, average of integers": lambda: bf.allreduce(ints),
        "allreduce_, average of integers": lambda: bf.allreduce_(ints),
        "allreduce_nonblocking, average of bools": lambda: bf.allreduce_nonblocking(ints > 0),
        "allreduce_, overlapping": lambda: bf.allreduce_(torch.ones(1).expand(4)),
        "broadcast, no rank": lambda: bf.broadcast(x, 4),
        "broadcast_, a negative rank": lambda: bf.broadcast_(x, -1),
        "broadcast, no integer": lambda: bf.broadcast(x, "0"),
        "allgather, 0 dimensions": lambda: bf.allgather(torch.tensor(1.0)),
        "allgather_nonblocking, 0": lambda: bf.allgather_nonblocking(torch.tensor(1.0)),
        "neighbor_allgather, 0 dimensions": lambda: bf.neighbor_allgather(torch.tensor(1.0)),
        "neighbor_allreduce, integers": lambda: bf.neighbor_allreduce(ints),
        "only self_weight": lambda: bf.neighbor_allreduce(x, **own),
        "only src_weights": lambda: bf.neighbor_allreduce(x, src_weights={left: 0.5}),
        "only dst_weights": lambda: bf.neighbor_allreduce(x, dst_weights=[right]),
        "dst_weights, no src": lambda: bf.neighbor_allreduce(x, **own, dst_weights=[right]),
        "self_weight 1": lambda: bf.neighbor_allreduce(x, self_weight=1, src_weights={}),
        "self_weight, numpy's 1": lambda: bf.neighbor_allreduce_nonblocking(
            x, self_weight=np.int64(1), src_weights={}
        ),
        "src_weights, a list": lambda: bf.neighbor_allreduce(x, **own, src_weights=[left]),
        "src not in-neighbor": lambda: bf.neighbor_allreduce(x, **own, src_weights={far: 0.5}),
        "duplicate dst": lambda: bf.neighbor_allreduce(
            x, **own, src_weights={left: 0.5}, dst_weights=[right, right]
        ),
        "neighbor_allgather, only src": lambda: bf.neighbor_allgather(x, src_ranks=[left]),
        "neighbor_allgather, only dst": lambda: bf.neighbor_allgather(x, dst_ranks=[left]),
        "neighbor_allreduce, disagreeing": lambda: bf.neighbor_allreduce(
            x, **own, src_weights={left: 0.5}, dst_weights=[left], name="x"
        ),
        "nonblocking, disagreeing": lambda: bf.neighbor_allreduce_nonblocking(
            x, **own, src_weights={left: 0.5}, dst_weights=[left], name="x"
        ),
        "neighbor_allgather, disagreeing": lambda: bf.neighbor_allgather(
            x, src_ranks=[left] if rank else [], dst_ranks=[right], name="x"
        ),
        "neighbor_allgather, shapes": lambda: bf.neighbor_allgather(torch.ones(1, 1 + rank)),
        "neighbor_allreduce, dtypes": lambda: bf.neighbor_allreduce(
            torch.ones(2, dtype=(torch.float32, torch.float64)[rank % 2])
        ),
        "allgather, dtypes": lambda: bf.allgather(ints if rank == 2 else x),
        "allgather, dimensions": lambda: bf.allgather(torch.ones(2, 1) if rank == 2 else x),
        "pair_gossip, itself": lambda: bf.pair_gossip(x, rank),
        "pair_gossip, one weight": lambda: bf.pair_gossip(x, left, 0.5),
        "poll, unknown": lambda: bf.poll(10**9),
        "synchronize, unknown": lambda: bf.synchronize(10**9),
        "synchronize, none": lambda: bf.synchronize(None),
        "synchronize, a list": lambda: bf.synchronize([1]),
        "wait, tensors": lambda: bf.wait(torch.ones(2)),
        "poll, a string": lambda: bf.poll("x"),
        "poll, a list": lambda: bf.poll([1]),
        "timeline_start_activity, bytes": lambda: bf.timeline_start_activity(b"x", "y"),
        "timeline_start_activity, of bytes": lambda: bf.timeline_start_activity("x", b"y"),
        "timeline_end_activity, a list": lambda: bf.timeline_end_activity(["x"]),
        "timeline_start_activity, in a context": lambda: bf.timeline_context(3, "y").__enter__(),
        "allreduce, name of bytes": lambda: bf.allreduce(x, name=b"x"),
        "broadcast, name 3": lambda: bf.broadcast_nonblocking(x, 0, name=3),
        "init, no function": lambda: bf.init(5),
        "hierarchical without topology": lambda: bf.hierarchical_neighbor_allreduce(x),
        "infer, a rank that is none": lambda: bf.InferSourceFromDestinationRanks([world]),
        "infer, itself": lambda: bf.InferDestinationFromSourceRanks([rank]),
        "win_put, swapped": lambda: bf.win_put("w", x),
        "broadcast_parameters, no tensors": lambda: bf.broadcast_parameters(3, 0),
    }


OTHER_KINDS = {
    "set_topology, a matrix": "TypeError",
    "set_topology, a Graph": "TypeError",
    "set_topology, another size": "TypeError",
    "set_machine_topology, a matrix": "TypeError",
    "set_machine_topology, another size": "TypeError",
    "allreduce, no tensor": "TypeError",
    "allreduce, average of integers": "AssertionError",
    "allreduce_, average of integers": "AssertionError",
    "allreduce_nonblocking, average of bools": "AssertionError",
    "broadcast, no integer": "TypeError",
    "timeline_start_activity, bytes": "TypeError",
    "timeline_start_activity, of bytes": "TypeError",
    "timeline_end_activity, a list": "TypeError",
    "timeline_start_activity, in a context": "TypeError",
    "allreduce, name of bytes": "TypeError",
    "broadcast, name 3": "TypeError",
    "init, no function": "TypeError",
    "hierarchical without topology": "RuntimeError",
    "infer, a rank that is none": "AssertionError",
    "infer, itself": "AssertionError",
    "win_put, swapped": "TypeError",
    "broadcast_parameters, no tensors": "TypeError",
}


def wrong(rank: int, world: int) -> dict[str, Any]:
    import bluefog_pg.torch as bf

    bf.init(bf.RingGraph)
    raised = {what: inrank.catch(call) for what, call in wrong_calls(rank, world).items()}
    # The names are free again, the group is whole, and nothing is left to be received.
    dynamic = {"src_weights": {(rank - 1) % world: 0.5}, "dst_weights": [(rank + 1) % world]}
    x = bf.neighbor_allreduce(torch.tensor([1.0]), self_weight=0.5, **dynamic, name="x")
    bf.barrier()
    return raised | {"after": [x.item(), bf.neighbor_allreduce(torch.ones(1)).item()]}


def test_wrong_calls(pool: harness.Pool) -> None:
    for raised in pool.run(wrong):
        assert raised.pop("after") == [1.0, 1.0]
        for what, error in raised.items():
            assert error is not None, f"{what}: nothing raised"
            assert OTHER_KINDS.get(what, "ValueError") in error.kinds, f"{what}: {error}"
            assert error.text.startswith("[bluefog] "), f"{what}: {error.text}"
            if what.startswith(("timeline", "synchronize, a", "poll, a", "init", "allgather,")):
                assert f" {what.split(',')[0]}: " in error.text, error.text


def alone(rank: int, world: int) -> list[Any]:
    import bluefog_pg.torch as bf

    bf.init()
    bf.set_machine_topology(nx.DiGraph([(0, 0)]))
    return [
        bf.hierarchical_neighbor_allreduce(torch.ones(1)).item(),
        bf.neighbor_allreduce(torch.ones(1)).item(),
        bf.neighbor_allgather(torch.ones(1)).tolist(),
        bf.in_neighbor_ranks(),
    ]


def test_one_rank(pool: harness.Pool) -> None:
    assert pool.run(alone, world=1) == [[1.0, 1.0, [], []]]


def breaking(rank: int, world: int) -> list[Any]:
    """Break the group in several ways, each time a new one."""
    import bluefog_pg.torch as bf

    calls: dict[str, Callable[[], Any]] = {
        "roots": lambda: bf.broadcast(torch.ones(2), rank),
        "numbers of elements": lambda: bf.allreduce(torch.ones(2 + rank)),
        "dtypes": lambda: bf.synchronize(
            bf.allreduce_nonblocking_(torch.ones(2, dtype=(torch.float32, torch.float64)[rank % 2]))
        ),
        "operations": lambda: (bf.allreduce if rank else bf.allgather)(torch.ones(2)),
    }
    errors = {}
    for what, call in calls.items():
        errors[what] = inrank.catch(call)
        bf.shutdown()
        if what != "operations":
            bf.init()
    after = [inrank.catch(bf.allreduce, torch.ones(1)), inrank.catch(bf.barrier)]
    known = [bf.rank(), bf.size(), bf.local_size(), bf.is_initialized()]
    inrank.init("after breaking", rank, world)  # The pool expects a group.
    return [errors, after, known]


def test_ranks_that_disagree_and_shutdown(pool: harness.Pool) -> None:
    for rank, (errors, after, known) in enumerate(pool.run(breaking)):
        for what, error in errors.items():
            assert error is not None, what
            assert "ValueError" in error.kinds, f"{what}: {error}"
        for error in after:
            assert {"ValueError", "RuntimeError"} <= set(error.kinds), error
        assert known == [rank, 4, 4, False]


def paused(rank: int, world: int) -> list[Any]:
    import bluefog_pg.torch as bf

    bf.init()
    x = torch.ones(1)
    handle = bf.allreduce_nonblocking(x)
    bf.suspend()
    calls: list[Callable[[], Any]] = [
        lambda: bf.allreduce(x),
        lambda: bf.allreduce_nonblocking(x),
        lambda: bf.neighbor_allreduce(x),
        bf.barrier,
        lambda: bf.broadcast_object(1),
        lambda: bf.InferSourceFromDestinationRanks([1 - rank]),
        lambda: bf.topology_util.InferDestinationFromSourceRanks([1 - rank]),
    ]
    errors = [inrank.catch(call) for call in calls]
    under_way = bf.synchronize(handle).item()
    bf.resume()
    sources = bf.InferSourceFromDestinationRanks([1 - rank])
    return [errors, under_way, bf.allreduce(x).item(), sources == [1 - rank]]


def test_suspended(pool: harness.Pool) -> None:
    for errors, *values in pool.run(paused, world=2):
        for error in errors:
            harness.raised(error, "ValueError", text="call resume() first")
        assert values == [1.0, 1.0, True]


def relied_on(rank: int, world: int) -> None:
    """Check what BlueFog's tests do without saying so, section by section of them."""
    import bluefog_pg.torch as bf

    bad = []

    def require(what: str, holds: Any) -> None:
        if not holds:
            bad.append(what)

    bf.init(bf.RingGraph, True)
    bf.set_skip_negotiate_stage(True)
    require("init's topology", bf.IsTopologyEquivalent(bf.load_topology(), bf.RingGraph(world)))
    require("init's is_weighted", bf.is_topo_weighted())
    bf.init()
    default = bf.ExponentialGraph(world)
    require("init again", bf.IsTopologyEquivalent(bf.load_topology(), default))
    require("init again, is_weighted", not bf.is_topo_weighted())
    star = nx.DiGraph([(3, 0), (2, 0), (1, 0), (0, 3)])
    require("set_topology", bf.set_topology(star) is True)
    require("set again, weighted", bf.set_topology(star, True) and bf.is_topo_weighted())
    require("ascending", bf.in_neighbor_ranks() == ([1, 2, 3] if rank == 0 else [0] * (rank == 3)))
    bf.init()
    for dtype in (torch.HalfTensor, torch.FloatTensor, torch.DoubleTensor):
        x = dtype(5, 5).fill_(1).mul_(rank)
        mean = bf.neighbor_allreduce(x, name=f"x_{dtype}")
        want = (rank + (rank - 1) % world + (rank - 2) % world) / 3
        require(f"{dtype}", (mean - want).abs().max() < 1e-3)
        require("type", mean.type() == x.type())
        require("0 dimensions", bf.allreduce(x[0, 0], name="x").item() == (world - 1) / 2)
        require("0 dimensions, neighbors", bf.neighbor_allreduce(x[0, 0]).dim() == 0)
    tiny = torch.full((3,), 2.0**-256, dtype=torch.float64)
    require("tiny", torch.equal(bf.neighbor_allreduce(tiny), tiny))
    left, right = np.array([(rank - 1) % world]), np.array([(rank + 1) % world])
    rows = bf.neighbor_allgather(torch.full((rank + 1,), rank), src_ranks=left, dst_ranks=right)
    require("numpy's ranks", rows.tolist() == [left[0]] * (left[0] + 1))
    weights = dict.fromkeys(left, np.float32(0.5))
    x = torch.tensor([float(rank)])
    mean = bf.neighbor_allreduce(
        x, self_weight=np.float64(0.5), src_weights=weights, dst_weights=right
    )
    require("numpy's weights", mean.item() == (rank + left[0]) / 2)
    none = bf.neighbor_allreduce(x, self_weight=0.5, src_weights={}, dst_weights=[])
    require("no neighbors", none.item() == rank / 2 and x.item() == rank)
    require("one machine", (bf.local_size(), bf.machine_size()) == (world, 1))
    require("no p", bf.in_neighbor_machine_ranks() == [] and bf.load_machine_topology() is None)
    require("threads", bf.mpi_threads_supported() is True)
    require("one model of windows", bf.unified_mpi_window_model_supported() is True)
    require("bf.torch", bf.torch is torch)
    bf.set_topology(bf.RingGraph(world), True)
    bf.win_create(torch.ones(2), "w")
    require("set_topology beside a window", bf.set_topology(bf.StarGraph(world)) is False)
    bf.init()
    bf.init(bf.StarGraph)
    bf.win_free("w")
    ring = bf.RingGraph(world)
    require("the topology beside a window", bf.IsTopologyEquivalent(bf.load_topology(), ring))
    require("is_weighted beside a window", bf.is_topo_weighted())
    bf.init()
    require("no window", not bf.is_topo_weighted())
    send = [[1], [2, 3], [], [0]][rank]
    require("infer", bf.InferSourceFromDestinationRanks(send) == [[3], [0], [1], [1]][rank])
    assert not bad, bad


def test_what_bluefogs_tests_rely_on(pool: harness.Pool) -> None:
    pool.run(relied_on)
