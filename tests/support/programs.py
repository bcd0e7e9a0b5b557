"""This module runs whole programs under a deadline, as users start them.

`run_script([*TORCHRUN, "--standalone", "examples/x.py", ...])` runs what a user types.
`run_on_ranks("examples/x.py", "--steps", "4", ranks=4)` does the same without the imports.
"""

from __future__ import annotations

import functools
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.environment import environment
from tests.support.harness import SLOW, Hang, Ranks
from tests.support.processes import descendants, kill_all, stacks

MPIRUN = [str(Path(sys.executable).parent / "mpirun"), "--allow-run-as-root", "--oversubscribe"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


@dataclass
class Ran:
    code: int
    out: str
    seconds: float


def start_script(
    argv: list[str], *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    # A shell's background jobs ignore SIGINT, and with them all tests that they start.
    return subprocess.Popen(
        argv, env=environment(env), cwd=cwd, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def finish_script(proc: subprocess.Popen[str], timeout: float = 60) -> Ran:
    began = time.monotonic()
    try:
        out, _ = proc.communicate(timeout=timeout * SLOW)
    except subprocess.TimeoutExpired:
        seen = stacks(descendants(proc.pid) | {proc.pid})
        kill_all(proc.pid)
        out, _ = proc.communicate()
        raise Hang(f"{proc.args!r} ran past {timeout} s\n{out[-6000:]}\n{seen}") from None
    # Ctrl-C or pytest's limit came, and the program has a session of its own.
    except BaseException:
        kill_all(proc.pid)
        raise
    return Ran(proc.returncode, out, time.monotonic() - began)


def run_script(
    argv: list[str],
    *,
    timeout: float = 60,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> Ran:
    return finish_script(start_script(argv, env=env, cwd=cwd), timeout)


def run_on_ranks(
    script: Path,
    *args: str,
    ranks: int,
    timeout: float = 60,
    env: dict[str, str] | None = None,
    modules: tuple[str, ...] = (),
) -> Ran:
    """Run a script as torchrun does, on ranks that have already imported torch and `modules`."""
    began = time.monotonic()
    given = {"LOCAL_WORLD_SIZE": str(ranks), **(env or {})}
    with Ranks(ranks, env=given, modules=modules) as those:
        those.start(as_main, str(script), args)
        codes = [o.value for o in those.join(timeout)]
        out = "".join(those.output(rank) for rank in range(ranks))
    return Ran(next(filter(None, codes), 0), out, time.monotonic() - began)


def as_main(_rank: int, _world: int, script: str, args: tuple[str, ...]) -> int:
    """Run the script in this process as if Python had been given it, and return its exit code."""
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
