"""A call on an accelerator waits for no other rank, and its first error is told to all ranks.

The error names who is late, dies or calls something else, and nobody waits in the backend for ever.
The tests run on the simulated accelerator (tests/support/simulated), and on a GPU where there is
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import harness, notices_on_device
from tests.support.on_device import PROMPT, simulated_alone

pytestmark = pytest.mark.thorough
Run = Callable[..., list[Any]]
OVER = "calls with tensors on the accelerator are over in this group: make a new one"


@pytest.fixture(params=["", "before"], ids=["beside", "before"])
def check(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def judge_later(kind: str, later: list[Any], mean: float) -> None:
    """Check what the old group gives later on the device and on the CPU, and a new group."""
    *over, on_cpu, again = later
    for error in over:
        harness.raised(error, kind, text=OVER)
    assert on_cpu == again == mean


@pytest.mark.parametrize("when", ["before a call", "in an exchange"])
def test_a_death_is_told_to_all(run: Run, check: str, when: str) -> None:
    told = run(notices_on_device.dies, 4, when, dead=[2], BLUEFOG_CHECK=check)
    for rank in (0, 1, 3):
        took, error, *later = told[rank]
        harness.raised(error, "PeerFailed", ranks=[2], text=OVER)
        assert took < harness.WITHIN
        judge_later("PeerFailed", later, 4.0)


def test_a_gather_beside_a_collective(run: Run) -> None:
    for (error,) in run(notices_on_device.in_a_collective, 2):
        assert harness.raised(error, "DistBackendError").kind in ("Mismatch", "CollectiveTimeout")


def test_a_late_rank_is_named(run: Run, check: str) -> None:
    for rank, (error, *later) in enumerate(run(notices_on_device.late, 4, BLUEFOG_CHECK=check)):
        raised = harness.raised(error, "CollectiveTimeout", text=OVER)
        assert rank == 1 or raised.ranks == (1,)
        judge_later("CollectiveTimeout", later, 6.0)


def test_a_call_does_not_wait_for_the_others(run: Run) -> None:
    (took, *first), (_, *second) = run(notices_on_device.prompt, 2)
    assert took < PROMPT
    assert first == second == [0.5, 1.5, 2.5]


HOW = [
    "gathers",
    "gathers on the CPU",
    "averages on the CPU",
    "averages by another name",
    "averages two",
    "averages fewer elements",
    "does not send to rank 0",
    "does not receive from rank 0",
    "names nobody",
    "is refused",
]


@pytest.mark.parametrize("how", HOW)
def test_calls_that_do_not_fit(run: Run, check: str, how: str) -> None:
    told = run(notices_on_device.unlike, 3, how, BLUEFOG_CHECK=check)
    for rank, (first, error, *later) in enumerate(told):
        assert first == 1.0
        if not (rank == 2 and how in ("names nobody", "averages on the CPU", "is refused")):
            edge = "ranks do not agree on the edge" if "rank 0" in how else ""
            harness.raised(error, "Mismatch", text=edge)
        elif how == "is refused":
            harness.raised(error, "ValueError")
        judge_later("Mismatch", later, 3.0)


@pytest.mark.parametrize("what", ["names", "gradients"])
def test_calls_in_another_order(run: Run, what: str) -> None:
    told = run(notices_on_device.in_another_order, 2, what)
    text = "in one order" if what == "gradients" else "named, split or shaped differently"
    for errors in told:
        for error in errors:
            harness.raised(error, "Mismatch", text=text)


def test_named_averages_of_two_threads(run: Run) -> None:
    right = [("a", 100.5)] * 3 + [("b", 200.5)] * 3
    assert run(notices_on_device.in_two_threads, 2) == [right] * 2


@pytest.mark.parametrize("how", ["names no machine", "sees one machine", "averages with neighbors"])
def test_machines_that_do_not_agree(run: Run, check: str, how: str) -> None:
    for (error,) in run(notices_on_device.machines, 4, how, BLUEFOG_CHECK=check):
        harness.raised(error, "Mismatch", text=OVER)


def test_a_device_that_is_full_for_once(run: Run, device: str, check: str) -> None:
    simulated_alone(device, "it can be told to be full")
    told = run(notices_on_device.full_for_once, 2, BLUEFOG_CHECK=check)
    for rank, (error, *later) in enumerate(told):
        harness.raised(error, "Mismatch" if rank else "OutOfMemoryError")
        judge_later("Mismatch", later, 1.0)


def test_ranks_that_share_a_device_by_mistake_hear_what_to_do(run: Run) -> None:
    for *errors, after in run(notices_on_device.shared_by_mistake, 2):
        for error in errors:
            harness.raised(error, "DistBackendError", text="LOCAL_RANK")
            harness.raised(error, "DistBackendError", text="NCCL_HOSTID")
        harness.raised(after, "Aborted", text=OVER)


def test_a_new_group_where_the_first_call_has_failed(run: Run, device: str) -> None:
    simulated_alone(device, "NCCL reads NCCL_HOSTID once")
    for error, mean in run(notices_on_device.begun_again, 2):
        harness.raised(error, "DistBackendError", text="make a new one")
        assert mean == 1.0


def test_ctrl_c_in_a_gather(run: Run) -> None:
    for rank, (error, *later) in enumerate(run(notices_on_device.interrupted, 3)):
        if rank == 0:
            harness.raised(error, "KeyboardInterrupt")
        else:
            harness.raised(error, "Aborted", ranks=[0], text="broke off: interrupted")
        judge_later("Aborted", later, 3.0)


def test_a_rank_that_leaves_in_order_ends_nothing(run: Run) -> None:
    *others, _ = run(notices_on_device.left, 3)
    assert others == [[3.0, 1.0, 21.0, 41.0]] * 2


def test_calls_here_and_there_count_together(run: Run) -> None:
    right = [each for step in range(6) for each in (10.0 * step + 0.5, 0.5)]
    assert run(notices_on_device.mixed, 2) == [right] * 2


@pytest.mark.parametrize("communication", ["neighbor_allreduce", "push_sum"])
def test_a_step_that_one_is_late_for(run: Run, communication: str) -> None:
    for (error,) in run(notices_on_device.late_for_a_step, 4, communication):
        harness.raised(error, "CollectiveTimeout")
