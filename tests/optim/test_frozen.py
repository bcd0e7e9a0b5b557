"""Parameters may be frozen and thawed, as GANs and training block by block do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support import harness
from tests.support.optimizers import gathered, loss_of, make_model, wrapped

ROWS, SIDE = 12, 3


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(SIDE, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(SIDE, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.cat([self.a, self.b])


def in_turn(rank: int, world: int, name: str, thaws_late: bool) -> float:
    """Return how far one optimizer of both blocks ends from the least of all ranks' losses."""
    import bluefog_pg
    from bluefog_pg import optim

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(world, ROWS, 2 * SIDE, generator=generator, dtype=torch.float64)
    y = torch.randn(world, ROWS, generator=generator, dtype=torch.float64)
    best = torch.linalg.lstsq(x.flatten(0, 1), y.flatten()[:, None]).solution.flatten()
    model = Blocks()
    model.b.requires_grad_(not thaws_late)
    optimizer: Any = torch.optim.SGD([model.a, model.b], lr=0.1)
    order = getattr(optim, name)()
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, order=order, topology="ring")
    for number in range(1200):
        if not thaws_late or number >= 100:
            model.a.requires_grad_(number % 2 == 0)
            model.b.requires_grad_(number % 2 == 1)
        optimizer.zero_grad()
        (0.5 * (model(x[rank]) - y[rank]).square().mean()).backward()
        optimizer.step()
    optimizer.close()
    return (torch.cat([model.a, model.b]) - best).abs().max().item()


@pytest.mark.slow
@pytest.mark.parametrize("thaws_late", [False, True])
@pytest.mark.parametrize("name", ["ExactDiffusion", "GradientTracking"])
def test_exact_methods_stay_exact(pool: harness.Pool, name: str, thaws_late: bool) -> None:
    assert max(pool.run(in_turn, name, thaws_late)) < 1e-9


def adversarial(rank: int, world: int) -> None:
    """The generator's pass goes through the frozen critic, and begins no average of it."""
    import bluefog_pg

    torch.manual_seed(0)
    models = [nn.Linear(2, 2).double(), nn.Linear(2, 1).double()]
    optimizers = [
        bluefog_pg.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model, topology="ring", every=every
        )
        for model, every in zip(models, (1, 3), strict=True)
    ]
    generator, critic = models
    for number in range(6):
        for turn, optimizer in enumerate(optimizers):
            for place, model in enumerate(models):
                model.requires_grad_(place == turn)
            optimizer.zero_grad()
            critic(generator(torch.full((1, 2), rank + number, dtype=torch.float64))).backward()
            optimizer.step()
    assert [optimizer.tally.exchanges for optimizer in optimizers] == [6, 2]
    before = [param.clone() for param in generator.parameters()]
    optimizers[0].zero_grad()
    optimizers[0].step()
    assert optimizers[0].tally.exchanges == 6, "a step of frozen parameters exchanged"
    assert all(map(torch.equal, before, generator.parameters()))
    for optimizer in optimizers:
        optimizer.close()


def test_a_pass_through_a_frozen_model(pool: harness.Pool) -> None:
    pool.run(adversarial)


def every_third(rank: int, world: int) -> int:
    """Passes are counted on, whatever is frozen between them."""
    model, optimizer = wrapped(rank, topology="ring", order="atc", every=3)
    for number in range(12):
        for place, param in enumerate(model.parameters()):
            param.requires_grad_(place % 2 == number % 2)
        optimizer.zero_grad()
        loss_of(model, rank, number).backward()
        optimizer.step()
    exchanges: int = optimizer.tally.exchanges
    optimizer.close()
    return exchanges


def test_passes_are_counted_on(pool: harness.Pool) -> None:
    assert pool.run(every_third) == [4] * 4


def converted_layout(rank: int, world: int) -> tuple[int, ...]:
    """A layout that the program chooses after the wrap is kept."""
    model, optimizer = wrapped(rank, topology="full", order="atc")
    model[0].to(memory_format=torch.channels_last)
    model[0].weight.data = model[0].weight.data.contiguous()
    loss_of(model, rank, 0).backward()
    optimizer.step()
    assert (gathered(model[0].weight.detach().contiguous()).std(0) < 1e-12).all()
    optimizer.close()
    return model[0].weight.stride()


