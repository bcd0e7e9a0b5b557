"""Containers and sandboxes refuse system calls; groups are made without them, or say which."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import bluefog_pg
from tests.support import harness, inrank, sandbox
from tests.support.harness import Ranks
from tests.support.programs import Ran, run_script

pytestmark = pytest.mark.skipif(not sandbox.IS_KNOWN, reason="knows system calls of x86-64")
KINDS = {
    "no memfds": sandbox.MEMFDS,
    "no pidfds": sandbox.PIDFDS,
    "no wiped pages": sandbox.WIPE_ON_FORK,
    "no unix sockets": sandbox.UNIX_SOCKETS,
    "nothing": sandbox.MEMFDS + sandbox.PIDFDS + sandbox.WIPE_ON_FORK + sandbox.UNIX_SOCKETS,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def communicate(rank: int, world: int, kind: str) -> list[Any]:
    sandbox.refuse(KINDS[kind])
    inrank.init("store", rank, world)
    large = torch.full((300_000,), float(rank))
    dist.all_reduce(large)
    average = bluefog_pg.neighbor_allreduce(torch.full((5,), float(rank)))
    window = bluefog_pg.Window(torch.full((5,), float(rank)), "w", zero_init=True)
    window.put()
    dist.barrier()
    versions = sum(window.versions().values())
    dist.barrier()
    dist.destroy_process_group()
    return [large[-1].item(), average[0].item(), versions]


@every_kind
def test_ranks_communicate(kind: str) -> None:
    told = harness.run_ranks(communicate, 3, kind, world=0)
    assert told == [[3.0, pytest.approx(1.0), 2]] * 3


def forked(rank: int, world: int, kind: str) -> int:
    """A forked child learns that it has no group; the code it ends with comes back."""
    sandbox.refuse(KINDS[kind])
    inrank.init("store", rank, world)
    child = os.fork()
    if child == 0:
        error = inrank.catch(dist.all_reduce, torch.ones(1))
        os._exit(0 if error and "was forked after" in error.text else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    return code


def test_a_forked_child_is_told_so_without_wiped_pages() -> None:
    assert harness.run_ranks(forked, 2, "no wiped pages", world=0) == [0, 0]


def outlived(rank: int, world: int) -> None:
    """Rank 1 has a child that keeps its sockets open; then it is killed."""
    sandbox.refuse(sandbox.PIDFDS)
    inrank.init("store", rank, world)
    if rank == 1 and os.fork() == 0:
        time.sleep(3)
        os._exit(0)
    dist.barrier()
    inrank.mark("up")
    while True:
        dist.all_reduce(torch.ones(1))
        if rank == 1:
            time.sleep(60)


@pytest.mark.parametrize("transport", ["", "mpi"])
def test_a_death_is_noticed_without_pidfds(transport: str) -> None:
    with Ranks(3, env={"BLUEFOG_TRANSPORT": transport} if transport else None) as ranks:
        ranks.start(raises, world=3)
        ranks.at("up", 0, 1, 2)
        killed = ranks.kill(1)
        for error in ranks.values(20, dead={1}).values():
            harness.raised(error, "PeerFailed", ranks=[1])
            assert error.took(killed) < harness.WITHIN


def raises(rank: int, world: int) -> Any:
    return inrank.catch(outlived, rank, world)


IN_SMALL_FOLDERS = """
mount -t tmpfs -o size={shm} none /dev/shm
mount -t tmpfs -o size={tmpdir} none {folder}
exec env TMPDIR={folder} {python} -m tests.support.sandbox MEMFDS {script} {folder}
"""


def in_small_folders(program: str, folder: Path, shm: str, tmpdir: str) -> Ran:
    """Run a program where memfds are refused, with so much room in /dev/shm and in TMPDIR."""
    script, temporary = folder / "program.py", folder / "temporary"
    script.write_text(program)
    temporary.mkdir()
    text = IN_SMALL_FOLDERS.format(
        shm=shm, tmpdir=tmpdir, folder=temporary, python=sys.executable, script=script
    )
    return run_script(["unshare", "--mount", "sh", "-ec", text])


ALONE = """
import torch, torch.distributed as dist
dist.init_process_group("bluefog", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.slow
def test_no_room_for_a_file_is_an_error(tmp_path: Path) -> None:
    ran = in_small_folders(ALONE, tmp_path, "1m", "1m")
    assert ran.code != 0
    assert "this system refuses memfd_create (Operation not permitted)" in ran.out
    assert "/dev/shm (No space left on device), " in ran.out
    assert "temporary (No space left on device); allow memfd_create, or set TMPDIR" in ran.out


@pytest.mark.slow
def test_the_file_lies_in_tmpdir_where_dev_shm_is_full(tmp_path: Path) -> None:
    ran = in_small_folders(ALONE, tmp_path, "1m", "100m")
    assert ran.code == 0, ran.out
    assert "share a file in " + str(tmp_path) in ran.out


FULL = """
import os, sys
import torch, torch.distributed as dist
import bluefog_pg
rank = int(os.fork() == 0)
dist.init_process_group("bluefog", init_method=f"file://{sys.argv[1]}/store", rank=rank,
                        world_size=2)
x = torch.ones(8 << 20)
dist.all_reduce(x)
assert x[-1] == 2
try:
    bluefog_pg.Window(x, "w")
except RuntimeError as error:
    sys.stdout.write(str(error) + "\\n")
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.slow
def test_a_file_that_fills_up_ends_nobody(tmp_path: Path) -> None:
    """Collectives go on in ordinary memory; a window raises."""
    ran = in_small_folders(FULL, tmp_path, "40m", "1m")
    assert ran.code == 0, ran.out
    assert ran.out.count("win_create 'w': no room for ") == 2, ran.out
