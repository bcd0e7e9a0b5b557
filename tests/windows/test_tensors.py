"""A window's tensor can change, and what points to the memory that it had stays valid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.windows import ring

pytestmark = pytest.mark.device


def every_call(window: Any) -> dict[str, Any]:
    peer = window.sources[0]
    return {
        "put": inrank.catch(window.put, torch.zeros(window.tensor.shape)),
        "get": inrank.catch(window.get),
        "update": inrank.catch(window.update, clone=True),
        "read": inrank.catch(window.read, peer),
    }


def changed(rank: int, world: int) -> list[Any]:
    """Shrink and transpose the tensor, and try to empty its storage; then put all right again."""
    bf = ring()
    x = torch.ones(64, 64)
    window = bf.Window(x, "w", zero_init=True)
    dist.barrier()
    emptied = inrank.catch(x.untyped_storage().resize_, 0)
    grown = inrank.catch(x.resize_, 1 << 24)
    x.resize_(2, 2)
    shrunk = every_call(window)
    x.resize_(64, 64)
    x.t_()
    transposed = every_call(window)
    x.t_()
    window.accumulate()
    dist.barrier()
    total = window.update_then_collect().unique().tolist()
    window.free()
    return [emptied, grown, shrunk, transposed, total]


def test_a_tensor_that_has_changed_is_refused(pool: harness.Pool) -> None:
    for emptied, grown, shrunk, transposed, total in pool.run(changed, world=2):
        assert "not resizable" in emptied.text
        assert "not resizable" in grown.text
        for errors in (shrunk, transposed):
            for op, error in errors.items():
                assert error is not None, op
                assert f"win_{op}" in error.text, error
                assert "has got another shape" in error.text or "the tensor is" in error.text
        assert total == [2.0]


def pointed_to(rank: int, world: int) -> list[Any]:
    """What pointed to the memory before reads what was there, and writing there harms nobody."""
    bf = ring()
    x = torch.full((1 << 16,), 3.0)
    view, array = x[:2], x.numpy()
    window = bf.Window(x, "w", zero_init=True)
    x.fill_(5.0)
    y = torch.full((1 << 22,), float(rank))
    work = dist.all_reduce(y, async_op=True)
    late = bf.Window(y, "late", zero_init=True)
    work.wait()
    kept = array.min().item(), array.max().item()
    moved = view.tolist(), set(y.unique().tolist()) <= {float(rank), float(sum(range(world)))}
    late.free()
    window.free()
    return [kept, moved]


@harness.of_the_cpus_memory("numpy points to nothing")
def test_what_points_to_its_former_memory(pool: harness.Pool) -> None:
    for kept, (view, is_sane) in pool.run(pointed_to, world=2):
        assert kept == (3.0, 3.0)
        assert view == [5.0, 5.0]
        assert is_sane


def of_two_groups(rank: int, world: int) -> Any:
    bf = ring()
    group = dist.new_group(list(range(world)))
    x = torch.ones(4)
    window = bf.Window(x, "w", zero_init=True)
    error = inrank.catch(bf.Window, x, "w", group=group)
    window.accumulate()
    dist.barrier()
    total = window.update_then_collect().tolist()
    window.free()
    del window
    freed = bf.Window(x, "w", group=group)
    dist.barrier(group=group)
    freed.get()
    fetched = freed.read(1 - rank).tolist()
    freed.free()
    dist.destroy_process_group(group)
    return [error, total, fetched]


def test_a_tensor_is_in_windows_of_one_group(pool: harness.Pool) -> None:
    for error, *totals in pool.run(of_two_groups, world=2):
        harness.raised(error, "ValueError", text="in a window of another group; give a clone")
        assert totals == [[2.0] * 4] * 2


def of_a_generator(rank: int, world: int) -> list[Any]:
    bf = ring()
    model = torch.nn.Linear(3, 2)
    window = bf.Window(model.parameters(), "m")
    described = repr(window)
    window.free()
    return [described, repr(window), inrank.catch(bf.Window, None, "n")]


def test_parameters_make_a_window(pool: harness.Pool) -> None:
    for rank, (of, freed, error) in enumerate(pool.run(of_a_generator, world=2)):
        assert of == f"<Window 'm' of float32[8] from [{1 - rank}] to [{1 - rank}]>"
        assert freed == "<Window 'm', freed>"
        harness.raised(error, "TypeError", text="expected a torch.Tensor or a list of them")
