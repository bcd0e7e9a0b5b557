"""`python -m bluefog_pg bench` compares gloo with bluefog, and says what trainings do."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bluefog_pg.__main__ as program
from bluefog_pg.tools import forks
from bluefog_pg.tools.bench import sent
from bluefog_pg.tools.bench.cases import Case
from bluefog_pg.tools.bench.verdict import is_right, verdicts
from bluefog_pg.tools.bench.waits import Moments, waited_for
from tests.support.harness import SLOW
from tests.support.processes import descendants
from tests.support.programs import finish_script, start_script

Bench = Callable[..., str]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Return a function that runs the command and returns what it says, and its exit code."""

    def run(*args: str) -> str:
        monkeypatch.setattr(sys, "argv", ["bluefog_pg", "bench", *args])
        try:
            program.main()
        except SystemExit as error:
            said = capsys.readouterr()
            return f"{said.out}{said.err}{error}"
        return capsys.readouterr().out

    return run


SHORT = "--rounds 1 --seconds 20 --sizes 4,1M --operations all_reduce,all_gather".split()
# The groups are size and count, twice time, algbw, busbw and #wrong, and the ratio.
ROW = re.compile(
    r"^ +(\d+) +(\d+) float32" + r" +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)" * 2 + r" +([\d.]+)$",
    re.MULTILINE,
)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_columns_and_verdict(bench: Bench, ranks: int) -> None:
    before = descendants(os.getpid())
    said = bench("-np", str(ranks), *SHORT)
    rows = [list(map(float, row)) for row in ROW.findall(said)]
    large = (1 << 20) // (4 * ranks) * (4 * ranks)  # An all_gather has equal shares.
    assert [row[0] for row in rows] == [4, 1 << 20, 4 * ranks, large], said
    factors = [2 * (ranks - 1) / ranks] * 2 + [(ranks - 1) / ranks] * 2
    for row, factor in zip(rows, factors, strict=True):
        size, count, *figures, ratio = row
        assert count == size / 4, row
        for time_us, algbw, busbw, wrong in (figures[:4], figures[4:]):
            assert algbw == pytest.approx(size / time_us / 1e3, rel=0.01, abs=0.01), row
            assert busbw == pytest.approx(algbw * factor, rel=0.01, abs=0.02), row
            assert wrong == 0
        assert ratio == pytest.approx(figures[0] / figures[4], rel=0.05), row
    assert re.search(rf"^all_reduce, {ranks} ranks: bluefog takes .+\.$", said, re.MULTILINE), said
    assert "All results are right." in said
    assert f"# Starting {ranks} ranks; they measure for 20 s at most ..." in said
    assert not descendants(os.getpid()) - before


@pytest.mark.slow
def test_wrong_results_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "expected", lambda case, *_: case.send + 1)
    said = bench("-np", "2", "--rounds", "1", "--sizes", "8", "--operations", "broadcast")
    assert ROW.findall(said)[0][5] == "4", said  # Two ranks have two wrong elements each.
    assert said.endswith("There are wrong results: see the columns #wrong.")


@pytest.mark.slow
def test_what_does_not_fit_into_the_time_is_left_out(bench: Bench) -> None:
    said = bench("-np", "2", "--seconds", "0.001", *SHORT[:2], "--sizes", "4,8,16")
    assert re.search(r"# \d sizes are left out, because the time is over: see --seconds", said)


@pytest.mark.slow
def test_a_training_says_who_waits_for_whom(bench: Bench) -> None:
    communications = "ddp-gloo", "ddp", "neighbor_allreduce", "win_put"
    options = "--seconds 2 --slow-rank 1 --slow-factor 4 --communication".split()
    said = bench("--model", "gpt", "-np", "2", *options, ",".join(communications))
    rows = re.findall(r"^ +(\S+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", said, re.MULTILINE)
    assert [row[0] for row in rows] == list(communications), said
    parameters = int(re.search(r"2 ranks: ([\d,]+) parameters", said)[1].replace(",", ""))  # type: ignore[index]
    for _, both, slowest, fastest, moved in rows:
        assert float(both) == pytest.approx(float(slowest) + float(fastest), abs=0.2)
        # One of two ranks sends as many bytes as there are, whatever the communication.
        assert float(moved) == pytest.approx(4 * parameters / 1e6, rel=0.05, abs=0.01), said
    assert len(re.findall(r"^ +rank 0 waited .* s, for rank 1$", said, re.MULTILINE)) == 3, said
    # The optimizer's own count may have the time of the averages, but not the slow rank's naps.
    waited = re.search(r"ranks waited (\S+) to (\S+) s of (\S+) s, for none in particular", said)
    assert waited, said
    least, most, of = map(float, waited.groups())
    assert least <= most, said
    assert 0 < most < of / 2, said
    assert float(rows[-1][3]) > 1.5 * float(rows[-1][2]), said  # The fast rank does not wait.
    assert "Rank 1 was made to compute 4 times as long as the others." in said


