"""`make lint` refuses long, inverted and headless sentences, and British English."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROSE = Path(__file__).parents[2] / ".ci" / "lint_prose.py"
KEPT = "Sentences are short and plain."
LAST = "CONTRIBUTING.md has the rules."

# Each of these is a sentence, and what the lint says of it.
FAULTS = {
    "What others sent is kept.": "has a clause for a subject",
    "Who has no edge hears nothing.": "has a clause for a subject",
    "The engine is driven by whoever waits.": "has a clause for a subject",
    "A rank sends; who is late raises.": "has a clause for a subject",
    "Of a dead rank there is no file.": "begins with its end",
    "Nor does it wait.": "begins with its end",
    "From it follows an error.": "begins with its end",
    "Beside the lock lies a flag.": "begins with its end",
    "It has two in-neighbours.": '"neighbour" is British',
    "It normalises columns.": '"normalises" is British',
    "Nobody waits whilst it runs.": '"whilst" is British',
    "A rank shall not wait.": 'not "shall"',
    "This is not unlike gloo.": '"not unlike" denies twice',
    "There is no rank that does not send.": "denies twice",
}
FINE = (
    "What is a rank?",
    "From the second call on, a rank waits, and it says what it lacks.",
    "To install it, run `make dev` (see f(x) there).",
    "Of course, optimism and parallelism help, e.g. Rank 0's.",
    "With momentum it is SlowMo.",
    "At first, ranks say which of them wait: 0, 1 and 2.",
)


def judged(*files: Path) -> list[str]:
    """Return what the lint says of files, without their folders."""
    argv = [sys.executable, PROSE, *files]
    ran = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert ran.stderr == ""
    *faults, last = ran.stdout.splitlines()
    assert (ran.returncode, last) == ((1, LAST) if faults else (0, KEPT))
    return [fault.replace(f"{files[0].parent}/", "") for fault in faults]


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("sentence", FAULTS)
def test_a_bad_sentence_is_found_everywhere(tmp_path: Path, sentence: str) -> None:
    files = {
        "a.md": f"# A title\n\nA paragraph begins here. It\ngoes on. {sentence}\n",
        "b.md": f"- An item.\n- {sentence}\n\n1. Another one.\n   {sentence}\n",
        "c.py": f'"""Return it.\n\n{sentence}\n"""\n\n# A comment: x.\n# {sentence}\n',
        "d.py": f"raise ValueError(f'{{x}} is no rank. '\n    '{sentence}')\n",
        "e.cpp": f'int e;  // here\n// {sentence}\nauto f = "It failed. "\n    "{sentence}";\n',
    }
    found = judged(*(written(tmp_path, name, text) for name, text in files.items()))
    lines = ["a.md:4", "b.md:2", "b.md:5", "c.py:3", "c.py:7", "d.py:1", "e.cpp:2", "e.cpp:3"]
    assert [fault.split(": ")[0] for fault in found] == lines
    assert all(FAULTS[sentence] in fault for fault in found), found


@pytest.mark.parametrize("sentence", FINE)
def test_a_good_sentence_passes(tmp_path: Path, sentence: str) -> None:
    assert judged(written(tmp_path, "a.md", f"{sentence} {sentence}\n")) == []
    assert judged(written(tmp_path, "a.hpp", f"// {sentence}\n// {sentence}\n")) == []


def test_code_addresses_and_comments_are_no_prose(tmp_path: Path) -> None:
    bad = "Of a neighbour"
    page = (
        f"```sh\n{bad}\n```\n\n- ~~~~\n  ```\n  {bad}\n  ~~~~\n\n<!-- run: {bad}\n{bad} -->\n"
        f"`{bad}` and ``a ` {bad}`` are code, and [a link](neighbour.md) leads on.\n"
    )
    assert judged(written(tmp_path, "a.md", page)) == []
    assert (
        judged(written(tmp_path, "a.py", f'def f():\n    """Do it.\n\n    >>> {bad}\n    """\n'))
        == []
    )


def test_titles_and_cells_may_be_clauses(tmp_path: Path) -> None:
    rows = "| Who waits | What it sends |\n| --- | --- |\n| Of all ranks | Nor |\n"
    assert judged(written(tmp_path, "a.md", f"# What it promises\n\n{rows}")) == []
    (fault,) = judged(written(tmp_path, "a.md", "## Neighbours\n"))
    assert fault == 'a.md:1: "Neighbour" is British'


def test_a_sentence_may_have_35_words(tmp_path: Path) -> None:
    words = "word, `of code (of code)` and [a link](x.md#y) (x) " + "word " * 26
    short, long = f"{words}end.", f"{words}2.5 ends."
    assert judged(written(tmp_path, "a.md", f"It is {short[0].upper()}{short[1:]}\n")) == []
    for name in ("a.md", "b.cpp", "c.py"):
        text = f"It is {long}"
        text = text if name == "a.md" else f"x = '{text}'" if name == "c.py" else f'x = "{text}"'
        (fault,) = judged(written(tmp_path, name, f"{text}\n"))
        assert fault.startswith(f'{name}:1: "It is word, '), fault
        assert fault.endswith('..." has 36 words: make it two sentences'), fault


def test_a_page_may_have_25_words_a_sentence(tmp_path: Path) -> None:
    row = f"| {'word ' * 33}end. |\n\n"
    for more, found in ((24, []), (25, ["a.md:1: sentences have 26.0 words on average"])):
        page = row + "\n\n".join(f"- The {'word ' * (more - 1)}end." for _ in range(5))
        assert [
            fault.partition(", and")[0] for fault in judged(written(tmp_path, "a.md", page))
        ] == found


def test_brackets_hold_no_brackets(tmp_path: Path) -> None:
    fine = "A rank (see [it](b.md), `(x)` and f(x)) sends (or not). It is f(g(x)).\n"
    assert judged(written(tmp_path, "a.md", fine)) == []
    (fault,) = judged(written(tmp_path, "a.md", "Ranks.\n\nA rank (which waits\n(long)) sends.\n"))
    assert fault == "a.md:3: there are brackets inside brackets"


def test_a_file_that_does_not_parse_is_left_to_ruff(tmp_path: Path) -> None:
    (fault,) = judged(written(tmp_path, "a.py", "def (:\n# Nor does it.\n"))
    assert fault.startswith("a.py:2: ")


def test_tracked_files_are_judged_but_tests(tmp_path: Path) -> None:
    for name in ("a.md", "b.cpp", "src/c.py", "tests/d.py", "e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        mark = "#" if name.endswith(".py") else "" if name == "a.md" else "//"
        (tmp_path / name).write_text(f"{mark} Nor does it.\n")

    def faults() -> list[str]:
        argv = [sys.executable, PROSE]
        ran = subprocess.run(argv, cwd=tmp_path, check=False, capture_output=True, text=True)
        return sorted(line.split(":")[0] for line in ran.stdout.splitlines())

    assert faults() == ["no repository here"]
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert faults() == [LAST, "a.md", "b.cpp", "src/c.py"]
