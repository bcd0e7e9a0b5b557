"""Fixtures of the multi-rank tests: the kept pool, and the leak check around every test."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import harness
from tests.support.programs import kill_all

# Other tests run beside an example, which then takes longer than hypothesis allows by default.
hypothesis.settings.register_profile("beside others", deadline=None)
hypothesis.settings.load_profile("beside others")


def pytest_configure(config: pytest.Config) -> None:
    """Workers that run tests side by side have a folder each, and see their own leftovers alone."""
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix=f"{worker}-")
        config.add_cleanup(lambda: shutil.rmtree(str(tempfile.tempdir)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.CallOutcome, None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.stash[FAILED] = report.failed


FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="module")
def pool(request: pytest.FixtureRequest) -> Iterator[harness.Pool]:
    """Of as many processes as the module's RANKS says."""
    kept = harness.Pool(getattr(request.module, "RANKS", 4))
    POOLS.append(kept)
    yield kept
    POOLS.remove(kept)
    kept.discard()


POOLS: list[harness.Pool] = []


def in_use(path: Path) -> bool:
    """Some living process has it open or mapped (so another job's, not left behind)."""
    inode = path.stat().st_ino
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if str(path) in Path(f"/proc/{pid}/maps").read_text():
                return True
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.stat(f"/proc/{pid}/fd/{fd}").st_ino == inode:
                    return True
        except OSError:
            continue
    return False


def holdings() -> tuple[set[Path], set[int]]:
    names = {Path("/dev/shm") / n for n in os.listdir("/dev/shm")}
    names |= {p for p in Path(tempfile.gettempdir()).iterdir() if p.name.startswith("bluefog")}
    kept = {p.pid for ranks in harness.LIVING for p in ranks.procs}
    kept |= {parent.pid for parent in harness.PARENTS}
    return names, harness.descendants(os.getpid()) - kept


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    names, _ = holdings()
    yield
    if request.node.stash.get(FAILED, False):
        for kept in POOLS:
            kept.discard()
    end = time.monotonic() + 3 * harness.SLOW
    while True:
        now, children = holdings()
        left = [p for p in now - names if p.exists() and not in_use(p)]
        if not left and not children:
            return
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    # The next test begins without them.
    for kept in POOLS:
        kept.discard()
    for child in children:
        kill_all(child)
    pytest.fail(f"left behind: files {left}, processes {sorted(children)}")
