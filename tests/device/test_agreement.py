"""Ranks agree on a call before they give it to an accelerator, which would wait for ever for one
that does not come: who is late, leaves, dies or calls something else is named.

On the simulated accelerator (tests/support/simulated), and, where there is a GPU, on that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import agreement_on_device, harness, inrank
from tests.support.on_device import simulated_alone

pytestmark = pytest.mark.thorough
Run = Callable[..., list[Any]]


def test_a_dead_neighbour_is_named_and_nobody_hangs(run: Run) -> None:
    told = run(agreement_on_device.bereft, 4, dead=[2])
    for rank in (1, 3):
        error = harness.raised(told[rank], "PeerFailed", ranks=[2])
        assert error.took() < harness.WITHIN
    assert told[0] is None


@pytest.mark.parametrize("how", ["timeout", "Ctrl-C"])
def test_a_call_that_one_has_given_up_is_none_of_the_others(run: Run, how: str) -> None:
    first, second = run(agreement_on_device.given_up, 2, how)
    for told in (first, second):
        assert [told[0], *told[2:]] == [10.0, 30.0, 40.0, 50.0]
    harness.raised(first[1], "CollectiveTimeout" if how == "timeout" else "KeyboardInterrupt")
    harness.raised(second[1], "CollectiveTimeout", ranks=[0], text="had given up this call")


def test_calls_that_all_others_have_given_up(run: Run) -> None:
    for told in run(agreement_on_device.at_a_late_centre, 3):
        for error in told[1:3]:
            harness.raised(error, "CollectiveTimeout")
        assert [told[0], *told[3:]] == [10.0, 40.0, 50.0]


def test_a_late_rank_is_late_for_its_neighbours_alone(run: Run) -> None:
    told = run(agreement_on_device.beside_a_late_one, 4)
    for rank in (0, 2):
        late, after = told[rank]
        harness.raised(late, "CollectiveTimeout", ranks=[1])
        assert after == rank + 3
    assert told[3] == [pytest.approx((0 + 2 + 3) / 3), None, 5.0]


def test_ranks_that_share_a_device_by_mistake_hear_what_to_do(run: Run) -> None:
    for *errors, after in run(agreement_on_device.shared_by_mistake, 2):
        for error in errors:
            harness.raised(error, "DistBackendError", text="LOCAL_RANK")
            harness.raised(error, "DistBackendError", text="NCCL_HOSTID")
        harness.raised(after, "Mismatch", text="make a new group")


def test_a_new_group_where_the_first_call_has_failed(run: Run, device: str) -> None:
    simulated_alone(device, "NCCL reads NCCL_HOSTID once")
    for error, mean in run(agreement_on_device.begun_again, 2):
        harness.raised(error, "DistBackendError", text="make a new group")
        assert mean == 1.0


def test_named_averages_of_two_threads_are_none_of_each_other(run: Run) -> None:
    """Ranks have to call in one order; where they do not, they are told so."""
    for told in run(agreement_on_device.in_two_threads, 2):
        for step, name, got in told:
            if step % 2:
                harness.raised(got, "Mismatch", text="named, split or shaped differently")
            else:
                assert got == {"a": 100.0, "b": 200.0}[name]


def test_a_device_that_is_full_for_once(run: Run, device: str) -> None:
    """Nobody relies on the rank before it has its memory; the others hear that it has none."""
    simulated_alone(device, "it can be told to be full")
    first, second = run(agreement_on_device.full_for_once, 2)
    averages = [10.0 * number + 0.5 for number in range(1, 6)]
    assert [after for _, after in first] == [*averages, 11.0]
    assert [after for _, after in second] == [*averages, 10.0]
    failed = 0
    for (error, after), (theirs, _) in zip(first, second, strict=True):
        if error != after:
            failed += 1
            assert harness.raised(error, "OutOfMemoryError").text.startswith("the simulated")
            harness.raised(theirs, "CollectiveTimeout", ranks=[0], text="had given up this call")
    assert failed >= 4  # results, what is sent as one, what comes; and a copy


HOW = [
    "gathers",
    "gathers on the CPU",
    "averages on the CPU",
    "averages by another name",
    "averages two",
]


@pytest.mark.parametrize("how", HOW)
def test_calls_that_do_not_fit_and_those_after_them(run: Run, how: str) -> None:
    for first, second, third, *later in run(agreement_on_device.unlike, 3, how):
        assert first == [1.0] * 6
        harness.raised(second, "Mismatch")
        harness.raised(third, "Mismatch")
        assert later == [[10.0 * step + 1.0] * 6 for step in (3, 4, 5)]


def test_ranks_that_see_other_machines(run: Run) -> None:
    for error in run(agreement_on_device.of_unlike_machines, 4):
        harness.raised(error, "Mismatch")


def test_an_average_of_neighbours_beside_those_of_machines(run: Run) -> None:
    for first, second, third in run(agreement_on_device.beside_machines, 4):
        assert first == [1.5] * 4
        assert harness.raised(second, "Mismatch").took() < 2 * harness.WITHIN
        harness.raised(third, "Mismatch")  # as after any collective that failed


@pytest.mark.parametrize("how", ["one sends on the CPU", "one receives on the CPU"])
def test_averages_on_the_cpu_after_one_that_was_on_a_device_elsewhere(run: Run, how: str) -> None:
    """Who had sent that one on the CPU hears of it in one of the next."""
    (sent, *first), (received, *second) = run(agreement_on_device.beside_the_cpu, 2, how)
    right = [10.0 * step + 0.5 for step in range(1, 5)]
    harness.raised(received, "Mismatch")
    assert second == right
    if how == "one receives on the CPU":
        harness.raised(sent, "Mismatch", text="could not take this rank's message")
        assert first == right
    else:
        assert sent == 1.0
        (late,) = (told for told in first if isinstance(told, inrank.Raised))
        harness.raised(late, "Mismatch", text="could not take this rank's message")
        assert [told for told in first if told is not late] == [
            mean for told, mean in zip(first, right, strict=True) if told is not late
        ]


@pytest.mark.parametrize("communication", ["neighbor_allreduce", "push_sum"])
def test_a_step_that_one_is_late_for_mixes_no_buckets(run: Run, communication: str) -> None:
    told = run(agreement_on_device.late_for_a_step, 4, communication)
    assert sum(error is not None for steps in told for error, *_ in steps) >= 2
    for steps in told:
        assert all(low < 500.0 < high for _, low, high in steps), told


def test_unequal_numbers_of_calls_and_a_late_rank(run: Run) -> None:
    for told in run(agreement_on_device.late_after_pairs, 3):
        harness.raised(told.pop(2), "CollectiveTimeout")
        assert told == [10.0 * step + 1.0 for step in (0, 1, 3, 4, 5)]


def test_ctrl_c_when_others_rely_on_the_rank(run: Run) -> None:
    first, *others = run(agreement_on_device.interrupted_late, 3)
    harness.raised(first.pop(1), "KeyboardInterrupt")
    assert first == [0.0, 6.0, 9.0]
    assert others == [[0.0, 3.0, 6.0, 9.0]] * 2


def test_a_call_has_its_time_when_it_has_its_turn(run: Run) -> None:
    (late, in_time), _, (theirs,) = run(agreement_on_device.beside_a_waiting_thread, 3)
    harness.raised(late, "CollectiveTimeout", ranks=[1])
    assert [in_time, theirs] == [2.0, 2.0]


def test_edges_that_one_rank_alone_names(run: Run) -> None:
    (odd, *first), (own, *second) = run(agreement_on_device.beside_each_other, 2)
    harness.raised(odd, "Mismatch", ranks=[1], text="on the edge")
    assert own == 1.0
    assert first == second == [21.0, 41.0, 61.0]


@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_leaves_machines_early(run: Run, world: int) -> None:
    """By Ctrl-C, and comes to the next call."""
    mean = (world - 1) / 2
    for rank, told in enumerate(run(agreement_on_device.left_early, world)):
        error = told.pop(1)
        if rank == world - 1:
            harness.raised(error, "KeyboardInterrupt")
        elif world == 4 and rank == 1:
            harness.raised(error, "CollectiveTimeout", ranks=[3], text="had given up this call")
        else:
            harness.raised(error, "Mismatch", text="partners on other machines do not agree")
            assert world - 1 in error.ranks
        assert told == [[mean + 10.0 * step] * 5 for step in (0, 2, 3)]


def test_a_mismatch_that_is_heard_of_between_the_steps(run: Run) -> None:
    first, (mismatch, *second) = run(agreement_on_device.reproached, 2)
    harness.raised(mismatch, "Mismatch")
    harness.raised(first[1], "Mismatch", text="could not take this rank's message")
    harness.raised(second[1], "CollectiveTimeout", ranks=[0], text="had given up this call")
    assert [first[0], *first[2:]] == [second[0], *second[2:]] == [10.5, 30.5, 40.5]


def test_machines_that_do_not_agree(run: Run) -> None:
    for rank, errors in enumerate(run(agreement_on_device.machines, 4, False)):
        for error in errors:
            harness.raised(error, "Mismatch", text="on the edge" if rank == 1 else "")


def test_machines_beside_ranks_that_are_out_of_step(run: Run, device: str) -> None:
    simulated_alone(device, "NCCL reads NCCL_HOSTID once")
    for rank, errors in enumerate(run(agreement_on_device.machines, 4, True)):
        blamed, text = ([0, 2], "partners on other machines") if rank % 2 else ([2 - rank], "")
        for error in errors:
            assert (
                harness.raised(error, "Mismatch", ranks=blamed, text=text).took() < harness.WITHIN
            )


def test_an_edge_of_a_cpu_beside_calls_on_a_device(run: Run) -> None:
    assert run(agreement_on_device.waiting_for_edges, 3) == [1.0, 1, 2]


def test_ranks_that_are_out_of_step_hear_so(run: Run, device: str) -> None:
    simulated_alone(device, "NCCL would end the process that waits for what is broken off")
    for rank, (first, second, *later) in enumerate(run(agreement_on_device.out_of_step, 3)):
        assert first is None
        if rank == 0:
            harness.raised(second, "KeyboardInterrupt")
        for error in later:
            if rank == 2:
                assert error is None
            else:
                harness.raised(error, "Mismatch", ranks=[1 - rank], text="make a new group")
