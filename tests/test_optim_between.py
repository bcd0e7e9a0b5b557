"""What programs do between two steps of a distributed optimizer, and what it answers."""

from __future__ import annotations

import pickle
import re
import time
import warnings
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import harness
import inrank
from test_optim_programs import gathered, step, vector, wrapped
from test_optim_steps import STEPS, expected, loss_of, make_model, shift

pytestmark = harness.only_bluefog

GOOD = [""] * 4
ONE = torch.ones(1, 1, dtype=torch.float64)


def alike_weights(value: float = 1.0) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, value)
    return model


def sgd(model: nn.Module, lr: float = 0.1, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def warned_by(call: Callable[[], Any], text: str) -> int:
    """How often."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sum(text in str(warning.message) for warning in caught)


# -- the knobs -----------------------------------------------------------------------------------
def weighted(rank: int, world: int, communication: str, topology: Any, near: Any) -> float:
    """The second average of what ranks have, which is their numbers; the first one has no puts."""
    import bluefog_pg

    model = alike_weights()
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.0), model, communication, topology=topology
    )
    if near:
        optimizer.self_weight = 0.5
        optimizer.src_weights = {(rank - 1) % world: 0.2, (rank + 1) % world: 0.3}
    for _ in range(2):
        nn.init.constant_(model.weight, float(rank))
        dist.barrier()
        model(ONE).sum().backward()
        dist.barrier()
        optimizer.step()
        dist.barrier()
    optimizer.close()
    return model.weight.item()


@pytest.mark.parametrize("communication", ["neighbor_allreduce", "win_put", "win_get"])
def test_weights_count_once(pool: harness.Pool, communication: str) -> None:
    wanted = [0.5 * r + 0.2 * ((r - 1) % 4) + 0.3 * ((r + 1) % 4) for r in range(4)]
    found = pool.run(weighted, communication, "ring", True)
    assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("communication", ["neighbor_allreduce", "win_put", "win_get"])
def test_a_schedule_of_one_graph(pool: harness.Pool, communication: str) -> None:
    """Is that graph, and its weights count."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((r, (r + 1) % 4, 0.25) for r in range(4))
    graph.add_weighted_edges_from((r, r, 0.75) for r in range(4))
    found = pool.run(weighted, communication, [graph], False)
    assert found == pytest.approx([0.75, 0.75, 1.75, 2.75], abs=1e-12)


def half_said(rank: int, world: int) -> str:
    """A program that says whom it gets from sends to whom its schedule says."""
    import bluefog_pg

    model, optimizer = wrapped(rank, topology="one-peer-exp2")
    sent = bluefog_pg.stats()["bytes_sent"]
    for number in range(STEPS):
        optimizer.self_weight = 0.5
        optimizer.src_weights = {(rank - 2 ** (number % 2)) % world: 0.5}
        step(model, optimizer, rank, number)
    sent = bluefog_pg.stats()["bytes_sent"] - sent
    optimizer.close()
    wanted = expected(world, "sgd", "neighbor_allreduce", "awc", "one-peer-exp2")[rank]
    off = (vector(model) - wanted).abs().max().item()
    size = 8 * vector(model).numel()
    return "" if off < 1e-12 and sent == STEPS * size else f"off by {off}, {sent} for {size} bytes"


def test_what_knobs_do_not_say_the_topology_does(pool: harness.Pool) -> None:
    assert pool.run(half_said) == GOOD


def sent_elsewhere(rank: int, world: int) -> float:
    """Only whom it sends to is said: the weights are those of the group's topology."""
    import bluefog_pg

    model = alike_weights(float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model, 0.0), model)
    optimizer.dst_weights = [(rank + 1) % world, (rank + 2) % world]  # as the topology has it
    model(ONE).sum().backward()
    optimizer.step()
    optimizer.close()
    return model.weight.item()


def test_destinations_alone(pool: harness.Pool) -> None:
    wanted = [(r + (r - 1) % 4 + (r - 2) % 4) / 3 for r in range(4)]
    assert pool.run(sent_elsewhere) == pytest.approx(wanted, abs=1e-12)


WRONG_KNOBS: dict[str, tuple[str, dict[str, Any], str]] = {
    "half": ("win_put", {"self_weight": 0.5}, "must be given together"),
    "other half": ("win_put", {"src_weights": {0: 0.5}}, "must be given together"),
    "stranger": ("win_put", {"self_weight": 0.5, "src_weights": {99: 0.5}}, "names ranks .99."),
    "list": ("win_get", {"self_weight": 0.5, "src_weights": [1]}, "must be a dict"),
    "share": ("push_sum", {"self_weight": 0.5}, "goes with dst_weights"),
}


