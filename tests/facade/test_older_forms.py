"""Calls work in the forms of BlueFog's versions 0.1.0 to 0.3.0, beside those of its last one."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support import harness, inrank

WORLD = 4


class Forms:
    """A Forms has the arguments of the calls below for one rank, on a ring of four ranks."""

    def __init__(self, rank: int) -> None:
        import bluefog_pg.torch as bf
        from bluefog_pg import topology_util

        bf.init(topology_util.RingGraph(WORLD))
        self.bf, self.tu, self.rank = bf, topology_util, rank
        self.left, self.right = (rank - 1) % WORLD, (rank + 1) % WORLD
        self.near = sorted((self.left, self.right))
        self.x = torch.full((3,), float(rank))
        self.uneven = {self.left: 0.25, self.right: 0.25}
        self.to = dict.fromkeys(self.near, 2.0)
        self.from_left = {self.left: 0.5}

    @property
    def ring(self) -> float:
        """Return 0.5 of the own value plus a quarter of each neighbor's."""
        return 0.5 * self.rank + 0.25 * (self.left + self.right)

    @property
    def shifted(self) -> float:
        return 0.5 * self.rank + 0.5 * self.left


def done(forms: Forms, handle: int) -> Any:
    return forms.bf.synchronize(handle)


Call = Callable[[Forms], Any]
# Each form has a call, and a function of the rank that returns what all elements of the result are.
NEIGHBORS: dict[str, tuple[Call, Call]] = {
    "0.1.0: (tensor, average)": (
        lambda f: f.bf.neighbor_allreduce(f.x, True),
        lambda f: (f.rank + f.left + f.right) / 3,
    ),
    "0.1.0: (tensor, average, name)": (
        lambda f: f.bf.neighbor_allreduce(f.x, False, "a"),
        lambda f: f.rank + f.left + f.right,
    ),
    "0.1.0: (average=, name=)": (
        lambda f: f.bf.neighbor_allreduce(f.x, average=False, name="a"),
        lambda f: f.rank + f.left + f.right,
    ),
    "0.1.0: async (tensor, average, name)": (
        lambda f: done(f, f.bf.neighbor_allreduce_async(f.x, False, "a")),
        lambda f: f.rank + f.left + f.right,
    ),
    "0.2.0: (tensor, self_weight, neighbor_weights)": (
        lambda f: f.bf.neighbor_allreduce(f.x, 0.5, f.uneven),
        lambda f: f.ring,
    ),
    "0.2.0: (tensor, self_weight, neighbor_weights, name)": (
        lambda f: f.bf.neighbor_allreduce(f.x, 0.5, f.uneven, "a"),
        lambda f: f.ring,
    ),
    "0.2.0: (self_weight=, neighbor_weights=)": (
        lambda f: f.bf.neighbor_allreduce(f.x, self_weight=0.5, neighbor_weights=f.uneven),
        lambda f: f.ring,
    ),
    "0.2.0: async (tensor, self_weight, neighbor_weights, name)": (
        lambda f: done(f, f.bf.neighbor_allreduce_async(f.x, 0.5, f.uneven, "a")),
        lambda f: f.ring,
    ),
    "0.2.2: all by position": (
        lambda f: f.bf.neighbor_allreduce(f.x, 0.5, f.from_left, [f.right], True, "a"),
        lambda f: f.shifted,
    ),
    "0.2.2: (send_neighbors=)": (
        lambda f: f.bf.neighbor_allreduce(
            f.x, self_weight=0.5, neighbor_weights=f.from_left, send_neighbors=[f.right]
        ),
        lambda f: f.shifted,
    ),
    "0.2.2: nonblocking by position": (
        lambda f: done(f, f.bf.neighbor_allreduce_nonblocking(f.x, 0.5, f.uneven)),
        lambda f: f.ring,
    ),
    "0.2.2: nonblocking (send_neighbors=)": (
        lambda f: done(
            f,
            f.bf.neighbor_allreduce_nonblocking(
                f.x, self_weight=0.5, neighbor_weights=f.from_left, send_neighbors=[f.right]
            ),
        ),
        lambda f: f.shifted,
    ),
    "0.3.0: by name": (
        lambda f: f.bf.neighbor_allreduce(
            f.x, self_weight=0.5, src_weights=f.from_left, dst_weights={f.right: 2.0}
        ),
        lambda f: 0.5 * f.rank + 1.0 * f.left,
    ),
}


