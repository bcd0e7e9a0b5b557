"""torch.ops.bluefog.*: what Python's functions give, gradients too, and also in compiled models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

import harness
import inrank
import oracle
import stack
from operations import Group, ready_group

pytestmark = harness.only_bluefog

RANKS = 2
Calls = tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]


def forms(rank: int, group: Group) -> dict[str, Calls]:
    """Each call as torch.ops.bluefog has it, and as bluefog_pg does."""
    import bluefog_pg as bf

    ops, name, peer = torch.ops.bluefog, group.group_name, 1 - rank
    weights: dict[str, Any] = {"self_weight": 0.25 + rank, "src_weights": {peer: -0.5}}
    listed: dict[str, Any] = {
        "self_weight": 0.25 + rank,
        "src_ranks": [peer],
        "src_weights": [-0.5],
    }
    machines: dict[str, Any] = {"src_machine_weights": {}, "dst_machine_weights": []}
    listed_machines: dict[str, Any] = {
        "src_machine_ranks": [],
        "src_machine_weights": [],
        "dst_machine_ranks": [],
    }
    ranks = {"src_ranks": [peer], "dst_ranks": [peer]}
    return {
        "average": (
            lambda x: ops.neighbor_allreduce(x, group_name=name),
            lambda x: bf.neighbor_allreduce(x, group=group),
        ),
        "average of the default group": (ops.neighbor_allreduce, bf.neighbor_allreduce),
        "weighted average": (
            lambda x: ops.neighbor_allreduce(x, **listed, group_name=name),
            lambda x: bf.neighbor_allreduce(x, **weights, group=group),
        ),
        "dynamic average": (
            lambda x: ops.neighbor_allreduce(x, **listed, dst_ranks=[peer], dst_weights=[3.0]),
            lambda x: bf.neighbor_allreduce(x, **weights, dst_weights={peer: 3.0}),
        ),
        "gather": (
            lambda x: ops.neighbor_allgather(x, group_name=name),
            lambda x: bf.neighbor_allgather(x, group=group),
        ),
        "dynamic gather": (
            lambda x: ops.neighbor_allgather(x, **ranks),
            lambda x: bf.neighbor_allgather(x, **ranks),
        ),
        "alltoall": (
            lambda x: ops.neighbor_alltoall([2 * x], group_name=name)[0],
            lambda x: bf.neighbor_alltoall([2 * x], group=group)[0],
        ),
        "dynamic alltoall": (
            lambda x: ops.neighbor_alltoall([x], **ranks)[0],
            lambda x: bf.neighbor_alltoall([x], **ranks)[0],
        ),
        "gossip": (
            lambda x: ops.pair_gossip(x, peer, group_name=name),
            lambda x: bf.pair_gossip(x, peer, group=group),
        ),
        "weighted gossip": (
            lambda x: ops.pair_gossip(x, peer, self_weight=0.75, pair_weight=0.5 - rank),
            lambda x: bf.pair_gossip(x, peer, self_weight=0.75, pair_weight=0.5 - rank),
        ),
        "machines": (
            lambda x: ops.hierarchical_neighbor_allreduce(x, group_name=name),
            lambda x: bf.hierarchical_neighbor_allreduce(x, group=group),
        ),
        "weighted machines": (
            lambda x: ops.hierarchical_neighbor_allreduce(
                x, self_weight=0.5, **listed_machines, group_name=name
            ),
            lambda x: bf.hierarchical_neighbor_allreduce(
                x, self_weight=0.5, **machines, group=group
            ),
        ),
    }


class Net(nn.Module):
    """With a call between its layers."""

    def __init__(self, call: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layers, self.call = stack.mlp(), call

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.layers[0](x))
        return self.layers[2:](torch.tanh(h + self.call(h)))


def learned(net: nn.Module, rank: int, steps: int = 3) -> tuple[list[Tensor], int]:
    """Outputs, gradients and parameters of some steps; and the operations that they issued."""
    before = stack.operations()
    optimizer, told = torch.optim.SGD(net.parameters(), lr=0.1), []
    for step in range(steps):
        x, y = stack.share(step, rank, RANKS)
        x.requires_grad_()
        optimizer.zero_grad()
        out = net(x)
        nn.functional.mse_loss(out, y).backward()
        told += [out.detach(), x.grad, *(p.grad.clone() for p in net.parameters())]
        optimizer.step()
    return [*told, *net.parameters()], stack.operations() - before


NAMES = (
    "average", "average of the default group", "weighted average", "dynamic average", "gather",
    "dynamic gather", "alltoall", "dynamic alltoall", "gossip", "weighted gossip", "machines",
    "weighted machines",
)  # fmt: skip


def eager(rank: int, world: int) -> dict[str, list[str]]:
    """By the form that has lists, beside Python's."""
    told = {}
    with ready_group() as group:
        for name, (form, function) in forms(rank, group).items():
            (one, asked), (other, wanted) = learned(Net(form), rank), learned(Net(function), rank)
            told[name] = [oracle.moved(a, b) for a, b in zip(one, other, strict=True)]
            told[name].append("" if asked == wanted == 6 else f"{asked} and {wanted} operations")
    return {name: [text for text in bad if text] for name, bad in told.items()}


