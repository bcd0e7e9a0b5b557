"""This module says what one host has to start of a job, and how its ranks end."""

from __future__ import annotations

import dataclasses
import json
import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """A Share is what one host starts of a job: `count` ranks from `first` on."""

    command: list[str]
    folder: str  # where it is started
    environ: dict[str, str]  # of all ranks
    first: int
    count: int
    world_size: int
    node: int
    node_count: int

    def environ_of(self, local_rank: int) -> dict[str, str]:
        """Return the environment of one rank, as torchrun would make it."""
        return self.environ | {
            "RANK": str(self.first + local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(self.count),
            "GROUP_RANK": str(self.node),
            "GROUP_WORLD_SIZE": str(self.node_count),
        }

    def encode(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str) -> Share:
        return cls(**json.loads(text))


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Python has no names for real-time signals.
        return f"signal {number}"


@dataclass(frozen=True)
class Exit:
    """An Exit says how a rank has ended."""

    rank: int
    pid: int
    code: int  # as subprocess has it: -9 for SIGKILL
    seconds: float  # since its start

    def __str__(self) -> str:
        if self.code >= 0:
            how = f"ended with exit code {self.code}"
        else:
            how = f"ended by {_name(-self.code)}"
        return f"rank {self.rank} (pid {self.pid}) {how} after {self.seconds:.0f} s"

    def encode(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str) -> Exit:
        return cls(**json.loads(text))