def neighbors(rank: int, world: int) -> None:
    forms = Forms(rank)
    for form, (call, want) in NEIGHBORS.items():
        got = call(forms)
        assert torch.allclose(got, torch.full((3,), float(want(forms)))), (form, got)
    rows = forms.x[:1]
    for got in (
        forms.bf.neighbor_allgather(rows, "b"),
        done(forms, forms.bf.neighbor_allgather_nonblocking(rows, "b")),
        done(forms, forms.bf.neighbor_allgather_async(rows, "b")),
        forms.bf.neighbor_allgather(rows, name="b"),
        forms.bf.neighbor_allgather(rows, src_ranks=forms.near, dst_ranks=forms.near, name="b"),
    ):
        assert got.tolist() == [float(near) for near in forms.near]
    twice = inrank.catch(
        forms.bf.neighbor_allreduce,
        forms.x,
        self_weight=0.5,
        src_weights=forms.uneven,
        neighbor_weights=forms.uneven,
    )
    assert twice.kind == "TypeError"
    assert "neighbor_weights is an earlier name of src_weights" in twice.text
    both = inrank.catch(forms.bf.neighbor_allreduce, forms.x, 0.5, forms.uneven, average=True)
    assert both.kind == "ValueError"


def test_neighbor_operations(pool: harness.Pool) -> None:
    pool.run(neighbors, world=WORLD)


def collectives(rank: int, world: int) -> None:
    """In the first versions, the name is in third place."""
    forms = Forms(rank)
    bf, wanted = forms.bf, {True: 1.5, False: 6.0}
    for average, want in wanted.items():
        for got in (
            bf.allreduce(forms.x, average, "a"),
            done(forms, bf.allreduce_async(forms.x, average, "a")),
            done(forms, bf.allreduce_nonblocking(forms.x, average, "a")),
            bf.allreduce_(forms.x.clone(), average, "a"),
            done(forms, bf.allreduce_nonblocking_(forms.x.clone(), average, "a")),
            bf.allreduce(forms.x, average, False, "a"),
            bf.allreduce(forms.x, average=average, name="a"),
        ):
            assert got.eq(want).all(), got
        mine = forms.x.clone()
        assert bf.allreduce_(mine, average, "a").data_ptr() == mine.data_ptr()
    assert forms.x.eq(rank).all()


def test_collectives(pool: harness.Pool) -> None:
    pool.run(collectives, world=WORLD)


def machines(rank: int, world: int) -> None:
    """Average between two machines of two ranks, for which no topology is set."""
    import bluefog_pg.torch as bf

    bf.init()
    mine, other = rank // 2, 1 - rank // 2
    x = torch.full((3,), float(rank))
    means = (0.5, 2.5)
    want = 0.25 * means[mine] + 0.75 * means[other]
    weights, to = {other: 0.75}, [other]
    for got in (
        bf.hierarchical_neighbor_allreduce(x, 0.25, weights, to),
        bf.hierarchical_neighbor_allreduce(x, 0.25, weights, to, False, "c"),
        bf.hierarchical_neighbor_allreduce(
            x, self_weight=0.25, neighbor_machine_weights=weights, send_neighbor_machines=to
        ),
        bf.hierarchical_neighbor_allreduce(
            x, self_weight=0.25, src_machine_weights=weights, dst_machine_weights=to
        ),
        bf.synchronize(bf.hierarchical_neighbor_allreduce_nonblocking(x, 0.25, weights, to)),
    ):
        assert torch.allclose(got, torch.full((3,), want)), got
    none = inrank.catch(bf.hierarchical_neighbor_allreduce, x)
    assert none.kind == "RuntimeError"
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, float(rank))
    optimizer = bf.DistributedHierarchicalNeighborAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model
    )
    optimizer.self_weight = 0.25
    optimizer.neighbor_machine_weights = weights
    optimizer.send_neighbor_machines = to
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert abs(model.weight.item() - want) < 1e-6
    optimizer.close()


