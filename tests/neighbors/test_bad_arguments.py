"""Neighbor operations refuse bad calls, in the caller alone, and edges that do not agree."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.bad_calls import BAD
from tests.support.operations import OPERATIONS, group_of_machines, ready_group, tensors


def refused(rank: int, world: int) -> list[Any]:
    """Rank 1 makes all bad calls and sends nothing, and all operations match, once aligned."""
    import bluefog_pg

    errors = {}
    with ready_group(limit=4 * harness.SLOW) as group:
        before = bluefog_pg.stats(group)
        if rank == 1:
            errors = {label: inrank.catch(call, group) for label, (_, call) in BAD.items()}
        after = bluefog_pg.stats(group)
        bluefog_pg.align(group)
        sums = [tensors(call(torch.ones(3), group))[0].sum().item() for call in OPERATIONS.values()]
    return [errors, before == after, sums]


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, pool: harness.Pool) -> list[Any]:
    return pool.run(refused)


@pytest.mark.slow
@pytest.mark.parametrize("label", BAD)
def test_bad_calls_are_refused_in_the_caller(told: list[Any], label: str) -> None:
    error = harness.raised(told[1][0][label], BAD[label][0])
    assert f" {label.split(',')[0]}" in error.text, error.text
    assert error.text.startswith("[bluefog] rank 1 (1/4 of group"), error.text
    assert error.took() < harness.WITHIN, error.took()


def test_who_takes_one_tensor_says_so_to_a_list(told: list[Any]) -> None:
    for op in ("neighbor_allgather", "hierarchical_neighbor_allreduce"):
        assert "got list; it takes one, not a list" in told[1][0][f"{op}, a list"].text


def test_they_send_nothing_and_count(told: list[Any]) -> None:
    for rank, (_, same, sums) in enumerate(told):
        assert same
        assert sums == [3, 3, 6, (3, 3, 6, 6)[rank], 3, 3]


def out_of_place(rank: int, world: int) -> list[inrank.Raised | None]:
    """Call operations in groups in which they have no meaning."""
    import bluefog_pg

    x = torch.ones(3)
    calls = {
        "neighbor_allreduce": lambda g: bluefog_pg.neighbor_allreduce(x, group=g),
        "neighbor_allgather": lambda g: bluefog_pg.neighbor_allgather(x, group=g),
        "neighbor_alltoall": lambda g: bluefog_pg.neighbor_alltoall([x, x], group=g),
        "pair_gossip": lambda g: bluefog_pg.pair_gossip(x, rank ^ 1, group=g),
        "hierarchical": lambda g: bluefog_pg.hierarchical_neighbor_allreduce(x, group=g),
    }
    gloo = dist.new_group(backend="gloo")
    groups = (gloo, dist.GroupMember.NON_GROUP_MEMBER, "world")
    told = [inrank.catch(call, group) for call in calls.values() for group in groups]
    dist.barrier()  # A rank of gloo that leaves early fails those that still connect to it.
    dist.destroy_process_group(gloo)
    return told


def test_groups_that_are_none(pool: harness.Pool) -> None:
    for errors in pool.run(out_of_place):
        for error in errors:
            assert "[bluefog]" in harness.raised(error, "TypeError").text


def machines(rank: int, world: int) -> list[inrank.Raised | None]:
    import bluefog_pg

    x = torch.ones(3)
    call = bluefog_pg.hierarchical_neighbor_allreduce
    with group_of_machines(2) as group:
        told = [inrank.catch(call, x, group=group)]
    with group_of_machines(1) as group:
        bluefog_pg.set_machine_topology(nx.complete_graph(4, nx.DiGraph), group=group)
        told.append(inrank.catch(call, x, group=group))
    with group_of_machines(3) as group:
        told.append(inrank.catch(call, x, group=group))
    return told


def test_machines_that_cannot_average(pool: harness.Pool) -> None:
    for unset, alone, uneven in pool.run(machines):
        text = harness.raised(unset, "RuntimeError", text="set_machine_topology").text
        assert "hierarchical_neighbor_allreduce" in text
        for error in (alone, uneven):
            harness.raised(error, "ArgumentError", text="hierarchical_neighbor_allreduce")
            assert {"AssertionError", "ValueError"} <= set(error.kinds)


def misspelled(rank: int, world: int) -> list[inrank.Raised | None]:
    """Call neighbor_allreduce as Python refuses at once, and then as it should be."""
    import bluefog_pg

    call, x = bluefog_pg.neighbor_allreduce, torch.tensor([float(rank)])
    errors = [
        inrank.catch(call, x, 0.5),
        inrank.catch(call, x, neighbor_weights={(rank - 1) % world: 0.5}),
    ]
    bluefog_pg.set_topology()
    mean = call(x).item()
    assert mean == pytest.approx((rank + (rank - 1) % world + (rank - 2) % world) / 3)
    return errors


def test_weights_have_names_of_their_own(pool: harness.Pool) -> None:
    for positional, unknown in pool.run(misspelled):
        assert harness.raised(positional, "TypeError").took() < harness.WITHIN
        error = harness.raised(unknown, "TypeError", text="neighbor_weights")
        assert error.took() < harness.WITHIN


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the first tensor's elements, or what was raised."""
    out: list[Any] = []
    error = inrank.catch(lambda: out.append(function(*args, **kwargs)))
    return error or tensors(out[0])[0].tolist()


