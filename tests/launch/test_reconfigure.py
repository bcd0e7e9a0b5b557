"""Groups change their members by torch's own calls, also when members die or disagree."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import bluefog_pg as bf
from tests.support import harness, inrank, memberships
from tests.support.harness import SLOW, WITHIN, Ranks, run_ranks
from tests.support.memberships import (
    LIMIT,
    begin,
    change,
    handles,
    leave_file,
    read_file,
    require_sum,
)

pytestmark = memberships.NEEDED


def backend() -> Any:
    return dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]


def shrinks_and_grows(rank: int, world: int, rounds: int) -> None:
    begin(rank, world)
    assert dist._supports_reconfigure()
    all_ = handles("all", rank, world)
    assert dist._get_reconfigure_handle() == all_[rank]
    uuid = 0
    for round_ in range(rounds):
        change(uuid := uuid + 1, all_)
        assert (dist.get_rank(), dist.get_world_size()) == (rank, world)
        require_sum()
        gone = round_ % world
        if rank != gone:
            change(uuid + 1, [each for i, each in enumerate(all_) if i != gone])
            assert dist.get_world_size() == world - 1
            assert dist.get_rank() == rank - (rank > gone)
            require_sum()
        uuid += 1
        change(100 + 10 * round_ + rank, [all_[rank]])
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        require_sum()
        change(uuid := uuid + 1, all_[::-1])  # The order of the handles is that of the ranks.
        assert dist.get_rank() == world - 1 - rank
        require_sum()
        change(uuid := uuid + 1, set(all_))
        ranks = [torch.zeros(2, dtype=torch.long) for _ in range(world)]
        dist.all_gather(ranks, torch.tensor([rank, dist.get_rank()]))
        assert sorted(int(pair[1]) for pair in ranks) == list(range(world))
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, 4])
def test_to_fewer_to_one_and_back(world: int) -> None:
    run_ranks(shrinks_and_grows, world, 3, world=0)


def every_operation_after(rank: int, world: int) -> None:
    begin(rank, world)
    refused = inrank.catch(dist.all_reduce, torch.ones(1))
    harness.raised(refused, "RuntimeError", text="this group has no members now")
    refused = inrank.catch(bf.neighbor_allreduce, torch.ones(1))
    harness.raised(refused, "RuntimeError", text="this group has no members now")
    all_ = handles("all", rank, world)
    change(1, all_)
    x = torch.full((3,), float(rank))
    averaged = sum([rank, *bf.in_neighbor_ranks()]) / (1 + len(bf.in_neighbor_ranks()))
    assert torch.allclose(bf.neighbor_allreduce(x), x.new_full((3,), averaged))
    assert bf.size() == world
    window = bf.Window(x, name="before")
    window.put(x)
    dist.barrier()
    if rank == world - 1:
        return
    change(2, all_[:-1])
    assert bf.size() == world - 1
    assert max(bf.in_neighbor_ranks()) < world - 1
    bf.neighbor_allreduce(x)
    left = inrank.catch(window.put, x)
    assert isinstance(left, inrank.Raised), "a window outlives its members"
    again = bf.Window(x.clone(), name="before")
    again.put(x)
    dist.barrier()
    peer = (rank + 1) % (world - 1)
    send = dist.isend(torch.tensor([rank]), peer)
    got = torch.zeros(1, dtype=torch.long)
    dist.recv(got, (rank - 1) % (world - 1))
    send.wait()
    assert int(got) == (rank - 1) % (world - 1)
    dist.monitored_barrier()
    assert dist.get_backend() == "bluefog"


def test_operations_windows_and_topologies_are_of_the_new_members() -> None:
    run_ranks(every_operation_after, 4, world=0)


def split_and_merged(rank: int, world: int) -> None:
    begin(rank, world)
    all_ = handles("all", rank, world)
    half = world // 2
    mine = all_[:half] if rank < half else all_[half:]
    change(1 if rank < half else 2, mine)
    require_sum()
    change(3, all_)
    require_sum()
    backend().abort()
    failed = inrank.catch(dist.all_reduce, torch.ones(1))
    harness.raised(failed, "Aborted")
    assert str(backend().get_error()) == "ErrorType.SUCCESS"
    change(4, all_)
    require_sum()


def test_halves_merge_and_an_aborted_group_recovers() -> None:
    run_ranks(split_and_merged, 4, world=0)


def badly(rank: int, world: int) -> None:
    begin(rank, world)
    own = dist._get_reconfigure_handle()
    change(7, [own])
    for uuid, members, text in (
        (7, [own], "uuid 7 was already used"),
        (8, [], "0 handles"),
        (8, [own, own], "handle 1 is there twice"),
        (8, [own, "rubbish"], "handle 1 is no reconfigure handle"),
        (8, ["rubbish"], "handle 0 is no reconfigure handle"),
    ):
        error = inrank.catch(change, uuid, members)
        harness.raised(error, "RuntimeError" if uuid == 7 else "ValueError", text=text)
        require_sum()  # A refused call changes nothing.
    child = os.fork()
    if child == 0:
        error = inrank.catch(change, 9, [own])
        os._exit(0 if error is not None and "forked" in error.text else 1)
    assert os.waitpid(child, 0)[1] == 0
    dist.destroy_process_group()


def test_bad_arguments_are_refused_and_change_nothing() -> None:
    run_ranks(badly, 1, world=0)


def survives(rank: int, processes: int) -> Any:
    """Lose rank 2 by SIGKILL, go on without it, and take the last process in its place."""
    begin(rank, processes)
    world = processes - 1
    if rank == world:
        leave_file("newcomer", dist._get_reconfigure_handle())
        change(3, read_file("members").split("\0"))
        require_sum()
        return None
    all_ = handles("all", rank, world)
    change(1, all_)
    require_sum()
    inrank.mark("up")

    def forever() -> None:
        while True:
            require_sum()

    error = inrank.catch(forever)
    began = time.monotonic()
    living = [each for i, each in enumerate(all_) if i != 2]
    change(2, living)
    took = time.monotonic() - began
    require_sum()
    assert dist.get_world_size() == world - 1
    members = [*living, read_file("newcomer")]
    if rank == 0:
        leave_file("members", "\0".join(members))
    change(3, members)
    require_sum()
    assert dist.get_world_size() == world
    return error, took


def test_survivors_go_on_and_a_newcomer_joins() -> None:
    world = 4
    task = inrank.Task(f"{__name__}:{survives.__name__}")
    with Ranks(world + 1) as ranks:
        for rank in range(world):
            ranks.give(rank, task)
        ranks.at("up", *range(world))
        time.sleep(0.1)
        ranks.kill(2)
        ranks.give(world, task)
        told = ranks.values(60, dead=[2])
        for rank in (0, 1, 3):
            error, took = told[rank]
            harness.raised(error, "PeerFailed", ranks=[2])
            assert took < WITHIN, took


def disagree(rank: int, world: int, what: str) -> Any:
    begin(rank, world)
    all_ = handles("all", rank, world)
    limit = timedelta(seconds=2 * SLOW)
    if what == "uuid":
        error = inrank.catch(change, 5 if rank == world - 1 else 6, all_, limit)
    else:
        error = inrank.catch(change, 5, all_[::-1] if rank == world - 1 else all_, limit)
    inrank.meet("told", world)
    change(7, all_)
    require_sum()
    return error


@pytest.mark.parametrize("what", ["uuid", "handles"])
def test_members_that_disagree_are_told(what: str) -> None:
    told = run_ranks(disagree, 3, what, world=0)
    text = "uuid 5" if what == "uuid" else "both have uuid 5, but other handles"
    # One that calls when the others have given up already waits for its timeout.
    found = {
        rank: error for rank, error in enumerate(told) if "CollectiveTimeout" not in error.kinds
    }
    assert len(found) >= 2, told
    for rank, error in found.items():
        harness.raised(error, "Mismatch", text=text)
        # Nobody blames itself. With other handles, ranks have other numbers.
        assert error.ranks
        assert what != "uuid" or rank not in error.ranks, (rank, error)


def lacks(rank: int, world: int, how: str) -> Any:
    begin(rank, world)
    all_ = handles("all", rank, world)
    if rank == 1:
        inrank.mark("known")
        child = os.fork() if how == "left beside a child" else -1
        if child == 0:  # It holds the socket where its parent was called.
            inrank.gate("end", 60)
            os._exit(0)
        if how.startswith("left"):
            dist.destroy_process_group()
            inrank.mark("left")
        inrank.gate("end", 60)
        if child > 0:
            os.waitpid(child, 0)
        return None
    inrank.gate("gone")
    error = inrank.catch(change, 1, all_, timedelta(seconds=2 * SLOW))
    inrank.mark("told")
    return error


@pytest.mark.parametrize("how", ["died", "left", "left beside a child", "late", "stopped"])
def test_a_member_that_does_not_come_is_named(how: str) -> None:
    with Ranks(3) as ranks:
        ranks.start(lacks, how, world=0)
        ranks.at("known", 1)
        if how == "died":
            ranks.kill(1)
        if how == "stopped":
            ranks.stop(1)
        if how.startswith("left"):
            ranks.at("left", 1)
        ranks.open("gone")
        ranks.at("told", 0, 2)
        if how == "stopped":
            ranks.send(1, signal.SIGCONT)
        ranks.open("end")
        told = ranks.values(30, dead=[1] if how == "died" else [])
    is_gone = how.startswith(("died", "left"))
    kind = "PeerFailed" if is_gone else "CollectiveTimeout"
    for rank in (0, 2):
        harness.raised(told[rank], kind, ranks=[1])
        if is_gone:
            assert told[rank].took() < WITHIN, told[rank]
            assert how.split()[0] in told[rank].text, told[rank].text


def with_its_store(rank: int, world: int) -> None:
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), world, is_master=rank == 0)
    dist.init_process_group(
        "bluefog", store=store, rank=rank, world_size=world, timeout=LIMIT, enable_reconfigure=True
    )
    all_ = handles("all", rank, world)
    change(1, all_)
    require_sum()
    inrank.mark("up")
    inrank.gate("gone")
    change(2, all_[1:])
    require_sum()


def test_the_store_may_die_with_its_rank() -> None:
    with Ranks(4) as ranks:
        ranks.start(with_its_store, world=0)
        ranks.at("up", *range(4))
        ranks.kill(0)
        ranks.open("gone")
        ranks.values(30, dead=[0])


def meanwhile(rank: int, world: int) -> None:
    """Reconfigure while other threads of this rank are in calls."""
    begin(rank, world)
    all_ = handles("all", rank, world)
    change(1, all_)
    ended = threading.Event()
    told: list[str] = []

    def use() -> None:
        while not ended.is_set():
            error = inrank.catch(bf.neighbor_allreduce, torch.ones(4), name="used")
            if error is not None:
                told.append(error.text)

    thread = threading.Thread(target=use)
    thread.start()
    for uuid in range(2, 12):
        change(uuid, all_)
        time.sleep(0.02)
    ended.set()
    inrank.meet("ended", world)
    change(20, all_)
    thread.join(30)
    assert not thread.is_alive()
    require_sum()
    assert all("[bluefog]" in text or "destroyed" in text for text in told), told


def test_calls_of_other_threads_fail_and_nothing_crashes() -> None:
    run_ranks(meanwhile, 3, world=0)


def resources() -> tuple[int, int, int]:
    maps = Path("/proc/self/maps").read_text().count("\n")
    return len(os.listdir("/proc/self/fd")), maps, len(os.listdir("/proc/self/task"))


def again_and_again(rank: int, world: int) -> None:
    begin(rank, world)
    all_ = handles("all", rank, world)
    uuid, before = 0, (0, 0, 0)
    for round_ in range(30):
        change(uuid := uuid + 1, all_)
        require_sum()
        dist.all_reduce(torch.ones(3), async_op=True).wait()  # type: ignore[union-attr]
        bf.neighbor_allreduce(torch.ones(1 << 18))
        if round_ == 9:
            before = resources()
    after = resources()
    assert after[0] <= before[0] + 1, (before, after)
    assert after[1] <= before[1] + 20, (before, after)
    assert after[2] <= before[2] + 1, (before, after)


def test_epochs_leave_nothing_behind() -> None:
    run_ranks(again_and_again, 3, world=0)


def over_mpi(rank: int, world: int) -> Any:
    begin(rank, world)
    all_ = handles("all", rank, world)
    change(1, all_)
    require_sum()
    if rank < world - 1:
        change(2, all_[:-1])
        require_sum()
        bf.neighbor_allreduce(torch.ones(1000))
    change(3, all_)
    require_sum()
    return bf.local_size()


def test_processes_that_share_no_memory_change_over_mpi() -> None:
    told = run_ranks(over_mpi, 3, world=0, env={"BLUEFOG_TRANSPORT": "mpi"}, limit=120)
    assert told == [1, 1, 1]


def hooked(rank: int, world: int) -> None:
    begin(rank, world)
    all_ = handles("all", rank, world)
    change(1, all_)
    seen: list[str] = []
    backend().register_abort_hook(1, lambda: seen.append("a"))
    backend().register_abort_hook(0, lambda: seen.append("b"))
    if rank == 0:
        inrank.await_file(f"at.waits.{1}")
        time.sleep(0.1)
        backend().abort()
        assert seen == ["b", "a"], seen
    else:
        inrank.mark("waits")
        error = inrank.catch(dist.all_reduce, torch.ones(1))
        assert error is not None
        harness.await_that(lambda: seen == ["b", "a"], WITHIN)  # They run in a thread of their own.
    backend().unregister_abort_hook(1)
    unknown = inrank.catch(backend().unregister_abort_hook, 1)
    harness.raised(unknown, "ValueError", text="there is no hook 1")
    change(2, all_)  # The hooks stay.
    require_sum()
    assert seen == ["b", "a"], seen
    backend().abort()
    assert seen == ["b", "a", "b"], seen


def test_abort_hooks_are_called_first() -> None:
    run_ranks(hooked, 2, world=0)


def hooks_that_change_hooks(rank: int, world: int) -> None:
    begin(rank, world)
    change(1, handles("all", rank, world))
    seen: list[int] = []
    hooks = backend()

    def once(number: int) -> None:
        seen.append(number)
        hooks.unregister_abort_hook(number)
        hooks.register_abort_hook(number + 100, lambda: seen.append(-1))

    for number in range(40):
        hooks.register_abort_hook(number, lambda number=number: once(number))
    hooks.abort()
    assert seen == list(range(40)), seen


def test_a_hook_may_add_and_remove_hooks() -> None:
    run_ranks(hooks_that_change_hooks, 1, world=0)


def gives_up(rank: int, world: int) -> None:
    """Rank 0 aborts a change while it waits for rank 1, which has not come yet."""
    begin(rank, world)
    all_ = handles("all", rank, world)
    change(1, all_)
    if rank != 1:
        if rank == 0:
            threading.Timer(0.3, backend().abort).start()
        began = time.monotonic()
        error = inrank.catch(change, 2, all_)
        assert time.monotonic() - began < WITHIN
        text = "another thread of this rank has aborted it"
        if rank == 0:
            harness.raised(error, "RuntimeError", text=text)
        else:
            harness.raised(error, "PeerFailed", text=text, ranks=[0])
    inrank.meet("over", world)
    change(3, all_)
    require_sum()


def test_an_abort_ends_a_change_that_waits() -> None:
    run_ranks(gives_up, 3, world=0)


def joins_late(rank: int, world: int) -> None:
    """Rank 0 begins alone; all others make their first membership with it."""
    begin(rank, world)
    all_ = handles("all", rank, world)
    if rank == 0:
        change(1, all_[:1])
        require_sum()
    change(2, all_)
    require_sum()
    tensor = torch.full((4,), float(rank))
    window = dist._new_window(tensor)
    peer = (rank + 1) % world
    window.put(torch.full((2,), 10.0 + rank), peer, 1, False)
    window.signal(peer, False)
    before = (rank - 1) % world
    window.wait_signal(before, False)
    assert tensor.tolist() == [rank, 10.0 + before, 10.0 + before, rank]
    dist.barrier()
    if rank == world - 1:
        return
    change(3, all_[:-1])
    ended = inrank.catch(window.put, torch.ones(1), 0, 0, False)
    assert ended is not None, "a window outlives its members"


def test_members_join_late_and_windows_end_with_the_membership() -> None:
    run_ranks(joins_late, 3, world=0)


def with_an_accelerator(rank: int, world: int) -> None:
    begin(rank, world)
    all_ = handles("all", rank, world)
    for uuid, members in enumerate((all_, all_[:-1], all_)):
        if rank < len(members):
            change(uuid, members)
            require_sum()
            assert backend().group.accelerator_backend.size() == len(members)


def test_an_accelerators_backend_changes_along() -> None:
    run_ranks(with_an_accelerator, 3, world=0, env={"BLUEFOG_ACCELERATOR": "cpu:gloo"})
