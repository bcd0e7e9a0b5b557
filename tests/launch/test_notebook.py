"""A notebook starts ranks, runs cells on them, and leaves nothing behind; so does ibfrun."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from bluefog_pg import notebook
from tests.support.environment import ROOT
from tests.support.harness import SLOW
from tests.support.launching import write
from tests.support.processes import descendants, kill_all
from tests.support.programs import Ran, finish_script, run_script, start_script

needs_ipyparallel = pytest.mark.skipif(
    find_spec("ipyparallel") is None, reason="needs `pip install bluefog_pg[notebook]`"
)
IBFRUN = [sys.executable, "-m", "bluefog_pg.notebook.command"]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
LIMIT = 120  # seconds; each engine imports torch and ipyparallel

# A cell that begins with %%px reaches this shell as a call of the magic.
CELLS = """
import os, signal, sys, threading, time
from IPython.core.interactiveshell import InteractiveShell
from bluefog_pg import notebook

def px(cell):
    InteractiveShell.instance().run_cell_magic("px", "--progress-after -1", cell)

def status(result):
    result.wait()
    return result.status

def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

InteractiveShell.instance()
"""
AVERAGE = """
view = notebook.start(2)
px("import os, torch, torch.distributed as dist, bluefog_pg.torch as bf")
px("bf.init()")
px("x = bf.allreduce(torch.full((3,), float(bf.rank()))).tolist()")
assert view["x"] == [[0.5] * 3] * 2, view["x"]
px("places = dist.get_rank(), os.environ['LOCAL_RANK'], dist.get_backend()")
assert view["places"] == [(rank, str(rank), "bluefog") for rank in range(2)], view["places"]
print("twice:", refused(notebook.start, 3))
print("pids", *view.apply_sync(os.getpid))
notebook.stop()
notebook.stop()
with notebook.ranks(1) as view:
    px("y = 1")
    assert view["y"] == [1], view["y"]
"""
DEATH = """
with notebook.ranks(2) as view:
    px("import os, signal, torch, bluefog_pg.torch as bf")
    px("bf.init()")
    px("if bf.rank() == 1: os.kill(os.getpid(), signal.SIGKILL)")
"""
INTERRUPT = """
with notebook.ranks(2) as view:
    px("import time, torch, bluefog_pg.torch as bf")
    px("bf.init()")
    threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    px("if bf.rank() == 0: bf.barrier()\\nelse: time.sleep(1000)")
    print("interrupted")
    # An engine skips the cells that wait when one of them fails.
    while status(view.execute("pass", block=False)) != ["ok"] * 2:
        time.sleep(0.1)
    px("bf.shutdown(); bf.init(); x = bf.allreduce(torch.ones(1)).item()")
    assert view["x"] == [1.0, 1.0], view["x"]
    print("averaged again")
"""
KERNEL = """
view = notebook.start(2)
view.execute("import bluefog_pg.torch as bf; bf.init()", block=True)
view.execute("import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)")
print("up", flush=True)
time.sleep(1000)
"""
# Engine 1 ends before it has met the controller.
NO_ENGINE = """
import os, sys
if os.environ.get("RANK") == "1":
    sys.exit("no luck today")
"""
CLIENT = """
import ipyparallel
view = ipyparallel.Client(profile="bluefog")[:]
view.execute("import torch, bluefog.torch as bf; bf.init()", block=True)
view.execute("x = bf.allreduce(torch.full((1,), float(bf.rank()))).item()", block=True)
print("averages", view["x"])
"""


def places(tmp_path: Path) -> dict[str, str]:
    return {"IPYTHONDIR": str(tmp_path / "ipython")}


def run_cells(tmp_path: Path, text: str, **env: str) -> Ran:
    script = write(tmp_path, CELLS + text)
    ran = run_script([sys.executable, script], timeout=LIMIT, env=places(tmp_path) | env)
    assert ran.code == 0, ran.out
    return ran


def wait_for(what: str, file: Path, proc: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LIMIT * SLOW
    while what not in file.read_text():
        assert proc.poll() is None, file.read_text()
        assert time.monotonic() < end, file.read_text()
        time.sleep(0.1)


@needs_ipyparallel
@pytest.mark.slow
def test_cells_run_on_all_ranks_and_stop_leaves_nothing(tmp_path: Path) -> None:
    out = run_cells(tmp_path, AVERAGE).out
    assert (
        "twice: RuntimeError: [bluefog] notebook: 2 ranks run already; "
        "call bluefog_pg.notebook.stop() first" in out
    ), out
    pids = re.search(r"^pids (\d+) (\d+)$", out, re.MULTILINE)
    assert pids, out
    assert not [pid for pid in pids.groups() if Path("/proc", pid).exists()]
    assert "ended by" not in out, out


@needs_ipyparallel
@pytest.mark.slow
def test_an_engine_that_dies_is_named(tmp_path: Path) -> None:
    script = write(tmp_path, CELLS + DEATH)
    ran = run_script([sys.executable, script], timeout=LIMIT, env=places(tmp_path))
    assert ran.code != 0, ran.out
    assert re.search(
        r"^bluefog_pg.notebook: rank 1 \(pid \d+\) ended by SIGKILL after \d+ s$",
        ran.out,
        re.MULTILINE,
    ), ran.out


@needs_ipyparallel
@pytest.mark.slow
def test_ctrl_c_interrupts_a_cell_that_hangs(tmp_path: Path) -> None:
    out = run_cells(tmp_path, INTERRUPT).out
    assert "interrupted" in out
    assert "averaged again" in out


@needs_ipyparallel
@pytest.mark.slow
def test_ranks_end_with_a_kernel_that_is_killed_and_are_reached_here_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = write(tmp_path, CELLS + KERNEL)
    kernel = start_script(
        ["sh", "-c", 'exec "$@" >"$0" 2>&1', str(log), sys.executable, script],
        env=places(tmp_path),
    )
    log.touch()
    try:
        wait_for("up", log, kernel)
        left = descendants(kernel.pid)
        assert len(left) > 4, left
        assert not listening_elsewhere(left)
        # Jupyter kills a kernel's group.
        os.killpg(kernel.pid, signal.SIGKILL)
        kernel.wait()
        end = time.monotonic() + 30 * SLOW
        while alive := [pid for pid in left if is_alive(pid)]:
            assert time.monotonic() < end, alive
            time.sleep(0.1)
    finally:
        kill_all(kernel.pid)
        kernel.communicate()


def is_alive(pid: int) -> bool:
    """Return whether the process runs. An orphan that has ended waits for pytest to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listening_elsewhere(pids: set[int]) -> list[str]:
    """Return the addresses outside of the loopback network at which the processes listen."""
    inodes = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(file)))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *rest = line.split()
            is_local = address.startswith(("0100007F:", "00000000000000000000000001000000:"))
            if state == "0A" and rest[5] in inodes and not is_local:
                found.append(line)
    return found