def disagree(rank: int, world: int, op: str) -> list[Any]:
    """Rank 0 sends to 2, which does not listen; rank 3 listens to 2, which does not send to it."""
    import bluefog_pg

    ring = {"src": [(rank - 1) % world], "dst": [(rank + 1) % world]}
    wrong: dict[int, Any] = {0: {"src": [3], "dst": [1, 2]}, 2: {"src": [1], "dst": []}}
    told = []
    for near in (wrong.get(rank, ring), ring):
        src, dst = near["src"], near["dst"]
        x = torch.full((2,), float(rank))
        if op == "neighbor_allreduce":
            given: dict[str, Any] = {"self_weight": 0.0, "src_weights": dict.fromkeys(src, 1.0)}
            given["dst_weights"] = dst
        else:
            given = {"src_ranks": src, "dst_ranks": dst}
        argument = x.repeat(len(dst)) if op == "neighbor_alltoall" else x
        told.append(outcome(getattr(bluefog_pg, op), argument, **given, enable_topo_check=True))
    return told


@pytest.mark.parametrize("op", ["neighbor_allreduce", "neighbor_allgather", "neighbor_alltoall"])
def test_topo_check(pool: harness.Pool, op: str) -> None:
    """Every rank is told of all edges in question; afterwards the group works."""
    for rank, (error, out) in enumerate(pool.run(disagree, op)):
        text = harness.raised(error, "ValueError").text
        assert f"rank {rank}/4 {op}" in text
        assert "rank 0 sends to rank 2" in text and "rank 3 receives from rank 2" in text
        assert "rank 1" not in text.replace(f"rank {rank}/4", "")
        assert out == [(rank - 1) % 4] * 2


def half_disagrees(rank: int, world: int) -> inrank.Raised | None:
    import bluefog_pg

    group = dist.new_group([1, 3])
    if rank not in (1, 3):
        return None
    given = {"src_ranks": [], "dst_ranks": [1] if rank == 1 else []}
    call = bluefog_pg.neighbor_allgather
    error = inrank.catch(call, torch.ones(1), **given, enable_topo_check=True, group=group)
    dist.destroy_process_group(group)
    return error


def test_topo_check_names_ranks_as_all_errors_do(pool: harness.Pool) -> None:
    _, one, _, three = pool.run(half_disagrees)
    for error in (one, three):
        harness.raised(error, "ValueError", text="rank 1 sends to rank 3, which does not receive")


