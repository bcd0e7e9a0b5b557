"""What goes wrong in a training, and what of it a distributed optimizer makes up for."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
import warnings
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor, nn

from tests.support import harness, inrank
from tests.support.optimizers import (
    STEPS,
    expected,
    gathered,
    loss_of,
    make_model,
    shift,
    step,
    vector,
    wrapped,
)

pytestmark = harness.only_bluefog


class Fails(torch.autograd.Function):
    """In its backward pass."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_ctx: Any, *_grads: Tensor) -> Any:
        raise MemoryError("no memory for this batch")


class Failing(nn.Module):
    """A layer, and behind it what fails in `backward` if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.fails = nn.Linear(2, 2), nn.Linear(2, 1), False

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(Fails.apply(x) if self.fails else x)


FAILING = {
    "gradients": {"communication": "gradient_allreduce"},
    "atc": {"order": "atc", "every": 2, "topology": "full"},
    "in backward": {"topology": "full"},
    "wrapper": {},
}


def skipped(rank: int, _world: int, kind: str) -> None:
    """The first batch fails on all ranks; training goes on with the next one."""
    import bluefog_pg

    model, options = Failing(), dict(FAILING[kind])
    shift(model, rank)
    if kind == "wrapper":
        # Its last update is averaged with the next one: so of rate 0.
        sgd = lambda named: torch.optim.SGD([p for _, p in named], lr=0.0)  # noqa: E731
        trained: Any = bluefog_pg.DecentralizedDataParallel(
            model, sgd, topology="full", bucket_size_in_mb=1e-6
        )
    else:
        if kind == "in backward":
            options["order"] = bluefog_pg.optim.AdaptThenCombine(in_backward=True)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        trained = bluefog_pg.DistributedOptimizer(sgd, model, **options, bucket_bytes=1)
    model.fails = True
    inputs = torch.full((1, 2), float(rank + 1))
    called = trained if kind == "wrapper" else model
    failure = inrank.catch(lambda: called(inputs).sum().backward())
    assert failure is not None, "the backward pass did not fail"
    model.fails = False
    for _ in range(2):
        model.zero_grad()
        called(inputs).sum().backward()
        if kind == "gradients":
            grads = gathered(torch.cat([p.grad.flatten() for p in model.parameters()]))
            assert grads.std(0).max() < 1e-6, "gradients differ"
            return
        if kind != "wrapper":
            trained.step()
    apart = gathered(vector(model)).std(0).max().item()
    trained.close()
    assert apart < 1e-6, f"{apart} apart"


@pytest.mark.parametrize("kind", FAILING)
def test_a_backward_pass_that_fails(pool: harness.Pool, kind: str) -> None:
    pool.run(skipped, kind)


def uncalled(rank: int, world: int) -> None:
    """The loop calls a method of the model, not the model: averages are formed in step()."""
    model, optimizer = wrapped(rank, topology="full")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(STEPS):
            optimizer.zero_grad()
            loss_of(model.forward, rank, number).backward()
            optimizer.step()
    ours = [str(w.message) for w in caught if "no forward pass" in str(w.message)]
    wanted = expected(world, "sgd", "neighbor_allreduce", "awc", "full")[rank]
    off = (vector(model) - wanted).abs().max().item()
    assert len(ours) == 1, f"warned {ours}"
    assert f"rank {rank}/4" in ours[0], ours
    assert off < 1e-12, f"off by {off}"
    assert optimizer.tally.exchanges == STEPS, optimizer.tally


def test_a_model_that_is_not_called(pool: harness.Pool) -> None:
    pool.run(uncalled)


def in_backward(rank: int, world: int) -> None:
    from bluefog_pg import optim

    model, optimizer = wrapped(
        rank, order=optim.AdaptThenCombine(in_backward=True), topology="ring", bucket_bytes=200
    )
    for number in range(STEPS):
        step(model, optimizer, rank, number)
    wanted = expected(world, "sgd", "neighbor_allreduce", "atc", "ring")[rank]
    off = (vector(model) - wanted).abs().max().item()
    assert off < 1e-12, f"off by {off}"
    loss_of(model, rank, 0).backward()
    moved = vector(model)
    twice = inrank.catch(lambda: loss_of(model, rank, 0).backward())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    scaled = inrank.catch(scaler.step, optimizer)
    optimizer.step()
    optimizer.close()
    assert twice is not None, "a second backward pass was accepted"
    assert "second backward() before step()" in twice.text, twice
    assert scaled is not None, "a GradScaler was accepted"
    assert "before the GradScaler" in scaled.text, scaled
    assert not torch.equal(moved, vector(model)), "was not averaged"


def test_updates_in_backward(pool: harness.Pool) -> None:
    pool.run(in_backward)


SCALED = ["GradientTracking", "DecentLaM", "QuasiGlobalMomentum", "ExactDiffusion", "LocalSteps"]


def scaled(rank: int, _world: int, order: str) -> None:
    """A scaler changes nothing; rank 1's infinite gradients poison nobody."""
    from bluefog_pg import optim

    ends = []
    for scale in (1.0, 4096.0):
        model, optimizer = wrapped(rank, order=getattr(optim, order)(), topology="ring")
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for number in range(3):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, rank, number)).backward()
            scaler.step(optimizer)
            scaler.update()
        ends.append(vector(model))
        optimizer.zero_grad()
        scaler.scale(loss_of(model, rank, 0) * (float("inf") if rank == 1 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
        step(model, optimizer, rank)
        assert vector(model).isfinite().all(), vector(model)
        optimizer.close()
    off = (ends[0] - ends[1]).abs().max().item()
    assert off < 1e-9, f"off by {off}"


@pytest.mark.parametrize("order", SCALED)
def test_scalers_and_algorithms(pool: harness.Pool, order: str) -> None:
    pool.run(scaled, order)


def warming(rank: int, _world: int, order: str) -> None:
    """Learning rates 0, 0.05, 0.1."""
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=getattr(optim, order)(), topology="ring")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: epoch / 2)
    before = vector(model)
    for number in range(3):
        step(model, optimizer, rank, number)
        scheduler.step()
    moved = (vector(model) - before).abs()
    assert moved.isfinite().all() and moved.max() > 0, f"moved by {moved.max()}"


