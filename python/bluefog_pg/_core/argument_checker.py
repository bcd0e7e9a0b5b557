"""This module checks the arguments of calls of neighbor operations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from bluefog_pg._core.neighborhood import as_float

if TYPE_CHECKING:
    import torch

    from bluefog_pg._core.group_state import GroupState

    Tensors = torch.Tensor | Sequence[torch.Tensor]


class ArgumentChecker:
    """An ArgumentChecker checks the arguments of one call.

    Its errors name the call's rank, operation and tensors. It belongs to the thread of the call.
    """

    def __init__(
        self,
        member: GroupState,
        op: str,
        tensors: Tensors,
        nodes: tuple[int, int, str] | None = None,
    ) -> None:
        """Make a checker for one call.

        Args:
            member, op, tensors: the call, for the texts of errors.
            nodes: the number of nodes, which of them this rank is, and the noun for them; None, for
                the group's ranks.
        """
        self.member = member
        self._title = (op, tensors)
        self._size, self._self, self._noun = nodes or (member.size, member.rank, "rank")

    def fail(self, what: str) -> NoReturn:
        op, tensors = self._title
        raise ValueError(f"{self.member.who} {op} {described(tensors)}: {what}")

    def weights(self, name: str, given: Any) -> dict[int, float]:
        """Return the weights of a mapping from nodes to weights; raise ValueError if it is bad."""
        if not hasattr(given, "items"):
            self.fail(f"{name} must be a dict {{{self._noun}: weight}}, not {type(given).__name__}")
        return {
            self._node(name, node): self.number(f"{name}[{node}]", weight)
            for node, weight in given.items()
        }

    def destinations(self, name: str, given: Any) -> dict[int, float]:
        """Return the weights of a mapping from nodes, or of a list of nodes, which weigh 1."""
        if hasattr(given, "items"):
            return self.weights(name, given)
        what = f"a dict {{{self._noun}: weight}} or a list of {self._noun}s"
        return dict.fromkeys(self.ranks(name, given, what), 1.0)

    def ranks(self, name: str, given: Iterable[Any], what: str = "a list of ranks") -> list[int]:
        """Return the given nodes; raise ValueError if one is this node, or comes twice."""
        if not isinstance(given, Iterable):
            self.fail(f"{name} must be {what}, not {type(given).__name__}")
        nodes = [self._node(name, node) for node in given]
        if len(set(nodes)) != len(nodes):
            self.fail(f"{name} names a {self._noun} twice: {nodes}")
        return nodes

    def require_neighbors(
        self,
        name: str,
        given: Iterable[int],
        which: str,
        neighbors: Sequence[int],
        otherwise: str = "",
    ) -> None:
        strangers = sorted(set(given) - set(neighbors))
        if strangers:
            self.fail(
                f"{name} names {self._noun}s {strangers}, which are no {which} "
                f"(those are {list(neighbors)}){otherwise}"
            )

    def number(self, name: str, given: Any) -> float:
        try:
            number = as_float(given)
        except (TypeError, ValueError):
            self.fail(f"{name} is {given!r}, not a number")
        if not math.isfinite(number):
            self.fail(f"{name} is {number}; weights must be finite")
        return number

    def _node(self, name: str, given: Any) -> int:
        try:
            node = int(given.__index__())
        except (AttributeError, TypeError):
            self.fail(f"{name} has {given!r} where a {self._noun} belongs")
        if not 0 <= node < self._size:
            noun = "group rank" if self._noun == "rank" else self._noun
            self.fail(f"{name} names {noun} {node}; the {noun}s are 0 to {self._size - 1}")
        if node == self._self:
            weight = "; its weight is self_weight" if name.endswith("weights") else ""
            self.fail(f"{name} names this {self._noun} itself{weight}")
        return node


def described(tensors: Any) -> str:
    """Return "float32[3, 4]" for a tensor, and the number of tensors for a list."""
    if hasattr(tensors, "dtype"):
        return f"{str(tensors.dtype).removeprefix('torch.')}{list(tensors.shape)}"
    return f"of {len(tensors)} tensors"
