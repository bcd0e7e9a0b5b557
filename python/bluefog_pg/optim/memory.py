"""What an order remembers, in the optimizer's state_dict: for each parameter its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg.optim.bucket import views_of

if TYPE_CHECKING:
    from torch.nn import Parameter
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
        order, places = self._order(), _places_of(optimizer)
        # Nothing, before the first step: there an entry would make Adam think that it has begun.
        flats = [flat for flats in order.memory().values() for flat in flats]
        if not any(flat.any() for flat in flats):
            return state
        of_params = dict(state["state"])
        for name, flats in order.memory().items():
            for bucket, flat in zip(order.site.buckets, flats, strict=True):
                views = views_of(flat, bucket.params)
                for param, view in zip(bucket.params, views, strict=True):
                    place = places[param]
                    own = of_params.get(place, {})
                    of_params[place] = {**own, PREFIX + name: view.clone()}
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
        order, places = self._order(), _places_of(optimizer)
        loaded, self._loaded = self._loaded, {}
        if order.memory():
            order.open(order.site)  # where nothing was saved it begins anew
        for name, flats in order.memory().items():
            for bucket, flat in zip(order.site.buckets, flats, strict=True):
                views = views_of(flat, bucket.params)
                for param, view in zip(bucket.params, views, strict=True):
                    if (saved := loaded.get(places[param], {}).get(PREFIX + name)) is not None:
                        view.copy_(saved)


def _places_of(optimizer: Optimizer) -> dict[Parameter, int]:
    """The number of each parameter, as a state_dict has it."""
    params = (param for group in optimizer.param_groups for param in group["params"])
    return {param: place for place, param in enumerate(params)}
