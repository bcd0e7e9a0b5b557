"""bfrun starts ranks on several hosts by ssh: OpenSSH's, between network namespaces."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import harness, hosts
from tests.support.launching import CHECK, assert_all_fine, write
from tests.support.processes import descendants
from tests.support.programs import Ran, finish_script, start_script

BFRUN = [sys.executable, "-m", "bluefog_pg.launch.runner.command"]
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
PORT = 2222
SERVER = """
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
"""
CLIENT = """#!/bin/sh
exec {ssh} -F none -i {folder}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
    -o LogLevel=ERROR "$@"
"""


@dataclass
class Cluster:
    """A Cluster is two hosts; `ssh` leads from the first one to the second one."""

    names: list[str]
    path: str

    @property
    def slots(self) -> str:
        return ",".join(f"{hosts.address(name)}:2" for name in self.names)

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        command = [*hosts.prefix(self.names[0]), *BFRUN, "-p", str(PORT), *arguments]
        return start_script(command, env={"PATH": self.path, **(env or {})})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], Path]]:
    """Yield two hosts, and a folder with a key and an `ssh` that uses it."""
    ssh = shutil.which("ssh")
    if SSHD is None or ssh is None:
        pytest.skip("no OpenSSH: apt-get install openssh-client openssh-server")
    folder = tmp_path_factory.mktemp("ssh")
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/key"]
    subprocess.run(key, check=True)
    (folder / "sshd_config").write_text(SERVER.format(folder=folder))
    client = folder / "ssh"
    client.write_text(CLIENT.format(ssh=ssh, folder=folder))
    client.chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants this folder.
    with hosts.network(2) as names:
        yield names, folder


@pytest.fixture
def cluster(place: tuple[list[str], Path]) -> Iterator[Cluster]:
    names, folder = place
    at = f"{hosts.address(names[1])}:{PORT}"
    server = [f"{SSHD}", "-D", "-e", "-f", f"{folder}/sshd_config", "-o", f"ListenAddress={at}"]
    daemon = start_script([*hosts.prefix(names[1]), *server])
    try:
        assert daemon.stdout
        assert "listening" in daemon.stdout.readline()
        yield Cluster(names, f"{folder}{os.pathsep}{os.environ['PATH']}")
    finally:
        daemon.terminate()
        finish_script(daemon)


def finish(job: subprocess.Popen[str]) -> Ran:
    return finish_script(job, 120)


def test_ranks_of_two_hosts_make_a_group(cluster: Cluster, tmp_path: Path) -> None:
    script = CHECK + "import bluefog.torch as bf\nbf.init()\ncheck()\nassert bf.local_size() == 2\n"
    ran = finish(cluster.start("-np", "4", "-H", cluster.slots, "python", write(tmp_path, script)))
    assert ran.code == 0, ran.out
    assert_all_fine(ran.out, 4)
    assert re.search(r"^\[3\] rank 3 of 4 fine", ran.out, re.MULTILINE)


ONE_FAILS = """
import os, signal, socket, sys, time
print(os.environ["SECRET"], os.environ["RANK"], flush=True)
if os.environ["RANK"] == sys.argv[1]:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(float(sys.argv[2]))
print("done")
"""


@pytest.mark.parametrize("rank", [0, 3])
def test_all_hosts_stop_when_a_rank_fails(cluster: Cluster, tmp_path: Path, rank: int) -> None:
    script = write(tmp_path, ONE_FAILS)
    command = [sys.executable, script, str(rank), "1000"]
    job = cluster.start("-np", "4", "-H", cluster.slots, *command, env={"SECRET": "x"})
    ran = finish(job)
    assert ran.code == 137, ran.out
    assert re.search(rf"bfrun: rank {rank} \(pid \d+\) ended by SIGKILL after \d+ s", ran.out)
    assert "done" not in ran.out
    assert not running(script)


def test_the_others_go_on_on_all_hosts_when_asked_to(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("".join(f"{hosts.address(name)} slots=2\n" for name in cluster.names))
    command = [sys.executable, write(tmp_path, ONE_FAILS), "2", "3"]
    ran = finish(
        cluster.start(
            "-np",
            "4",
            "-hostfile",
            str(file),
            "--network-interface",
            "eth0",
            "--keep-going",
            *command,
            env={"SECRET": "open sesame"},
        )
    )
    assert ran.code == 0, ran.out
    assert all(f"[{each}] open sesame {each}" in ran.out for each in range(4)), ran.out
    assert all(f"[{each}] done" in ran.out for each in (0, 1, 3)), ran.out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_ends_bfrun_ends_the_ranks_of_other_hosts(
    cluster: Cluster, tmp_path: Path, how: signal.Signals
) -> None:
    script = write(tmp_path, ONE_FAILS)
    there = f"{hosts.address(cluster.names[1])}:2"
    job = cluster.start(
        "-np", "2", "-H", there, sys.executable, script, "9", "1000", env={"SECRET": "x"}
    )
    try:
        harness.await_that(lambda: len(running(script)) >= 3)  # bfrun, and two ranks
        launcher = next(pid for pid in descendants(job.pid) | {job.pid} if is_bfrun(pid))
        os.kill(launcher, how)
        harness.await_that(lambda: not running(script))
    finally:
        finish(job)


def is_bfrun(pid: int) -> bool:
    return b"bluefog_pg.launch.runner.command" in Path(f"/proc/{pid}/cmdline").read_bytes()


def running(script: str) -> list[int]:
    """Return the processes that have the script on their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if script.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass  # The process has ended.
    return found


def test_a_host_that_cannot_be_reached_is_named(cluster: Cluster) -> None:
    nobody = hosts.address(cluster.names[0]).rpartition(".")[0] + ".77"
    ran = finish(cluster.start("-np", "1", "-H", f"{nobody}:1", "true"))
    assert ran.code == 1, ran.out
    assert f"bfrun: ssh {nobody} ended with exit code 255" in ran.out


def test_a_program_that_the_other_host_lacks_is_named(cluster: Cluster) -> None:
    there = f"{hosts.address(cluster.names[1])}:1"
    ran = finish(cluster.start("-np", "1", "-H", there, "no-such-program"))
    assert ran.code == 1, ran.out
    assert "'no-such-program' cannot be started: No such file" in ran.out