def turned_wrong(rank: int, _world: int, what: str) -> str:
    communication, knobs, _ = WRONG_KNOBS[what]
    model, optimizer = wrapped(rank, communication=communication, topology="ring")
    for name, value in knobs.items():
        setattr(optimizer, name, value)
    error = inrank.catch(step, model, optimizer, rank)
    for name in knobs:
        setattr(optimizer, name, None)
    optimizer.close()
    return "" if error is None else f"{error.kind} {error.text}"


@pytest.mark.parametrize("what", WRONG_KNOBS)
def test_wrong_knobs_are_refused(pool: harness.Pool, what: str) -> None:
    for found in pool.run(turned_wrong, what):
        assert re.match(f"ValueError .bluefog. rank .*{WRONG_KNOBS[what][2]}", found), found


# -- hooks, states, copies -----------------------------------------------------------------------
def hooked(rank: int, _world: int) -> list[int]:
    model, optimizer = wrapped(rank)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    step(model, optimizer, rank)
    before = len(calls)
    optimizer.load_state_dict(optimizer.state_dict())
    step(model, optimizer, rank)
    optimizer.close()
    return [before, len(calls)]


def test_hooks_of_steps_are_called_once(pool: harness.Pool) -> None:
    assert pool.run(hooked) == [[1, 2]] * 4


def loaded(_rank: int, _world: int) -> float:
    """The outer optimizer's anchors do not pull back to what was before."""
    import bluefog_pg
    from bluefog_pg import optim

    model = alike_weights()
    order = optim.LocalSteps(lambda anchors: torch.optim.SGD(anchors, lr=0.5))
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model, 0.0), model, "allreduce", order=order)
    for value in (1.0, 5.0):
        model.load_state_dict({"weight": torch.full((1, 1), value, dtype=torch.float64)})
        model(ONE).sum().backward()
        optimizer.step()
    optimizer.close()
    return model.weight.item()


def test_a_model_loaded_between_local_steps(pool: harness.Pool) -> None:
    assert pool.run(loaded) == [5.0] * 4


def pickled(rank: int, _world: int) -> str:
    model, optimizer = wrapped(rank)
    step(model, optimizer, rank)
    again = pickle.loads(pickle.dumps(optimizer))
    optimizer.close()
    same = len(again.state) == len(optimizer.state) and again.param_groups[0]["lr"] == 0.1
    return "" if type(again) is torch.optim.SGD and same else f"{again}"


def test_a_pickled_optimizer_is_a_plain_one(pool: harness.Pool) -> None:
    assert pool.run(pickled) == GOOD


def part_loaded(rank: int, _world: int) -> str:
    """An average is under way, and does not overwrite what is loaded into a part of the model."""
    import bluefog_pg

    model = nn.Sequential(alike_weights(float(rank)), alike_weights(float(rank)))
    trained = bluefog_pg.DecentralizedDataParallel(
        model, lambda named: torch.optim.SGD([p for _, p in named], lr=0.0), topology="full"
    )
    for _ in range(2):
        trained(ONE).sum().backward()
    model[0].load_state_dict({"weight": 7 * ONE})
    trained(ONE).sum().backward()
    trained.close()
    return "" if model[0].weight.item() == 7.0 else f"{model[0].weight.item()}"


def test_a_part_of_a_model_loaded(pool: harness.Pool) -> None:
    assert pool.run(part_loaded) == GOOD


def taken_over(rank: int, world: int, is_dropped: bool) -> str:
    """The second one averages alone, though the first one was not closed, or is not yet gone."""
    import bluefog_pg

    model = make_model()
    shift(model, rank)
    first: Any = bluefog_pg.DistributedOptimizer(sgd(model), model, topology="ring")
    tally = first.tally
    if is_dropped:
        first = None
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    second: list[Any] = []

    def wrap() -> None:
        second.append(
            bluefog_pg.DistributedOptimizer(sgd(model, **options), model, topology="ring")
        )

    if warned_by(wrap, "another one has averaged these parameters") != 1:
        return "not warned"
    for number in range(STEPS):
        step(model, second[0], rank, number)
    second[0].close()
    wanted = expected(world, "sgd", "neighbor_allreduce", "awc", "ring")[rank]
    off = (vector(model) - wanted).abs().max().item()
    return "" if off < 1e-12 and tally.exchanges == 0 else f"off by {off}, {tally}"


@pytest.mark.parametrize("is_dropped", [False, True])
def test_the_last_optimizer_of_parameters_has_them(pool: harness.Pool, is_dropped: bool) -> None:
    assert pool.run(taken_over, is_dropped) == GOOD


