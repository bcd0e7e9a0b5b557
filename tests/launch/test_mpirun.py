"""Groups are made where mpirun starts ranks, or mp.spawn on two hosts, or nothing.

Some tests look at which network MPI then uses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, hosts, inrank
from tests.support.launching import CHECK, assert_all_fine, write
from tests.support.programs import MPIRUN, Ran, finish_script, run_script, start_script

INIT = CHECK + "import bluefog_pg\nbluefog_pg.init()\n"
ENVIRONMENT = """
import os
assert int(os.environ["RANK"]) == dist.get_rank()
assert int(os.environ["WORLD_SIZE"]) == dist.get_world_size()
assert 0 <= int(os.environ["LOCAL_RANK"]) < int(os.environ["LOCAL_WORLD_SIZE"])
"""
# The second group is made after the first one, which the store must outlive.
TWICE = (
    INIT + ENVIRONMENT + "check()\n"
    "dist.destroy_process_group()\ndist.init_process_group('bluefog')\ncheck()\n"
)


@pytest.fixture(scope="module")
def three() -> Iterator[list[str]]:
    with hosts.network(3) as names:
        yield names


@pytest.fixture
def two(three: list[str]) -> list[str]:
    return three[:2]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["", "mpi"])
def test_mpirun_on_one_host(transport: str, tmp_path: Path) -> None:
    env = {"BLUEFOG_TRANSPORT": transport}
    command = [*MPIRUN, "-np", "2", sys.executable, write(tmp_path, TWICE)]
    ran = run_script(command, env=env)
    assert ran.code == 0, ran.out
    assert_all_fine(ran.out, 2, times=2)


def mpirun_on(names: list[str], folder: Path, script: str, *options: str) -> Ran:
    """Run two ranks a host. An agent enters a host's network and has its name, in place of ssh."""
    agent = folder / "agent"
    entries = "".join(f"{hosts.address(name)}) host={name};;\n" for name in names)
    agent.write_text(
        f'#!/bin/sh\ncase "$1" in\n{entries}esac\nshift\n'
        'exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"\n'
    )
    agent.chmod(0o755)
    where = ",".join(f"{hosts.address(name)}:2" for name in names)
    command = [*MPIRUN, "--prtemca", "plm_ssh_agent", str(agent), "--host", where, *options]
    command += ["--map-by", "ppr:2:node", sys.executable, script]
    named = ["unshare", "--uts", "sh", "-c", f'hostname {names[0]}; exec "$@"', "sh", *command]
    return run_script([*hosts.prefix(names[0]), *named])


@pytest.mark.thorough
def test_mpirun_on_two_hosts(two: list[str], tmp_path: Path) -> None:
    spread = (
        "assert os.environ['LOCAL_WORLD_SIZE'] == '2'\n"
        "import subprocess\n"
        "here = ['--ns', str(os.getpid()), '--nslist', 'net']\n"
        "found = subprocess.run(['pgrep', *here, 'bluefog-pmixd'])\n"
        "assert found.returncode == 1, 'mpirun is the server'\n"
    )
    ran = mpirun_on(two, tmp_path, write(tmp_path, TWICE + spread))
    assert ran.code == 0, ran.out
    assert_all_fine(ran.out, 4, times=2)