@pytest.mark.parametrize("order", SCALED)
def test_rates_that_begin_at_zero(pool: harness.Pool, order: str) -> None:
    pool.run(warming, order)


def loaded(rank: int, _world: int, options: dict[str, Any]) -> None:
    """A state that is loaded amid a step stays; windows do not bring back what was before."""
    model, optimizer = wrapped(rank, topology="full", **options)
    state = {name: torch.full_like(value, 42.0) for name, value in model.state_dict().items()}
    if options.get("communication") != "win_put":
        step(model, optimizer, rank)
        model(torch.zeros(1, 1, 4, 4, dtype=torch.float64))
    model.load_state_dict(state)
    optimizer.zero_grad()
    inrank.barrier(rank, 4)
    if rank == 0:  # first, and alone
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step() if options else optimizer.synchronize()
    found = vector(model)
    inrank.barrier(rank, 4)
    optimizer.close()
    assert found.sub(42).abs().max() < 1e-12, f"{found.min()} to {found.max()}"


@pytest.mark.parametrize("options", [{}, {"communication": "win_put", "order": "atc"}])
def test_a_state_that_is_loaded_amid(pool: harness.Pool, options: dict[str, Any]) -> None:
    pool.run(loaded, options)


def skipping(rank: int, _world: int) -> None:
    """The average under way is finished first, and is not lost."""
    model, optimizer = wrapped(rank, topology="full")
    mean = gathered(vector(model)).mean(0)
    loss_of(model, rank, 0).backward()
    grad = torch.cat([p.grad.flatten() for p in model.parameters()])
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.synchronize()
    wanted = mean - 0.1 * (grad + 0.01 * mean)
    off = (vector(model) - wanted).abs().max().item()
    assert off < 1e-12, f"off by {off}"


def test_skip_synchronize(pool: harness.Pool) -> None:
    pool.run(skipping)


