"""What calls of windows take: ranks with their weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from bluefog_pg._call import Call

if TYPE_CHECKING:
    from bluefog_pg._member import Member


class WindowCall(Call):
    """A call of a window while it is checked: what it raises names the window."""

    def __init__(self, member: Member, op: str, name: str) -> None:
        super().__init__(member, op, ())
        self.where = f"{member.who} {op} '{name}'"

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"{self.where}: {what}")

    def pairs(self, argument: str, given: Any, default: Iterable[int]) -> list[tuple[int, float]]:
        """Ranks and weights, ascending; those that are left out weigh 1."""
        if given is None:
            return [(rank, 1.0) for rank in sorted(default)]
        return sorted(self.destinations(argument, given).items())
