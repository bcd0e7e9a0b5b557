"""Every public name has an example in its docstring, which prints what it says.

docs/testing.md says how an example is written, and on how many ranks it runs.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

import pytest

from tests.support import docstrings, harness
from tests.support.docstrings import Documented

# These examples end ranks or the group, or leave a rank behind. The ranks are those that die.
ALONE: dict[str, tuple[int, ...]] = {
    "bluefog_pg.CollectiveTimeout": (),
    "bluefog_pg.PeerFailed": (3,),
    "bluefog_pg.shutdown": (),
    "bluefog_pg.torch.shutdown": (),
}
NEEDED = {"bluefog_pg.topology_util.plot": "matplotlib"}


@functools.cache
def documented() -> dict[str, Documented]:
    return {each.title: each for each in docstrings.documented()}


def told(each: Documented, failures: Mapping[int, str]) -> str:
    """Say once what differs on several ranks."""
    ranks = defaultdict(list)
    for rank, text in failures.items():
        if text:
            ranks[text].append(rank)
    return "".join(f"{each.title}, on ranks {of}:\n{text}\n" for text, of in ranks.items())


def fail_with(reports: Iterable[str]) -> None:
    if bad := [report for report in reports if report]:
        pytest.fail(f"examples that fail: {len(bad)}\n\n" + "\n".join(bad), pytrace=False)


def test_public_names_have_an_example() -> None:
    """A change of the collector must not lose names: there are more than two hundred."""
    without = [title for title, each in documented().items() if not each.example]
    assert not without, without
    assert len(documented()) > 200, len(documented())


def test_public_classes_say_who_may_call_them() -> None:
    classes = [each for each in documented().values() if inspect.isclass(each.thing)]
    silent = [each.title for each in classes if "\nThread safety: " not in each.docstring]
    assert not silent, silent


def test_examples_without_ranks() -> None:
    reports = []
    for title, each in documented().items():
        if not each.needs_ranks and find_spec(NEEDED.get(title, "torch")):
            differs = each.failures()
            reports.append(f"{title}:\n{differs}" if differs else "")
    fail_with(reports)


@pytest.mark.parametrize("place", [*docstrings.PLACES, "bluefog_pg.functional"])
def test_examples_on_four_ranks(pool: harness.Pool, place: str) -> None:
    reports = []
    for title, each in documented().items():
        if each.place != place or not each.needs_ranks or title in ALONE:
            continue
        try:
            differing = pool.run(docstrings.run_on_rank, each, world=4, timeout=20)
            report = told(each, dict(enumerate(differing)))
        except harness.RankFailure as failure:
            report = f"{title}: {failure}"
        if report:
            pool.discard(judge=False)  # The ranks may be in different states now.
        reports.append(report)
    fail_with(reports)


@pytest.mark.parametrize("title", ALONE)
def test_examples_on_ranks_of_their_own(title: str) -> None:
    each = documented()[title]
    with harness.Ranks(4) as ranks:
        ranks.start(docstrings.run_on_rank, each, world=4, store="s")
        fail_with([told(each, ranks.values(dead=ALONE[title]))])