def misspelt(rank: int, _world: int) -> None:
    """A call that fails leaves the optimizer as it was, and the next one does."""
    import bluefog_pg

    model = nn.Linear(2, 2)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    error = inrank.catch(
        lambda: bluefog_pg.DistributedOptimizer(optimizer, model, topolgy="ring")  # type: ignore[call-arg]
    )
    assert error is not None, "a misspelt argument was accepted"
    assert error.kind == "TypeError", error
    assert type(optimizer) is torch.optim.SGD, optimizer
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, model)
    refused = inrank.catch(setattr, optimizer, "communication", "gossip")
    assert refused is not None, "an unknown communication was accepted"
    assert optimizer.communication == "neighbor_allreduce", optimizer.communication
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.close()
    closed = inrank.catch(setattr, optimizer, "communication", "allreduce")
    again = bluefog_pg.DistributedOptimizer(optimizer, model)
    model(torch.ones(1, 2)).sum().backward()
    again.step()
    assert closed is not None, "a closed optimizer was changed"
    assert "was closed" in closed.text, closed
    assert again.tally.exchanges == 1, again.tally


def test_calls_that_fail_and_next_ones(pool: harness.Pool) -> None:
    pool.run(misspelt)


def copied(rank: int, _world: int) -> None:
    """Copies of the model (EMA) tell of no passes; those of the optimizer are plain."""
    model, optimizer = wrapped(rank, topology="full")
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged(torch.zeros(1, 1, 4, 4, dtype=torch.float64))
    pickle.loads(pickle.dumps(model))
    assert not optimizer.tally.exchanges, "the copy has told of a pass"
    other = copy.deepcopy(optimizer)
    assert type(other) is torch.optim.SGD, type(other)
    assert other.param_groups[0]["lr"] == 0.1, other
    step(model, optimizer, rank)
    averaged.update_parameters(model)
    assert optimizer.tally.exchanges == 1, f"{optimizer.tally}"


def test_copies(pool: harness.Pool) -> None:
    pool.run(copied)


def dropped(rank: int, _world: int) -> None:
    """An optimizer that nobody holds averages no more."""
    import gc

    model, optimizer = wrapped(rank, topology="full", communication="gradient_allreduce")
    step(model, optimizer, rank)
    del optimizer
    gc.collect()
    model.zero_grad()
    loss_of(model, rank, 1).backward()
    grads = gathered(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert grads.std(0).max() > 1e-3, "still averaged"


def test_an_optimizer_that_is_dropped(pool: harness.Pool) -> None:
    pool.run(dropped)


def with_iterator(rank: int, world: int) -> None:
    """Of two buckets, which take the same steps: all ranks agree after two of one-peer exp2."""
    import bluefog_pg

    def peers() -> Any:
        for distance in itertools.cycle((1, 2)):
            yield [(rank + distance) % world], [(rank - distance) % world]

    model = make_model()
    shift(model, rank)
    still = bluefog_pg.DecentralizedDataParallel(
        model,
        lambda named: torch.optim.SGD([p for _, p in named], lr=0.0),
        topology=peers(),
        bucket_size_in_mb=200 / 2**20,
    )
    for number in range(3):
        loss_of(still, rank, number).backward()
    apart = gathered(vector(model)).std(0).max().item()
    still.close()
    assert apart < 1e-12, f"{apart} apart"


def test_an_iterator_of_steps_for_all_buckets(pool: harness.Pool) -> None:
    pool.run(with_iterator)


def compressed(rank: int, world: int, kind: str) -> None:
    """Routes that repeat for one rank and not for another: as without compression."""
    import bluefog_pg
    from bluefog_pg import optim

    links = [[(0, 1), (2, 3)], [(0, 1), (1, 2), (2, 3)]]
    graphs = []
    for pairs in links:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(world))
        graph.add_edges_from(pairs + [(b, a) for a, b in pairs])
        graphs.append(graph)
    ends = []
    for compression in (None, optim.TopK(1.0) if kind == "all" else kind):
        model = nn.Linear(3, 1, bias=False).double()
        nn.init.constant_(model.weight, float(rank**2))
        optimizer = bluefog_pg.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.0),
            model,
            topology=graphs,
            compression=compression,
        )
        for _ in range(40 if kind != "all" else 4):
            model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
            optimizer.step()
        ends.append(vector(model))
        optimizer.close()
    off = (ends[0] - ends[1]).abs().max().item()
    assert off < (1e-2 if kind == "bf16" else 1e-5), f"{ends}"