@pytest.mark.slow
def test_the_other_communications_train(bench: Bench) -> None:
    communications = ["gradient_allreduce", "allreduce", "win_get", "push_sum", "empty"]
    options = "--model resnet -np 2 --seconds 0.1 --topology ring --communication".split()
    said = bench(*options, ",".join(communications))
    assert re.findall(r"^ +(\w+)(?: +[\d.]+){3} +[\d.-]+$", said, re.MULTILINE) == communications


@pytest.mark.parametrize(("flags", "said"), [
    ("--sizes 6", "--sizes 6: it must be a multiple of 4 bytes, such as 4K or 16M"),
    ("--operations add", "--operations add: there is no such; there are all_reduce, broadcast"),
    ("-np 1", "-np 1: give numbers of two or more ranks, such as 2,4"),
    ("-np two", "-np two: give numbers of two or more ranks"),
    ("--rounds 0", "--rounds 0: there is at least one"),
    ("--seconds 0", "--seconds: give a number above 0 and up to 1,000,000"),
    ("--seconds inf", "--seconds: give a number above 0 and up to 1,000,000"),
    ("--model gpt --slow-rank 0 --slow-factor nan", "--slow-factor: give a number above 0"),
    ("--model=", "--model : there is no such; there are resnet, gpt"),
    ("--slow-rank 1", "--slow-rank goes with --model"),
    ("--model gpt --sizes 4", "--sizes goes without --model"),
    ("--model vgg", "--model vgg: there is no such; there are resnet, gpt"),
    ("--model gpt --communication tcp", "--communication tcp: there is no such; there are ddp-"),
    ("--model gpt --topology star", "--topology star: there is no such; there are one-peer-exp2"),
    ("--model resnet,gpt", "--model resnet,gpt: give one of them"),
    ("--model gpt --topology ring,exp2", "--topology ring,exp2: give one of them"),
    ("--model gpt --slow-factor 2", "--slow-factor needs --slow-rank"),
    ("--model gpt -np 2 --slow-rank 2", "--slow-rank 2: the ranks are 0 to 1"),
    ("--model gpt -np 2 --slow-rank 1 --slow-factor 0.5", "takes at least as long as others"),
])  # fmt: skip
def test_wrong_flags_are_told(bench: Bench, flags: str, said: str) -> None:
    out = bench(*flags.split())
    assert f"bench: error: {said}" in out or said in out.splitlines()[-2], out
    assert out.endswith("2")
    assert "Starting" not in out


def row(op: str, size: int, gloo: float, bluefog: float) -> dict[str, object]:
    return {"op": op, "size": size, "gloo": {"us": gloo}, "bluefog": {"us": bluefog}}


def test_a_verdict_can_be_read() -> None:
    rows = [row("all_reduce", 4, 80.0, 10.0), row("all_reduce", 4096, 180.0, 10.0)]
    rows += [row("all_reduce", 1 << 14, 15.0, 10.0), row("all_reduce", 1 << 20, 40.0, 10.0)]
    rows += [row("broadcast", 4, 10.0, 10.5), row("broadcast", 1 << 20, 10.0, 25.0)]
    one, other = verdicts(rows, 2)
    assert one == (
        "all_reduce, 2 ranks: bluefog takes 1/12 of gloo's time on small messages (up to 4 KiB), "
        "67 % on medium ones and 1/4 on large ones (1 MiB and more)."
    )
    assert other == (
        "broadcast, 2 ranks: bluefog takes as long as gloo on small messages (up to 4 KiB) and "
        "2.5 times gloo's time on large ones (1 MiB and more)."
    )


