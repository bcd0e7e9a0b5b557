"""The benchmarks run, get right results, and judge what they have measured."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import c10d_windows as windows
from tests.support import hosts
from tests.support.programs import Ran, run_on_ranks, run_script

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib"),
]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OPS = ("neighbor_ring", "neighbor_exp2", "neighbor_one_peer", "pair_gossip")


def goals_in(tables: Path) -> list[tuple[str, str, str]]:
    """Return the limit, the find and the verdict of each goal in a Markdown file."""
    lines = re.findall(r"^[|] (.+) [|]$", tables.read_text(), re.MULTILINE)
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [(c[2], c[3], c[4]) for c in cells if c[-1] in ("reached", "missed", "not measured")]


def bench(program: str, *args: str) -> Ran:
    # Ranks of MPI that spin would take the cores from other tests.
    env = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    ran = run_script([sys.executable, str(BENCHMARKS / program), *args], timeout=120, env=env)
    assert ran.code == 0, ran.out
    return ran


@pytest.fixture
def mpi() -> None:
    beside = Path(sys.executable).parent
    if not importlib.util.find_spec("mpi4py"):
        pytest.skip("no mpi4py")
    for name in ("mpirun", "mpicc", "cc"):
        if not shutil.which(name, path=f"{beside}{os.pathsep}{os.environ['PATH']}"):
            pytest.skip(f"no {name}")


@pytest.mark.usefixtures("mpi")
def test_averaging_is_compared_with_raw_mpi(tmp_path: Path) -> None:
    out = tmp_path / "neighbors.json"
    short = "--quick --ranks 2 --sizes 4,1M --scaling 2 --rounds 2".split()
    ran = bench("neighbors.py", *short, "--out", str(out))
    found = json.loads(out.read_text())
    rows = found["rows"]
    peers = {(row["op"], row["size"], row["peer"]) for row in rows}
    sizes, names = (4, 1 << 20), ("bluefog", "raw_mpi", "torch.add")
    assert peers == {(op, size, name) for op in OPS for size in sizes for name in names}
    assert {row["peer"] for row in found["fused"]} == {"bluefog", "list"}
    for row in [*rows, *found["fused"], *found["scaling"]["rows"]]:
        assert row["wrong"] == (None if row["peer"] == "torch.add" else 0), row
        assert len(row["rounds_us"]) == 2
        assert min(row["rounds_us"]) > 0
    for key in ("copies_per_out_neighbor", "reads_per_in_neighbor", "writes_of_result"):
        assert [row[key] for row in found["touched"]] == [1.0] * len(OPS), key
    assert "raw_mpi / bluefog" in ran.out
    assert (tmp_path / "neighbors.md").read_text() in ran.out
    assert (tmp_path / "neighbors.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("mpi")
def test_windows_are_compared_with_the_bare_memory_and_wire() -> None:
    with hosts.network(1):
        pass  # The test is skipped where hosts cannot be made.
    out = bench("windows.py", "--quick").out
    assert len(re.findall(r"[|] (?:reached|missed) +[|]$", out, re.MULTILINE)) == 12, out
    assert re.search(r"^[|] accumulate +[|] +2 [|] +\S+ ms \(\S+%\) [|]$", out, re.MULTILINE), out


@pytest.mark.thorough
def test_the_hosts_time_is_compared_with_that_of_messages(tmp_path: Path) -> None:
    out = tmp_path / "host_time.json"
    bench("host_time.py", "--turns", "5", "--out", str(out))
    rows = json.loads(out.read_text())
    assert [(row["ranks"], row["bytes"]) for row in rows] == [
        (ranks, size) for ranks in (2, 4) for size in (4, 4000, 400_000)
    ]
    for row in rows:
        assert row["seconds"].keys() == {"bluefog", "batch_isend_irecv"}
        assert row["ratio"] > 0


@pytest.mark.slow
def test_windows_are_compared_with_torchs_copies() -> None:
    """The comparison for GPUs runs here with CPU tensors."""
    plan = {"library": "", "sizes": [4, 4096], "rounds": 2, "seconds": 0.01}
    code = f"import launch; print(launch.run_ranks('window_calls.py', 2, {plan}, 60))"
    ran = run_script([sys.executable, "-c", code], env={"PYTHONPATH": str(BENCHMARKS)})
    assert ran.code == 0, ran.out
    rows = [row for row in ast.literal_eval(ran.out.splitlines()[-1]) if row["size"] <= 4096]
    calls = ("put", "accumulate", "update", "memcpy")
    assert [(row["size"], row["call"]) for row in rows] == [
        (n, c) for n in (4, 4096) for c in calls
    ]
    assert all(row["us"] > 0 for row in rows)


def without_bars(tables: Path) -> str:
    return " ".join(tables.read_text().replace("|", " ").split())


def row(peer: str, size: int, us: float, ranks: int = 2, op: str = "pair_gossip") -> dict[str, Any]:
    return {
        "ranks": ranks, "op": op, "size": size, "count": size // 4, "type": "float32",
        "peer": peer, "time_us": us, "algbw": None, "busbw": None, "wrong": 0, "rounds_us": [us],
    }  # fmt: skip


def test_neighbor_goals_are_judged(tmp_path: Path) -> None:
    rows = [row("bluefog", 4, 4.0), row("raw_mpi", 4, 1.0)]
    rows += [row("bluefog", 16384, 1.0), row("raw_mpi", 16384, 1.0)]
    rows += [row("bluefog", 1 << 20, 1.0), row("raw_mpi", 1 << 20, 1.6)]
    rows += [row("bluefog", 4 << 20, 10.0), row("raw_mpi", 4 << 20, 14.0)]
    touched = {"ranks": 2, "op": "pair_gossip", "in_neighbors": 1, "out_neighbors": 1}
    touched |= {"copies_per_out_neighbor": 1.0, "reads_per_in_neighbor": 2.0}
    touched |= {"writes_of_result": 1.0}
    scaled = [row("bluefog", 4, 10.0), row("bluefog", 4, 24.0, 4), row("bluefog", 4, 104.0, 16)]
    found = {
        "rows": rows,
        "fused": [row("bluefog", 1_024_000, 10.0), row("list", 1_024_000, 15.0)],
        "touched": [touched],
        "scaling": {"cores": 2, "rows": scaled},
    }
    path = tmp_path / "neighbors.json"
    path.write_text(json.dumps(found))
    bench("report.py", str(path))
    assert goals_in(tmp_path / "neighbors.md") == [
        ("≥ 1.5 x faster", "1.4 x faster (pair_gossip, 4 MiB)", "missed"),
        ("≤ 1 x its time", "1 x its time (pair_gossip, 16 KiB)", "reached"),
        ("≤ 3 x its time", "4 x its time (pair_gossip, 4 B)", "missed"),
        ("≤ 1.5 x its time", "1.5 x its time (pair_gossip, 1000 KiB)", "reached"),
        ("≤ 1 x", "1 x", "reached"),
        ("≤ 1 x", "2 x", "missed"),
        ("≤ 1 x", "1 x", "reached"),
        ("≤ 1.25 x that of 2", "1.3 x that of 2", "missed"),  # 104 us * 2 / 16 = 13 us
    ]
    cells = ("bluefog", "4 B", "4", "24.0 us", "12.0 us", "1.20")
    assert " ".join(cells) in without_bars(tmp_path / "neighbors.md")


def test_averaging_on_gpus_is_compared_with_nccl(tmp_path: Path) -> None:
    rows = [row("bluefog", 4, 4.0), row("nccl", 4, 10.0), row("torch.add", 4, 1.0)]
    empty = {"fused": [], "touched": [], "scaling": {"cores": 0, "rows": []}}
    path = tmp_path / "neighbors_cuda.json"
    path.write_text(json.dumps({"rows": rows, **empty}))
    bench("report.py", str(path))
    text = without_bars(tmp_path / "neighbors_cuda.md")
    assert "nccl / bluefog of the leasts bluefog / torch.add" in text
    assert "2 4 B 4 us 10.0 us 1 us 2.500 2.500 4.000 4.000" in text
    assert goals_in(tmp_path / "neighbors_cuda.md") == []


def test_collectives_on_gpus_are_compared_with_nccl(tmp_path: Path) -> None:
    ranks = [row(peer, 4, us, op="broadcast") for peer, us in (("bluefog", 5.0), ("nccl", 4.0))]
    path = tmp_path / "collectives_cuda.json"
    path.write_text(json.dumps({"rows": ranks, "probes": {}}))
    bench("report.py", str(path))
    (goal,) = goals_in(tmp_path / "collectives_cuda.md")
    assert goal == ("≤ 1.02 x its time", "1.25 x its time", "missed")


@windows.NEEDED
def test_c10d_windows_are_compared_with_messages() -> None:
    out = bench("c10d_windows.py", "--quick").out
    assert "put, signal, wait_signal" in out
    assert "gloo's send, recv" in out
    assert "memcpy" in out


def test_tables_are_those_of_the_figures(tmp_path: Path) -> None:
    """Each JSON file in results/ has its tables beside it: `make bench-tables` writes them."""
    results = BENCHMARKS / "results"
    kept = {path.name: path.read_text() for path in results.glob("*.md")}
    copies = shutil.copytree(results, tmp_path / "results")
    for path in copies.glob("*.md"):
        path.unlink()
    bench("report.py", *map(str, copies.glob("*.json")))
    made = {path.name: path.read_text() for path in copies.glob("*.md")}
    assert len(made) == len(list(results.glob("*.json")))
    assert sorted(kept) == sorted(made)
    for name in made:
        assert kept[name] == made[name], f"{name}: run `make bench-tables`"


def test_every_program_has_a_place_for_its_figures() -> None:
    """Options that narrow what is measured keep the figures out of results/."""
    code = "import sys, across_hosts; sys.argv[1:] = {}; print(across_hosts.parse_args().out)"
    for options, folder in (([], "benchmarks/results"), (["--quick"], "build/bench")):
        ran = run_script(
            [sys.executable, "-c", code.format(options)], env={"PYTHONPATH": str(BENCHMARKS)}
        )
        assert ran.code == 0, ran.out
        assert ran.out.endswith(f"{folder}/across_hosts.json\n"), ran.out


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("program", ["collectives", "neighbors", "training", "windows"])
def test_what_is_measured_on_gpus_needs_one(program: str) -> None:
    ran = run_on_ranks(BENCHMARKS / f"{program}.py", "--device", "cuda", ranks=1)
    assert ran.code == 2, ran.out
    assert ran.out.endswith("--device cuda: torch finds no cuda device here\n"), ran.out
