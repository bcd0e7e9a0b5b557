"""What an order remembers, in the optimizer's state_dict: for each parameter its part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg.optim.bucket import views_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from bluefog_pg.optim.order import Order

PREFIX = "bluefog_"  # of the names that it has there; plain optimizers look at others only


class Memory:
    """Goes with the optimizer's state_dict, and comes back with it."""

    def __init__(self, optimizer: Optimizer, order: Callable[[], Order]) -> None:
        """`order`: the one that remembers, now."""
        self._order = order
        self._loaded: dict[int, dict[str, Any]] = {}
        optimizer.register_state_dict_post_hook(self._save)
        optimizer.register_load_state_dict_pre_hook(self._take_out)
        optimizer.register_load_state_dict_post_hook(self._restore)

    def _save(self, optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        order = self._order()
        # Nothing, before the first step: there an entry would make Adam think that it has begun.
        flats = [flat for flats in order.memory().values() for flat in flats]
        if not any(flat.any() for flat in flats):
            return state
        of_params = dict(state["state"])
        for place, name, part in _parts_of(order, optimizer):
            of_params[place] = {**of_params.get(place, {}), name: part.clone()}
        return {**state, "state": of_params}

    def _take_out(self, _optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        self._loaded, rest = {}, {}
        for place, entries in state["state"].items():
            ours = {name: value for name, value in entries.items() if name.startswith(PREFIX)}
            others = {name: value for name, value in entries.items() if name not in ours}
            if ours:
                self._loaded[place] = ours
            if others:
                rest[place] = others
        return {**state, "state": rest}

    @torch.no_grad()
    def _restore(self, optimizer: Optimizer) -> None:
        order = self._order()
        loaded, self._loaded = self._loaded, {}
        if order.memory():
            order.open(order.site)  # where nothing was saved it begins anew
        for place, name, part in _parts_of(order, optimizer):
            if (saved := loaded.get(place, {}).get(name)) is not None:
                part.copy_(saved)


def _parts_of(order: Order, optimizer: Optimizer) -> Iterator[tuple[int, str, Tensor]]:
    """Of all that it remembers: the number of a parameter in a state_dict, the name, its part."""
    params = (param for group in optimizer.param_groups for param in group["params"])
    places = {param: place for place, param in enumerate(params)}
    for name, flats in order.memory().items():
        for bucket, flat in zip(order.site.buckets, flats, strict=True):
            for param, part in zip(bucket.params, views_of(flat, bucket.params), strict=True):
                yield places[param], PREFIX + name, part
