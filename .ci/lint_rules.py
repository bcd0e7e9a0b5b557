"""Judge what no linter knows: subjects of commits, how comments begin, lines of Markdown.

    python3 .ci/lint_rules.py [BASE]        in the root of the repository; make lint does it

One line is printed for each fault, and the exit code is 1 if there are any. CONTRIBUTING.md has the
rules. Subjects are judged of commits that are newer than the commit BASE.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# This is the last commit before the rules. Most older subjects break them, and rewriting history
# would serve nobody.
BASE = "795f8f8113cf6ebb3fa68ae90c3536b2e126b055"
LONGEST = 72
WIDEST = 100
# A comment that begins so is the tail of a sentence whose head the reader has to guess.
WORDS = "Of|To|As|With|By|Nor|So"

C_LIKE = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl"}
HASHED = {"", ".py", ".pyi", ".toml", ".txt"}  # Makefile, .ci/run and .clang-tidy have no suffix
SLASHES = re.compile(rf"^[ \t]*(//[/!]*|/\*[*!]?)[\s*]*({WORDS})\b", re.MULTILINE)
HASH = re.compile(rf"^[ \t]*(#)[ \t]*({WORDS})\b", re.MULTILINE)
DOCSTRING = re.compile(rf"\s*({WORDS})\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


KEPT = "Subjects are short enough, comments begin as sentences do, and Markdown is wrapped."


def git(*arguments: str, check: bool = True) -> list[str]:
    done = subprocess.run(["git", *arguments], check=check, capture_output=True, encoding="utf-8")
    return done.stdout.splitlines()


def long_subjects(base: str) -> Iterator[str]:
    for line in git("log", "--no-merges", "--format=%h %s", f"{base}..HEAD"):
        commit, _, subject = line.partition(" ")
        if len(subject) > LONGEST:
            yield (
                f"commit {commit}: the subject has {len(subject)} characters, and may have "
                f"{LONGEST}: reword it (git commit --amend, git rebase -i {base[:7]}), and say "
                "the rest in the body, after an empty line"
            )


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first word of each docstring that begins with one of WORDS."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # ruff reports the place.
        return
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (said := ast.get_docstring(node, clean=False)):
            if begins := DOCSTRING.match(said):
                yield node.body[0].lineno + said.count("\n", 0, begins.start(1)), begins[1]


def comments(text: str, comment: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the first word of each comment that begins with one of WORDS.

    Comments on consecutive lines are one comment. Those that follow code on its line do not count.
    """
    lines = text.split("\n")
    for begins in comment.finditer(text):
        above = text.count("\n", 0, begins.start())
        goes_on = above > 0 and lines[above - 1].lstrip().startswith(begins[1][:2])
        if not goes_on or begins[1].startswith("/*"):
            yield text.count("\n", 0, begins.start(2)) + 1, begins[2]


def tracked(suffixes: set[str]) -> Iterator[Path]:
    """Yield the files with such a suffix that git has or would add."""
    names = "\n".join(git("ls-files", "-z", "--cached", "--others", "--exclude-standard"))
    for path in map(Path, filter(None, names.split("\0"))):
        if path.suffix in suffixes and path.is_file():
            yield path


def bad_beginnings() -> Iterator[str]:
    """Yield a fault for each comment or docstring that begins with one of WORDS."""
    for path in tracked(C_LIKE | HASHED):
        text = path.read_text(errors="replace")
        found = [*comments(text, SLASHES if path.suffix in C_LIKE else HASH)]
        found += docstrings(text) if path.suffix in {".py", ".pyi"} else []
        for line, word in sorted(found):
            yield (
                f'{path}:{line}: a comment begins with "{word}": make it a full sentence, '
                "which can be read with the rest of the file closed"
            )


def wide_lines() -> Iterator[str]:
    """Yield a fault for each wide line of Markdown that can be wrapped.

    Tables, code and lines that are one link cannot be.
    """
    for path in tracked({".md"}):
        is_code = False
        for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
            is_fence = line.lstrip().startswith("```")
            is_code ^= is_fence
            can_wrap = " " in line.strip(" -*>") and not line.lstrip().startswith(("|", "`", "["))
            if len(line) > WIDEST and can_wrap and not is_code and not is_fence:
                yield f"{path}:{number}: the line has {len(line)} characters: wrap it at {WIDEST}"


def main(base: str = BASE) -> int:
    try:
        git("cat-file", "-e", f"{base}^{{commit}}")
        subjects = [*long_subjects(base)]
    except (OSError, subprocess.CalledProcessError):
        print(f"no history since {base[:7]} here: subjects are not judged")
        subjects = []
    try:
        faults = [*subjects, *bad_beginnings(), *wide_lines()]
    except (OSError, subprocess.CalledProcessError):
        print("no repository here: nothing is judged")
        return 0
    print("\n".join([*faults, "CONTRIBUTING.md has the rules."]) if faults else KEPT)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