@pytest.mark.slow
def test_a_rank_that_mpirun_starts_and_that_does_not_come(tmp_path: Path) -> None:
    text = (
        "import os, time, datetime, bluefog_pg\n"
        "if os.environ['PMIX_RANK'] == '0': time.sleep(8)\n"
        "else: bluefog_pg.init(timeout=datetime.timedelta(seconds=2))\n"
    )
    ran = run_script([*MPIRUN, "-np", "2", sys.executable, write(tmp_path, text)])
    assert ran.code != 0
    told = "rank 1/2: rank 0 has not reached init_process_group within 2 s"
    assert told in ran.out, ran.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "told"),
    [
        ({"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}, "WORLD_SIZE is 4, but the launcher"),
        ({"RANK": "0"}, "RANK is 0, but the launcher of this process says 1: unset RANK"),
    ],
)
def test_mpirun_beside_variables_of_another_job(
    left: dict[str, str], told: str, tmp_path: Path
) -> None:
    text = "import torch.distributed as dist\ndist.init_process_group('bluefog')\n"
    ran = run_script([*MPIRUN, "-np", "2", sys.executable, write(tmp_path, text)], env=left)
    assert ran.code != 0
    assert told in ran.out, ran.out


@pytest.mark.slow
def test_init_of_a_process_that_nothing_has_started(tmp_path: Path) -> None:
    text = INIT + (
        "check()\n"
        "bluefog_pg.init(bluefog_pg.topology_util.RingGraph)\n"
        "assert bluefog_pg.load_topology().number_of_nodes() == 1\n"
    )
    ran = run_script([sys.executable, write(tmp_path, text)])
    assert (ran.code, ran.out) == (0, "rank 0 of 1 fine\n")


@pytest.mark.slow
def test_init_beside_another_backend(tmp_path: Path) -> None:
    text = (
        "import bluefog_pg, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "bluefog_pg.init()\n"
    )
    ran = run_script([sys.executable, write(tmp_path, text)])
    assert ran.code != 0 and 'make the group with backend="bluefog"' in ran.out, ran.out


SPAWN = (
    CHECK
    + """
def run(local, node):
    import os
    os.environ["RANK"] = str(2 * node + local)
    dist.init_process_group("bluefog", init_method="env://")
    check()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (int(sys.argv[1]),), nprocs=2)
"""
)


@pytest.mark.thorough
def test_spawn_on_two_hosts(two: list[str], tmp_path: Path) -> None:
    env = {"MASTER_ADDR": hosts.address(two[0]), "MASTER_PORT": "29431", "WORLD_SIZE": "4"}
    script = write(tmp_path, SPAWN)
    runs = [
        start_script([*hosts.prefix(name), sys.executable, script, str(node)], env=env)
        for node, name in enumerate(two)
    ]
    told = [finish_script(run) for run in runs]
    out = "".join(ran.out for ran in told)
    assert [ran.code for ran in told] == [0, 0], out
    assert_all_fine(out, 4)


OLD = """
#include <string.h>
extern "C" int MPI_Get_library_version(char *text, int *length) {
  strcpy(text, "Open MPI v0.9, of a museum");
  *length = (int)strlen(text);
  return 0;
}
"""
MUTE = """
#include <unistd.h>
extern "C" int MPI_Init_thread(int *a, char ***b, int c, int *d) { return sleep(60); }
"""


def odd_mpi(folder: Path, source: str) -> str:
    """Return the prefix of an MPI that is the real one but for what `source` defines."""
    from bluefog_pg.launch import mpi

    real = mpi.find()
    (folder / "lib").mkdir()
    (folder / "shim.cpp").write_text(source)
    where = str(Path(real.library).parent)
    command = ["c++", "-shared", "-fPIC", "-o", str(folder / "lib" / "libmpi.so.40")]
    command += [str(folder / "shim.cpp"), "-Wl,--no-as-needed", real.library, f"-Wl,-rpath,{where}"]
    subprocess.run(command, check=True)
    (folder / "lib" / "libpmix.so.2").symlink_to(real.pmix_library)
    return str(folder)


def reached(
    rank: int, world: int, own: dict[int, dict[str, str]], seconds: float = 30
) -> inrank.Raised | None:
    """Meet over the network at rank 0's store. `own` has what more a rank's environment has."""
    import bluefog_pg

    os.environ.update(own.get(rank, {}))
    error = inrank.catch(bluefog_pg.init, timeout=timedelta(seconds=seconds))
    if error is None:
        total = torch.full((10_000,), float(rank))
        dist.all_reduce(total)
        assert (total == world * (world - 1) / 2).all(), total
        dist.destroy_process_group()
    inrank.meet("told", world)  # Rank 0 has the store.
    return error


def reach(names: list[str], ranks: int, *args: Any, **env: str) -> list[inrank.Raised | None]:
    """Run `reached` on these hosts; return the error that each rank got, or None."""
    given = {"MASTER_ADDR": hosts.address(names[0]), "MASTER_PORT": "29431"} | env
    with harness.Ranks(ranks, env=given, hosts=names) as those:
        those.start(reached, *args)
        return [outcome.value for outcome in those.join()]


def test_hosts_with_different_mpi_libraries(two: list[str], tmp_path: Path) -> None:
    odd = {"BLUEFOG_MPI_HOME": odd_mpi(tmp_path, OLD)}
    for error in reach(two, 2, {1: odd}):
        told = "hosts have different MPI libraries: Open MPI v0.9 on "
        harness.raised(error, "RuntimeError", text=told)


@pytest.mark.slow
def test_a_host_that_does_not_come_through_mpi_init(three: list[str], tmp_path: Path) -> None:
    odd = {"BLUEFOG_MPI_HOME": odd_mpi(tmp_path, MUTE)}
    errors = reach(three, 3, {1: odd}, 4.0)
    for error in errors:
        assert harness.raised(error, "RuntimeError").took() < 20
    for error in (errors[0], errors[2]):
        harness.raised(error, "CollectiveTimeout", text="nothing from rank 1")


@pytest.fixture
def with_another_network(two: list[str]) -> Iterator[list[str]]:
    """Each host has a second address, the same on both, as docker0's is, and it leads nowhere."""
    for name in two:
        hosts.inside(name, "link", "add", "docker0", "type", "veth", "peer", "name", "docker1")
        hosts.inside(name, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        hosts.inside(name, "link", "set", "docker0", "up")
    yield two
    for name in two:
        hosts.inside(name, "link", "del", "docker0")


@pytest.mark.slow
def test_mpi_uses_the_network_that_leads_to_the_store(with_another_network: list[str]) -> None:
    assert reach(with_another_network, 4, {}) == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["ib7,192.168.99.0/24", "lo"])
def test_an_interface_that_leads_nowhere(two: list[str], chosen: str) -> None:
    for error in reach(two, 4, {}, OMPI_MCA_btl_tcp_if_include=chosen):
        told = "names no network interface of this host that leads to others; it has eth0, lo"
        text = f"OMPI_MCA_btl_tcp_if_include={chosen} {told}"
        harness.raised(error, "RuntimeError", text=text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", ["BLUEFOG_TRANSPORT=tcp it may be mpi", "BLUEFOG_TUNING=on it may be off"]
)
def test_a_value_that_is_none(tmp_path: Path, setting: str) -> None:
    variable, _, told = setting.partition(" ")
    env = dict([variable.split("=")])
    ran = run_script([sys.executable, write(tmp_path, INIT)], env=env)
    assert ran.code != 0
    assert f"{variable}: {told}, or not be set" in ran.out, ran.out
