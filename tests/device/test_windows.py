"""Windows of an accelerator's tensors keep the order of streams, and use the host if they must.

The tests run on the simulated accelerator (tests/support/simulated), and on a GPU where there is
one. tests/windows checks all else that windows promise, and `make test-all` runs it once more with
BLUEFOG_TEST_DEVICE=simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import harness, windows_on_device
from tests.support.on_device import simulated_alone

pytestmark = pytest.mark.thorough
Run = Callable[..., list[Any]]


HOSTS = {"BLUEFOG_TRANSPORT": "mpi"}  # Each rank counts as a host.


@pytest.mark.alone
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("env", [{}, HOSTS], ids=["here", "hosts"])
def test_calls_come_after_what_was_begun_before(run: Run, world: int, env: dict[str, str]) -> None:
    run(windows_on_device.ordered, world, **env)


WAYS: dict[str, dict[str, str]] = {
    "device": {},
    "hosts": HOSTS,
    "not shared": {"SIMULATED_NO_SHARING": "1"},
    "not opened": {"SIMULATED_NO_OPENING": "1"},
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_other_ranks(run: Run, device: str, way: str) -> None:
    """What the ranks' topology names goes by the device alone, if it can be opened."""
    if way.startswith("not"):
        simulated_alone(device, "it can be told so")
    is_by_host = way != "device"
    for rank, told in enumerate(run(windows_on_device.reached, 4, **WAYS[way])):
        got, mean, where, along, beside, logged = told
        source, opposite = (rank + 1) % 4, (rank + 2) % 4
        put = 3.0 * (source + 1) if rank else 3.0 * 2
        fetched = 7.0 * (opposite + 1)
        assert got == [put, 5.0 * (opposite + 1), fetched]
        assert mean == rank + 1 + put + fetched
        assert where == f"{device}:0"
        assert [along, beside] == [is_by_host, True]
        assert len(logged) == way.startswith("not")
        if logged:
            assert "does not share its memory" in logged[0]
            assert f"rank {rank}/4 win_create 'w'" in logged[0]


def test_what_one_side_alone_can_open_is_closed(run: Run, device: str) -> None:
    """It is closed before its owner frees it, as memory that nobody writes to."""
    simulated_alone(device, "it can be told so")
    for blind in (None, 0):
        (here, here_after), (there, there_after) = run(windows_on_device.opened_by_one, 2, blind)
        assert bool(set(here) & set(there)) == (blind is None)
        assert not set(here_after) & set(there_after)


@pytest.mark.parametrize("way", WAYS)
def test_calls_under_a_mutex_have_ended_when_it_is_let_go(run: Run, device: str, way: str) -> None:
    if way.startswith("not"):
        simulated_alone(device, "it can be told so")
    run(windows_on_device.guarded, 2, **WAYS[way])


def test_what_is_refused(run: Run, device: str) -> None:
    for told in run(windows_on_device.refused, 2):
        text = f"win_put 'w': the tensor is on cpu, the window's on {device}:0"
        harness.raised(told["a CPU's"], "ValueError", text=text)
        harness.raised(told["freed"], "ValueError", text="the window was freed")
        text = f"rank 0 makes 'v' of float32[3] on {device}, rank 1 makes 'v' of float32[3] on cpu"
        harness.raised(told["devices differ"], "ValueError", text=text)


def test_a_device_that_does_not_come_to_the_call(run: Run) -> None:
    for errors in run(windows_on_device.stuck, 2):
        for error in errors:
            harness.raised(
                error, "CollectiveTimeout", text="win_put 'w': timeout after 2.0 s; the device"
            )


def test_a_tensor_goes_on_in_a_window_of_the_survivors(run: Run) -> None:
    *told, dead = run(windows_on_device.survived, 3, dead=[2])
    assert dead is None
    for (error, got), expected in zip(told, [2.0, 1.0], strict=True):
        assert harness.raised(error, "PeerFailed", text="win_free 'w': ").ranks == (2,)
        assert got == expected


def test_calls_are_not_captured(run: Run) -> None:
    for error in run(windows_on_device.captured, 2):
        harness.raised(
            error, "RuntimeError", text="win_put 'w': calls of windows cannot be captured"
        )


@pytest.mark.parametrize("env", [{}, HOSTS], ids=["here", "hosts"])
@pytest.mark.parametrize("communication", ["win_put", "win_get", "push_sum"])
def test_optimizers(run: Run, communication: str, env: dict[str, str]) -> None:
    assert max(run(windows_on_device.averaged, 4, communication, 40, **env)) < 1e-3


@pytest.mark.parametrize("env", [{}, HOSTS], ids=["here", "hosts"])
def test_the_current_device_stays(run: Run, device: str, env: dict[str, str]) -> None:
    simulated_alone(device, "one GPU was lent, and no other to have a window on")
    for told in run(windows_on_device.on_the_other_device, 2, **env):
        assert told == [0, 0, 0, f"{device}:1", 0]


def test_a_device_without_room(run: Run, device: str) -> None:
    simulated_alone(device, "it can be told so")
    first, second = run(windows_on_device.without_room, 2)
    harness.raised(first, "RuntimeError", text="[bluefog] rank 0/2 win_create 'w': ")
    harness.raised(first, "RuntimeError", text="bytes of the device's memory")
    harness.raised(second, "RuntimeError", text="ranks [0] of the group could not make their part")


def test_a_device_that_fails(run: Run, device: str) -> None:
    """The rank that asks hears of it, and nobody is taken for dead."""
    simulated_alone(device, "it can be told so")
    asked, _, failed, _ = run(windows_on_device.failing, 4)
    harness.raised(asked[0], "RuntimeError", text="rank 2 could not do it: its device has failed")
    assert asked[1] == 3.0
    for error in failed:
        harness.raised(error, "RuntimeError", text="rank 2/4 win_put 'w': ")


def test_no_kernels_for_the_device(run: Run) -> None:
    for error in run(windows_on_device.without_kernels, 2, kernels="aten"):
        harness.raised(error, "RuntimeError", text="win_create 'w': the tensor is on ")
        harness.raised(error, "RuntimeError", text="was not built")
        harness.raised(error, "RuntimeError", text="make the window of tensor.cpu()")