@pytest.mark.parametrize("kind", ["all", "bf16"])
def test_compression_where_routes_repeat(pool: harness.Pool, kind: str) -> None:
    pool.run(compressed, kind)


def of_another_rank(rank: int, _world: int, path: str, order: str) -> float:
    """All load what rank 0 has saved; how far the sum of what they remember is from what it is."""
    import torch.distributed as dist

    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=getattr(optim, order)(), topology="ring")
    for number in range(3):
        step(model, optimizer, rank, number)
    if rank == 0:
        torch.save(optimizer.state_dict(), path)
    dist.barrier()
    again, renewed = wrapped(rank, order=getattr(optim, order)(), topology="ring")
    renewed.load_state_dict(torch.load(path))
    step(again, renewed, rank, 3)
    memory = renewed.state_dict()["bluefog"]["memory"]
    if order == "ExactDiffusion":
        (flat,) = memory["correction"]
        return gathered(flat).sum(0).abs().max().item()
    (tracker,), (gradient,) = memory["tracker"], memory["gradient"]
    return (gathered(tracker) - gathered(gradient)).sum(0).abs().max().item()


@pytest.mark.parametrize("order", ["ExactDiffusion", "GradientTracking"])
def test_states_of_another_rank_are_begun_anew(
    pool: harness.Pool, order: str, tmp_path: Any
) -> None:
    assert max(pool.run(of_another_rank, str(tmp_path / "state"), order)) < 1e-12


def unalike(rank: int, _world: int, what: str) -> inrank.Raised | None:
    import bluefog_pg

    odd = rank == 2
    model: Any = nn.Conv2d(2, 2, 3)
    if odd and what == "strides":
        model = model.to(memory_format=torch.channels_last)
    if odd and what == "shape":
        model = nn.Linear(4, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"every": 2 if odd else 1} if what == "every" else {}
    return inrank.catch(lambda: bluefog_pg.DistributedOptimizer(optimizer, model, **options))


@pytest.mark.parametrize("what", ["strides", "shape", "every"])
def test_ranks_that_are_not_alike(pool: harness.Pool, what: str) -> None:
    for error in pool.run(unalike, what):
        named = "every: rank 0 has 1, rank 2 2" if what == "every" else "differ in parameters: rank"
        assert error is not None, "was accepted"
        assert error.kind == "ValueError", error
        assert error.text.startswith("[bluefog] rank "), error
        assert named in error.text, error


def stopped_pairs(rank: int, world: int) -> float:
    """The last of eight ranks is thirty times slower; how far ranks are apart at the end."""
    import bluefog_pg
    from bluefog_pg import optim

    model = nn.Linear(3, 1, bias=False).double()
    nn.init.constant_(model.weight, float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0),
        model,
        order=optim.AsynchronousPairs(),
        topology="full",
    )
    far = 0.0
    for _ in range(10 if rank == world - 1 else 300):
        model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
        far = max(far, (vector(model) - (world - 1) / 2).abs().max().item())
        time.sleep(0.06 if rank == world - 1 else 0.002)
    optimizer.close()
    return far


@pytest.mark.slow
def test_pairs_beside_a_slow_rank(pool: harness.Pool) -> None:
    """What moves a rank is an average: nobody leaves the range in which they began."""
    harness.run_ranks(within_range, 8)


def within_range(rank: int, world: int) -> None:
    assert stopped_pairs(rank, world) <= (world - 1) / 2 + 1e-9


def scheduled_windows(rank: int, world: int, communication: str) -> list[float]:
    """One peer a step, and no rank waits: all come to agree on what lies between their values."""
    import bluefog_pg

    model = nn.Linear(3, 1, bias=False).double()
    nn.init.constant_(model.weight, float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0),
        model,
        communication,
        topology="one-peer-exp2",
    )
    for _ in range(80):
        model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
        time.sleep(0.002)
    inrank.barrier(rank, world)
    found = vector(model).tolist()
    optimizer.close()
    return found


@pytest.mark.parametrize("communication", ["win_put", "win_get"])
def test_windows_over_a_schedule(pool: harness.Pool, communication: str) -> None:
    found = torch.tensor(pool.run(scheduled_windows, communication))
    assert found.std(0).max() < 0.1
    assert 0 < found.min()
    assert found.max() < 3
