"""Models train themselves in backward() by DecentralizedDataParallel."""

from __future__ import annotations

import itertools
import time
from typing import Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector

from tests.support import harness
from tests.support.optimizers import (
    OPTIMIZERS,
    STEPS,
    assert_at,
    expected,
    gathered,
    loss_of,
    make_model,
    vector,
)


def wrapped(rank: int, **options: Any) -> Any:
    import bluefog_pg

    model = make_model(rank)
    return bluefog_pg.DecentralizedDataParallel(
        model,
        lambda named: OPTIMIZERS["sgd"]([param for _, param in named]),
        bucket_size_in_mb=200 / 2**20,
        **options,
    )


def trained(rank: int, world: int, topology: str) -> None:
    """Ranks train as by averages during forward and backward, wherever those begin."""
    model = wrapped(rank, topology=topology)
    for step in range(STEPS):
        loss_of(model, rank, step).backward()
    assert_at(model, expected(world, "sgd", "neighbor_allreduce", "awc", topology)[rank])
    grads = [param.grad for param in model.parameters()]
    model.close()
    assert all(grad is None for grad in grads), f"gradients are left: {grads}"


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["ring", "one-peer-exp2"])
def test_steps(pool: harness.Pool, topology: str) -> None:
    pool.run(trained, topology)


def test_three_ranks(pool: harness.Pool) -> None:
    pool.run(trained, "one-peer-exp2", world=3)


def averaged(rank: int, world: int, sync: bool) -> None:
    """The distance is what it was, parameters agree, and go on from there."""
    model = wrapped(rank, topology="ring", sync=sync)
    for step in range(3):
        loss_of(model, rank, step).backward()
    for optimizer in model._optimizers:
        optimizer.synchronize()  # The distance is that of these parameters.
    before = gathered(vector(model))
    wanted = (before - before.mean(0)).square().sum(1).mean().sqrt().item()
    distance = model.global_avg()
    apart = gathered(vector(model)).std(0).max().item()
    again = model.global_avg()
    model.close()
    assert abs(distance - wanted) < 1e-9 * wanted, f"a distance of {distance}, not of {wanted}"
    assert apart < 1e-12, f"{apart} apart after the average"
    assert again < 1e-9, f"a distance of {again} after the average"


@pytest.mark.parametrize("sync", [True, False])
def test_global_average(pool: harness.Pool, sync: bool) -> None:
    pool.run(averaged, sync)


def alone(rank: int, _world: int) -> None:
    model, plain = wrapped(rank), make_model(rank)
    own = OPTIMIZERS["sgd"](plain.parameters())
    for step in range(3):
        loss_of(model, rank, step).backward()
        own.zero_grad()
        loss_of(plain, rank, step).backward()
        own.step()
    model.global_avg()
    found, wanted = vector(model), vector(plain)
    assert torch.equal(found, wanted), f"{found} instead of {wanted}"


def test_one_rank(pool: harness.Pool) -> None:
    pool.run(alone, world=1)


def with_extras(rank: int, world: int) -> list[Any]:
    """Train with a scheduler, clipped and accumulated gradients, a later topology, and a scaler."""
    import bluefog_pg

    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    wrapped = bluefog_pg.DecentralizedDataParallel(
        model,
        lambda named: torch.optim.SGD([param for _, param in named], lr=1.0),
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
        topology=nx.empty_graph(world, create_using=nx.DiGraph),
        scaler=scaler,
        grad_clip_norm=1.0,
    )
    found = []

    def back() -> list[float]:
        scaler.scale(wrapped(torch.tensor([[3.0, 4.0]])).sum()).backward()
        return [round(value, 6) for value in model.weight.detach()[0].tolist()]

    found.append(back())  # The gradient is clipped to (0.6, 0.8).
    wrapped.set_accumulate_grad(True)
    found.append(back())
    wrapped.set_accumulate_grad(False)
    found.append(back())
    model.load_state_dict({"weight": torch.full((1, 2), float(rank))})
    wrapped.set_topology({"topology": bluefog_pg.topology_util.FullyConnectedGraph(world)})
    found.append(back())  # It moves from the mean, 1.5, by a quarter of (0.6, 0.8).
    wrapped.close()
    return found


@pytest.mark.filterwarnings("ignore:.*strongly connected")
def test_extras(pool: harness.Pool) -> None:
    wanted = [[-0.6, -0.8], [-0.6, -0.8], [-0.9, -1.2], [1.35, 1.3]]
    assert pool.run(with_extras) == [wanted] * 4