def two_by_windows(_rank: int, _world: int) -> int:
    """Two models of one class."""
    import bluefog_pg

    both = [
        bluefog_pg.DecentralizedDataParallel(
            nn.Sequential(nn.Linear(2, 1)),
            lambda named: torch.optim.SGD([p for _, p in named], lr=0.1),
            sync=False,
        )
        for _ in range(2)
    ]
    for model in both:
        model(torch.ones(1, 2)).sum().backward()
        model.close()
    return len(both)


def test_two_wrappers_by_windows(pool: harness.Pool) -> None:
    assert pool.run(two_by_windows) == [2] * 4


def recorded(rank: int, _world: int) -> list[float]:
    """Windows are made anew, and what was put into the old ones stays counted."""
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, communication="win_put", topology="full")
    recorder = optim.Recorder(optimizer, None)
    sent = []
    for topology in ("ring", "full", "ring"):
        for number in range(3):
            step(model, optimizer, rank, number)
        dist.barrier()
        sent.append(recorder.write(0)["bytes_sent"])
        optimizer.set_topology(topology)
    sent.append(recorder.write(0)["bytes_sent"])
    optimizer.close()
    return sent


def test_bytes_of_windows_that_were_freed(pool: harness.Pool) -> None:
    for sent in pool.run(recorded):
        assert all(count >= 0 for count in sent), sent
        assert all(count > 0 for count in sent[:3]), sent


