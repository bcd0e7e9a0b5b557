# tests/test_stub.py holds this file against the module.

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, overload

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Store

class PeerFailed(dist.DistBackendError):
    ranks: list[int]

class CollectiveTimeout(dist.DistBackendError):
    ranks: list[int]

class Mismatch(dist.DistBackendError, ValueError):
    ranks: list[int]

class Aborted(dist.DistBackendError):
    ranks: list[int]

class BatchWork(dist.Work):
    def __init__(self, works: Sequence[dist.Work]) -> None: ...
    def result(self) -> list[torch.Tensor]: ...

class AcceleratorWork(dist.Work):
    def result(self) -> list[torch.Tensor]: ...

class WorkBluefog(dist.Work):
    def result(self) -> list[torch.Tensor]: ...

class Edges:
    @property
    def self_weight(self) -> float: ...
    @property
    def sources(self) -> list[tuple[int, float]]: ...
    @property
    def destinations(self) -> list[tuple[int, float]]: ...
    @property
    def divisor(self) -> float: ...

class ProcessGroupBluefog(Backend):
    class Options(Backend.Options):
        accelerator: str
        def __init__(self) -> None: ...
        def __deepcopy__(self, memo: dict[int, object], /) -> ProcessGroupBluefog.Options: ...

    def __init__(
        self, store: Store, rank: int, size: int, options: ProcessGroupBluefog.Options
    ) -> None: ...
    def edges(
        self,
        self_weight: float,
        sources: Sequence[tuple[int, float]],
        destinations: Sequence[tuple[int, float]],
        divisor: float,
    ) -> Edges: ...
    def neighbor_allreduce(
        self,
        tensors: torch.Tensor | list[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: bool,
        /,
    ) -> torch.Tensor | list[torch.Tensor] | WorkBluefog | None: ...
    def pair_gossip(
        self,
        tensors: torch.Tensor | list[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: bool,
        /,
    ) -> torch.Tensor | list[torch.Tensor] | WorkBluefog | None: ...
    @overload
    def neighbor_allgather(
        self, tensor: torch.Tensor, edges: Edges, tag: int, async_op: Literal[False]
    ) -> torch.Tensor: ...
    @overload
    def neighbor_allgather(
        self, tensor: torch.Tensor, edges: Edges, tag: int, async_op: bool
    ) -> torch.Tensor | WorkBluefog: ...
    @overload
    def neighbor_allgather_in_parts(
        self,
        like: torch.Tensor,
        parts: Sequence[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: Literal[False],
    ) -> list[torch.Tensor]: ...
    @overload
    def neighbor_allgather_in_parts(
        self,
        like: torch.Tensor,
        parts: Sequence[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: bool,
    ) -> list[torch.Tensor] | WorkBluefog: ...
    @overload
    def allgather_in_parts(
        self,
        like: torch.Tensor,
        parts: Sequence[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: Literal[False],
    ) -> list[torch.Tensor]: ...
    @overload
    def allgather_in_parts(
        self,
        like: torch.Tensor,
        parts: Sequence[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: bool,
    ) -> list[torch.Tensor] | WorkBluefog: ...
    @overload
    def neighbor_alltoall(
        self,
        like: torch.Tensor,
        parts: Sequence[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: Literal[False],
    ) -> list[torch.Tensor]: ...
    @overload
    def neighbor_alltoall(
        self,
        like: torch.Tensor,
        parts: Sequence[torch.Tensor],
        edges: Edges,
        tag: int,
        async_op: bool,
    ) -> list[torch.Tensor] | WorkBluefog: ...
    @overload
    def hierarchical_neighbor_allreduce(
        self,
        tensor: torch.Tensor,
        locals: Sequence[int],
        between: Edges,
        tag: int,
        async_op: Literal[False],
    ) -> torch.Tensor: ...
    @overload
    def hierarchical_neighbor_allreduce(
        self, tensor: torch.Tensor, locals: Sequence[int], between: Edges, tag: int, async_op: bool
    ) -> torch.Tensor | WorkBluefog: ...
    def perform_nocolor_split(self, device: torch.device) -> None: ...
    def flight_log(self) -> list[dict[str, Any]]: ...
    def _set_default_timeout(self, timeout: timedelta) -> None: ...
    @property
    def options(self) -> ProcessGroupBluefog.Options: ...
    @property
    def hosts(self) -> list[list[int]]: ...
    @property
    def bytes_sent(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def operations_issued(self) -> int: ...

class ProcessGroupComposed(ProcessGroupBluefog):
    def __getattr__(self, name: str) -> Any: ...
    def set_accelerator(self, device: str, backend: Backend, plugin: str) -> None: ...
    @property
    def plugin_reason(self) -> str: ...
    @property
    def accelerator_backend(self) -> Backend: ...

class MessageKernels:
    def __init__(self, plugin: str) -> None: ...
    @property
    def reason(self) -> str: ...
    def narrow(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor: ...
    def widen(
        self, message: torch.Tensor, dtype: torch.dtype, like: torch.Tensor
    ) -> torch.Tensor: ...
    def quantize(self, tensor: torch.Tensor, block: int) -> torch.Tensor: ...
    def dequantize(self, message: torch.Tensor, like: torch.Tensor, block: int) -> torch.Tensor: ...
    def pick_largest(self, tensor: torch.Tensor, count: int) -> torch.Tensor: ...
    def scatter(self, message: torch.Tensor, like: torch.Tensor) -> torch.Tensor: ...

def start_mpi(limit: timedelta) -> None: ...

class PmixClient:
    def __init__(self, library: str) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    def publish(self, key: str, text: str) -> None: ...
    def look(self, rank: int, key: str, limit: timedelta) -> str | None: ...
    def leave(self) -> None: ...

def shutdown_all() -> None: ...
def leave_launcher() -> None: ...

class SlotState:
    @property
    def version(self) -> int: ...
    @property
    def changes(self) -> int: ...
    @property
    def age(self) -> float: ...
    @property
    def p(self) -> float: ...
    @property
    def has_ended(self) -> bool: ...

class SentTo:
    @property
    def puts(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def dropped(self) -> int: ...

class WindowWork:
    def is_completed(self) -> bool: ...
    def wait(self) -> None: ...

class WindowBluefog:
    def __init__(
        self,
        group: ProcessGroupBluefog,
        name: str,
        tensor: torch.Tensor,
        is_fresh: bool,
        drops: bool,
        sources: Sequence[int],
    ) -> None: ...
    @property
    def place(self) -> tuple[int, int]: ...
    @property
    def tensor(self) -> torch.Tensor: ...
    @property
    def p(self) -> float: ...
    @property
    def ticket(self) -> bytes: ...
    def reach_out(
        self, tickets: Sequence[bytes], sources: Sequence[Sequence[int]]
    ) -> tuple[list[int], list[int], str]: ...
    def open(
        self,
        number: int,
        places: Sequence[tuple[int, int]],
        zero_init: bool,
        writers: Sequence[int],
        owners: Sequence[int],
    ) -> None: ...
    def put(
        self,
        tensor: torch.Tensor,
        destinations: Sequence[tuple[int, float]],
        accumulate: bool,
        require_mutex: bool,
        with_p: bool,
        async_op: bool,
    ) -> WindowWork | None: ...
    def get(
        self,
        sources: Sequence[tuple[int, float]],
        require_mutex: bool,
        with_p: bool,
        async_op: bool,
    ) -> WindowWork | None: ...
    def flush(self, op: str) -> None: ...
    def update(
        self,
        self_weight: float,
        sources: Sequence[tuple[int, float]],
        reset: bool,
        clone: bool,
        require_mutex: bool,
        with_p: bool,
    ) -> torch.Tensor: ...
    def read(self, writer: int, require_mutex: bool) -> torch.Tensor: ...
    def multiply_p(self, factor: float) -> None: ...
    def sent(self) -> dict[int, SentTo]: ...
    def states(self, writers: Sequence[int]) -> dict[int, SlotState]: ...
    def close(self, op: str) -> None: ...
    def reopen(self) -> None: ...
    def note_freed(self) -> None: ...
    def abandon(self) -> None: ...

class Exclusion:
    def __init__(self, window: WindowBluefog, edges: Sequence[tuple[int, int]]) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
