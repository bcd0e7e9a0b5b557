"""This module makes groups: torch.distributed calls `create` for each with backend "bluefog"."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bluefog_pg._C import ProcessGroupBluefog, ProcessGroupReconfigurable
    from bluefog_pg._core.accelerator import Accelerator


def create(opts: Any, pg_options: Any = None) -> ProcessGroupBluefog | ProcessGroupReconfigurable:
    """Build this process's member of the group that `opts` describes.

    Args:
        opts: c10d's `_DistributedBackendOptions`. Its timeout is the group's; where the caller left
            that at torch's default, a timeout set in `pg_options` holds instead.
        pg_options: `ProcessGroupBluefog.Options`, or those of the accelerator's backend (on GPUs,
            `ProcessGroupNCCL.Options`), or None for the defaults.

    Raises:
        TypeError: `pg_options` belongs to another backend.
    """
    from torch.distributed.constants import default_pg_timeout

    from bluefog_pg._core import accelerator as accelerators
    from bluefog_pg._core import backend as backends
    from bluefog_pg._core.loader import load

    cls = load().ProcessGroupBluefog
    accelerator = accelerators.found()
    options, inner_options = _options(cls, accelerator, pg_options)
    if opts.timeout != default_pg_timeout or options._timeout == cls.Options()._timeout:
        options._timeout = opts.timeout
    options.group_name = opts.group_id
    # torch gives the default group no list of ranks.
    options.global_ranks_in_group = list(opts.global_ranks_in_group) or list(range(opts.group_size))
    place = opts.store, opts.group_rank, opts.group_size
    group: ProcessGroupBluefog | ProcessGroupReconfigurable
    try:
        if getattr(opts, "enable_reconfigure", False):  # torch 2.13 has no such option.
            group = backends.make_reconfigurable(*place, options, accelerator, inner_options)
        else:
            source = accelerators.split_source(opts, accelerator) if accelerator else None
            group = backends.make(*place, options, accelerator, inner_options, source=source)
    except BaseException:
        _forget_failed_default_group()
        raise
    from bluefog_pg import functional  # noqa: F401 These two define torch.ops.bluefog.
    from bluefog_pg.collectives import operators  # noqa: F401

    return group


def _options(
    cls: type[ProcessGroupBluefog], accelerator: Accelerator | None, given: Any
) -> tuple[ProcessGroupBluefog.Options, Any]:
    """Return our backend's options and those of the accelerator's; a program may give either."""
    from bluefog_pg._core.accelerator import options_class

    inner: Any = options_class(accelerator) if accelerator else None
    if inner and isinstance(given, inner):
        options = cls.Options()
        options._timeout = given._timeout
        return options, given
    if given is None:
        return cls.Options(), None
    if isinstance(given, cls.Options):
        # The caller may pass one object to several groups, each of which writes its own name there.
        return copy.deepcopy(given), None
    also = f", {inner.__qualname__}" if inner else ""
    raise TypeError(
        f'pg_options for backend "bluefog" must be bluefog_pg.ProcessGroupBluefog.Options{also} or '
        f"None, not {type(given).__module__}.{type(given).__qualname__}"
    )


def _forget_failed_default_group() -> None:
    # torch has counted the group already, and starts to count anew only in destroy_process_group.
    # The count is part of the store's keys. If init fails on some ranks alone, their next try would
    # look for the others under another name.
    from torch.distributed import distributed_c10d

    if not distributed_c10d.is_initialized():
        distributed_c10d._world.group_count = 0
