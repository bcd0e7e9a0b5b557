"""The site has each public name, option and key of metrics, and its checker sees faults."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import bluefog_pg
from bluefog_pg import __main__ as command_line
from bluefog_pg.launch.runner import command as bfrun
from bluefog_pg.notebook import command as ibfrun
from tests.support import docstrings, harness
from tests.support.environment import ROOT

DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
TEXT = re.compile(r"<text[^>]*>([^<]+)</text>")
CODE = re.compile(r"`([^`\n]+)`")
_NAME = r"""["']BLUEFOG_\w+["']"""
# This finds reads of variables that go past variables.read, under whatever name the environment is.
READ_PAST = re.compile(
    rf"(?:\.(?:get|pop)|getenv)\(\s*{_NAME}"
    rf"|\[{_NAME}\](?!\s*=[^=])"
    rf"|{_NAME} (?:not )?in "
)


def directives() -> list[str]:
    """Return the names that the pages of the reference show, some of which may be there twice."""
    pages = sorted((ROOT / "docs/reference").glob("*.md"))
    return [name for page in pages for name in DIRECTIVE.findall(page.read_text())]


def thing(name: str) -> object:
    """Return what a dotted name is: a module, or what a module has."""
    place, _, last = name.rpartition(".")
    found: object = getattr(importlib.import_module(place), last)
    return inspect.unwrap(found) if callable(found) else found


def test_the_reference_has_each_public_name_once() -> None:
    """Methods are on the page of their class. Two names of one thing need one place."""
    shown = directives()
    assert len(shown) == len(set(shown))
    things = [id(thing(name)) for name in shown]
    assert len(things) == len(set(things)), "two directives show the same thing"
    public = [each for each in docstrings.documented() if "." not in each.name]
    missing = {each.title for each in public if id(inspect.unwrap(each.thing)) not in things}
    assert not missing


def test_the_reference_shows_nothing_else() -> None:
    public = {id(inspect.unwrap(each.thing)) for each in docstrings.documented()}
    assert not [name for name in directives() if id(thing(name)) not in public]


def in_code(page: str) -> set[str]:
    """Return what the page has in backquotes, cut at spaces, so that `-o FILE` gives `-o`."""
    spans = CODE.findall((ROOT / page).read_text())
    return {word for span in spans for word in span.split()}


class Parsed(Exception):
    """A parser has all its arguments."""


def parser_of(main: object, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """Return the parser that a program makes, in place of running the program."""

    def parse(parser: argparse.ArgumentParser) -> None:
        raise Parsed(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    assert callable(main)
    with pytest.raises(Parsed) as parsed:
        main()
    found = parsed.value.args[0]
    assert isinstance(found, argparse.ArgumentParser)
    return found


def arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options and commands of a parser, and those of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices
            for inner in action.choices.values():
                yield from arguments(inner)
        elif not isinstance(action, argparse._HelpAction):
            yield from action.option_strings


def test_the_page_has_the_commands_and_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        *arguments(parser_of(command_line.main, monkeypatch)),
        *arguments(parser_of(bfrun.main, monkeypatch)),
        *arguments(parser_of(ibfrun.main, monkeypatch)),
    }
    page = "docs/command_line.md"
    headings = re.findall(r"^## (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    commands = {name for name in known if not name.startswith("-")}
    assert {*headings, "run", "start", "stop"} >= commands  # These are those of bfrun and ibfrun.
    rows = re.findall(r"^\| (.+?) \|", (ROOT / page).read_text(), re.MULTILINE)
    options = {word.strip("`,") for row in rows for word in row.split() if word.startswith("`-")}
    assert options == known - commands


def body(rank: int, world: int) -> dict[str, list[str]]:
    """Return the keys that the metrics have on a rank, by the sections of their page."""
    import torch

    w = torch.nn.Parameter(torch.ones(2))
    optimizer = bluefog_pg.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [], order="atc")
    window = bluefog_pg.Window(torch.ones(2), "w")
    window.put()
    window.fence()
    stats = bluefog_pg.window_stats()["w"]
    found = {
        "stats": list(bluefog_pg.stats()),
        "window_stats": [*next(iter(stats["from"].values())), *next(iter(stats["to"].values()))],
        "Recorder": ["step", *bluefog_pg.optim.Recorder(optimizer, None).write(1, distance=True)],
        "Flight log": list(bluefog_pg.flight_log()["entries"][-1]),
    }
    window.free()
    return found


def test_the_page_has_the_keys_of_the_metrics(pool: harness.Pool) -> None:
    found = pool.run(body, world=2)[0]
    text = (ROOT / "docs/metrics.md").read_text()
    for title, keys in found.items():
        section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
        assert {key for row in rows for key in CODE.findall(row)} == set(keys), title


def from_file(path: str) -> ModuleType:
    """Import a program of the repository, which is no package's module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_variables_is_made_from_where_they_are_read() -> None:
    environment = from_file(".ci/site/environment.py")
    text = environment.PAGE.read_text()
    assert environment.written(text) == text, "run make docs-environment"
    sources = (ROOT / "python").rglob("*.py")
    past = [str(path) for path in sources if READ_PAST.search(path.read_text())]
    assert not past, f"use variables.read: {past}"


@pytest.mark.parametrize(
    ("line", "is_seen"),
    [
        ('os.environ.get("BLUEFOG_TUNING")', True),
        ('env.get("BLUEFOG_TUNING", "")', True),
        ("os.getenv('BLUEFOG_TUNING')", True),
        ('env["BLUEFOG_TUNING"] == "off"', True),
        ('if "BLUEFOG_TUNING" in os.environ:', True),
        ('environ["BLUEFOG_TUNING"] = "off"', False),
        ('variables.read("BLUEFOG_TUNING")', False),
        ('{"BLUEFOG_TUNING": "off"}', False),
    ],
)
def test_reads_of_variables_are_seen(line: str, is_seen: bool) -> None:
    assert bool(READ_PAST.search(line)) == is_seen


def test_the_tables_of_the_performance_page_show_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    performance = from_file("benchmarks/performance.py")
    text = performance.PAGE.read_text()
    assert performance.written(text) == text, "run make bench-tables"
    assert set(performance.TABLES) == {name for _, name, _ in performance.BLOCK.findall(text)}


def test_the_pictures_are_those_that_the_script_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    pictures = from_file("benchmarks/pictures_docs.py")
    pictures.main(tmp_path)
    for new in sorted(tmp_path.glob("*.svg")):
        committed = pictures.PICTURES / new.name
        assert TEXT.findall(committed.read_text()) == TEXT.findall(new.read_text()), (
            f"{committed} shows something else; run make bench-tables"
        )


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="there.html#a">x</a>', None),
        ('<a href="https://example.org">x</a>', None),
        ('<a href="there.html#b">x</a>', "there.html#b leads nowhere"),
        ('<a href="nowhere.html">x</a>', "nowhere.html leads nowhere"),
        ('<a href="../outside.html">x</a>', "../outside.html leads nowhere"),
        ('<img src="no.svg">', "no.svg leads nowhere"),
        ('<script src="https://example.org/x.js"></script>', "https://example.org/x.js from the"),
    ],
)
def test_the_checker_sees(html: str, fault: str | None, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").write_text("")
    (site / "there.html").write_text('<p id="a">x</p>')
    (site / "index.html").write_text(html)
    told = list(from_file(".ci/site/check.py").faults(site))
    assert [fault in each for each in told] == [True] if fault else told == []
