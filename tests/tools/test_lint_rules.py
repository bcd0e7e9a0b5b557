"""`make lint` refuses long subjects, comments that are no sentences, and wide Markdown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

RULES = Path(__file__).parents[2] / ".ci" / "lint_rules.py"
WORDS = ("Of", "To", "As", "With", "By", "Nor", "So")
ME = ("AUTHOR", "COMMITTER")
ENV = os.environ | {f"GIT_{who}_{what}": "a@b.c" for who in ME for what in ("NAME", "EMAIL")}
ENV |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


@dataclass
class Repository:
    """A Repository is a small git repository, which is judged from its first commit on."""

    folder: Path

    def git(self, *arguments: str) -> str:
        argv = ["git", "-C", str(self.folder), *arguments]
        done = subprocess.run(argv, env=ENV, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def commit(self, subject: str = "Change a file", body: str = "") -> str:
        self.git("add", "--all")
        self.git("commit", "--allow-empty", "-m", subject, *(["-m", body] if body else []))
        return self.git("rev-parse", "HEAD")

    def faults(self, base: str = "base") -> list[str]:
        ran = subprocess.run(
            [sys.executable, RULES, *([base] if base else [])],
            cwd=self.folder, env=ENV, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert ran.stderr == ""
        *found, last = ran.stdout.splitlines()
        found = [line for line in found if not line.startswith("no history since ")]
        if found:
            assert (ran.returncode, last) == (1, "CONTRIBUTING.md has the rules.")
        else:
            assert ran.returncode == 0
            assert last.startswith("Subjects are short enough")
        return found


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "clone")
    made.folder.mkdir()
    made.git("init", "--initial-branch=main")
    made.write("src/old.hpp", "// The ranks of old.\nint ranks();\n")
    made.commit("An old subject, which is far longer than anybody wants to read in one line " * 2)
    made.git("tag", "base")
    return made


def test_old_subjects_pass(repository: Repository) -> None:
    assert repository.faults() == []
    repository.commit("Say in the subject what the commit does", "And in the body why.\n" * 9)
    assert repository.faults() == []


def test_a_subject_may_have_72_characters(repository: Repository) -> None:
    repository.commit("é" * 72)
    assert repository.faults() == []
    hash_of_it = repository.commit("é" * 73)
    repository.commit("Short")
    (fault,) = repository.faults()
    assert fault.startswith(f"commit {hash_of_it[:7]}: the subject has 73 characters, and may have")
    assert "git rebase -i" in fault


def test_merges_may_have_longer_subjects(repository: Repository) -> None:
    repository.git("switch", "-c", "aside")
    repository.commit("Aside")
    repository.git("switch", "main")
    repository.git("merge", "--no-ff", "-m", "Merge " * 20, "aside")
    assert repository.faults() == []


@pytest.mark.parametrize("word", WORDS)
def test_no_comment_begins_with(repository: Repository, word: str) -> None:
    begin = {
        "a.py": (1, f'"""{word} numbers."""\n'),
        "b.py": (3, f'class B:\n    def b(self) -> None:\n        """{word} it, at once."""\n'),
        "c.pyi": (3, f'def c() -> None:\n    r"""\n    {word} it."""\n'),
        "d.py": (2, f"x = 1\n# {word} the rest.\ny = 2\n"),
        "e.hpp": (3, f"int e;\n\n// {word} the rest.\nint f;\n"),
        "f.cpp": (2, f"struct F {{\n  /// {word} the rest,\n  /// and more.\n  int g;\n}};\n"),
        "g.cu": (2, f"int g;\n/** {word} the rest. */\nint h;\n"),
        "h.h": (3, f"int g;\n/*\n * {word} the rest.\n */\nint h;\n"),
        "Makefile": (1, f"# {word} all.\nall:\n"),
    }
    places = [f"{name}:{line}" for name, (line, _) in begin.items()]
    for name, (_, text) in begin.items():
        repository.write(name, text)
    untracked = repository.faults()
    repository.commit()
    committed = repository.faults()
    assert untracked == committed
    said = f': a comment begins with "{word}": make it a full sentence, which can be read with'
    assert [fault.partition(said)[0] for fault in sorted(committed)] == sorted(places)


def test_sentences_pass(repository: Repository) -> None:
    for word in WORDS:
        repository.write(
            f"{word}.py", f'"""{word}ward: a name."""\n\n# All the rest,\n# {word} it.\n'
        )
        repository.write(f"{word}.hpp", f"// A rank,\n// {word} it.\nint x;  // {word} y\n")
        repository.write(f"{word}.md", f"# {word} all\n")
        repository.write(f"x_{word}.py", f'def f() -> str:\n    return """{word} it."""\n')
    assert repository.faults() == []


def test_markdown_is_wrapped(repository: Repository) -> None:
    wide = "word " * 25
    repository.write("a.md", f"# A\n\n{wide}\n")
    repository.write("b.md", f"| {wide} |\n```sh\n{wide}\n```\n[{wide}](x)\n- {'a' * 120}\n")
    (fault,) = repository.faults()
    assert fault.startswith("a.md:3: the line has 125 characters")


def test_a_file_that_does_not_parse_is_left_to_ruff(repository: Repository) -> None:
    repository.write("a.py", 'def (:\n"""So it is."""\n')
    assert repository.faults() == []


def test_a_shallow_clone_has_no_subjects_to_judge(repository: Repository, tmp_path: Path) -> None:
    repository.write("a.py", '"""So it is."""\n')
    repository.commit("Long " * 20)
    assert len(repository.faults()) == 2
    base, bare = repository.git("rev-parse", "base"), Repository(tmp_path / "bare")
    repository.git("clone", "--depth=1", f"file://{repository.folder}", str(bare.folder))
    (fault,) = bare.faults(base)
    assert fault.startswith("a.py:1: ")
