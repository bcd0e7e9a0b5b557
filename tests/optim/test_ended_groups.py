"""Optimizers whose process group is destroyed give way to others that take over from them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.one_weight import ONE, alike_weights, sgd, warned_by

METHODS: dict[str, dict[str, Any]] = {
    "awc": {},
    "atc": {"order": "atc"},
    "win_put": {"communication": "win_put", "bucket_bytes": 8},
    "push_sum": {"communication": "push_sum"},
    "pairs": {"order": "AsynchronousPairs"},
    "decentralized": {},
    "gradients": {"communication": "gradient_allreduce"},
    "awc, every second": {"every": 2},
    "in backward": {"order": "AdaptThenCombine"},
}


def wrapped(name: str, model: Any, optimizer: Any, group: Any) -> Any:
    import bluefog_pg
    from bluefog_pg import optim

    if name == "decentralized":
        return bluefog_pg.DecentralizedDataParallel(
            model, lambda named: torch.optim.SGD([p for _, p in named], lr=0.1), group=group
        )
    options = dict(METHODS[name])
    if options.get("order") == "AsynchronousPairs":
        options["order"] = optim.AsynchronousPairs()
    if options.get("order") == "AdaptThenCombine":
        options["order"] = optim.AdaptThenCombine(in_backward=True)
    return bluefog_pg.DistributedOptimizer(optimizer, model, group=group, **options)


def train(name: str, model: Any, wrapper: Any, steps: int = 3) -> None:
    for _ in range(steps):
        if name == "decentralized":
            wrapper(ONE).sum().backward()
        else:
            wrapper.zero_grad()
            model(ONE).sum().backward()
            wrapper.step()


def remade(rank: int, world: int, name: str, how: str) -> None:
    """Each way to leave the old group behind ends in a training that goes on in the new one."""
    everyone = list(range(world))
    model = alike_weights()
    optimizer = sgd(model)
    old = dist.new_group(everyone)
    wrapper = wrapped(name, model, optimizer, old)
    train(name, model, wrapper)
    if how == "amid a pass":
        (wrapper if name == "decentralized" else model)(ONE)
    dist.destroy_process_group(old)
    del old
    if how == "closed after":
        wrapper.close()
    new = dist.new_group(everyone)
    again = wrapped(name, model, optimizer, new)
    train(name, model, again)
    again.close()
    dist.destroy_process_group(new)


@pytest.mark.parametrize("how", ["not closed", "closed after", "amid a pass"])
@pytest.mark.parametrize("name", METHODS)
def test_a_new_group_takes_the_model(pool: harness.Pool, name: str, how: str) -> None:
    pool.run(remade, name, how)


def orphaned(rank: int, world: int, name: str) -> inrank.Raised | None:
    """A step without the group says what to do; the model alone may be used."""
    model = alike_weights()
    group = dist.new_group(list(range(world)))
    optimizer = wrapped(name, model, sgd(model), group)
    train(name, model, optimizer)
    dist.destroy_process_group(group)
    del group
    for _ in range(2):
        model(ONE).sum().backward()
        model.load_state_dict(model.state_dict())
    error = inrank.catch(optimizer.step)
    optimizer.close()
    optimizer.step()
    return error


@pytest.mark.parametrize("name", [name for name in METHODS if name != "decentralized"])
def test_a_step_without_the_group(pool: harness.Pool, name: str) -> None:
    for error in pool.run(orphaned, name):
        harness.raised(error, "NotRunning", text="its process group has been destroyed. close()")


def in_two_groups(rank: int, world: int) -> list[Any]:
    """The second optimizer of the parameters has them, in whichever group."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = alike_weights(float(rank))
    first = wrapped("awc", model, sgd(model), dist.group.WORLD)
    second: list[Any] = []
    told = warned_by(
        lambda: second.append(wrapped("awc", model, sgd(model), pairs[rank // 2])),
        "another one has averaged these parameters until now",
    )
    train("awc", model, second[0])
    found = [told, first.is_closed, first.tally.exchanges, second[0].tally.exchanges]
    assert model.weight.item() == pytest.approx(rank // 2 * 2 + 0.5 - 0.3)
    second[0].close()
    dist.barrier()
    for pair in pairs[rank // 2 : rank // 2 + 1]:
        dist.destroy_process_group(pair)
    return found


def test_two_groups_of_one_model(pool: harness.Pool) -> None:
    assert pool.run(in_two_groups) == [[1, True, 0, 3]] * 4
