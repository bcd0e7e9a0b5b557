"""This module keeps what an algorithm remembers in the optimizer's state_dict."""

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

KEY = "bluefog"  # a key of the state_dict that plain optimizers ignore


class AlgorithmState:
    """An AlgorithmState saves an algorithm's memory with the optimizer's state_dict, and loads it.

    The memories of the ranks belong together: corrections sum to 0, trackers to the gradients.
    Either all ranks go on from what they have saved themselves, or all begin anew. It owns two
    hooks of the optimizer, until `remove`.
    """

    def __init__(
        self, optimizer: Optimizer, algorithm: Callable[[], Algorithm], member: GroupState
    ) -> None:
        """Register hooks of the optimizer; `algorithm` returns the algorithm that is in use."""
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
        """Go on from a state that was loaded since the last call, if any. All ranks make this call.

        Unless `is_last`, a memory that belongs to other buckets waits until these are made.
        """
        algorithm = self._algorithm()
        if not self._is_to_recall or not algorithm.memory():
            return
        if not is_last and self._is_of_others(algorithm):
            return
        self._is_to_recall = False
        algorithm.abandon()  # An exchange would end with the memory from before the load.
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
        except (KeyError, ValueError):  # The memory belongs to other buckets.
            return False
        return True

    def _is_of_others(self, algorithm: Algorithm) -> bool:
        """Return whether the loaded memory belongs to buckets of other shapes."""
        saved = self._loaded.get("memory", {}) if isinstance(self._loaded, dict) else {}
        return any(
            [mine.shape for mine in flats] != [flat.shape for flat in saved.get(name, flats)]
            for name, flats in algorithm.flats().items()
        )

    def _origin(self, algorithm: Algorithm) -> dict[str, Any]:
        member = self._member
        return {"rank": member.rank, "size": member.size, "order": type(algorithm).__name__}
