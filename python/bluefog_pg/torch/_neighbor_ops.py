"""This module has BlueFog's operations between neighbors.

Operations are counted for their name, and those without a name together. The k-th one of a rank
meets the k-th one of its neighbors (docs/failures.md).
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg import neighbors
from bluefog_pg._core.renamed import renamed
from bluefog_pg.topology.group_topology import in_neighbor_ranks
from bluefog_pg.torch._run import issued, of_work, one_name, waited_for

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor

    Weights = Mapping[int, float]
    Destinations = Mapping[int, float] | Sequence[int]


@renamed(neighbor_weights="src_weights", send_neighbors="dst_weights")
def neighbor_allreduce(
    tensor: Tensor,
    self_weight: float | None = None,
    src_weights: Weights | str | None = None,
    dst_weights: Destinations | str | None = None,
    enable_topo_check: bool = True,
    name: str | None = None,
    *,
    average: bool | None = None,
) -> Tensor:
    """Average with the in-neighbors, in a new tensor: x_i <- w_ii x_i + sum_j w_ij x_j.

    The call is differentiable, as `bluefog_pg.neighbor_allreduce` is. Earlier names of
    `src_weights` and `dst_weights` are `neighbor_weights` and `send_neighbors`. A string by
    position in the place of weights is the name.

    Args:
        tensor: any shape, floating or complex, the same shape on every rank that meets.
        self_weight: w_ii, a float. Needs `src_weights`.
        src_weights: {rank j: w_ij}; in-neighbors, unless `dst_weights` is given.
        dst_weights: the ranks that this one sends to in this call, or {rank: scale of what is
            sent}. Needs both others.
        enable_topo_check: where `dst_weights` is given, first ask all ranks whether they agree.
            All of them must make the call then, and it costs an all_gather, for which also
            `neighbor_allreduce_nonblocking` waits.
        name: the operation's name; only one of a name may be under way.
        average: comes from BlueFog's first version, in place of weights: False, the sum of the own
            tensor and those of the in-neighbors.

    Raises:
        ValueError: weights that do not go together, an int as `self_weight`, ranks that are no
            neighbors; ranks disagree; the name is taken; operations are suspended.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), float(bf.rank()))
        >>> for _ in range(20):
        ...     x = bf.neighbor_allreduce(x, name="x")
        >>> [round(number, 3) for number in x.tolist()]
        [1.5, 1.5]
    """
    weights, name = _weights_and_name(self_weight, src_weights, dst_weights, name, average)
    result: Tensor = waited_for(
        "neighbor.allreduce",
        name,
        lambda: neighbors.neighbor_allreduce(
            tensor, **weights, enable_topo_check=enable_topo_check, name=name
        ),
    )
    return result


@renamed(neighbor_weights="src_weights", send_neighbors="dst_weights")
def neighbor_allreduce_nonblocking(
    tensor: Tensor,
    self_weight: float | None = None,
    src_weights: Weights | str | None = None,
    dst_weights: Destinations | str | None = None,
    enable_topo_check: bool = True,
    name: str | None = None,
    *,
    average: bool | None = None,
) -> int:
    """Begin a `neighbor_allreduce`, and return a handle for `synchronize` and `poll`.

    The call is not differentiable. `tensor` must not change until the operation has ended.

    Args:
        tensor, self_weight, src_weights, dst_weights, enable_topo_check, name, average: as in
            `neighbor_allreduce`.

    Raises:
        The errors of `neighbor_allreduce`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> handle = bf.neighbor_allreduce_nonblocking(torch.ones(2), name="x")
        >>> [round(number, 3) for number in bf.synchronize(handle).tolist()]
        [1.0, 1.0]
    """
    weights, name = _weights_and_name(self_weight, src_weights, dst_weights, name, average)
    return issued(
        "neighbor.allreduce",
        name,
        lambda: (_of_list if isinstance(tensor, list | tuple) else of_work)(
            neighbors.neighbor_allreduce(
                tensor, **weights, enable_topo_check=enable_topo_check, name=name, async_op=True
            )
        ),
    )


def neighbor_allgather(
    tensor: Tensor,
    name: str | None = None,
    *,
    src_ranks: Iterable[int] | None = None,
    dst_ranks: Iterable[int] | None = None,
    enable_topo_check: bool = True,
) -> Tensor:
    """Return the in-neighbors' tensors one after the other, along the first dimension.

    This rank's own tensor is not among them. The call is differentiable, as
    `bluefog_pg.neighbor_allgather` is.

    Args:
        tensor: (rows, ...); ranks may have different numbers of rows.
        src_ranks: the ranks to receive from in this call, in the order of the result; None, the
            in-neighbors, ascending.
        dst_ranks: the ranks to send to in this call. Give both or none.
        enable_topo_check, name: as in `neighbor_allreduce`.

    Raises:
        ValueError: one of the two alone; bad ranks; a tensor without dimensions; ranks disagree;
            the name is taken; operations are suspended.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.neighbor_allgather(torch.tensor([bf.rank()])).tolist() == bf.in_neighbor_ranks()
        True
    """
    return waited_for(
        "neighbor.allgather",
        name,
        lambda: neighbors.neighbor_allgather(
            tensor,
            src_ranks=src_ranks,
            dst_ranks=dst_ranks,
            enable_topo_check=enable_topo_check,
            name=name,
        ),
    )


def neighbor_allgather_nonblocking(
    tensor: Tensor,
    name: str | None = None,
    *,
    src_ranks: Iterable[int] | None = None,
    dst_ranks: Iterable[int] | None = None,
    enable_topo_check: bool = True,
) -> int:
    """Begin a `neighbor_allgather`, and return a handle for `synchronize` and `poll`.

    The call is not differentiable. `tensor` must not change until the operation has ended.

    Args:
        tensor, name, src_ranks, dst_ranks, enable_topo_check: as in `neighbor_allgather`.

    Raises:
        The errors of `neighbor_allgather`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> handle = bf.neighbor_allgather_nonblocking(torch.tensor([bf.rank()]))
        >>> bf.synchronize(handle).tolist() == bf.in_neighbor_ranks()
        True
    """
    return issued(
        "neighbor.allgather",
        name,
        lambda: of_work(
            neighbors.neighbor_allgather(
                tensor,
                src_ranks=src_ranks,
                dst_ranks=dst_ranks,
                enable_topo_check=enable_topo_check,
                name=name,
                async_op=True,
            )
        ),
    )


@renamed(
    neighbor_machine_weights="src_machine_weights",
    send_neighbor_machines="dst_machine_weights",
)
def hierarchical_neighbor_allreduce(
    tensor: Tensor,
    self_weight: float | None = None,
    src_machine_weights: Weights | None = None,
    dst_machine_weights: Destinations | None = None,
    enable_topo_check: bool | None = False,
    name: str | None = None,
) -> Tensor:
    """Average the machines' means with those of in-neighbor machines, in a new tensor.

    The call is differentiable, as `bluefog_pg.hierarchical_neighbor_allreduce` is.

    Args:
        tensor: as in `neighbor_allreduce`.
        self_weight, src_machine_weights, dst_machine_weights: as there, for machines; all three or
            none, the same on all ranks of a machine.
        enable_topo_check: as in `bluefog_pg.hierarchical_neighbor_allreduce`.
        name: as in `neighbor_allreduce`.

    Raises:
        RuntimeError: neither are there weights nor was a topology set by `set_machine_topology`.
        ArgumentError: machines of one rank, or of different numbers (a ValueError and an
            AssertionError).
        ValueError: as in `neighbor_allreduce`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), float(bf.rank()))
        >>> other = 1 - bf.machine_rank()  # There are two machines of two ranks each.
        >>> bf.hierarchical_neighbor_allreduce(
        ...     x, self_weight=0.5, src_machine_weights={other: 0.5}, dst_machine_weights=[other]
        ... ).tolist()
        [1.5, 1.5]
    """
    return waited_for(
        "hierarchical.neighbor.allreduce",
        name,
        lambda: neighbors.hierarchical_neighbor_allreduce(
            tensor,
            self_weight=self_weight,
            src_machine_weights=src_machine_weights,
            dst_machine_weights=dst_machine_weights,
            enable_topo_check=bool(enable_topo_check),
            name=name,
        ),
    )


@renamed(
    neighbor_machine_weights="src_machine_weights",
    send_neighbor_machines="dst_machine_weights",
)
def hierarchical_neighbor_allreduce_nonblocking(
    tensor: Tensor,
    self_weight: float | None = None,
    src_machine_weights: Weights | None = None,
    dst_machine_weights: Destinations | None = None,
    enable_topo_check: bool | None = False,
    name: str | None = None,
) -> int:
    """Begin a `hierarchical_neighbor_allreduce`, and return a handle for `synchronize` and `poll`.

    The call is not differentiable. `tensor` must not change until the operation has ended.

    Args:
        tensor, self_weight, src_machine_weights, dst_machine_weights, enable_topo_check, name: as
            in `hierarchical_neighbor_allreduce`.

    Raises:
        The errors of `hierarchical_neighbor_allreduce`; those of ranks that disagree come in
        `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.set_machine_topology(bf.RingGraph(bf.machine_size()))
        True
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.synchronize(bf.hierarchical_neighbor_allreduce_nonblocking(x)).tolist()
        [1.5, 1.5]
    """
    return issued(
        "hierarchical.neighbor.allreduce",
        name,
        lambda: of_work(
            neighbors.hierarchical_neighbor_allreduce(
                tensor,
                self_weight=self_weight,
                src_machine_weights=src_machine_weights,
                dst_machine_weights=dst_machine_weights,
                enable_topo_check=bool(enable_topo_check),
                name=name,
                async_op=True,
            )
        ),
    )


def pair_gossip(
    tensor: Tensor,
    target_rank: int,
    self_weight: float | None = None,
    pair_weight: float | None = None,
    name: str | None = None,
) -> Tensor:
    """Average with one rank, which calls this with ours: x <- self_weight x + pair_weight y.

    The call is differentiable, as `bluefog_pg.pair_gossip` is.

    Args:
        tensor: as in `neighbor_allreduce`.
        target_rank: the other rank, in the topology or not.
        self_weight, pair_weight: both, or none for the mean of the two.
        name: as in `neighbor_allreduce`.

    Raises:
        ValueError: one of the weights alone; a bad rank; the two disagree; the name is taken;
            operations are suspended.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.pair_gossip(torch.full((2,), float(bf.rank())), bf.size() - 1 - bf.rank()).tolist()
        [1.5, 1.5]
    """
    return waited_for(
        "pair.gossip",
        name,
        lambda: neighbors.pair_gossip(
            tensor, target_rank, self_weight=self_weight, pair_weight=pair_weight, name=name
        ),
    )


def pair_gossip_nonblocking(
    tensor: Tensor,
    target_rank: int,
    self_weight: float | None = None,
    pair_weight: float | None = None,
    name: str | None = None,
) -> int:
    """Begin a `pair_gossip`, and return a handle for `synchronize` and `poll`.

    The call is not differentiable. `tensor` must not change until the operation has ended.

    Args:
        tensor, target_rank, self_weight, pair_weight, name: as in `pair_gossip`.

    Raises:
        The errors of `pair_gossip`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.synchronize(bf.pair_gossip_nonblocking(x, bf.size() - 1 - bf.rank())).tolist()
        [1.5, 1.5]
    """
    return issued(
        "pair.gossip",
        name,
        lambda: (_of_list if isinstance(tensor, list | tuple) else of_work)(
            neighbors.pair_gossip(
                tensor,
                target_rank,
                self_weight=self_weight,
                pair_weight=pair_weight,
                name=name,
                async_op=True,
            )
        ),
    )


def _weights_and_name(
    self_weight: Any, src_weights: Any, dst_weights: Any, name: str | None, average: bool | None
) -> tuple[dict[str, Any], str | None]:
    """Return what `neighbors.neighbor_allreduce` takes, from what any version of BlueFog takes.

    The positions have changed: `name` was the third argument, and then the fourth. Before there
    were weights, the second argument was `average`.
    """
    if isinstance(self_weight, bool):
        self_weight, average = None, self_weight
    if isinstance(src_weights, str):
        src_weights, name = None, one_name("neighbor_allreduce", src_weights, name)
    if isinstance(dst_weights, str):
        dst_weights, name = None, one_name("neighbor_allreduce", dst_weights, name)
    if average is not None and any(w is not None for w in (self_weight, src_weights, dst_weights)):
        raise ValueError("[bluefog] neighbor_allreduce: give either `average` or weights, not both")
    if average is False:
        self_weight, src_weights = 1.0, dict.fromkeys(in_neighbor_ranks(), 1.0)
    weights = {
        "self_weight": _float(self_weight),
        "src_weights": src_weights,
        "dst_weights": dst_weights,
    }
    return weights, name


def _float(self_weight: Any) -> Any:
    """Return a float as it is; raise ValueError for an int, as BlueFog does: it may be a rank."""
    if isinstance(self_weight, numbers.Integral):
        raise ValueError(  # noqa: TRY004 - BlueFog raises this type.
            f"[bluefog] neighbor_allreduce: self_weight must be a float, not {self_weight!r}"
        )
    return self_weight


def _of_list(work: dist.Work) -> tuple[dist.Work, Any]:
    return work, work.result
