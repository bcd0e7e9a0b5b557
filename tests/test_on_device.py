"""An accelerator's operations: order of streams, lives of tensors, right results.

On the simulated one (tests/simulated), and, where there is a GPU, on that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import as_on_cpu
import harness
import operations_on_device

pytestmark = harness.only_bluefog
Run = Callable[..., list[Any]]


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("kernels", ["own", "aten"])
def test_averages(run: Run, world: int, kernels: str) -> None:
    assert run(operations_on_device.averages, world, kernels=kernels) == [[]] * world


def test_other_operations_between_neighbours(run: Run, device: str) -> None:
    for rank, got in enumerate(run(operations_on_device.others, 4)):
        left = (rank + 1) % 4
        mean = (rank + left) / 2
        assert got == [
            [mean, mean + 1, mean + 2], 0.5 * rank + 1.5 * left, [float(left)] * (left + 1),
            [float(left)] * 2, rank // 2 * 2 + 0.5, [1.5 + i for i in range(5)], f"{device}:0",
        ]  # fmt: skip


@pytest.mark.parametrize("world", [2, 4])
def test_streams_keep_their_order_and_tensors_live_long_enough(run: Run, world: int) -> None:
    assert run(operations_on_device.ordered, world) == [[]] * world


def test_works(run: Run) -> None:
    assert run(operations_on_device.unwaited, 2) == [["CollectiveTimeout", False, 0.5, True]] * 2


def test_what_c10d_calls_comes_through(run: Run) -> None:
    for rank, told in enumerate(run(operations_on_device.untouched, 3)):
        assert told == [6.0, 3.0, float((rank - 1) % 3), 1, ["Work", "BatchWork"]]


def test_split_group(run: Run) -> None:
    pairs = [4.0, 2.0] * 6, [6.0, 3.0] * 6
    told = run(operations_on_device.split, 5)
    assert told == [[*pairs[0], 5.0, 3], [*pairs[1], 5.0, 3]] * 2 + [[5.0, 3]]


@pytest.mark.parametrize("kind", ["orders", "communications", "compressions", "models"])
def test_training(run: Run, device: str, kind: str) -> None:
    """As on a CPU. A GPU's sums are others by some bits, which compressed ones may make larger."""
    limit = 1e-6 if device == "simulated" else 1e-3
    for apart in run(as_on_cpu.trained, 4, kind):
        assert all(distance < limit for distance in apart.values()), apart


@pytest.mark.parametrize(("kernels", "by"), [("own", "MessageKernels"), ("aten", "Formulas")])
def test_compression(run: Run, kernels: str, by: str) -> None:
    assert run(as_on_cpu.compressed, 1, kernels=kernels) == [(by, [])]


def test_calls_give_what_they_give_on_a_cpu(run: Run) -> None:
    for apart in run(as_on_cpu.everywhere, 4):
        assert max(apart) < 1e-5, apart


@pytest.mark.parametrize("default", ["device", "float64", "bfloat16"])
def test_defaults_of_a_program_are_none_of_ours(run: Run, default: str) -> None:
    """torch.set_default_device, torch.set_default_dtype."""
    for apart in run(as_on_cpu.by_default, 4, default):
        assert not any(apart.values()), apart


@pytest.mark.parametrize("world", [2, 3])
def test_tensors_of_one_call_on_a_cpu_and_on_a_device(run: Run, world: int) -> None:
    for errors in run(operations_on_device.mixed, world):
        for error in errors:
            harness.raised(error, "Mismatch", text="on an accelerator")


def test_tensors_of_another_device_than_the_groups(run: Run, device: str) -> None:
    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device, and no other to have a tensor on (simulated are two)")
    for *errors, in_both, mean in run(operations_on_device.on_another, 2):
        for error in errors:
            harness.raised(error, "ValueError", text=f"and the group is bound to {device}:0")
        harness.raised(in_both, "ValueError", text="tensors of one call must be on one device")
        assert mean == 1.0


def test_a_group_that_has_no_backend_for_the_device(run: Run, device: str) -> None:
    for errors in run(operations_on_device.told_of_none, 2, BLUEFOG_ACCELERATOR="none"):
        for error in errors:
            text = f"is on device {device}:0, for which this group has no backend"
            harness.raised(error, "ValueError", text=text)


def test_parameters_on_a_cpu_and_on_a_device(run: Run) -> None:
    for window, optimizer in run(operations_on_device.on_two_devices, 2):
        harness.raised(window, "ValueError", text="must be on one device")
        harness.raised(optimizer, "ValueError", text="ranks differ in parameters")


def test_a_dead_neighbour_is_named_and_nobody_hangs(run: Run) -> None:
    told = run(operations_on_device.bereft, 4, dead=[2])
    for rank in (1, 3):
        error = harness.raised(told[rank], "PeerFailed", ranks=[2])
        assert error.took() < harness.WITHIN
    assert told[0] is None


@pytest.mark.parametrize("how", ["timeout", "Ctrl-C"])
def test_a_call_that_one_has_given_up_is_none_of_the_others(run: Run, how: str) -> None:
    first, second = run(operations_on_device.given_up, 2, how)
    for told in (first, second):
        assert [told[0], *told[2:]] == [10.0, 30.0, 40.0, 50.0]
    harness.raised(first[1], "CollectiveTimeout" if how == "timeout" else "KeyboardInterrupt")
    harness.raised(second[1], "CollectiveTimeout", ranks=[0], text="had given up this call")


