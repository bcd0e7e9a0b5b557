"""The fixtures of the multi-rank tests are the kept pool, and the leak check around every test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import harness, leftovers
from tests.support.processes import kill_all

# Other tests run beside an example, which then takes longer than hypothesis allows by default.
hypothesis.settings.register_profile("beside others", deadline=None)
hypothesis.settings.load_profile("beside others")


def pytest_configure(config: pytest.Config) -> None:
    """Give each process that runs tests its own folder, so that it sees no others' leftovers.

    Processes whose parents have ended become children of this one, and are seen with the others.
    """
    leftovers.adopt_orphans()
    # Files that a test writes into tmp_path stay after the run, so that you can look at them.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="tests-")
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
    """Yield a pool of as many processes as the module's RANKS says."""
    kept = harness.Pool(getattr(request.module, "RANKS", 4))
    files = leftovers.files()
    POOLS.append(kept)
    yield kept
    POOLS.remove(kept)
    kept.discard()
    fail_if_left(files)


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    files = leftovers.files()
    yield
    if request.node.stash.get(FAILED, False):
        for kept in POOLS:
            kept.discard(judge=False)
    if dead := [kept for kept in POOLS if kept.dead()]:
        stories = [kept.story() for kept in dead]
        for kept in dead:
            kept.discard(judge=False)
        pytest.fail("\n".join(stories))
    fail_if_left(files)


POOLS: list[harness.Pool] = []


def fail_if_left(files: set[Path]) -> None:
    left, processes = leftovers.after(files, 3 * harness.SLOW)
    if not left and not processes:
        return
    what = [f"{pid} {leftovers.command(pid)}" for pid in sorted(processes)]
    # The next test begins without what this one has left.
    for kept in POOLS:
        kept.discard(judge=False)
    for pid in processes:
        kill_all(pid)
    pytest.fail(f"left behind: files {left}, processes {what}")
