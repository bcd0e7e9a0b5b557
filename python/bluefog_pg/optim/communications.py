"""This module makes the communication that a configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg.optim.averages import GlobalAverage, MachineAverage, NeighborAverage
from bluefog_pg.optim.communication import Communication
from bluefog_pg.optim.compressed import CompressedAverage
from bluefog_pg.optim.windows import WindowAverage

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.compression import Compressor
    from bluefog_pg.optim.config import Config
    from bluefog_pg.optim.step_overrides import StepOverrides
    from bluefog_pg.optim.windows import Send


def new_communication(
    config: Config,
    compressor: Compressor | None,
    overrides: StepOverrides,
    prefix: str,
    member: GroupState,
) -> Communication:
    """Make the communication that averages buckets, without opening it.

    Args:
        config: says how to average, and over which topology.
        compressor: compresses the messages of "neighbor_allreduce"; None, nothing is compressed.
        overrides: what a program may set before a step.
        prefix: the prefix of the windows' names.
        member: this rank's state of the group whose ranks average.
    """
    name = config.communication
    if member.size == 1:
        return Communication()
    if name == "neighbor_allreduce" and compressor is not None:
        return CompressedAverage(compressor, overrides, member)
    if name == "neighbor_allreduce":
        return NeighborAverage(overrides, member)
    if name == "hierarchical_neighbor_allreduce":
        return MachineAverage(overrides, member.group)
    if name == "allreduce":
        return GlobalAverage(member)

    def windows(send: Send, *, is_own: bool) -> WindowAverage:
        return WindowAverage(prefix, send, is_own, overrides, config.topology, member)

    if name == "win_put":
        return windows(
            lambda window, route: window.put(dst_weights=route.dst_weights, async_op=True),
            is_own=False,
        )
    if name == "win_get":
        return windows(
            lambda window, route: window.get(src_weights=route.src_weights, async_op=True),
            is_own=True,
        )
    return Communication()
