"""The code blocks of the README and of docs/ run, and print what the pages say.

`tests/support/doc_blocks.py` says what a page writes before a block that needs to say more.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import torch

from tests.support import doc_blocks, harness
from tests.support.doc_blocks import Block, Page, Program
from tests.support.environment import ROOT
from tests.support.programs import run_script

PAGES = [doc_blocks.page_of(path) for path in doc_blocks.PATHS]
RUNS = [
    pytest.param(page, program, command, id=f"{program.title} {command}".strip())
    for page in PAGES
    for program, command in page.runs()
]
SHELLS = [pytest.param(block, id=block.title) for page in PAGES for block in page.shells]
# Programs of the tutorial go by these commands, which each reader types.
AS_TYPED = [
    pytest.param(page, command, id=f"{page.title} {command}")
    for page in PAGES
    for block, command in page.launches
    if page.path.parent.name == "tutorial"
]
PATH = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def write_files(page: Page, folder: Path) -> None:
    for name, text in doc_blocks.files_of(page.path.parent).items():
        (folder / name).write_text(text)


def is_too_old(needed: str) -> bool:
    return [*map(int, torch.__version__.split(".")[:2])] < [*map(int, needed.split("."))]


def test_every_block_says_how_it_runs() -> None:
    faults = [fault for page in PAGES for fault in page.faults]
    assert not faults, "\n".join(faults)


def test_commands_start_what_the_page_lists() -> None:
    """A command of a shell block or an output names a program of its page, on as many ranks."""
    bad = []
    for page in PAGES:
        ranks = {program.name: program.ranks for program in page.programs}
        outputs = [(output.block, output.command) for output in page.outputs]
        for block, command in page.launches + outputs:
            if ranks.get(doc_blocks.script_of(command)) != doc_blocks.ranks_of(command):
                bad.append(f"{block.title}: {command!r} starts none of {ranks}")
    assert not bad, "\n".join(bad)


def test_excerpts_are_parts_of_their_files() -> None:
    bad = []
    for page in PAGES:
        for block, name in page.excerpts:
            texts = [program.listing for program in page.programs if program.name == name]
            texts += [text for file, text in page.files.items() if file == name]
            code = doc_blocks.without_indents(block.code)
            if not any(code in doc_blocks.without_indents(text) for text in texts):
                bad.append(f"{block.title}: these lines are not those of {name}")
    assert not bad, "\n".join(bad)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "program", "command"), RUNS)
def test_programs(page: Page, program: Program, command: str, tmp_path: Path) -> None:
    if program.torch and is_too_old(program.torch):
        pytest.skip(f"needs torch {program.torch}")
    write_files(page, tmp_path)
    script = tmp_path / program.name
    script.write_text(program.text)
    arguments = tuple(doc_blocks.arguments_of(command).split())
    n = program.ranks
    with harness.Ranks(n, env={"LOCAL_WORLD_SIZE": str(n)}) as ranks:
        ranks.start(doc_blocks.run_on_rank, str(script), arguments)
        codes = ranks.values(dead=program.dies)
        printed = [ranks.output(rank).splitlines() for rank in range(n)]
    assert not any(codes.values()), f"exit codes {codes}: {printed}"
    assert not any("Warning" in line for lines in printed for line in lines), printed
    for output in page.outputs:
        if doc_blocks.is_same_run(output.command, command):
            differing = output.differs(printed)
            assert not differing, f"{output.block.title} differs:\n{differing}"


@pytest.mark.slow
@pytest.mark.parametrize("block", SHELLS)
def test_shell_blocks(block: Block, tmp_path: Path) -> None:
    if "--plot" in block.code:
        pytest.importorskip("matplotlib")
    ran = run_script(["bash", "-euo", "pipefail", "-c", block.code], cwd=tmp_path, env=PATH)
    assert ran.code == 0, ran.out


def test_the_table_of_topologies() -> None:
    from bluefog_pg import topology_util

    table = (ROOT / "docs/howto/topology.md").read_text()
    rows = re.findall(r"^\| `(\w+)`[^|]*\|(.+ \d\.\d{3}) \|$", table, re.MULTILINE)
    assert len(rows) == 8, rows
    for name, cells in rows:
        build = getattr(topology_util, name)
        base = [2] if name == "SymmetricExponentialGraph" else []
        graphs = [build(n, *base) for n in (4, 8, 16, 64)]
        degrees = [sorted(graph.in_degree(rank) - 1 for rank in graph) for graph in graphs]
        spans = [str(low) if low == high else f"{low} to {high}" for low, *_, high in degrees]
        gaps = [f"{topology_util.spectral_gap(graph):.3f}" for graph in graphs]
        assert [cell.strip() for cell in cells.split("|")] == spans + gaps, name


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("page", "command"), AS_TYPED)
def test_the_tutorial_as_readers_type_it(page: Page, command: str, tmp_path: Path) -> None:
    """The launchers themselves start the programs, which the test above runs on forks."""
    write_files(page, tmp_path)
    for program in page.programs:
        (tmp_path / program.name).write_text(program.listing)
    ran = run_script(["bash", "-c", command], cwd=tmp_path, env=PATH, timeout=150)
    assert ran.code == 0, ran.out
