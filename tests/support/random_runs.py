"""This module has ranks execute random programs of neighbor calls (see random_calls)."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.random_calls import Action, Program

PROGRAMS = int(os.environ.get("PROGRAMS", "200"))
FIRST = int(os.environ.get("PROGRAMS_FROM", "0"))
LIMIT = 0.5 * harness.SLOW


def interrupted(call: Callable[[], Any]) -> Any:
    with inrank.interrupted_in(0.02):
        return call()


def begun(action: Action, value: float, group: Any) -> Any:
    """Begin the call, and return its Work or its result."""
    import bluefog_pg

    x = torch.full((action.n,), value, requires_grad=action.has_gradient, device=where(group))
    kwargs: dict[str, Any] = {"name": action.name, "group": group, "async_op": action.is_async}
    own = float("nan") if action.fault == "refused" else 1.0
    if action.op == "pair":
        return bluefog_pg.pair_gossip(x, action.src[0], self_weight=1.0, pair_weight=1.0, **kwargs)
    if action.op == "gather":
        src = [*action.src, dist.get_rank(group)] if action.fault == "refused" else action.src
        return bluefog_pg.neighbor_allgather(
            x, src_ranks=list(src), dst_ranks=list(action.dst), **kwargs
        )
    result = bluefog_pg.neighbor_allreduce(
        [x] if action.in_list else x,
        self_weight=own,
        src_weights=dict.fromkeys(action.src, 1.0),
        dst_weights=list(action.dst),
        **kwargs,
    )
    if not action.has_gradient:
        return result
    total = result[0] if action.in_list else result
    (value * total.sum()).backward()
    return torch.cat([total.detach(), x.grad])


def where(group: Any) -> str:
    """Return the kind of device that a group's calls use."""
    # A torch that was built for CUDA lists it on machines without a GPU, too.
    unused = {"cpu"} if torch.cuda.is_available() else {"cpu", "cuda"}
    kinds = (group or dist.group.WORLD)._device_types
    return next((kind.type for kind in kinds if kind.type not in unused), "cpu")


def _of_one_value(x: torch.Tensor) -> tuple[float, int]:
    (value,) = x.unique().tolist()
    return value, len(x)


def values(action: Action, result: Any) -> list[list[float]]:
    """Return the numbers in a call's result, each with how often it occurs in a row."""
    if action.has_gradient:
        total, grad = result.split(action.n)
        return [[*_of_one_value(total)], [*_of_one_value(grad)]]
    if action.is_async:
        result = result.result()[0]
    elif action.in_list:
        result = result[0]
    numbers, counts = result.unique_consecutive(return_counts=True)
    return [list(each) for each in zip(numbers.tolist(), counts.tolist(), strict=True)]


def called(action: Action, value: float, group: Any) -> list[list[float]]:
    return values(action, begun(action, value, group))


def executed(program: Program, rank: int, group: Any) -> list[Any]:
    actions = program.ranks[rank]
    told: list[Any] = [None] * len(actions)
    names = {action.name if program.in_threads else None for action in actions}
    threads = [
        threading.Thread(target=execute, args=(rank, actions, of_name(actions, name), group, told))
        for name in names - {None}
    ]
    for thread in threads:
        thread.start()
    mine = of_name(actions, None) if program.in_threads else list(range(len(actions)))
    execute(rank, actions, mine, group, told)
    for thread in threads:
        thread.join()
    return told


def of_name(actions: list[Action], name: str | None) -> list[int]:
    return [i for i, action in enumerate(actions) if action.name == name]


def waited_for(action: Action, work: dist.Work) -> list[list[float]]:
    work.wait()
    return values(action, work)


def execute(rank: int, actions: list[Action], mine: list[int], group: Any, told: list[Any]) -> None:
    pending: dict[int, Any] = {}
    for i in mine:
        action = actions[i]
        if action.fault == "late":
            time.sleep(1.3 * LIMIT)
        if action.fault == "stopped":
            go_on = f"sleep {1.3 * LIMIT}; kill -CONT {os.getpid()}"
            with subprocess.Popen(["sh", "-c", go_on]):
                os.kill(os.getpid(), signal.SIGSTOP)
        if action.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if action.is_async:
            work = inrank.outcome(begun, action, 1000.0 * rank + i, group)
            if isinstance(work, inrank.Raised):
                told[i] = work
            else:
                pending[i] = work
            continue
        call = partial(called, action, 1000.0 * rank + i, group)
        if action.fault == "interrupted":
            call = partial(interrupted, call)
        told[i] = inrank.outcome(call)
    for i, work in pending.items():
        told[i] = inrank.outcome(partial(waited_for, actions[i], work))
