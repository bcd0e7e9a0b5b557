"""The harness notices what ranks do when they end, and what they leave behind."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import harness, leftovers


def crash_at_the_end(_rank: int, _world: int) -> None:
    atexit.register(os.abort)


def hang_at_the_end(_rank: int, _world: int) -> None:
    atexit.register(signal.pause)


@pytest.mark.parametrize(
    ("body", "code"), [(crash_at_the_end, "{0: -6}"), (hang_at_the_end, "{0: None}")]
)
def test_a_rank_that_does_not_end_well_fails(
    body: Callable[[int, int], None], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "STRETCH", 0.2)
    with pytest.raises(harness.RankFailure, match=f"exit codes of ranks.*{code}"):
        with harness.Ranks(1) as ranks:
            ranks.start(body)
            ranks.join()


def leave_a_process(_rank: int, _world: int) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.pause()
        os._exit(0)
    os.wait()


def test_a_process_without_parent_is_seen() -> None:
    """The process is in a session of its own, so that nobody's signal reached it."""
    with harness.Ranks(1) as ranks:
        ranks.start(leave_a_process)
        ranks.join()
    files, (orphan,) = leftovers.after(leftovers.files(), 0)
    os.kill(orphan, signal.SIGKILL)
    assert leftovers.after(leftovers.files(), harness.at_most(5)) == ([], set())
    assert files == []


def test_a_file_in_shared_memory_is_seen_when_nobody_uses_it() -> None:
    before = leftovers.files()
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="bluefog-test-") as file:
        path = Path(file.name)
        assert path not in leftovers.after(before, 0)[0]
    path.touch()
    try:
        assert path in leftovers.after(before, 0)[0]
    finally:
        path.unlink()


def die_later(_rank: int, _world: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.1)


def test_a_kept_rank_that_dies_is_named() -> None:
    kept = harness.Pool(2)
    kept.run(die_later, world=2)
    end = time.monotonic() + harness.at_most(5)
    while kept.dead() != [0, 1] and time.monotonic() < end:
        time.sleep(0.01)
    assert kept.dead() == [0, 1]
    assert "ranks [0, 1] ended while they were kept" in kept.story()
    kept.discard()
