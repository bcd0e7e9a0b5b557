"""A torch.distributed backend for CPU hosts, with averaging over any weighted digraph."""

import importlib
from typing import TYPE_CHECKING, Any

from bluefog_pg import _autoload

if TYPE_CHECKING:
    from bluefog_pg import topology_util
    from bluefog_pg._C import Aborted, CollectiveTimeout, Mismatch, PeerFailed, ProcessGroupBluefog
    from bluefog_pg.flight import flight_log, write_flight_log
    from bluefog_pg.ops import monitored_barrier, neighbor_allreduce, stats
    from bluefog_pg.start import init
    from bluefog_pg.topology import (
        in_neighbor_ranks,
        load_topology,
        out_neighbor_ranks,
        set_topology,
    )

    __version__: str

__all__ = [
    "Aborted",
    "CollectiveTimeout",
    "Mismatch",
    "PeerFailed",
    "ProcessGroupBluefog",
    "flight_log",
    "in_neighbor_ranks",
    "init",
    "load_topology",
    "monitored_barrier",
    "neighbor_allreduce",
    "out_neighbor_ranks",
    "set_topology",
    "stats",
    "topology_util",
    "write_flight_log",
]

_HOME = {
    "Aborted": "_C",
    "CollectiveTimeout": "_C",
    "Mismatch": "_C",
    "PeerFailed": "_C",
    "ProcessGroupBluefog": "_C",
    "flight_log": "flight",
    "in_neighbor_ranks": "topology",
    "init": "start",
    "load_topology": "topology",
    "monitored_barrier": "ops",
    "neighbor_allreduce": "ops",
    "out_neighbor_ranks": "topology",
    "set_topology": "topology",
    "stats": "ops",
    "write_flight_log": "flight",
}


# Every `import torch` of this environment imports this package (see _autoload), so what a name
# needs is imported when the name is first used.
def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import version

        value = version("bluefog-pg")
    elif name == "topology_util":
        value = importlib.import_module("bluefog_pg.topology_util")
    elif name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    elif _HOME[name] == "_C":
        from bluefog_pg._loader import load

        value = getattr(load(), name)
    else:
        value = getattr(importlib.import_module(f"bluefog_pg.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


_autoload.register()
