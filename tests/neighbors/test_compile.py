"""torch.ops.bluefog.* give what Python's functions give, with gradients, and in compiled models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor, nn

from tests.support import harness, inrank, oracle, stack
from tests.support.operations import Group, ready_group
from tests.support.programs import run_on_ranks

RANKS = 2
Calls = tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]


def forms(rank: int, group: Group) -> dict[str, Calls]:
    """Return each call as torch.ops.bluefog has it, and as bluefog_pg does."""
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
    """A Net has a call between its layers."""

    def __init__(self, call: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layers, self.call = stack.mlp(), call

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.layers[0](x))
        return self.layers[2:](torch.tanh(h + self.call(h)))


def learned(net: nn.Module, rank: int) -> tuple[list[Tensor], int]:
    """Return outputs, gradients and parameters of three steps, and their number of operations."""
    before = stack.operations()
    optimizer, told = torch.optim.SGD(net.parameters(), lr=0.1), []
    for step in range(3):
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


def eager(rank: int, world: int) -> None:
    """Compare torch.ops.bluefog, whose arguments are lists, with Python's functions."""
    told: dict[str, list[str]] = {}
    with ready_group() as group:
        for name, (form, function) in forms(rank, group).items():
            (one, asked), (other, wanted) = learned(Net(form), rank), learned(Net(function), rank)
            told[name] = [oracle.moved(a, b) for a, b in zip(one, other, strict=True)]
            told[name].append("" if asked == wanted == 6 else f"{asked} and {wanted} operations")
    assert set(told) == set(NAMES), sorted(told)
    bad = [f"{name}: {text}" for name, texts in told.items() for text in texts if text]
    assert not bad, bad


def test_forms_give_what_functions_give(pool: harness.Pool) -> None:
    pool.run(eager)


def plain(rank: int, world: int) -> None:
    """Results want no gradients where none is asked for, and nothing is done backward."""
    bad = []
    with ready_group() as group:
        for name, (form, _) in forms(rank, group).items():
            out = form(torch.full((2, 2), float(rank)))
            with torch.no_grad():
                same = form(torch.full((2, 2), float(rank), requires_grad=True))
            if out.requires_grad or same.requires_grad or not torch.equal(out, same):
                bad.append(f"{name}: {out}, {same} without gradients")
    assert not bad, bad


def test_forms_without_gradients(pool: harness.Pool) -> None:
    pool.run(plain)


def weightless(rank: int, world: int) -> list[Any]:
    """Weights that are left out are 1; anything else must be as many as there are ranks."""
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
    import torch._dynamo

    torch._dynamo.reset()
    with ready_group() as group:
        form, _ = forms(rank, group)[name]
        wanted, count = learned(Net(form), rank)
        quick = torch.compile(Net(form), backend="aot_eager", fullgraph=True, dynamic=dynamic)
        got, asked = learned(quick, rank)
        gaps = [(a - b).abs().max().item() for a, b in zip(got, wanted, strict=True)]
    torch._dynamo.reset()
    return [max(gaps), asked, count]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled_learns_as_eager(pool: harness.Pool, name: str) -> None:
    for gap, asked, count in pool.run(compiled, name, False, timeout=120):
        assert gap < 1e-6
        assert asked == count == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["average", "gather", "alltoall"])
def test_compiled_for_any_size(pool: harness.Pool, name: str) -> None:
    for gap, asked, count in pool.run(compiled, name, True, timeout=120):
        assert gap < 1e-6
        assert asked == count == 6


def on_another_topology(rank: int, world: int) -> None:
    """A function compiled on one topology runs, forward and backward, on that of its call."""
    import torch._dynamo

    import bluefog_pg

    torch._dynamo.reset()
    quick = torch.compile(
        lambda x: torch.ops.bluefog.neighbor_allreduce(2 * x), backend="aot_eager", fullgraph=True
    )
    x = torch.tensor([1.0 + rank])
    for own in (0.75, 0.25):
        graph = nx.DiGraph()
        graph.add_weighted_edges_from([(0, 0, own), (1, 1, own), (0, 1, 1 - own), (1, 0, 1 - own)])
        bluefog_pg.set_topology(graph, is_weighted=True)
        leaf = x.clone().requires_grad_()
        y = quick(leaf)
        (y * x).sum().backward()
        wanted = 2 * (own * x + (1 - own) * (3 - x))
        torch.testing.assert_close(y.detach(), wanted)
        torch.testing.assert_close(leaf.grad, wanted)
    torch._dynamo.reset()