def machines_disagree(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    told = []
    with group_of_machines(2) as group:
        bluefog_pg.set_machine_topology(nx.complete_graph(2, nx.DiGraph), group=group)
        machine = rank // 2
        for dst in ([], [1 - machine]):
            given: dict[str, Any] = {"self_weight": 0.5, "src_machine_weights": {1 - machine: 0.5}}
            given["dst_machine_weights"] = dst if machine else [1]
            given |= {"enable_topo_check": True, "group": group}
            x = torch.tensor([float(rank)])
            told.append(outcome(bluefog_pg.hierarchical_neighbor_allreduce, x, **given))
    return told


def test_topo_check_of_machines(pool: harness.Pool) -> None:
    for error, out in pool.run(machines_disagree):
        text = harness.raised(error, "ValueError").text
        assert "hierarchical_neighbor_allreduce" in text
        assert "rank 0 receives from rank 2" in text and "rank 1 receives from rank 3" in text
        assert out == [1.5]


def inside_machines(rank: int, world: int) -> list[Any]:
    """Rank 3 differs from rank 2, which shares its machine, in one thing after the other."""
    import bluefog_pg

    told = []
    with group_of_machines(2) as group:
        bluefog_pg.set_machine_topology(nx.complete_graph(2, nx.DiGraph), group=group)
        other = 1 - rank // 2
        same = {"self_weight": 0.5, "src_machine_weights": {other: 0.5}}
        same["dst_machine_weights"] = [other]
        for own in (
            {"self_weight": 0.25},
            {"src_machine_weights": {other: 0.75}},
            {"dst_machine_weights": {other: 0.0}},
            {"self_weight": 1.0, "src_machine_weights": {}},
            dict.fromkeys(same),
            {},
        ):
            given: dict[str, Any] = same | (own if rank == 3 else {})
            given |= {"enable_topo_check": True, "group": group}
            x = torch.tensor([float(rank)])
            told.append(outcome(bluefog_pg.hierarchical_neighbor_allreduce, x, **given))
    return told


def test_topo_check_of_ranks_that_share_a_machine(pool: harness.Pool) -> None:
    """Otherwise each part of their result would have other weights.

    No weights are the topology's.
    """
    different = (
        "self_weight",
        "src_machine_weights",
        "dst_machine_weights",
        "self_weight and src_machine_weights",
    )
    for rank, (*errors, none, all_alike) in enumerate(pool.run(inside_machines)):
        for error, what in zip(errors, different, strict=True):
            text = harness.raised(error, "ValueError").text
            assert f"rank {rank} ({rank}/4 of group" in text
            assert "hierarchical_neighbor_allreduce" in text
            assert text.endswith(f": rank 3 and rank 2 have different {what}")
        assert none == all_alike == [1.5]


def again(rank: int, world: int) -> list[Any]:
    """Make a bad call that compares equal to a good one before it."""
    import bluefog_pg

    bluefog_pg.set_topology()
    near = bluefog_pg.in_neighbor_ranks()
    x, share = torch.tensor([float(rank)]), 1 / 3
    good = bluefog_pg.neighbor_allreduce(
        x, self_weight=share, src_weights=dict.fromkeys(near, share)
    )
    fractions = {float(r): share for r in near}
    error = inrank.catch(bluefog_pg.neighbor_allreduce, x, self_weight=share, src_weights=fractions)
    return [good.item(), error]


def arrays(rank: int, world: int) -> list[list[int]]:
    """Pass numpy's arrays of the same bytes that are not the same ranks."""
    import bluefog_pg

    x = torch.tensor([rank])
    told = []
    for src, dst in ((np.array([0]), np.array([0])), (np.array([0, 0]), np.array([0, 0]))):
        narrow = np.dtype(np.int64) if len(src) == 1 else np.dtype(np.int32)
        given = {"src_ranks": src.astype(narrow), "dst_ranks": dst.astype(narrow)}
        if rank == 0 and len(src) == 2:
            break  # Rank 1 is refused.
        if rank == 0:
            given = {"src_ranks": [1], "dst_ranks": [1]}
        error = inrank.catch(
            lambda given=given: told.append(bluefog_pg.neighbor_allgather(x, **given).tolist())
        )
        if error:
            told.append(error.kind)
        if len(src) == 1:
            dist.barrier()
    bluefog_pg.align()
    return told


def test_arrays_of_the_same_bytes(pool: harness.Pool) -> None:
    _, told = pool.run(arrays, world=2)
    assert told == [[0], "ValueError"]


def infinite(rank: int, world: int) -> list[float]:
    """What weighs nothing does not count, though it is infinite: one's own as a neighbor's."""
    import bluefog_pg

    x = torch.tensor([math.inf if rank else 1.0])
    told = []
    for sources in ({}, {1 - rank: 1.0}):
        given: dict[str, Any] = {"src_weights": sources, "dst_weights": list(sources)}
        for call in (x, [x, x]):
            y = bluefog_pg.neighbor_allreduce(call, self_weight=0.0, **given)
            told.append(y[0].item())
    return told


def test_a_self_weight_of_0(pool: harness.Pool) -> None:
    inf = math.inf
    assert pool.run(infinite, world=2) == [[0, 0, inf, inf], [0, 0, 1, 1]]


def changed(rank: int, world: int) -> list[float]:
    """The same tensor gives a weight that is another number at the next call."""
    import bluefog_pg

    weight, told = torch.tensor(1.0), []
    for _ in range(3):
        x = bluefog_pg.neighbor_allreduce(torch.ones(1), self_weight=weight, src_weights={})
        told.append(x.item())
        weight *= 2
    return told


def test_weights_are_read_at_each_call(pool: harness.Pool) -> None:
    assert pool.run(changed) == [[1.0, 2.0, 4.0]] * 4


def test_a_call_like_a_good_one_is_checked(pool: harness.Pool) -> None:
    for rank, (mean, error) in enumerate(pool.run(again)):
        assert mean == pytest.approx((rank + (rank - 1) % 4 + (rank - 2) % 4) / 3)
        harness.raised(error, "ValueError", text="where a rank belongs")


ITERABLES: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "array": np.array,
    "keys": dict.fromkeys,
    "iterator": iter,
}