@pytest.mark.parametrize("backend", ["gloo", "bluefog"])
def test_one_wrong_result_is_enough(backend: str) -> None:
    right = {"gloo": {"wrong": 0}, "bluefog": {"wrong": 0}}
    assert is_right([right, right])
    assert not is_right([right, right | {backend: {"wrong": 1}}])


def test_a_rank_waits_for_the_source_that_is_ready_last() -> None:
    fast = Moments(begun=[0.0, 5.0, 10.0], computed=[1.0, 6.0, 11.0], ended=[5.0, 10.0, 12.0])
    slow = Moments(begun=[0.0, 5.0, 9.0], computed=[4.0, 9.0, 13.0], ended=[5.0, 10.0, 14.0])
    both = [[[1]], [[0]]]
    # The last step ended before the slow rank was ready, so it was waited for until then only.
    assert waited_for([fast, slow], both, at_begin=False, first=0) == [{1: 7.0}, {}]
    assert waited_for([fast, slow], both, at_begin=False, first=2) == [{1: 1.0}, {}]
    assert waited_for([fast, slow], both, at_begin=True, first=0) == [{}, {}]
    third = Moments(begun=[0.0], computed=[2.0], ended=[9.0])
    schedule = [[[1, 2]], [[0]], [[0]]]
    shorter = [Moments(m.begun[:1], m.computed[:1], m.ended[:1]) for m in (fast, slow)]
    assert waited_for([*shorter, third], schedule, at_begin=False, first=0) == [{1: 3.0}, {}, {}]


def test_bytes_over_tcp_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        to = socket.create_connection(server.getsockname())
        end, _ = server.accept()
        with to, end:
            before = sent._acknowledged(to.fileno()), sent._acknowledged(end.fileno())
            in_all = sent.sent_over_tcp()
            to.sendall(bytes(10_000))
            assert len(end.recv(10_000, socket.MSG_WAITALL)) == 10_000
            give_up = time.monotonic() + 10 * SLOW
            while sent.sent_over_tcp() - in_all < 10_000:
                assert time.monotonic() < give_up
            assert sent.sent_over_tcp() - in_all == 10_000
            assert sent._acknowledged(to.fileno()) - before[0] == 10_000
            assert sent._acknowledged(end.fileno()) == before[1]  # It has received, not sent.


def wait_for_a_file(me: forks.Rank) -> None:
    while not (me.folder / "go").exists():
        time.sleep(0.01)


def fail(me: forks.Rank) -> None:
    if me.number == 1:
        raise ValueError("one is no rank")
    wait_for_a_file(me)


def test_a_rank_that_fails_is_quoted_and_the_others_end() -> None:
    before = descendants(os.getpid())
    with pytest.raises(forks.RankError, match=r"\AValueError: one is no rank\Z"):
        forks.run(fail, 3, 60 * SLOW, {})
    with pytest.raises(TimeoutError):
        forks.run(wait_for_a_file, 2, 0.2, {})
    assert not descendants(os.getpid()) - before


SLEEP = """
import sys, time
from bluefog_pg.tools import forks
print("Starting 2 ranks", flush=True)
forks.run(lambda me: time.sleep(1000), 2, 1000, {})
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_program(tmp_path: Path, how: signal.Signals) -> None:
    bench = ["-m", "bluefog_pg", "bench", "-np", "2", "--seconds", "100"]
    # Ranks that tell something notice a dead program, so those of a killed one only sleep.
    command = ["-c", SLEEP] if how == signal.SIGKILL else bench
    job = start_script([sys.executable, *command], env={"TMPDIR": str(tmp_path)})
    try:
        end = time.monotonic() + 60 * SLOW
        assert job.stdout
        while "Starting 2 ranks" not in job.stdout.readline():
            assert time.monotonic() < end, "the ranks do not start"
        while len(ranks := descendants(job.pid)) < 2:
            assert time.monotonic() < end, "the ranks do not start"
            time.sleep(0.005)
        os.kill(job.pid, how)
    finally:
        ran = finish_script(job)
    if how == signal.SIGKILL:  # Then nobody can remove the ranks' folder.
        assert ran.code == -how, ran.out
    else:
        assert ran.code == 128 + how, ran.out
        assert not list(tmp_path.iterdir())
    assert "Traceback" not in ran.out
    while left := [pid for pid in ranks if not has_ended(pid)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def has_ended(pid: int) -> bool:
    """Return whether the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
