"""This module checks that all ranks make the same distributed optimizer."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg._core.group_check import meeting
from bluefog_pg._core.warning import warn

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.algorithm import Algorithm
    from bluefog_pg.optim.config import Config

# Ranks of a training that is resumed are less than this fraction of a parameter's norm apart.
FAR = 0.5


def require_consistent(
    params: Sequence[Parameter],
    models: Sequence[Module],
    config: Config,
    algorithm: Algorithm,
    member: GroupState,
) -> None:
    """Raise unless all ranks make the same optimizer; warn if their parameters are far apart.

    It is collective if the group has several ranks.

    Raises:
        ValueError: on every rank, if ranks differ in anything that makes their messages differ.
    """
    if member.size == 1:
        return
    names = {param: name for model in models for name, param in model.named_parameters()}
    of_all: list[Any] = [None] * member.size
    mine = _described(params, names, config, algorithm), _sample(params)
    with meeting(f"{member.who} DistributedOptimizer"):
        dist.all_gather_object(of_all, mine, group=member.group)
    of_ranks, samples = zip(*of_all, strict=True)
    for rank, theirs in enumerate(of_ranks):
        for what, first in of_ranks[0].items():
            if theirs[what] != first:
                named = dist.get_process_group_ranks(member.group)
                raise ValueError(
                    f"{member.who} DistributedOptimizer: ranks differ in {what}: rank {named[0]} "
                    f"has {_brief(first, theirs[what])}, rank {named[rank]} "
                    f"{_brief(theirs[what], first)}"
                )
    far = 0.0 if config.communication == "gradient_allreduce" else FAR
    if any(_are_apart(samples[0], other, params, far) for other in samples):
        warn(
            f"{member.who} DistributedOptimizer: ranks begin with different parameters, so that "
            "averages mean little. Call bluefog_pg.broadcast_parameters(model.state_dict(), 0), or "
            "torch.manual_seed before you make the model",
        )


def _some_of(param: Parameter) -> Tensor:
    return param.detach().reshape(-1)[:: param.numel() // 16 + 1]


def _sample(params: Sequence[Parameter]) -> Tensor:
    """Return some of the numbers of each parameter, in one tensor.

    Views would each be pickled with the whole tensor that they belong to.
    """
    some = [_some_of(param) for param in params]
    wide = torch.complex128 if any(part.is_complex() for part in some) else torch.float64
    return torch.cat([part.to(wide) for part in some]).cpu()


def _are_apart(first: Tensor, other: Tensor, params: Sequence[Parameter], far: float) -> bool:
    """Return whether most of what differs is farther apart than `far` times a parameter's norm.

    Parameters that are equal do not count: norms and biases begin with ones and zeros, whatever the
    seed.
    """
    differing = apart = 0
    sizes = [_some_of(param).numel() for param in params]
    parts = zip(torch.split(first, sizes), torch.split(other, sizes), params, strict=True)
    for mine, theirs, param in parts:
        distance = (mine - theirs).norm()
        differing += param.numel() * int(distance > 0)
        apart += param.numel() * int(distance > far * mine.norm())
    return 2 * apart > differing


def _described(
    params: Sequence[Parameter],
    names: Mapping[Parameter, str],
    config: Config,
    algorithm: Algorithm,
) -> dict[str, Any]:
    return {
        "order": _options_of(algorithm),
        "communication": config.communication,
        "every": config.every,
        "compression": _options_of(config.compression),
        "bucket_bytes": config.bucket_bytes,
        "topology": _described_topology(config.topology),
        "parameters": [
            (
                names.get(p, ""),
                str(p.dtype),
                tuple(p.shape),
                p.stride() if p.numel() else (),
                p.device.type,
            )
            for p in params
        ],
    }


def _described_topology(topology: Any) -> str:
    if topology is None or isinstance(topology, str):
        return str(topology)
    if isinstance(topology, Iterator):  # An iterator yields the steps of its own rank alone.
        return "iterator"
    graphs = topology if isinstance(topology, list | tuple) else [topology]
    edges = [sorted((int(i), int(j), w) for i, j, w in g.edges(data="weight")) for g in graphs]
    count = sum(map(len, edges))
    return f"{len(graphs)} digraphs of {count} edges ({zlib.crc32(repr(edges).encode()):08x})"


def _options_of(thing: Any) -> str:
    """Return a thing's type, and the numbers that it was made with if its class is ours.

    Seeds are left out, as each rank may have its own.
    """
    if thing is None or isinstance(thing, str):
        return str(thing)
    if not type(thing).__module__.startswith("bluefog_pg."):
        return type(thing).__name__
    numbers = {
        name.lstrip("_"): value
        for name, value in vars(thing).items()
        if isinstance(value, int | float) and name != "_seed"
    }
    options = ", ".join(f"{name}={value}" for name, value in sorted(numbers.items()))
    return f"{type(thing).__name__}({options})"


def _brief(mine: Any, other: Any) -> str:
    """Return a value for an error; for a list, the first entry that differs from the other's."""
    if not isinstance(mine, list):
        return repr(mine)
    for number, entry in enumerate(mine):
        if number >= len(other) or entry != other[number]:
            return f"{entry} as number {number} of {len(mine)}"
    return f"{len(mine)} of them"