def test_compiled_runs_on_the_topology_of_its_call(pool: harness.Pool) -> None:
    pool.run(on_another_topology, world=RANKS, timeout=120)


def uncalled(rank: int, world: int) -> list[int]:
    """Return how many operations a function issues whose first result is not used.

    Its other two calls are alike.
    """
    import torch._dynamo

    import bluefog_pg

    bluefog_pg.set_topology()

    def function(x: Tensor) -> Tensor:
        torch.ops.bluefog.neighbor_allreduce(x)
        return torch.ops.bluefog.neighbor_allreduce(x) + torch.ops.bluefog.neighbor_allreduce(x)

    told = []
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        before = stack.operations()
        torch.compile(function, backend=backend, fullgraph=True)(torch.ones(3))
        told.append(stack.operations() - before)
    torch._dynamo.reset()
    return told


def test_compilers_leave_no_call_out(pool: harness.Pool) -> None:
    assert pool.run(uncalled, world=RANKS, timeout=120) == [[3, 3]] * RANKS


KEPT = """
import sys, torch, torch.distributed as dist, networkx as nx, bluefog_pg
dist.init_process_group("bluefog")
rank, own = dist.get_rank(), float(sys.argv[1])
graph = nx.DiGraph()
graph.add_weighted_edges_from([(0, 0, own), (1, 1, own), (0, 1, 1 - own), (1, 0, 1 - own)])
bluefog_pg.set_topology(graph, is_weighted=True)
x = torch.full((2, 3), float(rank + 1), requires_grad=True)
double = 2 * torch.eye(3)  # g++ compiles no kernel for a product of matrices
y = torch.compile(lambda x: torch.ops.bluefog.neighbor_allreduce(x @ double), fullgraph=True)(x)
wanted = torch.full((2, 3), 2 * own * (rank + 1) + 2 * (1 - own) * (2 - rank))
assert torch.equal(y, wanted), y
(y * (rank + 1)).sum().backward()
assert torch.equal(x.grad, wanted), x.grad
dist.destroy_process_group()
"""


INDUCED = """
import torch, torch.distributed as dist, bluefog_pg
torch._inductor.config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = False
dist.init_process_group("bluefog")
ops, rank = torch.ops.bluefog, dist.get_rank()
bluefog_pg.set_topology()
forms = {
    "average": ops.neighbor_allreduce,
    "gather": ops.neighbor_allgather,
    "alltoall": lambda x: ops.neighbor_alltoall([x])[0],
    "gossip": lambda x: ops.pair_gossip(x, 1 - rank),
    "allreduce": ops.allreduce,
    "broadcast": lambda x: ops.broadcast(x, 1),
    "allgather": ops.allgather,
}
double = 2 * torch.eye(3)
for name, form in forms.items():
    # A kernel that g++ compiles takes seconds: one form has such, the others products of matrices.
    turn = torch.tanh if name == "average" else lambda x: x @ double
    for wants in (False, True):
        torch._dynamo.reset()
        xs = [torch.full((2, 3), rank + 1.0, requires_grad=wants) for _ in range(2)]
        quick = torch.compile(lambda x: turn(form(turn(x))), fullgraph=True)
        told = [turn(form(turn(xs[0]))), quick(xs[1])]
        if wants:
            for y in told:
                y.sum().backward()
            told += [x.grad for x in xs]
        for a, b in zip(told[::2], told[1::2]):
            torch.testing.assert_close(a, b, msg=lambda text: f"{name}, {wants}: {text}")
dist.destroy_process_group()
"""


def run_by_two(tmp_path: Path, program: str, *arguments: str, **env: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(program)
    modules = ("torch._inductor.compile_fx",)
    ran = run_on_ranks(script, *arguments, ranks=2, timeout=240, env=env, modules=modules)
    assert ran.code == 0, ran.out


@pytest.mark.slow
def test_what_a_compiler_keeps_fits_other_ranks_and_runs(tmp_path: Path) -> None:
    """Inductor's files are found again by the other rank, and with other weights."""
    for own in ("0.75", "0.25"):
        run_by_two(tmp_path, KEPT, own, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "kept"))


@pytest.mark.slow
def test_inductor_gives_what_eager_gives(tmp_path: Path) -> None:
    run_by_two(tmp_path, INDUCED)
