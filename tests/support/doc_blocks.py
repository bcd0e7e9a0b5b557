"""This module finds the code blocks of Markdown pages, and makes programs of them.

A Python block that begins with `# train.py: torchrun --standalone --nproc-per-node 4 train.py` is
a program of four ranks. One that begins with `# net.py` is a file that the programs of its folder
import. Any other Python block goes on from the program above it on its page.

A comment before the fence says what else there is to know:

    <!-- run: ranks=4 -->           a program without a name, on four ranks
    <!-- run: dies=2 -->            rank 2 of the program dies; `torch=2.14` is the oldest that fits
    <!-- run: ranks=4               the lines below are Python that runs before the block
    rank = 0 -->
    <!-- run -->                    runs a shell block as it stands
    <!-- not run: needs a GPU -->   the reason is for readers of the page's source
    <!-- part of train.py -->       the block repeats lines of that file
    <!-- output of: bfrun -np 4 python train.py; within 0.1 -->
                                    a text block has what the command prints: numbers may be off by
                                    0.1, or by anything with `numbers vary`; seconds always vary

A shell block without a comment may only start programs of its page.
"""

from __future__ import annotations

import functools
import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from tests.support.environment import ROOT
from tests.support.programs import as_main

PATHS = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(
    r"(?:^ *<!-- *(?P<comment>(?:(?!-->).)*?) *-->\s*?\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
NAMED = re.compile(r"# (?P<name>\w+\.py)(?:: (?P<command>.+))?$", re.MULTILINE)
LAUNCH = re.compile(r"^(?:torchrun|bfrun|python)\b.*? (?P<name>\w+\.py)(?P<arguments>.*)$")
RANKS = re.compile(r"(?:-np|--nproc-per-node)[ =](\d+)")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SECONDS = re.compile(r"\d+\.\d+ s\b")
OUTPUT = re.compile(r"output of: (?P<command>[^;]+)(?:; (?P<how>.+))?")


class BlockError(Exception):
    """A block does not say how it runs, or says it wrongly."""


@dataclass
class Block:
    page: Path
    line: int  # of the first line of code
    language: str
    comment: str
    code: str

    @property
    def title(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line - 1}"

    def error(self, what: str) -> BlockError:
        return BlockError(f"{self.title}: {what}")

    @property
    def options(self) -> dict[str, str]:
        """Return what follows `run:` on the comment's first line."""
        words = self.comment.partition("\n")[0].removeprefix("run").removeprefix(":").split()
        if bad := [word for word in words if not re.match(r"(ranks|dies|torch)=[\d.]+$", word)]:
            raise self.error(f"`<!-- run: {bad[0]} -->` is not known")
        return dict(word.split("=") for word in words)


@dataclass
class Program:
    page: Path
    name: str
    ranks: int
    command: str = ""
    dies: tuple[int, ...] = ()
    torch: str = ""  # the oldest torch that it works with
    parts: list[tuple[int, str]] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.parts[0][0]}"

    @property
    def text(self) -> str:
        """Return the blocks as one script, whose lines have the numbers that they have in the page.

        Tracebacks then name the page's lines.
        """
        lines: list[str] = []
        for line, code in self.parts:
            lines += [""] * (line - 1 - len(lines))
            lines += code.splitlines()
        return "\n".join(lines) + "\n"

    @property
    def listing(self) -> str:
        return "".join(code for _, code in self.parts)


@dataclass
class Output:
    block: Block
    command: str
    how: str

    @property
    def tolerance(self) -> float:
        if self.how in ("", "numbers vary"):
            return float("inf") if self.how else 0.0
        found = re.fullmatch(r"within ([\d.]+)", self.how)
        if not found:
            raise self.block.error(f"{self.how!r} is neither `numbers vary` nor `within 0.1`")
        return float(found[1])

    def differs(self, by_rank: list[list[str]]) -> str:
        """Return what differs from what the ranks have printed; they may print in any order."""
        told = [line for line in self.block.code.splitlines() if not line.startswith("bfrun: ")]
        is_prefixed = self.command.startswith("bfrun")
        printed = [
            f"[{rank}] {line}" if is_prefixed else line
            for rank, lines in enumerate(by_rank)
            for line in lines
        ]
        pairs = zip_longest(sorted(told, key=_key), sorted(printed, key=_key), fillvalue="")
        bad = [f"page: {a}\nreal: {b}" for a, b in pairs if not self._is_near(a, b)]
        return "\n".join(bad)

    def _is_near(self, told: str, printed: str) -> bool:
        told, printed = SECONDS.sub("many s", told), SECONDS.sub("many s", printed)
        if NUMBER.sub("#", told) != NUMBER.sub("#", printed):
            return False
        numbers = zip(NUMBER.findall(told), NUMBER.findall(printed), strict=True)
        return all(abs(float(a) - float(b)) <= self.tolerance + 1e-9 for a, b in numbers)