def test_between_machines() -> None:
    with harness.Ranks(4, env={"BLUEFOG_NODES_PER_MACHINE": "2"}) as ranks:
        ranks.start(machines)
        ranks.values()


WRITES: dict[str, Call] = {
    "0.1.1: put (tensor, name, dst_weights)": lambda f: f.bf.win_put(f.x, "w", f.to),
    "0.1.1: put (..., require_mutex)": lambda f: f.bf.win_put(f.x, "w", f.to, True),
    "0.1.1: put (dst_weights=, require_mutex=)": lambda f: f.bf.win_put(
        f.x, "w", dst_weights=f.to, require_mutex=True
    ),
    "0.1.1: put async": lambda f: f.bf.win_wait(f.bf.win_put_async(f.x, "w", f.to, True)),
    "0.2.1: put nonblocking": lambda f: f.bf.win_wait(f.bf.win_put_nonblocking(f.x, "w", f.to)),
    "0.2.2: put (..., self_weight, dst_weights, require_mutex)": lambda f: f.bf.win_put(
        f.x, "w", 1.0, f.to, True
    ),
    "head: neighbor_win_put": lambda f: f.bf.neighbor_win_put(f.x, "w", None, f.to, True),
    "head: neighbor_win_put_nonblocking": lambda f: f.bf.win_wait(
        f.bf.neighbor_win_put_nonblocking(f.x, "w", None, f.to, True)
    ),
    "head: neighbor_win_accumulate": lambda f: f.bf.neighbor_win_accumulate(
        f.x, "w", None, f.to, True
    ),
    "head: neighbor_win_accumulate_nonblocking": lambda f: f.bf.win_wait(
        f.bf.neighbor_win_accumulate_nonblocking(f.x, "w", None, f.to, True)
    ),
    "0.1.0: accumulate": lambda f: f.bf.win_accumulate(f.x, "w", f.to, True),
    "0.1.0: accumulate async": lambda f: f.bf.win_wait(
        f.bf.win_accumulate_async(f.x, "w", f.to, True)
    ),
    "0.2.1: accumulate nonblocking": lambda f: f.bf.win_wait(
        f.bf.win_accumulate_nonblocking(f.x, "w", f.to)
    ),
    "0.2.2: accumulate": lambda f: f.bf.win_accumulate(f.x, "w", 1.0, f.to, True),
    "0.1.1: put async (dst_weights=, require_mutex=)": lambda f: f.bf.win_wait(
        f.bf.win_put_async(f.x, name="w", dst_weights=f.to, require_mutex=True)
    ),
    "0.1.1: accumulate async (dst_weights=, require_mutex=)": lambda f: f.bf.win_wait(
        f.bf.win_accumulate_async(f.x, name="w", dst_weights=f.to, require_mutex=True)
    ),
}


def writes(rank: int, world: int) -> None:
    forms = Forms(rank)
    bf = forms.bf
    for form, call in WRITES.items():
        bf.win_create(forms.x.clone(), "w", zero_init=True)
        assert bf.get_current_created_window_names() == ["w"]
        call(forms)
        bf.win_fence("w")
        assert bf.get_win_version("w") == dict.fromkeys(forms.near, 1), form
        got = bf.win_sync("w", 0.0, dict.fromkeys(forms.near, 1.0), True, True)
        want = 2.0 * (forms.left + forms.right)
        assert torch.equal(got, torch.full((3,), want)), (form, got)
        bf.win_free("w")
    bf.win_create(forms.x, "v")
    bf.win_create(forms.x, "w")
    for default in ((), (None,), (None, None), (None, True)):
        assert bf.win_put(forms.x, "w", *default)
    bf.win_fence("w")
    assert inrank.catch(bf.win_put, forms.x, "w", forms.to, forms.to).kind == "TypeError"
    bf.win_free()
    assert bf.get_current_created_window_names() == []