# -- passes that fail, or are not all of a step's ------------------------------------------------
class Failing(nn.Module):
    """In its backward pass, if it is told to."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.inner, self.fails = nn.Sequential(alike_weights(rank), alike_weights(rank)), False

    def forward(self, x: Tensor) -> Tensor:
        middle = self.inner[0](x)
        if self.fails:
            middle.register_hook(lambda _: 1 / 0)
        out: Tensor = self.inner[1](middle)
        return out


def failed(rank: int, _world: int, kind: str) -> str:
    """In eval mode no forward pass is told of; averages are formed after the next pass again."""
    import bluefog_pg

    model = Failing(rank).eval()
    if kind == "wrapper":
        trained: Any = bluefog_pg.DecentralizedDataParallel(
            model,
            lambda named: torch.optim.SGD([p for _, p in named], lr=0.0),
            topology="full",
            bucket_size_in_mb=1e-6,
        )
    else:
        options = {"atc": {"order": "atc", "every": 2}, "gradients": {"every": 2}}[kind]
        name = "gradient_allreduce" if kind == "gradients" else "neighbor_allreduce"
        trained = bluefog_pg.DistributedOptimizer(
            sgd(model, 0.0), model, name, topology="full", bucket_bytes=1, **options
        )
    called = trained if kind == "wrapper" else model
    model.fails = True
    if inrank.catch(lambda: called(ONE).sum().backward()) is None:
        return "did not fail"
    model.fails = False
    if kind != "wrapper":
        trained.step()
    for _ in range(2):
        model.zero_grad()
        called((rank + 1) * ONE).sum().backward()
    if kind == "gradients":
        found = torch.cat([p.grad.flatten() for p in model.parameters()])
    else:
        if kind != "wrapper":
            trained.step()
        found = vector(model)
    trained.close()
    apart = gathered(found).std(0).max().item()
    return "" if apart < 1e-9 else f"{apart} apart"


@pytest.mark.parametrize("kind", ["atc", "gradients", "wrapper"])
def test_a_pass_that_fails_where_no_forward_pass_is_told_of(pool: harness.Pool, kind: str) -> None:
    assert pool.run(failed, kind) == GOOD


def forgotten(rank: int, _world: int) -> float:
    """The first batch fails after some gradients were averaged; of the second one is the update."""
    import bluefog_pg

    model = Failing(1)
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model), model, "gradient_allreduce", bucket_bytes=8
    )
    for model.fails in (True, False):
        optimizer.zero_grad()
        inrank.catch(lambda: model(ONE).sum().backward())
        if model.fails:
            optimizer.zero_grad()
    optimizer.step()
    optimizer.close()
    return model.inner[1].weight.item()


def test_gradients_of_a_failed_pass_are_forgotten(pool: harness.Pool) -> None:
    assert pool.run(forgotten) == pytest.approx([0.9] * 4, abs=1e-12)


def siamese(rank: int, _world: int, order: str) -> list[int]:
    """Two forward passes for each backward pass; on rank 0 one more, which nothing follows."""
    model, optimizer = wrapped(rank, order=order, every=2, topology="full")
    met = []
    for number in range(8):
        if rank == 0:
            loss_of(model, rank, 99)
        optimizer.zero_grad()
        (loss_of(model, rank, number) + loss_of(model, rank, number + 10)).backward()
        optimizer.step()
        met.append(optimizer.tally.exchanges)
    optimizer.close()
    return met


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_forward_passes_alone_count_not(pool: harness.Pool, order: str) -> None:
    assert pool.run(siamese, order) == [[0, 1, 1, 2, 2, 3, 3, 4]] * 4


def too_large(rank: int, _world: int, kind: str) -> bool:
    """A number that diverges for one step leaves nothing behind when all have good ones again."""
    import bluefog_pg

    name, dtype, value = HUGE[kind]
    compression = getattr(bluefog_pg.optim, name)(1.0) if name[0].isupper() else name
    model = nn.Linear(4, 1, bias=False).to(dtype)
    good = {"weight": torch.full((1, 4), 1.5, dtype=dtype)}
    model.load_state_dict(good)
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.0), model, topology="full", compression=compression
    )

    def train() -> None:
        model(torch.ones(1, 4, dtype=dtype)).sum().backward()
        optimizer.step()

    train()
    if rank == 0:
        with torch.no_grad():
            model.weight[0, 0] = value
    train()
    model.load_state_dict(good)
    for _ in range(5):
        train()
        model.load_state_dict(good)
    train()
    optimizer.close()
    return bool((model.weight - 1.5).abs().max() < 1e-2)


HUGE: dict[str, tuple[str, torch.dtype, float]] = {
    "fp16 of bfloat16": ("fp16", torch.bfloat16, 1e6),
    "bf16 of float16": ("bf16", torch.float16, 6e4),
    "int8": ("int8", torch.float64, 1e39),
    "top-k": ("TopK", torch.float64, 1e39),
}


@pytest.mark.parametrize("kind", HUGE)
def test_copies_outlive_what_is_too_large(pool: harness.Pool, kind: str) -> None:
    assert pool.run(too_large, kind) == [True] * 4


def counted(rank: int, _world: int, kind: str) -> int:
    """Two passes for each step, of which each second is with an exchange."""
    from bluefog_pg import optim

    options: dict[str, Any] = {
        "push_sum": {"communication": "push_sum"},
        "quasi": {"order": optim.QuasiGlobalMomentum()},
        "atc": {"order": "atc"},
        "awc": {},
    }[kind]
    kind_of_sgd = "sgd" if kind != "quasi" else "adam"
    model, optimizer = wrapped(rank, kind_of_sgd, every=2, **options)
    for number in range(4):
        optimizer.zero_grad()
        for half in range(2):
            loss_of(model, rank, 2 * number + half).backward()
        optimizer.step()
    optimizer.close()
    return int(optimizer.tally.exchanges)


@pytest.mark.parametrize("kind", ["awc", "atc", "quasi", "push_sum"])
def test_every_counts_passes(pool: harness.Pool, kind: str) -> None:
    assert pool.run(counted, kind) == [4] * 4


def too_early(rank: int, _world: int, passes: int) -> int:
    model, optimizer = wrapped(rank, communication="gradient_allreduce", every=2)

    def train() -> None:
        for _ in range(2):
            for number in range(passes):
                loss_of(model, rank, number).backward()
            optimizer.step()

    found = warned_by(train, "drift apart for good")
    optimizer.close()
    return found


def test_a_step_before_gradients_are_averaged_is_warned_of(pool: harness.Pool) -> None:
    assert pool.run(too_early, 1) == [1] * 4
    assert pool.run(too_early, 2) == [0] * 4


def skipped(rank: int, _world: int) -> float:
    """The update was made in backward(): a step that skips the average makes none."""
    import bluefog_pg
    from bluefog_pg import optim

    model = alike_weights()
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.5), model, order=optim.AdaptThenCombine(in_backward=True)
    )
    model(ONE).sum().backward()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.close()
    return model.weight.item()


def test_one_update_though_its_average_is_skipped(pool: harness.Pool) -> None:
    assert pool.run(skipped) == [0.5] * 4


def back_again(rank: int, _world: int) -> str:
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=optim.AsynchronousPairs(), topology="full")
    for communication in ("empty", "neighbor_allreduce"):
        step(model, optimizer, rank)
        optimizer.communication = communication
    for number in range(20):
        step(model, optimizer, rank, number)
    met = optimizer.tally.exchanges
    optimizer.close()
    return "" if met > 3 else f"met {met} times"


def test_pairs_pause_and_go_on(pool: harness.Pool) -> None:
    assert pool.run(back_again) == GOOD


# -- what does not go together -------------------------------------------------------------------
def doubtful(rank: int, world: int) -> list[int]:
    import bluefog_pg
    from bluefog_pg import optim, topology_util

    def wrap(order: Any, communication: str = "neighbor_allreduce", kind: Any = sgd) -> Any:
        model = alike_weights()
        return lambda: bluefog_pg.DistributedOptimizer(
            kind(model), model, communication, order=order
        ).close()

    def adam(model: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(model.parameters())

    found = []
    star = topology_util.StarGraph(world)
    for graph, is_weighted in ((star, False), (star, True)):
        bluefog_pg.set_topology(graph, is_weighted)
        found.append(warned_by(wrap(optim.ExactDiffusion()), "needs symmetric weights"))
    bluefog_pg.set_topology(topology_util.ExponentialTwoGraph(world))
    found += [
        warned_by(wrap(optim.ExactDiffusion(), "allreduce"), "needs symmetric weights"),
        warned_by(wrap(optim.QuasiGlobalMomentum(), kind=adam), "is for SGD"),
        warned_by(wrap(optim.QuasiGlobalMomentum()), "is for SGD"),
    ]
    bluefog_pg.set_topology(nx.DiGraph([(0, 1), (1, 0), (2, 3), (3, 2)]))
    found.append(warned_by(wrap("awc"), "not strongly connected"))
    bluefog_pg.set_topology(topology_util.ExponentialTwoGraph(world))
    return found


def test_doubtful_topologies_and_optimizers_are_warned_of(pool: harness.Pool) -> None:
    assert pool.run(doubtful) == [[1, 0, 0, 1, 0, 1]] * 4


def other_options(rank: int, _world: int, what: str) -> str:
    import bluefog_pg
    from bluefog_pg import optim

    odd = rank == 2
    options: dict[str, Any] = {
        "compressor": {"compression": optim.TopK(0.5, gamma=0.2 if odd else 0.1)},
        "order": {"order": optim.QuasiGlobalMomentum(0.5 if odd else 0.9)},
        "seeds": {"compression": optim.RandomK(0.5, seed=rank)},
    }[what]
    model = alike_weights()
    error = inrank.catch(lambda: bluefog_pg.DistributedOptimizer(sgd(model), model, **options))
    return "" if error is None else error.text


def test_options_that_are_not_alike(pool: harness.Pool) -> None:
    for found in pool.run(other_options, "compressor"):
        assert "compression: rank 0 has 'TopK(gamma=0.1, ratio=0.5)', rank 2 'TopK(gamma" in found
    for found in pool.run(other_options, "order"):
        assert "order: rank 0 has 'QuasiGlobalMomentum(momentum=0.9)', rank 2" in found
    assert pool.run(other_options, "seeds") == GOOD


# -- one rank, and many --------------------------------------------------------------------------
def alone(_rank: int, _world: int, kind: str) -> list[float]:
    """What an algorithm does beside averages, it does on one rank, too."""
    import bluefog_pg
    from bluefog_pg import optim

    slow = lambda anchors: torch.optim.SGD(anchors, lr=0.5, momentum=0.5)  # noqa: E731
    order = optim.QuasiGlobalMomentum(0.5) if kind == "quasi" else optim.LocalSteps(slow)
    model = alike_weights()
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model), model, order=order)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        model(ONE).sum().backward()
        optimizer.step()
        found.append(model.weight.item())
    optimizer.close()
    return found


def test_algorithms_on_one_rank(pool: harness.Pool) -> None:
    """Of gradient 1: w - 0.1 (1 + m / 2), m of the moves; and anchors that move by half of 0.1."""
    (quasi,) = pool.run(alone, "quasi", world=1)
    assert quasi == pytest.approx([0.9, 0.775, 0.63125], abs=1e-12)
    (slow,) = pool.run(alone, "slow", world=1)
    assert slow == pytest.approx([0.95, 0.875, 0.7875], abs=1e-12)


def around_a_hub(rank: int, world: int) -> float:
    """Many meet one that meets but one at a time: the largest number that any has had."""
    import bluefog_pg
    from bluefog_pg import optim, topology_util

    model = alike_weights(float(rank == 0))
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.0),
        model,
        order=optim.AsynchronousPairs(),
        topology=topology_util.StarGraph(world),
    )
    far = 0.0
    for _ in range(40):
        model(ONE).sum().backward()
        optimizer.step()
        far = max(far, abs(model.weight.item()))
        time.sleep(0.02 if rank == 0 else 0.002)
    optimizer.close()
    return far


def test_pairs_around_a_hub() -> None:
    assert max(harness.run_ranks(around_a_hub, 8)) <= 1 + 1e-9
