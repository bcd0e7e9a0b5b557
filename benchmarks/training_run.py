"""This program is one rank of a training whose computing is emulated, on one host or on many."""

from __future__ import annotations

import bisect
import copy
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import emulated
import launch
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import bluefog_pg
from bluefog_pg import optim

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import digits

LIMIT = timedelta(seconds=120)
EVALUATE_EVERY = 4  # steps between two evaluations
TICK = 0.01  # seconds between two moments at which the loss is computed


def make_training(method: str, net: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return the model and optimizer that the words of `method` name.

    The words are ddp and a backend, or none, or options of DistributedOptimizer, and then sgd and a
    learning rate.
    """
    first, *others = words = method.split()
    optimizer: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    if words[-1].startswith("sgd"):
        rate = float(words.pop().removeprefix("sgd"))
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    if first == "ddp":
        group = dist.new_group(backend=others[0], timeout=LIMIT)
        return DistributedDataParallel(net, process_group=group), optimizer
    if first == "none":
        return net, optimizer
    options: dict[str, Any] = {"topology": "one-peer-exp2"}
    for word in words:
        if word in ("awc", "atc"):
            options["order"] = word
        elif word in ("win_put", "gradient_allreduce"):
            options["communication"] = word
        elif word == "pairs":
            options["order"] = optim.AsynchronousPairs()
        elif word.startswith("every"):
            options["every"] = int(word.removeprefix("every"))
        else:
            options["compression"] = word
    return net, bluefog_pg.DistributedOptimizer(optimizer, net, **options)


def stepper(
    net: nn.Module, optimizer: torch.optim.Optimizer, me: launch.Rank
) -> Callable[[], Tensor]:
    images, labels, *_ = digits.load_data(me.rank, me.n, seed=0)
    order = torch.Generator().manual_seed(me.rank)

    def step() -> Tensor:
        batch = torch.randint(len(labels), (digits.BATCH,), generator=order)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        return loss

    return step


def rate(me: launch.Rank, method: str) -> float:
    """Return the slowest rank's seconds of a step."""
    plain, _ = emulated.make_net(me.args["width"], me.args["seconds"])
    net, optimizer = make_training(method, plain)
    step = stepper(net, optimizer, me)
    for _ in range(3):
        step()
    me.together(f"{method} begins")
    begun = time.perf_counter()
    for _ in range(me.args["steps"]):
        step()
    took = (time.perf_counter() - begun) / me.args["steps"]
    me.together(f"{method} ends")
    if isinstance(optimizer, bluefog_pg.DistributedOptimizer):
        optimizer.close()
    return me.slowest(method, took)


def until_accurate(me: launch.Rank, method: str) -> dict[str, float]:
    """Train until all ranks have a model that is right often enough, and return the time.

    The model is the mean of the ranks' parameters, which a last all_reduce forms. That one counts,
    in bfloat16 for the compressed method. Evaluating the model takes no time.
    """
    wire = torch.bfloat16 if "int8" in method else torch.float32
    plain, device = emulated.make_net(me.args["width"], me.args["seconds"])
    net, optimizer = make_training(method, plain)
    step = stepper(net, optimizer, me)
    *_, images, labels = digits.load_data(me.rank, me.n, seed=0)
    is_decentralized = isinstance(optimizer, bluefog_pg.DistributedOptimizer)
    seconds, steps, right = 0.0, 0, 0.0
    while right < me.args["target"] and steps < me.args["most_steps"]:
        me.together(f"{method} {steps}")
        begun = time.perf_counter()
        for _ in range(EVALUATE_EVERY):
            step()
        seconds += time.perf_counter() - begun
        steps += EVALUATE_EVERY
        with device.off():
            right = digits.accuracy(mean_of(net, wire), images, labels)
    me.together(f"{method} at the end")
    if is_decentralized:
        begun = time.perf_counter()
        mean_of(net, wire)
        seconds += time.perf_counter() - begun
        optimizer.close()
    return {"seconds": me.slowest(method, seconds), "steps": steps, "accuracy": right}


def beside_a_slow_rank(me: launch.Rank, method: str) -> float:
    """Return the seconds until the loss of all data is the target; rank 0 computes 5 times as long.

    The loss is that of the mean of the ranks' parameters at that time, which is formed afterwards.
    """
    slow = 5 * me.args["seconds"]
    plain, device = emulated.make_net(
        me.args["width"], slow if me.rank == 0 else me.args["seconds"]
    )
    net, optimizer = make_training(method, plain)
    step = stepper(net, optimizer, me)
    limit = me.args["limit"]
    seen = [(0.0, nn.utils.parameters_to_vector(plain.parameters()).detach())]
    # A method that waits makes equally many steps on all ranks.
    waits = "win" not in method and "pairs" not in method
    me.together(f"{method} begins")
    begun = time.perf_counter()
    while len(seen) <= limit / slow if waits else seen[-1][0] < limit:
        step()
        now = nn.utils.parameters_to_vector(plain.parameters()).detach()
        seen.append((time.perf_counter() - begun, now))
    if isinstance(optimizer, bluefog_pg.DistributedOptimizer):
        optimizer.close()
    with device.off():
        return first_below(me, plain, seen)


def first_below(me: launch.Rank, net: nn.Module, seen: list[tuple[float, Tensor]]) -> float:
    """Return when the mean of what ranks had then is good enough, or infinity."""
    images, labels, *_ = digits.load_data(0, 1, seed=0)
    times = [moment for moment, _ in seen]
    for tick in range(int(me.args["limit"] / TICK)):
        mean = seen[bisect.bisect_right(times, tick * TICK) - 1][1].clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        nn.utils.vector_to_parameters(mean, net.parameters())
        with torch.no_grad():
            loss = nn.functional.cross_entropy(net(images), labels).item()
        if loss <= me.args["target"]:  # All ranks have the same bytes, and so decide alike.
            return tick * TICK
    return float("inf")


def mean_of(net: nn.Module, wire: torch.dtype = torch.float32) -> nn.Module:
    """Return a model of the mean of the ranks' parameters, which travel in the type `wire`."""
    if isinstance(net, DistributedDataParallel):  # All ranks have the same parameters.
        return net.module
    found = copy.deepcopy(net)
    flat = nn.utils.parameters_to_vector(found.parameters()).detach().to(wire)
    dist.all_reduce(flat, dist.ReduceOp.AVG)
    nn.utils.vector_to_parameters(flat.float(), found.parameters())
    return found


def exact(me: launch.Rank) -> float:
    """Return the largest error, relative to the largest number."""
    numbers = [
        torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
        for rank in range(me.n)
    ]
    x, mean = numbers[me.rank].to(me.device()), torch.stack(numbers).mean(0)
    for step in range(me.n.bit_length() - 1):
        to, source = (me.rank + 2**step) % me.n, (me.rank - 2**step) % me.n
        x = bluefog_pg.neighbor_allreduce(
            x, self_weight=0.5, src_weights={source: 0.5}, dst_weights=[to]
        )
    return me.slowest("error", ((x.cpu() - mean).abs().max() / mean.abs().max()).item())


def after_epochs(me: launch.Rank, method: str) -> float:
    """Return the test accuracy of the mean of the ranks' parameters, a mean over seeds.

    Learning rates fall as a cosine.
    """
    total, device = torch.zeros(()), me.device()
    for seed in range(me.args["seeds"]):
        images, labels, *held_out = digits.load_data(me.rank, me.n, seed, device)
        torch.manual_seed(seed)
        net, optimizer = make_training(method, digits.make_net().to(device))
        shuffle, epochs = torch.Generator().manual_seed(seed + me.rank), me.args["epochs"]
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        for _ in range(epochs):
            for batch in torch.randperm(len(labels), generator=shuffle).split(digits.BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
                optimizer.step()
            schedule.step()
        if isinstance(optimizer, bluefog_pg.DistributedOptimizer):
            optimizer.close()
        total += digits.accuracy(mean_of(net), *held_out)
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return total.item() / me.args["seeds"]


def main() -> None:
    me = launch.join()
    dist.init_process_group(
        "bluefog",
        store=dist.PrefixStore("job", me.store),
        rank=me.rank,
        world_size=me.n,
        timeout=LIMIT,
    )
    if me.args["measure"] == "exact":
        me.give_back(exact(me))
    else:
        measures: list[Callable[[launch.Rank, str], Any]] = [
            rate, until_accurate, after_epochs, beside_a_slow_rank
        ]  # fmt: skip
        (measure,) = (m for m in measures if m.__name__ == me.args["measure"])
        me.give_back({method: measure(me, method) for method in me.args["methods"]})
    me.together("end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
