"""These tests pass more than 2^31 bytes at once, and look at every value of every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.hosts import network

pytestmark = [pytest.mark.alone, pytest.mark.thorough]

RANKS = 2
N = (1 << 31) + 8
PRIME = 251  # the period of the values: it shows what lies 2^k bytes too far
BLOCK = PRIME << 14


def block(*factors: int) -> torch.Tensor:
    i = torch.arange(BLOCK) % PRIME
    return torch.stack([i * f % PRIME for f in factors]).amax(0).to(torch.uint8)


def fill(t: torch.Tensor, values: torch.Tensor) -> None:
    for part in t.split(BLOCK):
        part.copy_(values[: part.numel()])


def wrong(what: str, t: torch.Tensor, values: torch.Tensor) -> list[str]:
    for i, part in enumerate(t.split(BLOCK)):
        want = values[: part.numel()]
        # Comparing eight bytes at once takes half of the time.
        if not torch.equal(part.view(torch.int64), want.view(torch.int64)):
            return [f"{what}: wrong at {i * BLOCK + int((part != want).int().argmax())}"]
    return []


def beyond(rank: int, world: int) -> None:
    """Call operations on more than 2^31 bytes, in one memory of 4 GiB per rank.

    The memory's pages are touched once only. On a virtual machine that may take minutes, for which
    no operation's timeout is meant.
    """
    own, other, most = block(rank + 2), block(3 - rank), block(2, 3)
    both = torch.ones(2 * N, dtype=torch.uint8)
    first, second = both[:N], both[N:]

    group = dist.new_group(timeout=timedelta(seconds=120))
    fill(first, own)
    dist.all_reduce(first, dist.ReduceOp.MAX, group)
    bad = wrong("all_reduce", first, most)

    mine = (first, second)[rank]
    fill(mine, own)
    dist.all_gather_into_tensor(both, mine, group)
    for r, part in enumerate((first, second)):
        bad += wrong(f"all_gather_into_tensor, part {r}", part, own if r == rank else other)

    # Each rank keeps 8 bytes, and sends all others.
    sent = [8, N - 8] if rank == 0 else [N - 8, 8]
    for part in first.split(sent):
        fill(part, own)
    second.zero_()
    dist.all_to_all_single(second, first, sent, sent, group)
    for r, part in enumerate(second.split(sent)):
        bad += wrong(f"all_to_all_single, from {r}", part, own if r == rank else other)

    second.zero_()
    fill(first, own)
    if rank == 0:
        dist.send(first, 1, group)
        dist.recv(second, 1, group)
    else:
        dist.recv(second, 0, group)
        dist.send(first, 0, group)
    dist.destroy_process_group(group)
    bad += wrong("recv", second, other)
    assert not bad, bad


def window_beyond(rank: int, world: int) -> None:
    """Rank 0 puts more than 4 GiB into rank 1's window; a window that finds no memory raises."""
    import bluefog_pg as bf

    values = block(3)
    tensor = torch.zeros((1 << 32) + 8, dtype=torch.uint8)
    window = bf.Window(tensor, "w", zero_init=True)
    if rank == 0:
        fill(tensor, values)
        window.put(dst_weights=[1])
    dist.barrier()
    bad = []
    if rank == 1:
        window.update(self_weight=0.0, neighbor_weights={0: 1.0}, reset=True)
        bad = wrong("put", tensor, values)
    window.free()
    error = inrank.catch(bf.Window, torch.empty(20 << 30, dtype=torch.uint8), "v")
    if error is None or "no room" not in error.text:
        bad.append(f"20 GiB: {error}")
    assert not bad, bad


def available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    return 0


enough_memory = pytest.mark.skipif(available() < 12 << 30, reason="needs 12 GiB of free memory")


def run(body: Callable[[int, int], None], hosts: Sequence[str] = ()) -> None:
    """Run the body on fresh ranks, as kept ones would hold memory that the next test needs."""
    harness.run_ranks(body, RANKS, hosts=hosts, limit=250)


@enough_memory
def test_more_than_two_gigabytes() -> None:
    run(beyond)


@pytest.mark.skipif(available() < 22 << 30, reason="needs 22 GiB of free memory")
def test_a_window_of_more_than_four_gigabytes() -> None:
    run(window_beyond)


@enough_memory
def test_more_than_two_gigabytes_between_hosts() -> None:
    with network(RANKS) as pair:
        run(beyond, pair)
