"""A torch.distributed backend for CPUs and GPUs, with averaging over any weighted digraph."""

import importlib
from typing import TYPE_CHECKING, Any

from bluefog_pg import _autoload

if TYPE_CHECKING:
    from bluefog_pg import ddp_hooks as ddp_hooks
    from bluefog_pg import functional as functional
    from bluefog_pg import optim as optim
    from bluefog_pg import topology_util as topology_util
    from bluefog_pg._C import (
        Aborted as Aborted,
    )
    from bluefog_pg._C import (
        CollectiveTimeout as CollectiveTimeout,
    )
    from bluefog_pg._C import (
        Mismatch as Mismatch,
    )
    from bluefog_pg._C import (
        PeerFailed as PeerFailed,
    )
    from bluefog_pg._C import (
        ProcessGroupBluefog as ProcessGroupBluefog,
    )
    from bluefog_pg._errors import (
        ArgumentError as ArgumentError,
    )
    from bluefog_pg._errors import (
        NotRunning as NotRunning,
    )
    from bluefog_pg._stats import stats as stats
    from bluefog_pg.barrier import monitored_barrier as monitored_barrier
    from bluefog_pg.flight import (
        flight_log as flight_log,
    )
    from bluefog_pg.flight import (
        write_flight_log as write_flight_log,
    )
    from bluefog_pg.neighbors import (
        hierarchical_neighbor_allreduce as hierarchical_neighbor_allreduce,
    )
    from bluefog_pg.neighbors import (
        neighbor_allgather as neighbor_allgather,
    )
    from bluefog_pg.neighbors import (
        neighbor_allreduce as neighbor_allreduce,
    )
    from bluefog_pg.neighbors import (
        neighbor_alltoall as neighbor_alltoall,
    )
    from bluefog_pg.neighbors import (
        pair_gossip as pair_gossip,
    )
    from bluefog_pg.optim import (
        DecentralizedDataParallel as DecentralizedDataParallel,
    )
    from bluefog_pg.optim import (
        DistributedOptimizer as DistributedOptimizer,
    )
    from bluefog_pg.optim import (
        allreduce_parameters as allreduce_parameters,
    )
    from bluefog_pg.optim import (
        broadcast_optimizer_state as broadcast_optimizer_state,
    )
    from bluefog_pg.optim import (
        broadcast_parameters as broadcast_parameters,
    )
    from bluefog_pg.start import (
        init as init,
    )
    from bluefog_pg.start import (
        shutdown as shutdown,
    )
    from bluefog_pg.topology import (
        in_neighbor_machine_ranks as in_neighbor_machine_ranks,
    )
    from bluefog_pg.topology import (
        in_neighbor_ranks as in_neighbor_ranks,
    )
    from bluefog_pg.topology import (
        is_machine_topo_weighted as is_machine_topo_weighted,
    )
    from bluefog_pg.topology import (
        is_topo_weighted as is_topo_weighted,
    )
    from bluefog_pg.topology import (
        load_machine_topology as load_machine_topology,
    )
    from bluefog_pg.topology import (
        load_topology as load_topology,
    )
    from bluefog_pg.topology import (
        out_neighbor_machine_ranks as out_neighbor_machine_ranks,
    )
    from bluefog_pg.topology import (
        out_neighbor_ranks as out_neighbor_ranks,
    )
    from bluefog_pg.topology import (
        set_machine_topology as set_machine_topology,
    )
    from bluefog_pg.topology import (
        set_topology as set_topology,
    )
    from bluefog_pg.windows import (
        Window as Window,
    )
    from bluefog_pg.windows import (
        get_current_created_window_names as get_current_created_window_names,
    )
    from bluefog_pg.windows import (
        get_win_version as get_win_version,
    )
    from bluefog_pg.windows import (
        neighbor_win_accumulate as neighbor_win_accumulate,
    )
    from bluefog_pg.windows import (
        neighbor_win_accumulate_nonblocking as neighbor_win_accumulate_nonblocking,
    )
    from bluefog_pg.windows import (
        neighbor_win_get as neighbor_win_get,
    )
    from bluefog_pg.windows import (
        neighbor_win_get_nonblocking as neighbor_win_get_nonblocking,
    )
    from bluefog_pg.windows import (
        neighbor_win_put as neighbor_win_put,
    )
    from bluefog_pg.windows import (
        neighbor_win_put_nonblocking as neighbor_win_put_nonblocking,
    )
    from bluefog_pg.windows import (
        turn_off_win_ops_with_associated_p as turn_off_win_ops_with_associated_p,
    )
    from bluefog_pg.windows import (
        turn_on_win_ops_with_associated_p as turn_on_win_ops_with_associated_p,
    )
    from bluefog_pg.windows import (
        win_accumulate as win_accumulate,
    )
    from bluefog_pg.windows import (
        win_accumulate_nonblocking as win_accumulate_nonblocking,
    )
    from bluefog_pg.windows import (
        win_associated_p as win_associated_p,
    )
    from bluefog_pg.windows import (
        win_create as win_create,
    )
    from bluefog_pg.windows import (
        win_fence as win_fence,
    )
    from bluefog_pg.windows import (
        win_free as win_free,
    )
    from bluefog_pg.windows import (
        win_get as win_get,
    )
    from bluefog_pg.windows import (
        win_get_nonblocking as win_get_nonblocking,
    )
    from bluefog_pg.windows import (
        win_lock as win_lock,
    )
    from bluefog_pg.windows import (
        win_mutex as win_mutex,
    )
    from bluefog_pg.windows import (
        win_poll as win_poll,
    )
    from bluefog_pg.windows import (
        win_put as win_put,
    )
    from bluefog_pg.windows import (
        win_put_nonblocking as win_put_nonblocking,
    )
    from bluefog_pg.windows import (
        win_read_neighbor as win_read_neighbor,
    )
    from bluefog_pg.windows import (
        win_update as win_update,
    )
    from bluefog_pg.windows import (
        win_update_then_collect as win_update_then_collect,
    )
    from bluefog_pg.windows import (
        win_wait as win_wait,
    )
    from bluefog_pg.windows import (
        window_stats as window_stats,
    )
    from bluefog_pg.world import (
        is_homogeneous as is_homogeneous,
    )
    from bluefog_pg.world import (
        local_rank as local_rank,
    )
    from bluefog_pg.world import (
        local_size as local_size,
    )
    from bluefog_pg.world import (
        machine_rank as machine_rank,
    )
    from bluefog_pg.world import (
        machine_size as machine_size,
    )
    from bluefog_pg.world import (
        rank as rank,
    )
    from bluefog_pg.world import (
        size as size,
    )

    __version__: str