def test_calls_that_all_others_have_given_up(run: Run) -> None:
    for told in run(operations_on_device.at_a_late_centre, 3):
        for error in told[1:3]:
            harness.raised(error, "CollectiveTimeout")
        assert [told[0], *told[3:]] == [10.0, 40.0, 50.0]


def test_a_late_rank_is_late_for_its_neighbours_alone(run: Run) -> None:
    told = run(operations_on_device.beside_a_late_one, 4)
    for rank in (0, 2):
        late, after = told[rank]
        harness.raised(late, "CollectiveTimeout", ranks=[1])
        assert after == rank + 3
    assert told[3] == [pytest.approx((0 + 2 + 3) / 3), None, 5.0]


def test_ranks_that_share_a_device_by_mistake_hear_what_to_do(run: Run) -> None:
    for *errors, after in run(operations_on_device.shared_by_mistake, 2):
        for error in errors:
            harness.raised(error, "DistBackendError", text="LOCAL_RANK")
            harness.raised(error, "DistBackendError", text="NCCL_HOSTID")
        harness.raised(after, "Mismatch", text="make a new group")


def simulated_alone(device: str, why: str) -> None:
    if device != "simulated":
        pytest.skip(f"of the simulated device: {why}")


def test_a_new_group_where_the_first_call_has_failed(run: Run, device: str) -> None:
    simulated_alone(device, "NCCL reads NCCL_HOSTID once")
    for error, mean in run(operations_on_device.begun_again, 2):
        harness.raised(error, "DistBackendError", text="make a new group")
        assert mean == 1.0


def test_named_averages_of_two_threads_are_none_of_each_other(run: Run) -> None:
    """Ranks have to call in one order; where they do not, they are told so."""
    for told in run(operations_on_device.in_two_threads, 2):
        for step, name, got in told:
            if step % 2:
                harness.raised(got, "Mismatch", text="named, split or shaped differently")
            else:
                assert got == {"a": 100.0, "b": 200.0}[name]


def test_a_device_that_is_full_for_once(run: Run, device: str) -> None:
    """Nobody relies on the rank before it has its memory."""
    simulated_alone(device, "it can be told to be full")
    first, second = run(operations_on_device.full_for_once, 2)
    errors = [error for error, _ in first if error]
    assert len(errors) >= 4  # results, what is sent as one, what comes; and a copy
    for error in errors:
        assert harness.raised(error, "OutOfMemoryError").text.startswith("the simulated")
    for mine, theirs in zip(first, second, strict=True):
        assert mine[1] in (None, *(0.5, 1.0)) and theirs[1] in (0.5, 0.0), (mine, theirs)


def test_edges_that_one_rank_alone_names(run: Run) -> None:
    """The two never average what belongs to different calls of theirs."""
    (late, *first), (own, *second) = run(operations_on_device.beside_each_other, 2)
    harness.raised(late, "CollectiveTimeout", ranks=[1])
    assert own == 1.0
    for rank, errors in enumerate((first, second)):
        for error in errors:
            harness.raised(error, "Mismatch", ranks=[1 - rank], text="or not made; make a new")


@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_leaves_machines_early(run: Run, world: int) -> None:
    """By Ctrl-C, and comes to the next call."""
    mean = (world - 1) / 2
    for rank, told in enumerate(run(operations_on_device.left_early, world)):
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
    first, (mismatch, *second) = run(operations_on_device.reproached, 2)
    harness.raised(mismatch, "Mismatch")
    harness.raised(first[1], "Mismatch", text="could not take this rank's message")
    harness.raised(second[1], "CollectiveTimeout", ranks=[0], text="had given up this call")
    assert [first[0], *first[2:]] == [second[0], *second[2:]] == [10.5, 30.5, 40.5]


def test_machines_that_do_not_agree(run: Run) -> None:
    for errors in run(operations_on_device.machines, 4, False):
        for error in errors:
            harness.raised(error, "Mismatch", text="ranks 1, 3 called hierarchical")


def test_machines_beside_ranks_that_are_out_of_step(run: Run, device: str) -> None:
    simulated_alone(device, "NCCL reads NCCL_HOSTID once")
    for rank, errors in enumerate(run(operations_on_device.machines, 4, True)):
        blamed, text = ([0, 2], "partners on other machines") if rank % 2 else ([2 - rank], "")
        for error in errors:
            assert (
                harness.raised(error, "Mismatch", ranks=blamed, text=text).took() < harness.WITHIN
            )


def test_an_edge_of_a_cpu_beside_calls_on_a_device(run: Run) -> None:
    assert run(operations_on_device.waiting_for_edges, 3) == [1.0, 1, 2]


def test_ranks_that_are_out_of_step_hear_so(run: Run, device: str) -> None:
    simulated_alone(device, "NCCL would end the process that waits for what is broken off")
    for rank, (first, second, *later) in enumerate(run(operations_on_device.out_of_step, 3)):
        assert first is None
        if rank == 0:
            harness.raised(second, "KeyboardInterrupt")
        for error in later:
            if rank == 2:
                assert error is None
            else:
                harness.raised(error, "Mismatch", ranks=[1 - rank], text="make a new group")


def test_each_rank_of_an_example_has_a_device_of_its_own(run: Run, device: str) -> None:
    count = torch.cuda.device_count() if device == "cuda" else 2
    assert run(operations_on_device.placed, 2) == [
        [f"{device}:{rank % count}", True] for rank in range(2)
    ]
