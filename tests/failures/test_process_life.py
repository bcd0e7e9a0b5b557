"""A process in a group may fork, get Ctrl-C, end without destroy, and abort."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from tests.support import harness, inrank
from tests.support.harness import SLOW, WITHIN, Ranks, at_most
from tests.support.programs import run_script


def wait_for(what: str, rank: int, world: int) -> None:
    import bluefog_pg

    peer = (rank + 1) % world
    if what == "all_reduce":
        dist.all_reduce(torch.ones(1))
    elif what == "large all_reduce":
        dist.all_reduce(torch.ones(1 << 20))
    elif what == "recv":
        dist.recv(torch.ones(1), peer)
    elif what == "work.wait":
        dist.all_reduce(torch.ones(1), async_op=True).wait()
    elif what == "future.wait":
        dist.irecv(torch.ones(1), peer).wait()
    elif what == "barrier":
        dist.barrier()
    else:
        bluefog_pg.neighbor_allreduce(torch.ones(1))


WAITS = ["all_reduce", "recv", "work.wait", "barrier", "neighbor_allreduce", "large all_reduce"]


def interrupted(rank: int, world: int, waits: list[str]) -> Any:
    """Rank 0 waits for a rank that does not come, each time in a world of its own."""
    errors = []
    for i, what in enumerate(waits):
        inrank.init(f"interrupted.{i}", rank, world)
        dist.barrier()
        if rank == 0:
            inrank.mark(f"waits.{i}")
            errors.append(inrank.catch(wait_for, what, rank, world))
        else:
            inrank.await_file(f"gate.next.{i}")
        dist.destroy_process_group()
    return errors


def test_control_c_in_a_wait() -> None:
    with Ranks(2) as ranks:
        ranks.start(interrupted, WAITS)
        instants = []
        for i in range(len(WAITS)):
            ranks.at(f"waits.{i}", 0)
            time.sleep(0.25)
            instants.append(ranks.interrupt(0))
            time.sleep(0.1)
            ranks.open(f"next.{i}")
        for what, instant, error in zip(WAITS, instants, ranks.values(20)[0], strict=True):
            harness.raised(error, "KeyboardInterrupt")
            assert error.ended - instant < WITHIN, f"{what}: {error.ended - instant:.2f} s"


def waits_for_ever(rank: int, world: int) -> None:
    inrank.mark("waits")
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    else:
        time.sleep(60)


def test_sigterm_ends_a_rank_that_waits() -> None:
    with Ranks(2) as ranks:
        ranks.start(waits_for_ever, world=2, store="s")
        ranks.at("waits")
        time.sleep(0.2)
        ranks.send(0, signal.SIGTERM)
        assert ranks.procs[0].wait(2 * SLOW) == -signal.SIGTERM


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((100,), float(i))


def loads(rank: int, world: int) -> None:
    """Workers fork from a process in a group, while it communicates."""
    pending = dist.irecv(torch.zeros(1), 1 - rank, tag=9)
    seen = 0.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for batch in DataLoader(Numbers(), batch_size=8, num_workers=2):
                t = batch.clone()
                work = dist.all_reduce(t, async_op=True)
                seen += batch[:, 0].sum().item()
                work.wait()
                assert torch.equal(t, batch * world), f"{t}, not {batch * world}"
    dist.send(torch.ones(1), 1 - rank, tag=9)
    pending.wait()
    mine = [str(w.message) for w in caught if "fork" in str(w.message) or "bluefog" in str(w)]
    assert seen == 4032.0, seen
    assert not mine, mine


@pytest.mark.slow
def test_data_loader_workers() -> None:
    with Ranks(2) as ranks:
        ranks.start(loads, world=2, store="s")
        ranks.join(60)
        said = [ranks.output(r) for r in range(2)]
        assert set(ranks.leave().values()) == {0}
        assert said == ["", ""]


def forked_quietly(rank: int, world: int) -> list[Any]:
    """A forked child has no group: a collective there raises, and harms nobody here."""
    import subprocess

    codes = []
    for how in ("_exit", "collective"):
        pid = os.fork()
        if pid == 0:
            error = None
            if how == "collective":
                error = inrank.catch(dist.all_reduce, torch.ones(1))
                os._exit(7 if error and "RuntimeError" in error.kinds else 1)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    codes.append(subprocess.run(["true"], check=False).returncode)
    t = torch.ones(300_000)
    dist.all_reduce(t)
    return [codes, t[-1].item()]


def test_forked_children_do_no_harm(pool: harness.Pool) -> None:
    for codes, total in pool.run(forked_quietly, world=2):
        assert codes == [0, 7, 0] and total == 2


def in_the_child(how: str, works: list[Any]) -> bool:
    if how == "wait":
        error = inrank.catch(works[0].wait)
        return error is not None and "RuntimeError" in error.kinds and "fork" in error.text
    # All goes but the store, as torch's FileStore removes its file when copies of it are dropped.
    works[:] = [dist.distributed_c10d._get_default_store()]
    dist.destroy_process_group()
    gc.collect()
    return True


def forks(rank: int, world: int, how: str, pending: bool) -> list[Any]:
    """Fork while the engine's thread has work or sleeps; the child has neither of them."""
    works = [dist.all_reduce(torch.ones(1), async_op=True)]
    works[0].wait()
    if pending:
        works = [dist.irecv(torch.zeros(1), 1 - rank, tag=5)]
    time.sleep(0.1)
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(4 * SLOW))  # This ends a child that hangs.
        fine = False
        try:
            fine = in_the_child(how, works)
        finally:
            os._exit(0 if fine else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    dist.send(torch.ones(1), 1 - rank, tag=5)
    if not pending:
        works = [dist.irecv(torch.zeros(1), 1 - rank, tag=5)]
    t = torch.ones(300_000)
    dist.all_reduce(t)
    return [code, works[0].wait(), t[-1].item()]


@pytest.mark.parametrize(
    ("how", "pending"), [("destroy", False), ("destroy", True), ("wait", True)]
)
def test_a_forked_child_ends_and_says_what_it_is(
    pool: harness.Pool, how: str, pending: bool
) -> None:
    assert pool.run(forks, how, pending, world=2, timeout=20) == [[0, True, 2.0]] * 2


FORKED = """
work = dist.all_reduce(t, async_op=True); work.wait(); {then}; time.sleep(0.1)
pid = os.fork()
if pid == 0:
    import ctypes, signal
    signal.alarm(4); ctypes.pythonapi.Py_Exit(0)  # as a program that has come to its end
assert os.waitpid(pid, 0)[1] == 0; dist.barrier()
"""
SCRIPTS = {
    "forked child exits": FORKED.format(then="del work"),
    "forked child exits, pending": FORKED.format(then="w = dist.irecv(t, (rank + 1) % 2, tag=7)"),
    "never destroyed": "dist.all_reduce(t)",
    "work dropped": "dist.all_reduce(t, async_op=True)",
    "module-level ddp": """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(t).sum().backward(); opt.step(); opt.zero_grad()
""",
    "pending receive": "dist.barrier(); w = dist.irecv(t, (rank + 1) % 2, tag=77)",
    "thread in a wait": """
import threading
def wait():
    try: dist.recv(t, (rank + 1) % 2, tag=78)
    except RuntimeError: pass
threading.Thread(target=wait, daemon=True).start(); dist.barrier()
""",
    "future callback": "dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value())",
}


def ends_without_destroy(rank: int, world: int, name: str) -> float:
    """Leave the script's objects in __main__, which the interpreter clears when it ends."""
    script = vars(sys.modules["__main__"])
    script |= {"dist": dist, "os": os, "time": time, "torch": torch}
    script |= {"rank": rank, "t": torch.ones(100)}
    exec(SCRIPTS[name], script)
    return time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_scripts_that_never_destroy_end_quickly_and_quietly(name: str) -> None:
    with Ranks(2) as ranks:
        ranks.start(ends_without_destroy, name, world=2, store="s")
        last = max(ranks.values().values())
        assert ranks.leave() == {0: 0, 1: 0}
        ended = time.monotonic()
        assert [ranks.output(rank) for rank in range(2)] == ["", ""]
    assert ended - last < at_most(4), f"took {ended - last:.1f} s to end"


def aborted(rank: int, world: int) -> list[Any]:
    """abort() from another thread wakes who waits, and the peer's other group is not harmed."""
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    told: list[Any] = []
    if rank == 0:
        instant = []

        def abort() -> None:
            time.sleep(0.3)
            instant.append(time.monotonic())
            backend.abort()

        thread = threading.Thread(target=abort)
        thread.start()
        error = inrank.catch(dist.recv, torch.ones(1), 1, group=group)
        thread.join()
        told = [error, instant[0], inrank.catch(dist.all_reduce, torch.ones(1), group=group)]
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def test_abort_wakes_a_wait(pool: harness.Pool) -> None:
    error, instant, again = pool.run(aborted, world=2)[0]
    harness.raised(error, "Aborted")
    assert error.ended - instant < WITHIN
    harness.raised(again, "Aborted")
    assert again.took() < WITHIN


def destroyed(rank: int, world: int) -> Any:
    """Destroy a group with work pending: the work fails, nothing hangs, and nothing crashes."""
    group = dist.new_group()
    works = [dist.irecv(torch.ones(1), (rank + 1) % world, group=group)]
    if rank == 0:
        works.append(dist.all_reduce(torch.ones(1 << 20), group=group, async_op=True))
    began = time.monotonic()
    dist.destroy_process_group(group)
    took = time.monotonic() - began
    errors = [inrank.catch(w.wait) for w in works]
    dist.barrier()
    return [took, errors]


def test_destroy_with_work_pending(pool: harness.Pool) -> None:
    for took, errors in pool.run(destroyed, world=3):
        assert took < at_most(2)
        for error in errors:
            assert harness.raised(error, "RuntimeError").took() < WITHIN


def ends_twice(rank: int, world: int, how: str, who: str) -> None:
    """A callback of the receive that fails ends the group, inside or beside destroy."""
    limit = timedelta(seconds=0.5 if who == "engine" else 20)
    group = dist.new_group(timeout=limit)
    backend = group._get_backend(torch.device("cpu"))
    entered, over = threading.Event(), threading.Event()

    def end(_: Any) -> None:
        entered.set()
        if who == "engine":
            time.sleep(0.3)  # The main thread is in destroy by then.
        if how == "abort":
            backend.abort()
        else:  # torch may complain that the group is destroyed already.
            inrank.catch(dist.destroy_process_group, group)
        over.set()

    work = dist.irecv(torch.ones(1), 1 - rank, group=group)
    work.get_future().add_done_callback(end)
    if who == "engine":  # The receive fails at its limit, while nobody waits.
        entered.wait(8)
    inrank.catch(dist.destroy_process_group, group)
    assert entered.is_set()
    assert over.wait(8)
    dist.barrier()


@pytest.mark.parametrize("how", ["abort", "destroy"])
@pytest.mark.parametrize("who", ["destroyer", "engine"])
def test_a_callback_ends_the_group_that_is_being_destroyed(
    pool: harness.Pool, who: str, how: str
) -> None:
    pool.run(ends_twice, how, who, world=2, timeout=20)


def leaves_in_a_callback(rank: int, world: int, how: str) -> inrank.Raised | None:
    group = dist.new_group(timeout=timedelta(seconds=20))
    error = None
    if rank == 0:
        backend = group._get_backend(torch.device("cpu"))
        end = backend.abort if how == "abort" else backend.shutdown
        future = dist.irecv(torch.ones(1), 1, group=group).get_future()
        future.add_done_callback(lambda _: end())
    elif rank == 1:
        dist.send(torch.ones(1), 0, group=group)
    else:
        error = inrank.catch(dist.all_reduce, torch.ones(1), group=group)
    dist.barrier()
    return error


@pytest.mark.parametrize("how", ["abort", "shutdown"])
def test_peers_hear_of_a_group_that_a_callback_ends(pool: harness.Pool, how: str) -> None:
    error = pool.run(leaves_in_a_callback, how, world=3)[2]
    assert harness.raised(error, "PeerFailed", ranks=[0]).took() < at_most(5)


AT_THE_END = """
import atexit, weakref
import torch, torch.distributed as dist

class Model: pass

def save(who):
    sum = torch.ones(5)
    dist.all_reduce(sum)
    print(who, "has", sum[0].item())

model = Model()
weakref.finalize(model, save, "a finalizer")
atexit.register(save, "an exit function")
dist.init_process_group("bluefog", init_method="file://{store}", rank=0, world_size=1)
w = dist.all_reduce(torch.ones(5), async_op=True)
raise SystemExit(5)
"""


@pytest.mark.slow
def test_exit_functions_have_the_group_and_the_exit_code_stays(tmp_path: Path) -> None:
    """The exit functions were registered before the group was made."""
    ran = run_script([sys.executable, "-c", AT_THE_END.format(store=tmp_path / "store")])
    assert (ran.code, ran.out) == (5, "an exit function has 1.0\na finalizer has 1.0\n")