_NAMES_IN = {
    "_C": (
        "Aborted",
        "CollectiveTimeout",
        "Mismatch",
        "PeerFailed",
        "ProcessGroupBluefog",
    ),
    "_errors": (
        "ArgumentError",
        "NotRunning",
    ),
    "barrier": ("monitored_barrier",),
    "flight": (
        "flight_log",
        "write_flight_log",
    ),
    "neighbors": (
        "hierarchical_neighbor_allreduce",
        "neighbor_allgather",
        "neighbor_allreduce",
        "neighbor_alltoall",
        "pair_gossip",
    ),
    "optim": (
        "DecentralizedDataParallel",
        "DistributedOptimizer",
        "allreduce_parameters",
        "broadcast_optimizer_state",
        "broadcast_parameters",
    ),
    "start": (
        "init",
        "shutdown",
    ),
    "_stats": ("stats",),
    "topology": (
        "in_neighbor_machine_ranks",
        "in_neighbor_ranks",
        "is_machine_topo_weighted",
        "is_topo_weighted",
        "load_machine_topology",
        "load_topology",
        "out_neighbor_machine_ranks",
        "out_neighbor_ranks",
        "set_machine_topology",
        "set_topology",
    ),
    "windows": (
        "Window",
        "get_current_created_window_names",
        "get_win_version",
        "neighbor_win_accumulate",
        "neighbor_win_accumulate_nonblocking",
        "neighbor_win_get",
        "neighbor_win_get_nonblocking",
        "neighbor_win_put",
        "neighbor_win_put_nonblocking",
        "turn_off_win_ops_with_associated_p",
        "turn_on_win_ops_with_associated_p",
        "win_accumulate",
        "win_accumulate_nonblocking",
        "win_associated_p",
        "win_create",
        "win_fence",
        "win_free",
        "win_get",
        "win_get_nonblocking",
        "win_lock",
        "win_mutex",
        "win_poll",
        "win_put",
        "win_put_nonblocking",
        "win_read_neighbor",
        "win_update",
        "win_update_then_collect",
        "win_wait",
        "window_stats",
    ),
    "world": (
        "is_homogeneous",
        "local_rank",
        "local_size",
        "machine_rank",
        "machine_size",
        "rank",
        "size",
    ),
}
_HOME = {name: home for home, names in _NAMES_IN.items() for name in names}

__all__ = sorted({*_HOME, "ddp_hooks", "functional", "optim", "topology_util"})


# Every `import torch` of this environment imports this package (see _autoload), so what a name
# needs is imported when the name is first used.
def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import version

        value = version("bluefog-pg")
    elif name in ("collectives", "ddp_hooks", "functional", "optim", "topology_util", "torch"):
        value = importlib.import_module(f"bluefog_pg.{name}")
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
