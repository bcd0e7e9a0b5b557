"""What an algorithm remembers, in the optimizer's state_dict."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg import collectives

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.algorithm import Algorithm

KEY = "bluefog"  # in the state_dict, where plain optimizers look at others only


class AlgorithmState:
    """Goes with the optimizer's state_dict, and comes back with it.

    What ranks remember belongs together (corrections sum to 0, trackers to the gradients): either
    all ranks go on from what they have saved themselves, or all begin anew.
    """

    def __init__(
        self, optimizer: Optimizer, algorithm: Callable[[], Algorithm], member: GroupState
    ) -> None:
        """`algorithm`: the one that remembers, now."""
        self._algorithm, self._member = algorithm, member
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
        algorithm = self._algorithm()
        if not self._is_to_recall or not algorithm.memory():
            return
        if not is_last and self._is_of_others(algorithm):
            return
        self._is_to_recall = False
        algorithm.abandon()  # which would end in what is remembered of before
        is_recalled = float(self._is_recalled(algorithm))
        agreed = collectives.allreduce(
            torch.tensor(is_recalled, dtype=torch.float32, device="cpu"), group=self._member.group
        )
        if agreed < 1:
            algorithm.open(algorithm.context)

    def _save(self, _optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        algorithm = self._algorithm()
        memory = algorithm.memory()
        if not memory:
            return state
        return {**state, KEY: {**self._origin(algorithm), "memory": copy.deepcopy(memory)}}

    def _load(self, _optimizer: Optimizer, state: dict[str, Any]) -> None:
        self._loaded, self._is_to_recall = state.get(KEY), True

    @torch.no_grad()
    def _is_recalled(self, algorithm: Algorithm) -> bool:
        loaded, self._loaded = self._loaded, None
        if not isinstance(loaded, dict):
            return False
        if any(loaded.get(name) != value for name, value in self._origin(algorithm).items()):
            return False
        try:
            algorithm.recall(loaded["memory"])
        except (KeyError, ValueError):  # of other buckets
            return False
        return True

    def _is_of_others(self, algorithm: Algorithm) -> bool:
        """Return whether what was loaded is of buckets of other shapes."""
        saved = self._loaded.get("memory", {}) if isinstance(self._loaded, dict) else {}
        return any(
            [mine.shape for mine in flats] != [flat.shape for flat in saved.get(name, flats)]
            for name, flats in algorithm.flats().items()
        )

    def _origin(self, algorithm: Algorithm) -> dict[str, Any]:
        member = self._member
        return {"rank": member.rank, "size": member.size, "order": type(algorithm).__name__}
