"""Ranks 1 and 3 say in golden words that their calls do not match."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.messages import golden
from tests.support.messages.bodies import Labeled, after_the_others, group_of, pair, telling
from tests.support.messages.calls import (
    Call,
    all_gather,
    all_gather_list,
    all_reduce,
    average,
    barrier,
    broadcast,
    exchange,
    gather,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
)
from tests.support.messages.tensors import LARGE, f, sparse

# Each name has what rank 1 calls and what rank 3 calls, in a group of the two.
PAIRS: dict[str, tuple[Call, Call]] = {
    "counts": (all_reduce(f(4)), all_reduce(f(5))),
    "dtypes": (all_reduce(f(4)), all_reduce(f(4, dtype=torch.float64))),
    "half types": (all_reduce(f(4, dtype=torch.float16)), all_reduce(f(4, dtype=torch.bfloat16))),
    "small and large": (all_reduce(f(2)), all_reduce(f(LARGE))),
    "large": (all_reduce(f(LARGE + 1)), all_reduce(f(LARGE))),
    "empty": (all_reduce(f(0)), all_reduce(f(3))),
    "operators": (all_reduce(f(4)), all_reduce(f(4), dist.ReduceOp.MAX)),
    "average": (
        all_reduce(f(4), dist.ReduceOp.AVG),
        all_reduce(f(4), dist._make_nccl_premul_sum(2.0)),
    ),
    "complex": (all_reduce(f(4, dtype=torch.complex64)), all_reduce(f(4))),
    "sparse shapes": (all_reduce(sparse(3)), all_reduce(sparse(4))),
    "sparse folded": (all_reduce(sparse(4)), all_reduce(f(2, 8).to_sparse())),
    "sparse and dense": (all_reduce(sparse(3)), all_reduce(f(9))),
    "broadcast roots": (broadcast(f(4), 0), broadcast(f(4), 1)),
    "broadcast counts": (broadcast(f(4)), broadcast(f(6))),
    "broadcast float8": (
        broadcast(f(4, dtype=torch.float8_e4m3fn)),
        broadcast(f(4, dtype=torch.float8_e5m2)),
    ),
    "reduce roots": (reduce(f(4), 1), reduce(f(4), 0)),
    "reduce operators": (reduce(f(4), 0), reduce(f(4), 0, dist.ReduceOp.MIN)),
    "all_reduce and barrier": (all_reduce(f(4)), barrier),
    "all_reduce and broadcast": (all_reduce(f(4)), broadcast(f(4))),
    "all_reduce and reduce": (all_reduce(f(4)), reduce(f(4), 0)),
    "all_gather and reduce_scatter": (all_gather(5), reduce_scatter(5, 5)),
    "all_gather counts": (all_gather(5), all_gather(6)),
    "all_gather lists": (all_gather_list(3, [3, 5]), all_gather_list(4, [4, 4])),
    "reduce_scatter counts": (reduce_scatter(5, 5), reduce_scatter(7, 7)),
    "reduce_scatter splits": (reduce_scatter(5, 3), reduce_scatter(4, 4)),
    "gather roots": (gather(0, 3, [3, 3]), gather(1, 3, [3, 3])),
    "gather dtypes": (gather(0, 3, [3, 3]), gather(0, 3, dtype=torch.int32)),
    "gather and scatter": (gather(0, 3, [3, 3]), scatter(0, 3)),
    "all_to_all and barrier": (exchange([1, 1], [1, 1]), barrier),
    "all_to_all dtypes": (exchange([1, 1], [1, 1]), exchange([1, 1], [1, 1], torch.int64)),
    "all_reduce and averaging": (all_reduce(f(4)), average(f(4))),
    "averaging and barrier": (average(f(LARGE)), barrier),
    "broadcast and recv": (broadcast(f(4), 1), recv(f(4), 0)),
    "all_gather and large send": (all_gather(5), send(f(LARGE), 0)),
    "averaging counts": (average(f(4)), average(f(6))),
    "averaging dtypes": (average(f(4)), average(f(4, dtype=torch.float64))),
    "monitored_barrier and all_reduce": (monitored_barrier(20), all_reduce(f(4))),
    "large message": (send(f(LARGE), 1), recv(f(LARGE - 1), 0)),
}
# In these calls only rank 3 can know: rank 1 gives it something else than it expects.
ONE_SIDED: dict[str, tuple[Call, Call]] = {
    "gather size": (gather(1, 4), gather(1, 3, [5, 3])),
    "scatter size": (scatter(0, 3, [3, 4]), scatter(0, 3)),
    "all_to_all size": (exchange([1, 1], [1, 4]), exchange([2, 1], [1, 1])),
    "message size": (send(f(4), 1), recv(f(3), 0)),
    "message dtype": (send(f(4), 1), recv(f(4, dtype=torch.int32), 0)),
    "message from anywhere": (send(f(4), 1), recv(f(5))),
}
# For these, the call after the one that failed is told as well.
AGAIN = ("counts", "sparse shapes", "all_reduce and averaging")


@telling
def disagree(rank: int, world: int) -> Iterator[Labeled]:
    for name, (of_one, of_three) in (PAIRS | ONE_SIDED).items():
        with pair() as group:
            if rank in (1, 3):
                error = inrank.catch(of_one if rank == 1 else of_three, group)
                if rank == 3 or name in PAIRS:
                    yield f"{name}, rank {rank}", error
                if name in AGAIN:
                    yield f"{name}, rank {rank} again", inrank.catch(barrier, group)


@telling
def refuse_late(rank: int, world: int) -> Iterator[Labeled]:
    """A small send is over before it is refused, so the call after the next hears of it."""
    with pair() as group:
        if rank == 1:
            send(f(4), 1)(group)
        dist.barrier()
        if rank == 3:
            inrank.catch(recv(f(5), 0), group)
        dist.barrier()
        if rank == 1:
            recv(f(1), 1)(group)
            yield "a send before", inrank.catch(send(f(1), 1), group)
        if rank == 3:
            send(f(1), 0)(group)


@telling
def come_to_a_mismatch(rank: int, world: int) -> Iterator[Labeled]:
    """Ranks 0 and 1 disagree, and ranks 2 and 3 come later."""
    with group_of() as group, after_the_others(rank >= 2):
        yield f"of four, rank {rank}", inrank.catch(all_reduce(f(4 + (rank == 1))), group)


def test_messages(pool: harness.Pool) -> None:
    bodies = (disagree, refuse_late, come_to_a_mismatch)
    golden.agree("mismatches", (told for body in bodies for told in pool.run(body, timeout=90)))