@dataclass
class Page:
    path: Path
    programs: list[Program] = field(default_factory=list)
    shells: list[Block] = field(default_factory=list)  # that run as they stand
    launches: list[tuple[Block, str]] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    excerpts: list[tuple[Block, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return str(self.path.relative_to(ROOT))

    def runs(self) -> Iterator[tuple[Program, str]]:
        """Yield each program with the commands that run it, one for each choice of arguments."""
        named = [command for _, command in self.launches] + [o.command for o in self.outputs]
        for program in self.programs:
            commands = {arguments_of(program.command): program.command}
            for command in named:
                if script_of(command) == program.name:
                    commands.setdefault(arguments_of(command), command)
            for command in commands.values():
                yield program, command


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        code = textwrap.dedent(found["code"])
        yield Block(path, line, found["language"], found["comment"] or "", code)


def ranks_of(command: str) -> int:
    found = RANKS.search(command)
    return int(found[1]) if found else 1


def arguments_of(command: str) -> str:
    found = LAUNCH.match(command)
    return found["arguments"].strip() if found else ""


def is_same_run(one: str, other: str) -> bool:
    """Return whether both commands run a script with the same arguments, by whatever launcher."""
    return (script_of(one), arguments_of(one)) == (script_of(other), arguments_of(other))


def without_indents(text: str) -> str:
    return re.sub(r"^ +", "", text, flags=re.MULTILINE)


def script_of(command: str) -> str:
    found = LAUNCH.match(command)
    return found["name"] if found else ""


def _key(line: str) -> tuple[str, str]:
    return NUMBER.sub("#", line), line


@functools.cache
def page_of(path: Path) -> Page:
    page = Page(path)
    for block in blocks(path):
        try:
            _take(page, block)
        except BlockError as error:
            page.faults.append(str(error))
    return page


def _take(page: Page, block: Block) -> None:
    if found := OUTPUT.match(block.comment):
        page.outputs.append(Output(block, found["command"].strip(), found["how"] or ""))
    elif block.language in ("bash", "py", "python3", "shell"):
        raise block.error("the languages of blocks that run are called python and sh")
    elif block.language not in ("python", "sh") or block.comment.startswith("not run: "):
        return
    elif block.comment.startswith("part of "):
        page.excerpts.append((block, block.comment.removeprefix("part of ")))
    elif block.language == "sh":
        _take_shell(page, block)
    else:
        _take_python(page, block)


def _take_shell(page: Page, block: Block) -> None:
    if block.comment == "run":
        page.shells.append(block)
        return
    for line in block.code.splitlines():
        command = line.partition("#")[0].strip()
        if command and not LAUNCH.match(command):
            raise block.error(
                f"{command!r} starts no program of this page: write `<!-- run -->` before the "
                "block, or `<!-- not run: WHY -->`"
            )
        if command:
            page.launches.append((block, command))


def _take_python(page: Page, block: Block) -> None:
    options = block.options if block.comment.startswith("run") else {}
    hidden = block.comment.partition("\n")[2]
    named = NAMED.match(block.code)
    if named and not named["command"]:
        page.files[named["name"]] = block.code
        return
    if named or "ranks" in options:
        name, command = (named["name"], named["command"]) if named else ("block.py", "")
        ranks = int(options.get("ranks", ranks_of(command)))
        page.programs.append(Program(page.path, name, ranks, command))
    elif not page.programs:
        raise block.error(
            "no program of this page goes on here: begin the block with `# x.py: COMMAND`, or "
            "write `<!-- run: ranks=4 -->` or `<!-- not run: WHY -->` before it"
        )
    program = page.programs[-1]
    program.torch = options.get("torch", program.torch)
    if "dies" in options:
        program.dies = (int(options["dies"]),)
    if hidden:
        # The comment ends on the line above the fence.
        program.parts.append((block.line - 2 - hidden.count("\n"), hidden.rstrip() + "\n"))
    program.parts.append((block.line, block.code))


def files_of(folder: Path) -> dict[str, str]:
    """Return the files that the pages of a folder have readers write."""
    return {
        name: text
        for path in PATHS
        if path.parent == folder
        for name, text in page_of(path).files.items()
    }


def run_on_rank(rank: int, world: int, script: str, arguments: tuple[str, ...]) -> int:
    """Run a script in its own folder, as a reader does, and return its exit code."""
    os.chdir(Path(script).parent)
    return as_main(rank, world, script, arguments)