def test_a_layout_is_kept(pool: harness.Pool) -> None:
    assert pool.run(converted_layout) == [make_model()[0].weight.contiguous().stride()] * 4


def grown(rank: int, world: int) -> None:
    """A layer that is thawed later leaves what is remembered of the others as it is."""
    import bluefog_pg
    from bluefog_pg import optim

    model = make_model(rank)
    model[0].requires_grad_(False)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = bluefog_pg.DistributedOptimizer(
        plain, model, "allreduce", order=optim.LocalSteps(lambda a: torch.optim.Adam(a)), every=2
    )
    for number in range(8):
        if number == 4:
            model[0].requires_grad_(True)
        optimizer.zero_grad()
        loss_of(model, rank, number).backward()
        optimizer.step()
    steps = [state["step"].item() for state in outer_states(optimizer)]
    assert steps == [4.0] * len(steps), steps
    apart = gathered(torch.cat([p.detach().flatten() for p in model.parameters()])).std(0)
    # The anchors of the layer's first round were each rank's own.
    assert (apart < 1e-12).all(), apart
    optimizer.close()


def outer_states(optimizer: Any) -> list[Any]:
    return list(optimizer.state_dict()["bluefog"]["memory"]["outer"]["state"].values())


def test_a_layer_that_is_thawed_later(pool: harness.Pool) -> None:
    pool.run(grown)


CONVERSIONS: dict[str, Any] = {"awc": "awc", "GradientTracking": None, "ExactDiffusion": None}


def converted(rank: int, world: int, name: str) -> None:
    """A model that is converted amid a period, with a frozen layer, stays what it has become."""
    from bluefog_pg import optim

    order = CONVERSIONS[name] or getattr(optim, name)()
    model, optimizer = wrapped(rank, topology="ring", order=order)
    for number in range(3):
        optimizer.zero_grad()
        loss_of(model, rank, number).backward()
        optimizer.step()
    model[0].requires_grad_(False)
    loss_of(model, rank, 3)  # This begins an average that does not end in these parameters.
    model.float()
    x = torch.ones(2, 1, 4, 4)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        assert all(param.dtype == torch.float32 for param in model.parameters())
        optimizer.step()
    assert all(param.dtype == torch.float32 for param in model.parameters())
    optimizer.close()


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_converted_model_stays_converted(pool: harness.Pool, name: str) -> None:
    pool.run(converted, name)


def thawed_before_the_step(rank: int, world: int) -> int:
    """The average that is due is made, though the parameters are arranged anew before it."""
    model, optimizer = wrapped(rank, topology="ring", every=3)
    model[0].requires_grad_(False)
    optimizer.close()
    optimizer = rewrapped(model, topology="ring", every=3)
    for number in range(3):
        optimizer.zero_grad()
        loss_of(model, rank, number).backward()
        if number == 2:
            model[0].requires_grad_(True)
        optimizer.step()
    exchanges: int = optimizer.tally.exchanges
    optimizer.close()
    return exchanges


def rewrapped(model: nn.Module, **options: Any) -> Any:
    import bluefog_pg

    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    return bluefog_pg.DistributedOptimizer(plain, model, **options)


def test_a_layer_thawed_between_backward_and_step(pool: harness.Pool) -> None:
    assert pool.run(thawed_before_the_step) == [2] * 4


def resumed(rank: int, world: int) -> None:
    """A state that was saved after a thaw comes back, though it is loaded before one."""
    from bluefog_pg import optim

    model = make_model(rank)
    optimizer = rewrapped(model, topology="ring", order=optim.ExactDiffusion())
    for number in range(4):
        optimizer.zero_grad()
        loss_of(model, rank, number).backward()
        optimizer.step()
    saved = optimizer.state_dict()
    optimizer.close()
    model[0].requires_grad_(False)
    optimizer = rewrapped(model, topology="ring", order=optim.ExactDiffusion())
    optimizer.load_state_dict(saved)
    model[0].requires_grad_(True)
    loss_of(model, rank, 4)
    memory = optimizer.state_dict()["bluefog"]["memory"]["correction"]
    before = saved["bluefog"]["memory"]["correction"]
    assert all(map(torch.equal, memory, before))
    optimizer.close()


def test_a_state_that_was_saved_after_a_thaw(pool: harness.Pool) -> None:
    pool.run(resumed)
