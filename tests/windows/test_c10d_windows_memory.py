"""The memory of c10d's windows stays with the tensor, whatever becomes of group and window."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import c10d_windows as windows
from tests.support import harness, inrank, memberships
from tests.support.harness import Ranks

pytestmark = [windows.NEEDED, windows.ON_ONE_HOST]


def shared_meanwhile(rank: int, world: int) -> list[Any]:
    """Torch gives a tensor other memory, where no put arrives any more."""
    n = 1 << 18
    x = torch.zeros(n)
    window = windows.made(x)
    peer = 1 - rank
    inrank.meet("made", world)
    if rank == 0:
        x.share_memory_()
    inrank.meet("moved", world)
    # The memory that x has left belongs to no other tensor while the window is there.
    others = [torch.zeros(n) for _ in range(10)]
    kept = [windows.made(other) for other in others]
    if rank == 1:
        window.put(torch.ones(n), peer, 0, False)
    dist.barrier()
    assert not any(other.any() for other in others)
    own = inrank.catch(window.wait_signal, peer, False) if rank == 0 else None
    put = inrank.catch(window.put, torch.ones(1), peer, 0, False)
    for each in [window, *kept]:
        each.tensor_deregister()
    again = windows.made(x)
    again.put(torch.full((n,), 2.0), peer, 0, False)
    again.signal(peer, False)
    again.wait_signal(peer, False)
    assert x.eq(2).all(), x
    again.tensor_deregister()
    return [own, put]


def test_a_tensor_that_torch_has_moved_is_refused() -> None:
    told = harness.run_ranks(shared_meanwhile, 2)
    for error in told[0]:
        harness.raised(error, "ValueError", text="the window's tensor has other memory than")
    assert told[1] == [None, None]


def in_new_groups(rank: int, world: int, n: int) -> int:
    """A tensor that gets a window in each of many groups takes no more memory for each."""
    x = torch.zeros(n)
    x.add_(1)
    kept = []
    taken = []
    for _ in range(8):
        group = dist.new_group(list(range(world)))
        kept.append(windows.made(x, group))  # The former one stays, though its group has ended.
        dist.barrier()
        dist.destroy_process_group(group)
        taken.append(inrank.rss())
    assert x.eq(1).all()
    return taken[-1] - taken[2]


def test_former_groups_keep_no_memory() -> None:
    n = 1 << 22
    for grown in harness.run_ranks(in_new_groups, 2, n):
        assert grown < 2 * n * 4, f"{grown} bytes in five more groups, for a tensor of {n * 4}"


def late(rank: int, world: int, n: int, how: str) -> int:
    """Rank 1 is stopped amid a put. It goes on when rank 0 has gone on without it."""
    memberships.begin(rank, world, timeout=2.0 * harness.SLOW)
    all_ = memberships.handles("all", rank, world)
    memberships.change(1, all_)
    x = torch.zeros(n)
    window = windows.made(x)
    ones = torch.ones(n)
    dist.barrier()
    inrank.mark("begins")
    if rank == 1:
        while not inrank.catch(window.put, ones, 0, 0, False):
            pass
        return 0
    inrank.gate("stopped")
    if how == "changed":
        memberships.change(2, all_[:1])
    else:
        error = inrank.catch(window.tensor_deregister)
        harness.raised(error, "CollectiveTimeout", ranks=[1])
    x.zero_()
    inrank.mark("went on")
    inrank.gate("continued")
    time.sleep(0.3)
    return int(x.count_nonzero())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["changed", "deregistered"])
def test_who_was_stopped_amid_a_put_writes_to_nobody_later(how: str) -> None:
    with Ranks(2) as ranks:
        ranks.start(late, 1 << 24, how, world=0)
        ranks.at("begins")
        time.sleep(0.2)
        ranks.stop(1)
        ranks.open("stopped")
        ranks.at("went on", 0)
        ranks.cont(1)
        ranks.open("continued")
        assert ranks.values()[0] == 0


def registered_again(rank: int, world: int) -> None:
    """A window object of former members need not be dropped before the next one is made."""
    memberships.begin(rank, world)
    all_ = memberships.handles("all", rank, world)
    x = torch.zeros(1000)
    before = []
    for uuid in range(1, 5):
        memberships.change(uuid, all_)
        before.append(windows.made(x))
        peer = (rank + uuid) % world
        before[-1].put(torch.full((1,), float(uuid)), peer, uuid, False)
        before[-1].signal(peer, False)
        before[-1].wait_signal((rank - uuid) % world, False)
        assert x[uuid] == uuid
        dist.barrier()
    before.clear()
    gc.collect()
    assert x[:5].tolist() == [0, 1, 2, 3, 4]


def test_windows_of_former_members_are_gone() -> None:
    harness.run_ranks(registered_again, 3, world=0)