def beside_a_slow_one(rank: int, world: int) -> float:
    """Return the seconds of this rank's steps."""
    model = wrapped(rank, sync=False)
    dist.barrier()
    begun = time.monotonic()
    for step in range(20):
        loss_of(model, rank, step).backward()
        time.sleep(0.15 if rank == world - 1 else 0.005)
    took = time.monotonic() - begun
    dist.barrier()
    model.global_avg()
    assert bool((gathered(parameters_to_vector(model.parameters()).detach()).std(0) < 1e-12).all())
    model.close()
    return took


def test_nobody_waits_for_a_slow_one(pool: harness.Pool) -> None:
    *fast, slow = pool.run(beside_a_slow_one)
    assert max(fast) < slow / 2


def test_accumulated_moments_of_one_step_are_adams() -> None:
    from bluefog_pg import optim

    for ours, theirs in (
        (optim.AccumAdam, torch.optim.Adam),
        (optim.AccumAdamW, torch.optim.AdamW),
    ):
        one, other = make_model(), make_model()
        mine = ours(one.parameters(), lr=0.01, weight_decay=0.1, accum_iter=1)
        wanted = theirs(other.parameters(), lr=0.01, weight_decay=0.1)
        for step in range(5):
            for model, optimizer in ((one, mine), (other, wanted)):
                optimizer.zero_grad()
                loss_of(model, 0, step).backward()
                optimizer.step()
        assert torch.allclose(vector(one), vector(other), rtol=0, atol=1e-9)


def test_accumulated_moments_change_every_few_steps() -> None:
    from bluefog_pg import optim

    model = make_model()
    adam = optim.AccumAdam(model.parameters(), accum_iter=3)
    moments = []
    for step in range(6):
        adam.zero_grad()
        loss_of(model, 0, step).backward()
        adam.step()
        moments.append(adam.state[model[2].weight]["exp_avg"].norm().item())
    assert moments[0] == moments[1] == 0 < moments[2] == moments[3] == moments[4] != moments[5]


def test_batches_go_on_across_epochs() -> None:
    from bluefog_pg.optim import LocalStepRandomBatchSampler

    sampler = LocalStepRandomBatchSampler(range(10), 4, base_seed=1, rank=2)
    drawn = [index for _ in range(5) for batch in sampler for index in batch]
    assert len(drawn) == 60
    assert all(sorted(drawn[at : at + 10]) == list(range(10)) for at in range(0, 60, 10))
    dropping = LocalStepRandomBatchSampler(range(10), 4, base_seed=1, rank=2, drop_last=True)
    for _ in range(3):
        epoch = [index for batch in dropping for index in batch]
        assert len(set(epoch)) == len(epoch) == 8
    with pytest.raises(ValueError, match="batch_size must be 1 to 10"):
        LocalStepRandomBatchSampler(range(10), 11, base_seed=1)


def with_iterator(rank: int, world: int) -> None:
    """Both buckets take the same steps: all ranks agree after two of one-peer exp2."""
    import bluefog_pg

    def peers() -> Any:
        for distance in itertools.cycle((1, 2)):
            yield [(rank + distance) % world], [(rank - distance) % world]

    model = make_model(rank)
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


def rolled_back(rank: int, world: int) -> None:
    """Rank 0 loads a state, and then gives the others what it has, as programs do."""
    import bluefog_pg

    model = wrapped(rank, topology="one-peer-exp2")
    for number in range(3):
        loss_of(model, rank, number).backward()
    saved = {name: torch.full_like(value, 2.0) for name, value in model.state_dict().items()}
    if rank == 0:
        model.load_state_dict(saved)
    bluefog_pg.broadcast_parameters(model.state_dict(), 0)
    assert_at(model, 2.0)
    for number in range(3):
        loss_of(model, rank, number).backward()
    model.global_avg()
    model.double()
    model.close()


def test_one_rank_loads_and_broadcasts(pool: harness.Pool) -> None:
    pool.run(rolled_back)


def converted(rank: int, world: int) -> None:
    """A model that is converted between two averages stays what it has become."""
    model = wrapped(rank, topology="ring")
    loss_of(model, rank, 0).backward()
    model.float()
    model.global_avg()
    assert all(param.dtype == torch.float32 for param in model.parameters())
    model(torch.ones(2, 1, 4, 4)).sum().backward()
    assert all(param.dtype == torch.float32 for param in model.parameters())
    model.close()
    model.double()
    for optimizer in model.optimizers:
        optimizer.step()
    assert all(param.dtype == torch.float64 for param in model.parameters())


def test_conversions(pool: harness.Pool) -> None:
    pool.run(converted)