def test_forms_give_what_functions_give(pool: harness.Pool) -> None:
    assert pool.run(eager) == [{name: [] for name in NAMES}] * 2


def plain(rank: int, world: int) -> list[Any]:
    """Without gradients: a result that wants none; nothing is asked backward."""
    told = []
    with ready_group() as group:
        for name, (form, _) in forms(rank, group).items():
            out = form(torch.full((2, 2), float(rank)))
            with torch.no_grad():
                same = form(torch.full((2, 2), float(rank), requires_grad=True))
            if out.requires_grad or same.requires_grad or not torch.equal(out, same):
                told.append(name)
    return told


def test_forms_without_gradients(pool: harness.Pool) -> None:
    assert pool.run(plain) == [[], []]


def weightless(rank: int, world: int) -> list[Any]:
    """Weights left out are 1; anything else must be as many as there are ranks."""
    form, x, peer = torch.ops.bluefog.neighbor_allreduce, torch.tensor([rank + 1.0]), 1 - rank
    wrong: list[dict[str, Any]] = [
        {"src_ranks": [peer], "src_weights": [0.5, 0.5]},
        {"src_ranks": [peer, peer]},
        {"src_weights": [0.5]},
    ]
    errors = [inrank.catch(form, x, self_weight=0.5, **given) for given in wrong]
    return [form(x, self_weight=2.0, src_ranks=[peer], dst_ranks=[peer]).item(), errors]


def test_weights_of_lists(pool: harness.Pool) -> None:
    for value, (got, errors) in zip((4.0, 5.0), pool.run(weightless, world=RANKS), strict=True):
        assert got == value
        for error in errors:
            harness.raised(error, "ValueError", text="weights of different ranks")


def compiled(rank: int, world: int, name: str, dynamic: bool) -> list[Any]:
    torch._dynamo.reset()
    with ready_group() as group:
        form, _ = forms(rank, group)[name]
        wanted, count = learned(Net(form), rank)
        quick = torch.compile(Net(form), backend="aot_eager", fullgraph=True, dynamic=dynamic)
        got, asked = learned(quick, rank)
        gaps = [(a - b).abs().max().item() for a, b in zip(got, wanted, strict=True)]
    torch._dynamo.reset()
    return [max(gaps), asked, count]


@pytest.mark.parametrize("name", NAMES)
def test_compiled_learns_as_eager(pool: harness.Pool, name: str) -> None:
    for gap, asked, count in pool.run(compiled, name, False, timeout=120):
        assert gap < 1e-6
        assert asked == count == 6


@pytest.mark.parametrize("name", ["average", "gather", "alltoall"])
def test_compiled_for_any_size(pool: harness.Pool, name: str) -> None:
    for gap, asked, count in pool.run(compiled, name, True, timeout=120):
        assert gap < 1e-6
        assert asked == count == 6
