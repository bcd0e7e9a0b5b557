"""What an order remembers, in the optimizer's state_dict."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg import collectives

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.order import Order

KEY = "bluefog"  # in the state_dict, where plain optimizers look at others only


class Memory:
    """Goes with the optimizer's state_dict, and comes back with it.

    What ranks remember belongs together (corrections sum to 0, trackers to the gradients): either
    all ranks go on from what they have saved themselves, or all begin anew.
    """

    def __init__(
        self, optimizer: Optimizer, order: Callable[[], Order], member: GroupState
    ) -> None:
        """`order`: the one that remembers, now."""
        self._order, self._member = order, member
        self._loaded: dict[str, Any] | None = None
        self._is_to_recall = False
        self._handles = [
            optimizer.register_state_dict_post_hook(self._save),
            optimizer.register_load_state_dict_pre_hook(self._load),
        ]

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def recall(self, is_last: bool) -> None:
        """Go on from what was loaded since the last time, if anything was; all ranks do.

        Unless `is_last`, what is of other buckets waits for these.
        """
        order = self._order()
        if not self._is_to_recall or not order.memory():
            return
        if not is_last and self._is_of_others(order):
            return
        self._is_to_recall = False
        order.abandon()  # which would end in what is remembered of before
        is_recalled = float(self._is_recalled(order))
        agreed = collectives.allreduce(
            torch.tensor(is_recalled, dtype=torch.float32, device="cpu"), group=self._member.group
        )
        if agreed < 1:
            order.open(order.site)

    def _save(self, _optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        order = self._order()
        memory = order.memory()
        if not memory:
            return state
        return {**state, KEY: {**self._origin(order), "memory": copy.deepcopy(memory)}}

    def _load(self, _optimizer: Optimizer, state: dict[str, Any]) -> None:
        self._loaded, self._is_to_recall = state.get(KEY), True

    @torch.no_grad()
    def _is_recalled(self, order: Order) -> bool:
        loaded, self._loaded = self._loaded, None
        if not isinstance(loaded, dict):
            return False
        if any(loaded.get(name) != value for name, value in self._origin(order).items()):
            return False
        try:
            order.recall(loaded["memory"])
        except (KeyError, ValueError):  # of other buckets
            return False
        return True

    def _is_of_others(self, order: Order) -> bool:
        """Return whether what was loaded is of buckets of other shapes."""
        saved = self._loaded.get("memory", {}) if isinstance(self._loaded, dict) else {}
        return any(
            [mine.shape for mine in flats] != [flat.shape for flat in saved.get(name, flats)]
            for name, flats in order.flats().items()
        )

    def _origin(self, order: Order) -> dict[str, Any]:
        member = self._member
        return {"rank": member.rank, "size": member.size, "order": type(order).__name__}
