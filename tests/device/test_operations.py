"""An accelerator's operations keep the order of streams, and their tensors, and give right results.

The tests run on the simulated accelerator (tests/support/simulated), and on a GPU where there is
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support import as_on_cpu, harness, operations_on_device
from tests.support.on_device import simulated_alone

pytestmark = pytest.mark.thorough
Run = Callable[..., list[Any]]


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("kernels", ["own", "aten"])
def test_averages(run: Run, world: int, kernels: str) -> None:
    run(operations_on_device.averages, world, kernels=kernels)


def test_other_operations_between_neighbors(run: Run, device: str) -> None:
    for rank, got in enumerate(run(operations_on_device.others, 4)):
        left = (rank + 1) % 4
        mean = (rank + left) / 2
        assert got == [
            [mean, mean + 1, mean + 2], 0.5 * rank + 1.5 * left, [float(left)] * (left + 1),
            [float(left)] * 2, rank // 2 * 2 + 0.5, [1.5 + i for i in range(5)], f"{device}:0",
        ]  # fmt: skip


@pytest.mark.alone
@pytest.mark.parametrize("world", [2, 4])
def test_streams_keep_their_order_and_tensors_live_long_enough(run: Run, world: int) -> None:
    run(operations_on_device.ordered, world)


def test_works(run: Run) -> None:
    assert run(operations_on_device.unwaited, 2) == [["CollectiveTimeout", False, 0.5, True]] * 2


def test_what_c10d_calls_comes_through(run: Run) -> None:
    for rank, told in enumerate(run(operations_on_device.untouched, 3)):
        assert told == [6.0, 3.0, float((rank - 1) % 3), 1, ["Work", "BatchWork"]]


def test_split_group(run: Run) -> None:
    pairs = [4.0, 2.0] * 6, [6.0, 3.0] * 6
    told = run(operations_on_device.split, 5)
    assert told == [[*pairs[0], 5.0, 3], [*pairs[1], 5.0, 3]] * 2 + [[5.0, 3]]


def test_a_machines_own_group_ends_in_order(run: Run, device: str) -> None:
    simulated_alone(device, "it counts them")
    assert run(operations_on_device.shut_down, 4) == [[2]] * 4


@pytest.mark.parametrize("kind", ["orders", "communications", "compressions", "models"])
def test_training(run: Run, device: str, kind: str) -> None:
    """Training ends as on a CPU.

    A GPU's sums differ by some bits, and compression may make the difference larger.
    """
    limit = 1e-6 if device == "simulated" else 1e-3
    for apart in run(as_on_cpu.trained, 4, kind):
        assert all(distance < limit for distance in apart.values()), apart


@pytest.mark.parametrize(("kernels", "by"), [("own", "MessageKernels"), ("aten", "Formulas")])
def test_compression(run: Run, kernels: str, by: str) -> None:
    run(as_on_cpu.compressed, 1, by, kernels=kernels)


def test_calls_give_what_they_give_on_a_cpu(run: Run) -> None:
    for apart in run(as_on_cpu.everywhere, 4):
        assert max(apart) < 1e-5, apart


def test_defaults_of_a_program_are_none_of_ours(run: Run) -> None:
    """Defaults by torch.set_default_device and torch.set_default_dtype change no result."""
    for told in run(as_on_cpu.by_default, 4):
        for default, apart in told.items():
            assert not any(apart.values()), f"{default}: {apart}"


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", ["averages", "gathers", "parts", "pairs"])
def test_tensors_of_one_call_on_a_cpu_and_on_a_device(run: Run, world: int, kind: str) -> None:
    world = 2 if kind == "pairs" else world
    for errors in run(operations_on_device.mixed, world, kind, BLUEFOG_CHECK="before"):
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


def test_each_rank_of_an_example_has_a_device_of_its_own(run: Run, device: str) -> None:
    count = torch.cuda.device_count() if device == "cuda" else 2
    assert run(operations_on_device.placed, 2) == [
        [f"{device}:{rank % count}", True] for rank in range(2)
    ]