def test_windows(pool: harness.Pool) -> None:
    pool.run(writes, world=WORLD)


READS: dict[str, Call] = {
    "win_get": lambda f: f.bf.win_get("w", f.to, True),
    "win_get_async": lambda f: f.bf.win_wait(f.bf.win_get_async("w", f.to)),
    "win_get_async (src_weights=, require_mutex=)": lambda f: f.bf.win_wait(
        f.bf.win_get_async(name="w", src_weights=f.to, require_mutex=True)
    ),
    "win_get_nonblocking": lambda f: f.bf.win_wait(f.bf.win_get_nonblocking("w", f.to)),
    "neighbor_win_get": lambda f: f.bf.neighbor_win_get("w", f.to, True),
    "neighbor_win_get_nonblocking": lambda f: f.bf.win_wait(
        f.bf.neighbor_win_get_nonblocking("w", f.to)
    ),
}


def reads(rank: int, world: int) -> None:
    """Each form fetches twice its neighbors' tensors."""
    forms = Forms(rank)
    bf = forms.bf
    for form, call in READS.items():
        bf.win_create(forms.x, "w", zero_init=True)
        assert call(forms) is True
        bf.barrier()
        got = bf.win_update("w", 0.0, dict.fromkeys(forms.near, 1.0), clone=True)
        assert got.eq(2.0 * (forms.left + forms.right)).all(), (form, got)
        bf.win_free("w")
    assert bf.get_current_created_window_names() == []


def test_what_is_fetched(pool: harness.Pool) -> None:
    pool.run(reads, world=WORLD)


def with_p(rank: int, world: int) -> None:
    """The p that comes with an accumulation is weighted as its tensor is."""
    forms = Forms(rank)
    bf = forms.bf
    bf.turn_on_win_ops_with_associated_p()
    bf.win_create(forms.x, "w", zero_init=True)
    assert bf.win_associated_p("w") == 1.0
    bf.win_accumulate(forms.x, "w", 0.5, {forms.right: 0.25})
    assert bf.win_associated_p("w") == 0.5
    bf.barrier()
    bf.win_update_then_collect("w")
    assert bf.win_associated_p("w") == 0.75
    bf.turn_off_win_ops_with_associated_p()
    bf.win_free("w")


def test_associated_p(pool: harness.Pool) -> None:
    pool.run(with_p, world=WORLD)


def excluding(rank: int, world: int) -> None:
    """Rank 0 holds its mutex, and says so before it lets go; the others then have it."""
    import bluefog_pg.torch as bf

    bf.init()
    bf.win_create(torch.ones(1), "w")
    held = functools.partial(bf.win_mutex, ranks=[0])
    own = functools.partial(bf.win_mutex, "w", for_self=True)
    with pytest.raises(TypeError, match="pass the group as group="):
        bf.win_mutex("w", False, None, None)  # type: ignore[arg-type]
    # Rank 0 holds the first mutex of each pair; the others ask for the second one.
    forms: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "by position": (held, lambda: bf.win_mutex([0])),
        "by keyword": (held, lambda: bf.win_mutex(ranks=[0])),
        "0.2.1": (held, lambda: bf.win_mutex([0], True)),
        "out-neighbors": (held, bf.win_mutex),
        "of a window": (own, lambda: bf.win_mutex("w", ranks=[0])),
        "of a window, for out-neighbors": (own, lambda: bf.win_mutex("w")),
        "win_lock": (lambda: bf.win_lock("w"), lambda: bf.win_mutex("w", False, [0])),
    }
    store = torch.distributed.group.WORLD.get_group_store()  # type: ignore[union-attr]
    for form, (holds, mutex) in forms.items():
        if rank == 0:
            with holds():
                bf.barrier()
                time.sleep(0.1)
                store.set(form, "said")
        else:
            bf.barrier()
            with mutex():
                assert store.check([form]), form
        bf.barrier()
    bf.win_free()


def test_a_mutex_of_ranks_excludes(pool: harness.Pool) -> None:
    pool.run(excluding, world=3)


