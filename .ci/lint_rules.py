"""Judge what no linter knows: how long subjects of commits are, and how comments begin.

    python3 .ci/lint_rules.py [BASE]        in the root of the repository; make lint does it

One line is printed for each fault, and the exit code is 1 if there are any. CONTRIBUTING.md has the
rules. Only what is newer than the commit BASE is judged.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# This is the last commit before the rules. Most older subjects break them, and rewriting history
# would serve nobody. Older comments are mended as their files are.
BASE = "795f8f8113cf6ebb3fa68ae90c3536b2e126b055"
LONGEST = 72
# A comment that begins so is the tail of a sentence whose head the reader has to guess.
WORDS = "Of|To|As|With|By|Nor|So"

C_LIKE = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl"}
HASHED = {"", ".py", ".pyi", ".toml", ".txt"}  # Makefile, .ci/run and .clang-tidy have no suffix
SLASHES = re.compile(rf"^[ \t]*(//[/!]*|/\*[*!]?)[\s*]*({WORDS})\b", re.MULTILINE)
HASH = re.compile(rf"^[ \t]*(#)[ \t]*({WORDS})\b", re.MULTILINE)
DOCSTRING = re.compile(rf"\s*({WORDS})\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


# The user's settings of git must not change the lines that are compared.
PLAIN = ("-c", "grep.lineNumber=false", "-c", "grep.column=false", "-c", "color.ui=false")

KEPT = "No subject of a new commit is too long, and no new comment begins as it should not."


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


def bad_beginnings(base: str) -> Iterator[str]:
    """Yield a fault for each new comment or docstring that begins with one of WORDS.

    A line whose text the base has somewhere is old, wherever it has moved since.
    """
    old = {line.strip() for line in git(*PLAIN, "grep", "-hIwE", WORDS, base, check=False)}
    names = "\n".join(git("ls-files", "-z", "--cached", "--others", "--exclude-standard"))
    for path in map(Path, filter(None, names.split("\0"))):
        if path.suffix not in C_LIKE | HASHED or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        found = [*comments(text, SLASHES if path.suffix in C_LIKE else HASH)]
        found += docstrings(text) if path.suffix in {".py", ".pyi"} else []
        for line, word in sorted(found):
            if text.split("\n")[line - 1].strip() not in old:
                yield (
                    f'{path}:{line}: a comment begins with "{word}": make it a full sentence, '
                    "which can be read with the rest of the file closed"
                )


def main(base: str = BASE) -> int:
    try:
        git("cat-file", "-e", f"{base}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        print(f"no history since {base[:7]} here: subjects and new comments are not judged")
        return 0
    faults = [*long_subjects(base), *bad_beginnings(base)]
    print("\n".join([*faults, "CONTRIBUTING.md has the rules."]) if faults else KEPT)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