@needs_ipyparallel
@pytest.mark.slow
def test_an_engine_that_does_not_start_is_named_with_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_ENGINE)
    text = "print(refused(notebook.start, 2))\nnotebook.stop()\n"
    out = run_cells(tmp_path, text, PYTHONPATH=str(tmp_path)).out
    assert re.search(
        r"RuntimeError: \[bluefog\] notebook: the ranks did not start: rank 1 \(pid \d+\) ended "
        r"with exit code 1 after \d+ s\nThe engines wrote:\n.*no luck today",
        out,
        re.DOTALL,
    ), out


def test_without_ipyparallel_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ipyparallel", None)
    with pytest.raises(ImportError, match=r"pip install 'bluefog_pg\[notebook\]'"):
        notebook.start(2)


@needs_ipyparallel
def test_no_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="there must be at least one rank"):
        notebook.start(0)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_committed_notebooks_have_no_outputs(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@needs_ipyparallel
@pytest.mark.slow
def test_ibfrun_starts_engines_for_a_notebook_and_stops_them(tmp_path: Path) -> None:
    env = places(tmp_path)
    log = tmp_path / "log"
    log.touch()
    shell = 'exec "$@" >"$0" 2>&1'
    ibfrun = start_script(["sh", "-c", shell, str(log), *IBFRUN, "start", "-np", "2"], env=env)
    try:
        wait_for("ibfrun: 2 engines are ready: ipyparallel.Client(profile='bluefog')", log, ibfrun)
        again = run_script([*IBFRUN, "start", "-np", "2"], env=env)
        assert again.code == 1, again.out
        assert f"ibfrun: process {ibfrun.pid} runs engines in this profile already" in again.out
        client = run_script([sys.executable, "-c", CLIENT], timeout=LIMIT, env=env)
        assert "averages [0.5, 0.5]" in client.out, client.out
        stopped = run_script([*IBFRUN, "stop"], timeout=LIMIT, env=env)
        assert stopped.code == 0, stopped.out
    finally:
        ended = finish_script(ibfrun, timeout=LIMIT)
    assert ended.code == 128 + signal.SIGTERM, log.read_text()
    assert log.read_text().count("\n") == 2, log.read_text()
    none = run_script([*IBFRUN, "stop"], env=env)
    assert none.code == 1
    assert "ibfrun: no engines run in the profile 'bluefog'" in none.out


@needs_ipyparallel
@pytest.mark.slow
def test_a_controller_that_ends_is_told_of(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    command = ["sh", "-c", 'exec "$@" >"$0" 2>&1', str(log), *IBFRUN, "start", "-np", "1"]
    ibfrun = start_script(command, env=places(tmp_path))
    try:
        wait_for("ibfrun: 1 engines are ready", log, ibfrun)
        for pid in descendants(ibfrun.pid):
            if "ipyparallel.controller" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
    finally:
        ended = finish_script(ibfrun, timeout=LIMIT)
    assert ended.code == 128 + signal.SIGTERM, log.read_text()
    assert "controller ended with exit code -9, so no cell runs" in log.read_text()


@needs_ipyparallel
@pytest.mark.parametrize(("arguments", "said"), [
    (["start", "-np", "0"], "ibfrun: -np 0: there must be at least one rank"),
    (["start", "-np", "3", "-H", "localhost:2"], "3 ranks need 3 slots, and the hosts have 2"),
    (["start", "-np", "1", "-H", "192.0.2.1:1"], "host '192.0.2.1' is another one"),
    (["start"], "the following arguments are required: -np/--num-proc"),
    ([], "the following arguments are required: start|stop"),
])  # fmt: skip
def test_bad_calls_of_ibfrun_say_what_is_wrong(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    ran = run_script([*IBFRUN, *arguments], env=places(tmp_path))
    assert ran.code != 0
    assert said in ran.out
    assert "Traceback" not in ran.out