def counting(rank: int, world: int) -> list[str]:
    """Threads and ranks add to a file, which would lose counts if two did so at once."""
    import bluefog_pg.torch as bf

    bf.init()
    key, store = "count", torch.distributed.group.WORLD.get_group_store()  # type: ignore[union-attr]
    if rank == 0:
        store.set(key, "0")
    bf.barrier()

    def add() -> None:
        for _ in range(20):
            with bf.win_mutex(ranks=[world - 1]):
                store.set(key, str(int(store.get(key)) + 1))

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bf.barrier()
    assert int(store.get(key)) == 40 * world
    with bf.win_mutex(ranks=[rank]):
        again = inrank.catch(bf.win_mutex(ranks=[rank]).__enter__)
    with bf.win_mutex(for_self=True):
        own = inrank.catch(bf.win_mutex([rank]).__enter__)
    strange = inrank.catch(bf.win_mutex(ranks=[world]).__enter__)
    float_rank = inrank.catch(bf.win_mutex(ranks=[1.0]).__enter__)
    return [again.kind, own.kind, strange.kind, float_rank.kind]


def test_a_mutex_of_ranks_excludes_threads_too(pool: harness.Pool) -> None:
    for kinds in pool.run(counting, world=3):
        assert kinds == ["RuntimeError", "RuntimeError", "ValueError", "TypeError"]


def setting(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf
    from bluefog_pg.common import topology_util as tu
    from bluefog_pg.common.util import env

    ring = tu.RingGraph(world, connect_style=2)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: bf.init(ring),
        lambda: bf.init(topology=ring),
        lambda: bf.init(topology_fn=lambda size: tu.RingGraph(size, 2)),
        lambda: bf.init(ring, True),
        lambda: bf.init(topology=ring, is_weighted=True),
        lambda: bf.init(topology=ring, timeout=30),
        lambda: bf.set_topology(ring),
        lambda: bf.set_topology(topology=ring, is_weighted=True),
    )
    for call in calls:
        bf.set_topology(tu.FullyConnectedGraph(world))
        call()
        assert bf.out_neighbor_ranks() == [(rank + 1) % world]
    assert inrank.catch(bf.init, 3).kind == "TypeError"

    with env(BLUEFOG_TEST_OLDER="1", BLUEFOG_TEST_NONE=None):
        import os

        assert os.environ["BLUEFOG_TEST_OLDER"] == "1"
        assert "BLUEFOG_TEST_NONE" not in os.environ
    assert "BLUEFOG_TEST_OLDER" not in os.environ


def test_init_and_topologies(pool: harness.Pool) -> None:
    pool.run(setting, world=3)


def test_topology_util() -> None:
    from bluefog_pg.common import topology_util as tu

    equal = tu.IsTopologyEquivalent
    assert equal(tu.BiRingGraph(5), tu.RingGraph(5))
    assert equal(topo1=tu.RingGraph(5, left_connect=True), topo2=tu.RingGraph(5, 1))
    assert equal(tu.RingGraph(5, left_connect=False), tu.RingGraph(5, connect_style=2))
    assert equal(tu.RingGraph(5, True), tu.RingGraph(5, 1))
    assert tu.GetWeights(tu.RingGraph(3), 1) == tu.GetRecvWeights(tu.RingGraph(3), 1)


def differing(rank: int, world: int) -> str:
    import bluefog_pg.torch as bf
    from bluefog_pg import topology_util as tu

    bf.init()
    mine = tu.RingGraph(world) if rank == 1 else tu.StarGraph(world)
    told = inrank.catch(bf.set_topology, mine)
    assert told.kind == "ValueError"
    assert tu.IsTopologyEquivalent(bf.load_topology(), tu.ExponentialTwoGraph(world))
    bf.set_topology(tu.RingGraph(world))
    assert inrank.catch(bf.set_topology, tu.RingGraph(world), rank == 2).kind == "ValueError"
    return told.text


