"""The creator: what torch.distributed calls for each group whose backend is "bluefog"."""

from __future__ import annotations

import copy
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bluefog_pg._C import ProcessGroupBluefog


def create(opts: Any, pg_options: Any = None) -> ProcessGroupBluefog:
    """Build this process's member of the group that `opts` describes.

    Args:
        opts: c10d's `_DistributedBackendOptions`. Its timeout is the group's; where the caller left
            that at torch's default, a timeout set in `pg_options` holds instead.
        pg_options: `ProcessGroupBluefog.Options`, or None for the defaults.

    Raises:
        TypeError: `pg_options` belongs to another backend.
    """
    from torch.distributed.constants import default_pg_timeout

    from bluefog_pg._loader import load

    cls = load().ProcessGroupBluefog
    defaults = cls.Options()
    if pg_options is None:
        options = defaults
    elif isinstance(pg_options, cls.Options):
        # A copy: the caller may pass one object to several groups, each with a name of its own.
        options = copy.deepcopy(pg_options)
    else:
        raise TypeError(
            'pg_options for backend "bluefog" must be bluefog_pg.ProcessGroupBluefog.Options or '
            f"None, not {type(pg_options).__module__}.{type(pg_options).__qualname__}"
        )
    if opts.timeout != default_pg_timeout or options._timeout == defaults._timeout:
        options._timeout = opts.timeout
    options.group_name = opts.group_id
    # torch gives the default group no list of ranks.
    options.global_ranks_in_group = list(opts.global_ranks_in_group) or list(range(opts.group_size))
    try:
        group: ProcessGroupBluefog = cls(opts.store, opts.group_rank, opts.group_size, options)
    except BaseException:
        _forget_failed_default_group()
        raise
    for module in ("functional", "_collective_ops"):  # torch.ops.bluefog
        importlib.import_module(f"bluefog_pg.{module}")
    return group


def _forget_failed_default_group() -> None:
    # torch has counted the group already, and counts anew only in destroy_process_group. The count
    # is part of the store's keys: where init fails on some ranks alone, their next try would look
    # for the others under another name.
    from torch.distributed import distributed_c10d

    if not distributed_c10d.is_initialized():
        distributed_c10d._world.group_count = 0