def iterables(rank: int, world: int) -> dict[str, list[Any]]:
    """Pass ranks to send to and to receive from, as any of ITERABLES, twice each."""
    import bluefog_pg

    told: dict[str, list[Any]] = {}
    before, behind = (rank - 1) % world, (rank + 1) % world
    x = torch.tensor([float(rank)])
    for name, made in ITERABLES.items():
        told[name] = []
        for _ in range(2):
            ranks = {"src_ranks": made([before]), "dst_ranks": made([behind])}
            told[name].append(bluefog_pg.neighbor_allgather(x, **ranks).item())
            to = made([behind])
            if isinstance(to, dict):
                continue  # In dst_weights, a mapping has weights.
            weights: dict[str, Any] = {"self_weight": 0.0, "src_weights": {before: 2.0}}
            got = bluefog_pg.neighbor_allreduce(x, **weights, dst_weights=to)
            told[name].append(got.item())
    return told


def test_ranks_in_any_iterable(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(iterables)):
        before = (rank - 1) % 4
        for name, got in told.items():
            assert got == [before, 2 * before][: 1 if name == "keys" else 2] * 2, name


def entered(rank: int, world: int) -> list[inrank.Raised]:
    """Call what is below the Python operations as nobody should."""
    from bluefog_pg import _C

    with ready_group() as group:
        backend, x = group._get_backend(torch.device("cpu")), torch.ones(3)
        blank_edges, blank = _C.Edges.__new__(_C.Edges), type(backend).__new__(type(backend))
        return [
            inrank.catch(lambda: backend.neighbor_allreduce(x)),
            inrank.catch(lambda: backend.neighbor_allreduce(x, None, 0, False)),
            inrank.catch(lambda: backend.neighbor_allreduce(x, blank_edges, 0, False)),
            inrank.catch(lambda: blank.pair_gossip(x, blank_edges, 0, False)),
        ]


def test_the_backend_itself_refuses_nonsense(pool: harness.Pool) -> None:
    for errors in pool.run(entered):
        texts = ["expected (tensors", "expected Edges", "__init__ has not", "__init__ has not"]
        for error, text in zip(errors, texts, strict=True):
            harness.raised(error, "TypeError", text=text)


def listed(rank: int, world: int) -> list[inrank.Raised | None]:
    import bluefog_pg

    x, ops = torch.ones(3), torch.ops.bluefog
    bluefog_pg.set_topology()
    with group_of_machines(2) as group:
        bluefog_pg.set_machine_topology(nx.complete_graph(2, nx.DiGraph), group=group)
        machines = {"src_machine_ranks": [0, 1], "src_machine_weights": [0.5]}
        return [
            inrank.catch(ops.neighbor_allreduce, x, src_ranks=[0], src_weights=[0.5, 0.5]),
            inrank.catch(ops.neighbor_allreduce, x, dst_ranks=[0, 0]),
            inrank.catch(
                ops.hierarchical_neighbor_allreduce, x, **machines, group_name=group.group_name
            ),
        ]


def test_operators_name_the_rank_and_the_operation_that_lists_do_not_fit(
    pool: harness.Pool,
) -> None:
    for rank, (*errors, machines) in enumerate(pool.run(listed)):
        for error in errors:
            text = harness.raised(error, "ValueError", text="expected weights of different").text
            assert text.startswith(f"[bluefog] rank {rank}/4 neighbor_allreduce float32[3]: ")
        text = harness.raised(machines, "ValueError", text="expected weights of different").text
        assert "hierarchical_neighbor_allreduce float32[3]: " in text and f"rank {rank} (" in text