def failing(rank: int, world: int) -> list[str]:
    """One rank's graph is none of the group's: all hear of it at once, and the group goes on."""
    import bluefog_pg.torch as bf
    from bluefog_pg import topology_util as tu

    bf.init(tu.FullyConnectedGraph(world))
    told = [inrank.catch(bf.set_topology, tu.RingGraph(world + (rank == 2)))]
    told.append(inrank.catch(bf.init, lambda size: tu.RingGraph(size + (rank == 2))))
    assert bf.allreduce(torch.ones(1)).item() == 1.0
    assert len(bf.out_neighbor_ranks()) == world - 1
    return [f"{each.kind}: {each.text}" for each in told]


def test_a_topology_that_fails_on_one_rank(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(failing, world=3)):
        for text in told:
            if rank == 2:
                assert text.startswith("TypeError")
            else:
                assert text.startswith("ValueError")
                assert "ranks [2] failed to give topologies" in text


def test_unlike_topologies_are_refused_at_once(pool: harness.Pool) -> None:
    for text in pool.run(differing, world=3):
        assert "different topologies: those of ranks [1] differ from that of rank 0" in text


def optimizers(rank: int, world: int) -> dict[str, float]:
    """Each optimizer makes one step of gradient rank + 1 from weight 10 rank."""
    import bluefog_pg.torch as bf

    bf.init()
    makers: dict[str, Callable[[Any, Any], Any]] = {
        "allreduce, named": lambda o, m: bf.DistributedAllreduceOptimizer(
            o, named_parameters=m.named_parameters()
        ),
        "allreduce, by position": lambda o, m: bf.DistributedAllreduceOptimizer(
            o, m.named_parameters()
        ),
        "allreduce, nothing": lambda o, _: bf.DistributedAllreduceOptimizer(o),
        "allreduce, model": lambda o, m: bf.DistributedAllreduceOptimizer(o, model=m),
        "consensus": lambda o, m: bf.DistributedConsensusOptimizer(
            o, named_parameters=m.named_parameters()
        ),
        "neighbors, named": lambda o, m: bf.DistributedNeighborAllreduceOptimizer(
            o, named_parameters=m.named_parameters()
        ),
        "gradients, 0.2.2": lambda o, m: bf.DistributedGradientAllreduceOptimizer(
            o, m, backward_passes_per_step=1
        ),
        "bluefog, model": lambda o, m: bf.DistributedBluefogOptimizer(o, model=m),
        "compressed": lambda o, m: bf.DistributedAdaptWithCombineOptimizer(
            o, m, compression="fp16"
        ),
        "compressed, atc": lambda o, m: bf.DistributedAdaptThenCombineOptimizer(
            o, m, compression="fp16"
        ),
    }
    after = {}
    for name, make in makers.items():
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(model.weight, 10.0 * rank)
        optimizer = make(torch.optim.SGD(model.parameters(), lr=1.0), model)
        optimizer.force_barrier = True
        assert optimizer.turn_on_timeline(model) is False
        assert optimizer.turn_off_timeline(model) is True
        model(torch.full((1, 1), rank + 1.0)).sum().backward()
        optimizer.step()
        after[name] = model.weight.item()
        optimizer.close()
        bf.barrier()
    return after


@pytest.mark.filterwarnings("ignore")
def test_optimizers(pool: harness.Pool) -> None:
    ended = pool.run(optimizers, world=2)
    for rank, after in enumerate(ended):
        # The own value has moved toward what has come of the other one's, if anything has.
        low, high = sorted((10.0 * rank - (rank + 1), 5.0 - (rank + 1)))
        assert low - 1e-6 <= after["bluefog, model"] <= high + 1e-6
        gradients, parameters = 10.0 * rank - 1.5, 5.0 - (rank + 1)
        for name in ("allreduce, named", "allreduce, by position", "allreduce, nothing"):
            assert after[name] == pytest.approx(gradients), name
        assert after["gradients, 0.2.2"] == pytest.approx(gradients)
        for name in ("allreduce, model", "consensus", "neighbors, named", "compressed"):
            assert after[name] == pytest.approx(parameters, abs=0.01), name
        assert after["compressed, atc"] == pytest.approx(5.0 - 1.5, abs=0.01)
