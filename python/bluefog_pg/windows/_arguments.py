"""This module checks the arguments of windows' calls: ranks with their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from bluefog_pg._core.argument_checker import ArgumentChecker

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState


class WindowArgumentChecker(ArgumentChecker):
    """A WindowArgumentChecker checks one call of a window, and its errors name the window."""

    def __init__(self, member: GroupState, op: str, name: str) -> None:
        super().__init__(member, op, ())
        self._op, self._name = op, name

    @property
    def where(self) -> str:
        return f"{self.member.who} {self._op} '{self._name}'"

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"{self.where}: {what}")

    def pairs(self, argument: str, given: Any) -> list[tuple[int, float]]:
        """Return ranks with their weights, ascending; the ranks of a list weigh 1."""
        return sorted(self.destinations(argument, given).items())
