# This file lists the names of the package. `_core/lazy.py` reads in it where each comes from.
# ruff: noqa: I001 isort would make one statement for each name.

from bluefog_pg import (
    ddp_hooks as ddp_hooks,
    functional as functional,
    notebook as notebook,
    optim as optim,
    topology_util as topology_util,
)
from bluefog_pg._C import (
    Aborted as Aborted,
    CollectiveTimeout as CollectiveTimeout,
    Mismatch as Mismatch,
    PeerFailed as PeerFailed,
    ProcessGroupBluefog as ProcessGroupBluefog,
)
from bluefog_pg._core.errors import (
    ArgumentError as ArgumentError,
    NotRunning as NotRunning,
)
from bluefog_pg._core.stats import stats as stats
from bluefog_pg.collectives.barriers import monitored_barrier as monitored_barrier
from bluefog_pg.tools.flight import (
    flight_log as flight_log,
    write_flight_log as write_flight_log,
)
from bluefog_pg.neighbors import (
    align as align,
    hierarchical_neighbor_allreduce as hierarchical_neighbor_allreduce,
    neighbor_allgather as neighbor_allgather,
    neighbor_allreduce as neighbor_allreduce,
    neighbor_alltoall as neighbor_alltoall,
    pair_gossip as pair_gossip,
)
from bluefog_pg.optim import (
    DecentralizedDataParallel as DecentralizedDataParallel,
    DistributedOptimizer as DistributedOptimizer,
    allreduce_parameters as allreduce_parameters,
    broadcast_optimizer_state as broadcast_optimizer_state,
    broadcast_parameters as broadcast_parameters,
)
from bluefog_pg.launch.lifecycle import (
    init as init,
    shutdown as shutdown,
)
from bluefog_pg.topology.group_topology import (
    in_neighbor_machine_ranks as in_neighbor_machine_ranks,
    in_neighbor_ranks as in_neighbor_ranks,
    is_machine_topo_weighted as is_machine_topo_weighted,
    is_topo_weighted as is_topo_weighted,
    load_machine_topology as load_machine_topology,
    load_topology as load_topology,
    out_neighbor_machine_ranks as out_neighbor_machine_ranks,
    out_neighbor_ranks as out_neighbor_ranks,
    set_machine_topology as set_machine_topology,
    set_topology as set_topology,
)
from bluefog_pg.windows import (
    Window as Window,
    window_stats as window_stats,
)
from bluefog_pg.launch.world import (
    is_homogeneous as is_homogeneous,
    local_rank as local_rank,
    local_size as local_size,
    machine_rank as machine_rank,
    machine_size as machine_size,
    rank as rank,
    size as size,
)

__version__: str
