"""bfrun starts the ranks of a program, shows what they write, and says how they ended."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from bluefog_pg.launch.runner.whole_lines import WholeLines
from tests.support.harness import SLOW
from tests.support.launching import CHECK, assert_all_fine, write
from tests.support.processes import descendants
from tests.support.programs import Ran, finish_script, run_script, start_script

BFRUN = [sys.executable, "-m", "bluefog_pg.launch.runner.command"]
ENVIRON = """
import os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
print(*(os.environ[name] for name in names), *sys.argv[1:])
"""
# Rank 1 ends in the way that the first argument says.
ONE_FAILS = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    print("no newline at the end", end="")
    sys.stdout.flush()
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(sys.argv[1]))
time.sleep(float(sys.argv[2]))
print("done")
"""


def bfrun(tmp_path: Path, text: str, *arguments: str, options: tuple[str, ...] = ()) -> Ran:
    script = write(tmp_path, text)
    return run_script([*BFRUN, "-np", "3", *options, sys.executable, script, *arguments])


def test_ranks_know_their_places_and_get_their_arguments(tmp_path: Path) -> None:
    ran = bfrun(tmp_path, ENVIRON, "--lr", "a b")
    assert ran.code == 0, ran.out
    assert sorted(ran.out.splitlines()) == [
        f"[{rank}] {rank} 3 {rank} 3 --lr a b" for rank in range(3)
    ]


@pytest.mark.slow
def test_ranks_make_a_group_and_bluefog_is_found(tmp_path: Path) -> None:
    script = CHECK + "import bluefog.torch as bf\nbf.init()\ncheck()\n"
    ran = bfrun(tmp_path, script)
    assert ran.code == 0, ran.out
    assert_all_fine(ran.out, 3)


@pytest.mark.parametrize(("how", "said", "code"), [
    ("kill", "ended by SIGKILL", 137), ("7", "ended with exit code 7", 7),
])  # fmt: skip
def test_the_others_are_stopped_when_one_fails(
    tmp_path: Path, how: str, said: str, code: int
) -> None:
    ran = bfrun(tmp_path, ONE_FAILS, how, "1000")
    assert ran.code == code, ran.out
    assert re.search(rf"bfrun: rank 1 \(pid \d+\) {said} after \d+ s$", ran.out, re.MULTILINE)
    assert "[1] no newline at the end\n" in ran.out
    assert "bfrun: stopping ranks 0, 2" in ran.out
    assert "done" not in ran.out


def test_the_others_go_on_when_asked_to(tmp_path: Path) -> None:
    ran = bfrun(tmp_path, ONE_FAILS, "kill", "2", options=("--keep-going",))
    assert ran.code == 0, ran.out
    assert "ended by SIGKILL" in ran.out
    assert "[0] done\n" in ran.out
    assert "[2] done\n" in ran.out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks_and_what_they_have_started(
    tmp_path: Path, how: signal.Signals
) -> None:
    script = "import subprocess\nprint('up', flush=True)\nsubprocess.run(['sleep', '1000'])\n"
    job = start_script([*BFRUN, "-np", "2", sys.executable, write(tmp_path, script)])
    try:
        end = time.monotonic() + 30 * SLOW
        while sum("sleep" in command_of(pid) for pid in descendants(job.pid)) < 2:
            assert time.monotonic() < end, "the ranks do not start"
            time.sleep(0.05)
        left = descendants(job.pid)
        os.kill(job.pid, how)
    finally:
        ran = finish_script(job)
    assert ran.code == 128 + how, ran.out
    assert f"bfrun: {how.name}: stopping all ranks" in ran.out
    assert not [pid for pid in left if command_of(pid)]


