"""This module returns and writes the last operations of this process's groups.

torch's flight recorder takes no operations of other backends than torch's own before torch 2.15,
and those between neighbors not there either.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.groups import backend_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from bluefog_pg._C import ProcessGroupBluefog

# torch 2.13 reads dumps of this version.
VERSION = "2.10"


def flight_log() -> dict[str, Any]:
    """Return the last 1,024 operations of each bluefog group of this process.

    Returns:
        "version", "pg_config" ({group name: {"name", "desc", "ranks"}}) and "entries", a list of
        dicts with the fields of torch's flight recorder, the oldest first; "state" is "scheduled",
        "completed" or "failed".

    Example:
        >>> _ = bf.neighbor_allreduce(torch.ones(3), name="x")
        >>> last = bf.flight_log()["entries"][-1]
        >>> last["profiling_name"], last["state"]
        ('bluefog:neighbor_allreduce', 'completed')
    """
    entries: list[dict[str, Any]] = []
    config: dict[str, dict[str, str]] = {}
    for group, backend in _groups():
        name, desc = group.group_name, group.group_desc
        ranks = list(backend.options.global_ranks_in_group)
        config[name] = {"name": name, "desc": desc, "ranks": str(ranks)}
        entries += [
            {**entry, "pg_id": int(name) if name.isdigit() else 0, "process_group": (name, desc)}
            for entry in backend.flight_log()
        ]
    entries.sort(key=lambda entry: (entry["time_created_ns"], entry["record_id"]))
    return {"version": VERSION, "pg_config": config, "entries": entries}


def write_flight_log(prefix: str | os.PathLike[str]) -> Path:
    """Write this rank's log to the file `prefix` + its global rank, for torch's analyzer.

    `python -m torch.distributed.flight_recorder.fr_trace --prefix NAME FOLDER` reads the files of
    all ranks. It knows torch's own backends and operations only, and takes a single message for a
    collective that the other ranks do not join. So the entries say "gloo:", and messages, neighbor
    operations and sparse reductions are left out.

    Args:
        prefix: the folder and the beginning of the file's name.

    Returns:
        The file's path.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = bf.write_flight_log(f"{folder}/log_")
        ...     path.name == f"log_{bf.rank()}"
        True
    """
    import torch.distributed as dist

    log = flight_log()
    me = dist.get_rank()
    log["entries"] = [told for entry in log["entries"] for told in _for_analyzer(entry)]
    path = Path(f"{prefix}{me}")
    path.write_bytes(pickle.dumps(log))
    return path


def _for_analyzer(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from torch.distributed.flight_recorder.components.types import COLLECTIVES

    name = entry["profiling_name"].removeprefix("bluefog:")
    if name not in COLLECTIVES:
        return
    state = {"failed": "started"}.get(entry["state"], entry["state"])
    changed: dict[str, Any] = {
        "profiling_name": f"gloo:{name}",
        "state": state,
        "frames": [],
    }
    for side in ("input_sizes", "output_sizes"):
        if len(entry[side]) > 1:  # The analyzer takes a list of tensors for one tensor.
            changed[side] = [[sum(math.prod(sizes) for sizes in entry[side])]]
    yield {**entry, **changed}


def _groups() -> Iterator[tuple[Any, ProcessGroupBluefog]]:
    from torch.distributed import distributed_c10d

    for group in list(distributed_c10d._world.pg_map):
        try:
            yield group, backend_of(group)
        except (TypeError, RuntimeError):  # The group has another backend, or other devices only.
            continue
