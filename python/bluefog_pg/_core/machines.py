"""This module says which ranks of a group share a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bluefog_pg._core import variables
from bluefog_pg._core.errors import ArgumentError

# BlueFog reads the number of ranks on each machine from this variable.
_SIZE = "BLUEFOG_NODES_PER_MACHINE"


@dataclass(frozen=True)
class Machines:
    """A Machines object has the machines of a group, as one of its ranks sees them.

    All ranks in it are group ranks. It never changes, so any thread may use it.
    """

    all: list[list[int]]
    machine_rank: int
    local_rank: int

    @classmethod
    def of(cls, hosts: Sequence[Sequence[int]], rank: int, who: str) -> Machines:
        """Return the hosts as machines, or the blocks of ranks that the environment asks for.

        Raises:
            ArgumentError: the environment variable is not a positive number.
        """
        machines = [list(ranks) for ranks in hosts]
        if given := variables.read(_SIZE):
            machines = _blocks(given, sum(map(len, machines)), who)
        for number, ranks in enumerate(machines):
            if rank in ranks:
                return cls(machines, number, ranks.index(rank))
        raise AssertionError(f"{who}: this rank is on no machine of {machines}")

    @property
    def locals(self) -> list[int]:
        return self.all[self.machine_rank]

    @property
    def are_alike(self) -> bool:
        """Return whether all machines have the same number of ranks."""
        return len({len(ranks) for ranks in self.all}) == 1

    @property
    def are_blocks(self) -> bool:
        """Return whether all machines have the same number of ranks, which are consecutive."""
        one_by_one = [rank for ranks in self.all for rank in ranks]
        return self.are_alike and one_by_one == list(range(len(one_by_one)))

    def counterpart(self, machine: int) -> int:
        """Return the rank that has this rank's place on the other machine."""
        return self.all[machine][self.local_rank]


def _blocks(given: str, size: int, who: str) -> list[list[int]]:
    if not given.isdecimal() or int(given) < 1:
        raise ArgumentError(f"{who}: {_SIZE}={given} is no positive number of ranks")
    each = int(given)
    return [list(range(first, min(first + each, size))) for first in range(0, size, each)]