STUBBORN = """
import signal, time
for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
time.sleep(1000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_more_signals_do_not_cut_the_end_short(tmp_path: Path, how: signal.Signals) -> None:
    job = start_script([*BFRUN, "-np", "2", sys.executable, write(tmp_path, STUBBORN)])
    try:
        assert job.stdout
        while "up" not in job.stdout.readline():
            pass
        left = descendants(job.pid)
        for _ in range(3):
            os.kill(job.pid, how)
            time.sleep(0.5)
    finally:
        ran = finish_script(job)
    assert ran.code == 128 + how, ran.out
    assert "Traceback" not in ran.out
    assert not [pid for pid in left if command_of(pid)]


def test_pieces_of_a_line_are_put_together() -> None:
    out = io.StringIO()
    lines, others = WholeLines(out, "[0] "), WholeLines(out, "[1] ")
    for text in "[0] one", "[0]  and two", "[0] \n", "[0] three\n", "[0] no end":
        lines.write(text)
        others.write("[1] between\n")
    lines.finish()
    others.finish()
    told = [line for line in out.getvalue().splitlines(keepends=True) if "between" not in line]
    assert told == ["[0] one and two\n", "[0] three\n", "[0] no end\n"]
    assert out.getvalue().count("[1] between\n") == 5


def test_a_real_time_signal_has_a_number(tmp_path: Path) -> None:
    ran = bfrun(tmp_path, "import os\nos.kill(os.getpid(), 35)\n")
    assert ran.code == 128 + 35, ran.out
    assert "ended by signal 35 after" in ran.out


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(("arguments", "said"), [
    (["-np", "2", "no-such-program"], "bfrun: 'no-such-program' cannot be started: No such file"),
    (["-np", "2"], "name the program to start"),
    (["-np", "0", "true"], "-np 0: a job has at least one rank"),
    (["true"], "the following arguments are required: -np/--num-proc"),
    (["-np", "3", "-H", "localhost:2", "true"], "3 ranks need 3 slots, and the hosts have 2"),
    (["-np", "3", "-H", "a:b", "true"], "'a:b' is no host"),
    (["-np", "1", "-hostfile", "/no/such/file", "true"], "/no/such/file"),
    (["-np", "1", "--extra-mpi-flags", "-mca a", "true"], "-mca needs a name and a value"),
    (["-np", "1", "--extra-mpi-flags", "--bind-to none", "true"], "'--bind-to' is for mpirun"),
    (["-np", "1", "-H", "nowhere.invalid", "true"], "host 'nowhere.invalid' is not known"),
])  # fmt: skip
def test_bad_calls_say_what_is_wrong(arguments: list[str], said: str) -> None:
    ran = run_script([*BFRUN, *arguments])
    assert ran.code != 0
    assert said in ran.out
    assert "Traceback" not in ran.out


def test_the_other_ways_to_call_it(tmp_path: Path) -> None:
    names = "RANK", "BLUEFOG_TIMELINE", "OMPI_MCA_btl_tcp_links", "BLUEFOG_LOG_LEVEL"
    script = write(tmp_path, f"import os\nprint(*(os.environ[name] for name in {names}))\n")
    options = "--num-proc 1 --timeline-filename here --verbose --extra-mpi-flags".split()
    ran = run_script(
        [sys.executable, "-m", "bluefog_pg", "run", *options, "-mca btl_tcp_links 2", "--", script]
    )
    assert ran.code == 0, ran.out
    assert "run: 1 ranks of:" in ran.out
    assert "[0] 0 here 2 debug" in ran.out
    from bluefog_pg import __version__

    assert run_script([*BFRUN, "--version"]).out.strip() == __version__


@pytest.mark.parametrize("command", [BFRUN, [sys.executable, "-m", "bluefog_pg", "run"]])
def test_no_option_may_be_cut_short(command: list[str]) -> None:
    ran = run_script([*command, "-np", "1", "--keep", "true"])
    assert ran.code != 0
    assert "--keep" in ran.out.splitlines()[-1]


WAITS_TO_BE_SEEN = """
import pathlib, sys, time
print("up", flush=True)
file = pathlib.Path(sys.argv[1])
for _ in range(600):
    if file.exists():
        break
    time.sleep(0.05)
print("seen:", file.exists())
"""


def test_a_pipe_has_each_line_when_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    script = write(tmp_path, WAITS_TO_BE_SEEN)
    command = [*BFRUN, "-np", "1", sys.executable, script, str(file)]
    job = start_script(command, env={"PYTHONUNBUFFERED": ""})
    try:
        first = job.stdout.readline()
        file.touch()
    finally:
        ran = finish_script(job)
    assert first == "[0] up\n"
    assert ran.out == "[0] seen: True\n"


def test_no_log_is_left(tmp_path: Path) -> None:
    ran = run_script([*BFRUN, "-np", "2", "true"], env={"TMPDIR": str(tmp_path)})
    assert ran.code == 0, ran.out
    assert not list(tmp_path.iterdir())
