"""A group that has an accelerator's backend passes some calls on to it, and does others itself.

The "accelerator" of these tests is the CPU, and its backend gloo. That runs the code of a GPU,
without its streams. The neighbor operations have their own tests, which
`BLUEFOG_ACCELERATOR=cpu:gloo` runs so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank

OVER_GLOO = {"BLUEFOG_ACCELERATOR": "cpu:gloo"}
CPU = torch.device("cpu")


def ours(group: Any = None) -> Any:
    return (group or dist.group.WORLD)._get_backend(CPU)


def collectives(rank: int, world: int) -> list[tuple[str, Callable[[], Any], torch.Tensor]]:
    """Return names, calls, and what their results are."""
    mine, every = torch.full((4,), float(rank)), torch.arange(float(world)).repeat_interleave(4)
    total, root = torch.full((4,), float(sum(range(world)))), world - 1
    is_root = rank == root

    def in_place(call: Callable[..., Any], *args: Any) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            t = mine.clone()
            call(t, *args)
            return t

        return run

    def into(n: int, call: Callable[..., Any], given: Any) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            out = torch.empty(n)
            call(out, given)
            return out

        return run

    def gathered(call: Callable[..., Any], parts: bool, *args: Any) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            outs = [torch.empty(4) for _ in range(world)] if parts else None
            call(*args[:1], outs, *args[1:]) if call is dist.gather else call(outs, *args)
            return torch.cat(outs) if outs else mine

        return run

    lists = list(every.chunk(world))
    return [
        ("all_reduce", in_place(dist.all_reduce), total),
        ("broadcast", in_place(dist.broadcast, root), torch.full((4,), float(root))),
        ("all_gather", gathered(dist.all_gather, True, mine), every),
        ("all_gather_into", into(4 * world, dist.all_gather_into_tensor, mine), every),
        ("gather", gathered(dist.gather, is_root, mine, root), every if is_root else mine),
        ("scatter", in_place(dist.scatter, lists if is_root else None, root), mine),
        ("reduce_scatter", into(4, dist.reduce_scatter_tensor, every.clone()), mine * world),
        ("all_to_all", into(4 * world, dist.all_to_all_single, mine.repeat(world)), every),
    ]


def forwarded(rank: int, world: int) -> None:
    bad = []
    before = ours().operations_issued
    for name, call, want in collectives(rank, world):
        got = call()
        if not torch.equal(got, want):
            bad.append(f"{name}: {got}, not {want}")
    works = [dist.isend(torch.full((3,), float(rank)), (rank + 1) % world)]
    got = torch.empty(3)
    works.append(dist.irecv(got, (rank - 1) % world))
    for work in works:
        work.wait()
    if got[0] != (rank - 1) % world:
        bad.append(f"irecv: {got}")
    if ours().operations_issued != before:
        bad.append("some of it did not go to the accelerator's backend")
    assert not bad, bad


def test_calls_go_to_the_accelerators_backend() -> None:
    harness.run_ranks(forwarded, 3, env=OVER_GLOO)


def around(rank: int, world: int) -> list[Any]:
    """Call what has no tensor of the accelerator, other groups, and what only that backend has."""
    import bluefog_pg

    before = ours().operations_issued
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.full((2,), float(rank)), (rank + 1) % world),
            dist.P2POp(dist.irecv, got := torch.empty(2), (rank - 1) % world),
        ]
    )
    for work in works:
        work.wait()
    told = [type(ours()).__name__, ours().name(), got[0].item(), ours().operations_issued - before]
    pair = dist.new_group([0, 1])
    if rank < 2:
        t = torch.ones(1)
        dist.all_reduce(t, group=pair)
        mean = bluefog_pg.neighbor_allreduce(torch.tensor([float(rank)]), group=pair)
        told += [type(ours(pair)).__name__, t.item(), mean.item()]
        dist.destroy_process_group(pair)
    told.append(type(ours().accelerator_backend).__name__)
    told.append(inrank.catch(getattr, ours(), "no_such_thing").kind)
    return told


def test_groups_batches_and_attributes() -> None:
    told = harness.run_ranks(around, 3, env=OVER_GLOO)
    for rank, got in enumerate(told):
        inside = ["ProcessGroupComposed", 2.0, 0.5] if rank < 2 else []
        assert got == [
            "ProcessGroupComposed", "bluefog", float((rank - 1) % 3), 0, *inside,
            "ProcessGroupGloo", "AttributeError",
        ]  # fmt: skip


def profiled(rank: int, world: int) -> list[str]:
    import bluefog_pg

    x = torch.ones(3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        bluefog_pg.neighbor_allreduce(x)
        bluefog_pg.neighbor_allgather(x)
    logged = {entry["profiling_name"] for entry in bluefog_pg.flight_log()["entries"]}
    ranges = {event.key for event in profile.key_averages()}
    return sorted(name for name in logged & ranges if name.startswith("bluefog:"))


def test_profiles_and_the_flight_log_name_the_operations() -> None:
    wanted = ["bluefog:neighbor_allgather", "bluefog:neighbor_allreduce"]
    assert harness.run_ranks(profiled, 2, env=OVER_GLOO) == [wanted] * 2


def mixed(rank: int, world: int) -> list[inrank.Raised | None]:
    import bluefog_pg

    elsewhere, here = torch.empty(4, device="meta"), torch.ones(4)
    backend = ours()
    return [
        inrank.catch(backend.allgather, [[here, elsewhere]], [here]),
        inrank.catch(backend.allreduce_coalesced, [here, elsewhere]),
        inrank.catch(bluefog_pg.neighbor_allreduce, [here, elsewhere]),
        inrank.catch(bluefog_pg.neighbor_allreduce, torch.ones(3, dtype=torch.int32)),
        inrank.catch(bluefog_pg.neighbor_allgather, torch.tensor(1.0)),
    ]


def test_tensors_that_do_not_go_together_raise_in_the_caller() -> None:
    for told in harness.run_ranks(mixed, 2, env=OVER_GLOO):
        for error in told[:2]:
            assert "must be on one device" in harness.raised(error, "ValueError").text
        assert "is on device meta" in harness.raised(told[2], "ValueError").text
        assert "cannot be averaged" in harness.raised(told[3], "ValueError").text
        assert "without dimensions" in harness.raised(told[4], "ValueError").text


def bereft(rank: int, world: int) -> tuple[inrank.Raised | None, float]:
    """Rank 2 dies before it calls. All hear of it, whatever gloo would wait for."""
    import bluefog_pg

    ring = bluefog_pg.topology_util.RingGraph(world, connect_style=1)
    bluefog_pg.set_topology(ring)
    bluefog_pg.neighbor_allreduce(torch.ones(4))
    inrank.meet("averaged", world)
    if rank == 2:
        os._exit(9)
    error = inrank.catch(bluefog_pg.neighbor_allreduce, torch.ones(200_000))
    return error, time.monotonic()


def test_a_dead_neighbor_is_named_and_nobody_hangs() -> None:
    with harness.Ranks(4, env=OVER_GLOO) as ranks:
        ranks.start(bereft, world=4, store="store")
        told = ranks.values(dead=[2])
    for rank in (0, 1, 3):
        error = harness.raised(told[rank][0], "PeerFailed", ranks=[2])
        assert error.ended - error.began < harness.WITHIN


def by_devices(rank: int, world: int, backend: str) -> list[Any]:
    import bluefog_pg

    dist.destroy_process_group()
    dist.init_process_group(backend)
    before = bluefog_pg.stats()["operations"]
    t = torch.ones(1)
    dist.all_reduce(t)
    through_gloo = bluefog_pg.stats()["operations"] == before
    mean = bluefog_pg.neighbor_allreduce(torch.tensor([float(rank)]), enable_topo_check=True)
    return [t.item(), through_gloo, mean.item()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "through_gloo"),
    [("cpu:gloo,cuda:bluefog", True), ("cpu:bluefog,cuda:bluefog", False), ("bluefog", False)],
)
def test_devices_named(backend: str, through_gloo: bool) -> None:
    """CPU tensors go on working also where there is no device of that name."""
    told = harness.run_ranks(by_devices, 2, backend)
    assert told == [[2.0, through_gloo, 0.5]] * 2


def test_what_the_environment_may_say(monkeypatch: pytest.MonkeyPatch) -> None:
    from bluefog_pg._core import accelerator as accelerators

    said = {
        "none": None,
        "NONE": None,
        "cpu:gloo": ("cpu", "gloo"),
        "cpu:GLOO": ("cpu", "gloo"),
        "": None,
    }
    if torch.cuda.is_available():
        said["cuda:NCCL"] = ("cuda", "nccl")
    for value, expected in said.items():
        monkeypatch.setenv("BLUEFOG_ACCELERATOR", value)
        found = accelerators.found()  # "" chooses no accelerator where these tests run.
        assert (found and (found.device, found.backend)) == expected
    cuda = () if torch.cuda.is_available() else ("cuda:nccl", "cuda:gloo")
    for wrong in (
        "cuda:nothing", "gloo", ":gloo", "nowhere:gloo", "cuda:bluefog", "cpu:mpi", "cpu:nccl",
        "cuda", "cpu:gloo:/x", *cuda,
    ):  # fmt: skip
        monkeypatch.setenv("BLUEFOG_ACCELERATOR", wrong)
        with pytest.raises(ValueError, match=f"BLUEFOG_ACCELERATOR={wrong}"):
            accelerators.found()


def test_a_torch_without_nccl_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    from bluefog_pg._core import accelerator as accelerators

    cuda = torch.device("cuda")
    monkeypatch.delenv("BLUEFOG_ACCELERATOR", raising=False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: cuda)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.warns(UserWarning, match="this torch was built without NCCL; CPU tensors can"):
        assert accelerators.found() is None


def unlike(rank: int, world: int) -> inrank.Raised | None:
    dist.destroy_process_group()
    os.environ["BLUEFOG_ACCELERATOR"] = "cpu:gloo" if rank == 1 else "none"
    return inrank.catch(inrank.init, "again", rank, world)


def test_ranks_with_unlike_accelerators_are_named() -> None:
    for error in harness.run_ranks(unlike, 2):
        text = harness.raised(error, "Mismatch").text
        assert "has cpu:gloo" in text and "has no accelerator" in text, text
        assert "BLUEFOG_ACCELERATOR=none" in text
