"""A rank of speed.py runs these functions, which time two things in turns."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bluefog_pg
from bluefog_pg.optim.messages import Forms, Formulas, forms_of
from tests.gpu import kernels
from tests.support import inrank

MIB = 1 << 20
BIG = 64 * MIB
NEAR = 1.02


@dataclass(frozen=True)
class Figure:
    what: str
    ratio: float  # the ratio of times, which is below 1 where the first one is faster
    seconds: tuple[float, float]
    goal: float | None = None  # the greatest ratio that reaches the goal


def compare(
    what: str,
    ours: Callable[[], Any],
    other: Callable[[], Any],
    rounds: int,
    turns: int = 1,
    goal: float | None = None,
) -> Figure:
    """Return the medians of rounds of `turns` calls each. The first two rounds do not count.

    The two take turns at beginning a round.
    """
    took: tuple[list[float], list[float]] = ([], [])
    sides = list(zip((ours, other), took, strict=True))
    for _ in range(rounds + 2):
        for call, times in sides:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(turns):
                call()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) / turns)
        sides.reverse()
    first, second = (median(times[2:]) for times in took)
    return Figure(what, first / second, (first, second), goal)


def weighted_sums(_rank: int, _world: int, device: str, size: int) -> list[Figure]:
    """Compare weighted sums with a copy, for each byte that is read or written."""
    api, found = kernels.kernels(), list[Figure]()
    for k in (1, 2, 4, 8):
        inputs = [torch.ones(size // 4, device=device) for _ in range(k + 1)]
        out, weights = torch.empty_like(inputs[0]), [1 / (k + 1)] * (k + 1)
        timed = compare(
            f"weighted sum of {k + 1} tensors of {size // MIB} MiB over a copy, by bytes moved",
            lambda out=out, inputs=inputs, weights=weights: api.add(out, inputs, weights),
            lambda out=out, x=inputs[0]: api.copy(
                out.data_ptr(), x.data_ptr(), size, kernels.stream()
            ),
            rounds=15, turns=10,
        )  # fmt: skip
        found.append(Figure(timed.what, timed.ratio * 2 / (k + 2), timed.seconds, 1 / 0.9))
    return found


def messages(_rank: int, _world: int, device: str, size: int) -> list[Figure]:
    """Compare kernels with formulas, for the messages of optimizers that compress."""
    x = torch.randn(size // 4, device=device)
    count, found = len(x) // 100, list[Figure]()
    by_kernels, by_formulas = forms_of(x), Formulas()
    assert not isinstance(by_kernels, Formulas)
    forms: dict[str, Callable[[Forms], Any]] = {
        "bfloat16": lambda by: by.narrow(x, torch.bfloat16),
        "int8": lambda by: by.quantize(x, 256),
        "the largest 1 %": lambda by: by.pick_largest(x, count),
    }
    for name, form in forms.items():
        found.append(
            compare(
                f"message of {size // MIB} MiB: {name}, by kernels over formulas",
                lambda form=form: form(by_kernels),
                lambda form=form: form(by_formulas),
                rounds=15, turns=5,
            )
        )  # fmt: skip
    return found


SIZES = {"4 KiB": 4096, "4 MiB": 4 * MIB, "64 MiB": BIG}
Call = Callable[[torch.Tensor, torch.Tensor, dist.ProcessGroup], Any]
# A group of one gives as much as it takes in each of these calls.
CALLS: dict[str, Call] = {
    "all_reduce": lambda _, x, group: dist.all_reduce(x, group=group),
    "all_gather": lambda out, x, group: dist.all_gather_into_tensor(out, x, group=group),
    "reduce_scatter": lambda out, x, group: dist.reduce_scatter_tensor(out, x, group=group),
    "broadcast": lambda _, x, group: dist.broadcast(x, 0, group=group),
    "all_to_all": lambda out, x, group: dist.all_to_all_single(out, x, group=group),
}


def collectives(_rank: int, world: int, device: str, other: str) -> list[Figure]:
    """Compare collectives over pairs of groups that are made anew, either one's first in turn.

    Two communicators of NCCL differ by some percent, whoever owns them.
    """
    # A rank alone has nothing to wait for. Its time is what the path of the call takes.
    pairs, rounds = (6, 50) if world == 1 else (2, 5)
    turns = {"64 MiB": 2} if world > 1 else {}
    measured = [("all_reduce", text) for text in SIZES]
    measured += [(name, "4 MiB") for name in CALLS if name != "all_reduce" and world == 1]
    found: dict[tuple[str, str], list[Figure]] = {each: [] for each in measured}
    for pair in range(pairs):
        names = ["bluefog", other][:: -1 if pair % 2 else 1]
        groups = {name: dist.new_group(backend=name) for name in names}
        for call, text in measured:
            out, x = torch.zeros(2, SIZES[text] // 4, device=device)
            ours, theirs = (
                functools.partial(CALLS[call], out, x, groups[name]) for name in ("bluefog", other)
            )
            what = f"{call} of {text}, ranks: {world}, bluefog over {other}"
            found[call, text].append(compare(what, ours, theirs, rounds, turns.get(text, 20)))
        for group in groups.values():
            dist.destroy_process_group(group)
    return [median_of(same, NEAR) for same in found.values()]


def median_of(same: list[Figure], goal: float) -> Figure:
    first, second = (median(each.seconds[i] for each in same) for i in range(2))
    return Figure(same[0].what, median(each.ratio for each in same), (first, second), goal)


def puts(rank: int, world: int, device: str, size: int) -> list[Figure]:
    """Compare rank 1's put into rank 0's window with its own copy. It waits for each of them."""
    api = kernels.kernels()
    x, out = (torch.ones(size // 4, device=device) for _ in range(2))
    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    window = bluefog_pg.Window(x, "speed")

    def copy() -> None:
        api.copy(out.data_ptr(), x.data_ptr(), size, kernels.stream())
        api.stream_wait(kernels.stream())

    found = []
    if rank == 1:
        what = f"win_put of {size // MIB} MiB to another process over cudaMemcpy to its own memory"
        found.append(compare(what, window.put, copy, rounds=30, turns=10, goal=1.2))
    inrank.meet("put", world)
    window.free()
    return found


def ddp_steps(_rank: int, world: int, device: str, other: str) -> list[Figure]:
    """Compare steps of the net that examples/train_digits.py trains."""
    group = dist.new_group(backend=other)
    images = torch.rand(digits.BATCH, 1, 8, 8, device=device)
    labels = torch.arange(digits.BATCH, device=device) % 10

    def step_over(group: dist.ProcessGroup | None) -> Callable[[], None]:
        net = DistributedDataParallel(digits.make_net().to(device), process_group=group)
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()

        return step

    what = f"a step of train_digits with DDP, ranks: {world}, bluefog over {other}"
    figure = compare(what, step_over(None), step_over(group), rounds=30, turns=10, goal=NEAR)
    dist.destroy_process_group(group)
    return [figure]
