"""Ranks on one host meet however they are started: torchrun, spawn, env, tcp, file or a store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.harness import free_port
from tests.support.launching import CHECK, assert_all_fine, write
from tests.support.programs import TORCHRUN, finish_script, run_script, start_script

INIT = CHECK + "dist.init_process_group('bluefog')\n"
SCRIPT = INIT + "check()\ndist.destroy_process_group()\n"


@pytest.mark.slow
def test_two_agents_on_one_host(tmp_path: Path) -> None:
    script, port = write(tmp_path, SCRIPT), str(free_port())
    agents = [
        start_script(
            [
                *TORCHRUN,
                "--nnodes=2",
                f"--node-rank={node}",
                "--nproc-per-node=1",
                "--master-addr=127.0.0.1",
                f"--master-port={port}",
                script,
            ]
        )
        for node in range(2)
    ]
    told = [finish_script(a) for a in agents]
    assert [t.code for t in told] == [0, 0], told[0].out + told[1].out
    assert_all_fine(told[0].out + told[1].out, 2)


@pytest.mark.thorough
def test_two_jobs_at_once(tmp_path: Path) -> None:
    script = write(tmp_path, INIT + "for _ in range(5): check()\ndist.destroy_process_group()\n")
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", script]
    jobs = [start_script(command) for _ in range(2)]
    for told in [finish_script(j) for j in jobs]:
        assert told.code == 0, told.out
        assert_all_fine(told.out, 2, times=5)


SPAWN = """
def run(rank, world, methods):
    for method in methods:
        dist.init_process_group("bluefog", init_method=method, rank=rank, world_size=world)
        check()
        dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (2, {methods}), nprocs=2)
"""


@pytest.mark.slow
def test_spawn(tmp_path: Path) -> None:
    """The ranks meet by TCP, and then by a file."""
    methods = [f"tcp://127.0.0.1:{free_port()}", f"file://{tmp_path}/store"]
    text = CHECK + SPAWN.format(methods=methods)
    ran = run_script([sys.executable, write(tmp_path, text)])
    assert ran.code == 0, ran.out
    assert_all_fine(ran.out, 2, times=2)


@pytest.mark.slow
def test_plain_processes_with_env(tmp_path: Path) -> None:
    """RANK and MASTER_ADDR are enough, for a name in capitals, too, and after destroy."""
    text = CHECK + "".join(
        f"dist.init_process_group({name!r}, init_method='env://')\n"
        "check()\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
        for name in ("bluefog", "BLUEFOG")
    )
    script, port = write(tmp_path, text), str(free_port())
    base = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    procs = [start_script([sys.executable, script], env={**base, "RANK": str(r)}) for r in range(2)]
    told = [finish_script(p) for p in procs]
    assert [t.code for t in told] == [0, 0], told[0].out + told[1].out
    assert_all_fine(told[0].out + told[1].out, 2, times=2)


@pytest.mark.slow
def test_one_rank_and_given_stores() -> None:
    """One rank alone takes every kind of store, one after the other in one process, quietly."""
    stores = [
        "dist.HashStore()",
        "dist.TCPStore('127.0.0.1', 0, 1, True)",
        "dist.FileStore(__import__('tempfile').mktemp(), 1)",
        "dist.PrefixStore('mine', dist.HashStore())",
    ]
    text = CHECK + "".join(
        f"dist.init_process_group('bluefog', store={store}, rank=0, world_size=1)\n"
        "check()\n"
        "t = torch.ones(3); dist.broadcast(t, 0); dist.barrier()\n"
        "dist.destroy_process_group()\n"
        for store in stores
    )
    ran = run_script([sys.executable, "-c", text])
    assert ran.code == 0, ran.out
    assert ran.out == "rank 0 of 1 fine\n" * len(stores)


@pytest.mark.slow
def test_a_given_tcp_store(tmp_path: Path) -> None:
    text = (
        CHECK
        + f"""
import os
rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", {free_port()}, 2, rank == 0)
for name in ("a", "b"):  # two lives over one store
    dist.init_process_group("bluefog", store=dist.PrefixStore(name, store), rank=rank,
                            world_size=2)
    check(); dist.barrier(); dist.destroy_process_group()
for _ in range(2):  # and two with the very same keys
    dist.init_process_group("bluefog", store=store, rank=rank, world_size=2)
    check(); dist.barrier(); dist.destroy_process_group()
store.set(f"end.{{rank}}", "1"); store.wait(["end.0", "end.1"])
"""
    )
    script = write(tmp_path, text)
    procs = [start_script([sys.executable, script], env={"RANK": str(r)}) for r in range(2)]
    told = [finish_script(p) for p in procs]
    assert [t.code for t in told] == [0, 0], told[0].out + told[1].out
    assert_all_fine(told[0].out + told[1].out, 2, times=4)


@pytest.mark.slow
@pytest.mark.parametrize("autoload", ["1", "0"])
def test_found_with_and_without_the_entry_point(autoload: str) -> None:
    text = CHECK.replace("import sys", "import sys\nimport bluefog_pg\nimport sys")
    text = CHECK if autoload == "1" else text
    text += (
        "import os\n"
        "loaded = [m for m in sys.modules if m.startswith('bluefog_pg')]\n"
        "assert not any('_C' in m for m in loaded), loaded\n"
        "dist.init_process_group('bluefog', store=dist.HashStore(), rank=0, world_size=1)\n"
        "check()\n"
    )
    ran = run_script([sys.executable, "-c", text], env={"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload})
    assert (ran.code, ran.out) == (0, "rank 0 of 1 fine\n")


@pytest.mark.slow
def test_device_names_and_the_debug_wrapper(tmp_path: Path) -> None:
    """The backend works by device, beside gloo, and under TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    text = INIT.replace("'bluefog')", "'cpu:bluefog,cuda:bluefog')")
    text = text.replace('assert dist.get_backend() == "bluefog"', "") + (
        "import bluefog_pg\n"
        "check()\n"
        "gloo = dist.new_group(backend='gloo')\n"
        "t = torch.ones(3); dist.all_reduce(t, group=gloo); assert (t == 2).all()\n"
        "x = bluefog_pg.neighbor_allreduce(torch.tensor([float(dist.get_rank())]))\n"
        "assert x.item() == 0.5, x\n"
        "dist.barrier(); dist.destroy_process_group()\n"
    )
    ran = run_script(
        [*TORCHRUN, "--standalone", "--nproc-per-node", "2", write(tmp_path, text)],
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    )
    assert ran.code == 0, ran.out
    assert_all_fine(ran.out, 2)
