"""Distributed optimizers refuse bad arguments, and warn of doubtful ones."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import harness, inrank


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def wrap(optimizer: Any, model: Any, *args: Any, **options: Any) -> Any:
    import bluefog_pg

    return bluefog_pg.DistributedOptimizer(optimizer, model, *args, **options)


def plain(**options: Any) -> Any:
    model = nn.Linear(2, 2)
    return wrap(sgd(model), model, **options)


def twice() -> Any:
    model = nn.Linear(2, 2)
    return wrap(wrap(sgd(model), model), model)


def frozen() -> Any:
    model = nn.Linear(2, 2).requires_grad_(False)
    return wrap(sgd(model), model)


def unmade() -> Any:
    model = nn.Linear(2, 2, device="meta")
    return wrap(sgd(model), model)


def stranger() -> Any:
    return wrap(sgd(nn.Linear(2, 2)), nn.Linear(3, 3))


def overlapping() -> Any:
    model = nn.Linear(2, 2, bias=False)
    model.other = nn.Parameter(model.weight.detach().t())
    return wrap(sgd(model), model)


def sparse() -> Any:
    model = nn.Embedding(4, 2, sparse=True)
    wrap(sgd(model), model, "gradient_allreduce")
    model(torch.tensor([0])).sum().backward()


def lbfgs() -> Any:
    model = nn.Linear(2, 2)
    return wrap(torch.optim.LBFGS(model.parameters()), model)


def lists() -> Any:
    model = nn.Linear(2, 2)
    return wrap(sgd(model), [3])


def shared_order() -> Any:
    from bluefog_pg import optim

    order = optim.ExactDiffusion()
    plain(order=order)
    plain(order=order)


def optim() -> Any:
    import bluefog_pg

    return bluefog_pg.optim


def ended() -> None:
    plain(topology=iter([])).step()


def pairless() -> None:
    plain(topology=iter([3])).step()


def half() -> None:
    optimizer = plain(compression="bf16")
    optimizer.self_weight = 0.5
    optimizer.step()


def exact_now_and_then() -> Any:
    from bluefog_pg import optim

    return plain(order=optim.ExactDiffusion(), every=2)


def exact_by_windows() -> Any:
    from bluefog_pg import optim

    return plain(communication="win_put", order=optim.GradientTracking())


def shares() -> Any:
    optimizer = plain(communication="push_sum")
    optimizer.self_weight, optimizer.dst_weights = 0.5, {1: 0.75}
    optimizer.step()


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "no optimizer": (lambda: wrap(3, nn.Linear(2, 2)), "TypeError", "torch.optim.Optimizer"),
    "twice": (twice, "TypeError", "distributed already"),
    "nothing to train": (frozen, "ValueError", "requires a gradient"),
    "no numbers": (unmade, "ValueError", "to_empty"),
    "a stranger": (stranger, "ValueError", r"none of the model's, of shapes \[\[2, 2\], \[2\]\]"),
    "overlapping": (overlapping, "ValueError", "overlap in memory"),
    "sparse": (sparse, "ValueError", "sparse gradient"),
    "closures": (lbfgs, "ValueError", 'use order="atc"'),
    "no model": (lists, "TypeError", "torch.nn.Module"),
    "order": (lambda: plain(order="act"), "ValueError", "'awc', 'atc' or one of"),
    "an order of two": (shared_order, "ValueError", "another optimizer"),
    "every": (lambda: plain(every=0), "ValueError", "every must be"),
    "communication": (lambda: plain(communication="gossip"), "ValueError", "neighbor_allreduce, "),
    "topology": (lambda: plain(topology="star"), "ValueError", "'one-peer-exp2'"),
    "graph": (lambda: plain(topology=nx.path_graph(4)), "TypeError", "networkx.DiGraph"),
    "size": (lambda: plain(topology=nx.DiGraph([(0, 1)])), "TypeError", "lacks ranks"),
    "schedule": (lambda: plain(topology=[]), "ValueError", "no steps"),
    "machines": (
        lambda: plain(communication="hierarchical_neighbor_allreduce", topology="ring"),
        "ValueError",
        "set_machine_topology",
    ),
    "a truth": (lambda: plain(every=True), "ValueError", "every must be"),
    "buckets": (lambda: plain(bucket_bytes=0), "ValueError", "bucket_bytes must be"),
    "a class": (lambda: plain(compression=optim().TopK), "ValueError", "a name or a compressor"),
    "pushed": (
        lambda: plain(communication="push_sum", order=optim().GradientTracking()),
        "ValueError",
        "not with push_sum",
    ),
    "an order of gradients": (
        lambda: plain(communication="gradient_allreduce", order=optim().ExactDiffusion()),
        "ValueError",
        "not with gradient_allreduce",
    ),
    "now and then": (
        lambda: plain(order=optim().DecentLaM(), every=4),
        "ValueError",
        "DecentLaM exchanges at each pass",
    ),
    "compressed pairs": (
        lambda: plain(order=optim().AsynchronousPairs(), compression="int8"),
        "ValueError",
        "takes no compression",
    ),
    "ended": (ended, "ValueError", "iterator has ended"),
    "no steps": (pairless, "TypeError", "must give"),
    "half of the weights": (half, "ValueError", "belong together"),
    "exact": (exact_now_and_then, "ValueError", "every must be 1"),
    "exact by windows": (
        exact_by_windows,
        "ValueError",
        "GradientTracking goes with .*, not with win_put",
    ),
    "compression": (lambda: plain(compression="zip"), "ValueError", "fp16, bf16, int8"),
    "compressed windows": (
        lambda: plain(compression="int8", communication="win_put"),
        "ValueError",
        "neighbor_allreduce alone",
    ),
    "shares": (shares, "ValueError", "sum to 1"),
}


def refused(_rank: int, _world: int, what: str) -> inrank.Raised | None:
    return inrank.catch(REFUSED[what][0])


@pytest.mark.parametrize("what", REFUSED)
def test_refused(pool: harness.Pool, what: str) -> None:
    _, kind, text = REFUSED[what]
    for found in pool.run(refused, what):
        error = harness.raised(found, kind)
        assert error.kind == kind, error
        assert error.text.startswith("[bluefog]"), error
        assert re.search(text, error.text), error


def stays_plain(_rank: int, _world: int) -> None:
    """What was refused is as before."""
    model = nn.Linear(2, 2)
    optimizer, data = sgd(model), model.weight.data_ptr()
    harness.raised(inrank.catch(wrap, optimizer, model, every=0), "ValueError")
    assert type(optimizer) is torch.optim.SGD, type(optimizer)
    assert model.weight.data_ptr() == data, "the weights moved"


def test_what_was_refused_stays_plain(pool: harness.Pool) -> None:
    pool.run(stays_plain)


def warned(_rank: int, world: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain(topology=nx.DiGraph([(0, 1), (1, 0), (2, 3), (3, 2)]))
        heavy = nx.DiGraph([(r, (r + 1) % world) for r in range(world)], weight=2.0)
        nx.set_edge_attributes(heavy, 2.0, "weight")
        plain(topology=heavy)
        plain(order=optim().ExactDiffusion())  # The graph is exponential-2, which is directed.
        model = nn.Linear(2, 2)
        optimizer = wrap(sgd(model), model)
        model(torch.ones(2))
        optimizer.step()
    apart, weights, directed, idle = (str(warning.message) for warning in caught)
    assert "not strongly connected" in apart, apart
    assert "sum to 2, not 1" in weights, weights
    assert "ExactDiffusion needs symmetric weights" in directed, directed
    assert "no gradients" in idle, idle


def test_warned(pool: harness.Pool) -> None:
    pool.run(warned)


def wrapped_too(_rank: int, _world: int, has_hook: bool) -> None:
    from bluefog_pg import ddp_hooks

    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = wrap(sgd(model), model)
    if has_hook:
        model.register_comm_hook(None, ddp_hooks.no_average_hook)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    optimizer.close()
    told = [f"{warning.filename}: {warning.message}" for warning in caught]
    assert len(told) == (not has_hook), told
    for text in told:
        assert re.match(f"{__file__}: .* the model is a DistributedDataParallel", text), text


def test_gradients_averaged_beside_are_warned_of(pool: harness.Pool) -> None:
    pool.run(wrapped_too, True)
    pool.run(wrapped_too, False)


def far_apart(rank: int, _world: int, communication: str, scale: float) -> int:
    import bluefog_pg

    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight.mul_(1 + scale * rank)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bluefog_pg.DistributedOptimizer(sgd(model), model, communication).close()
    return sum("begin with different parameters" in str(warning.message) for warning in caught)


def of_other_seeds(rank: int, _world: int, are_other: bool) -> list[int]:
    """Return how often each model warns. The models' norms begin with ones on every rank."""
    import bluefog_pg

    torch.manual_seed(rank if are_other else 0)
    layer = nn.TransformerEncoderLayer(16, 2, 32)
    models = [
        nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)),
    ]
    told = []
    for model in models:
        with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # Parameters then look like those after an average of neighbors.
            for param in model.parameters():
                param.add_(0.02 * rank * torch.randn_like(param) * param.std(correction=0))
            bluefog_pg.DistributedOptimizer(sgd(model), model).close()
        told.append(sum("begin with different parameters" in str(w.message) for w in caught))
    return told


def test_ranks_that_begin_with_other_seeds_are_warned(pool: harness.Pool) -> None:
    assert pool.run(of_other_seeds, True) == [[1] * 3] * 4
    assert pool.run(of_other_seeds, False) == [[0] * 3] * 4


def test_ranks_that_begin_far_apart_are_warned(pool: harness.Pool) -> None:
    for communication in ("neighbor_allreduce", "gradient_allreduce"):
        assert pool.run(far_apart, communication, 0.0) == [0] * 4
        assert pool.run(far_apart, communication, 1.0) == [1] * 4
    assert pool.run(far_apart, "neighbor_allreduce", 0.01) == [0] * 4
    assert pool.run(far_apart, "gradient_allreduce", 0.01) == [1] * 4


def misunderstood(rank: int, _world: int) -> list[inrank.Raised | None]:
    import bluefog_pg
    from bluefog_pg import optim

    model = nn.Linear(2, 2)
    wrapper: Any = bluefog_pg.DecentralizedDataParallel
    plain = sgd(model)
    calls: list[Callable[[], Any]] = [
        lambda: wrap(plain, model, order=optim.ExactDiffusion),
        lambda: wrap(plain, model, compression=optim.TopK),
        lambda: wrap(plain, model, topology="ring" if rank else "full"),
        lambda: optim.LocalSteps(plain),
        lambda: optim.Recorder(plain, None),
        lambda: wrapper(model, lambda _: sgd(nn.Linear(2, 2))),
        lambda: wrapper(DistributedDataParallel(model), lambda _: plain),
    ]
    return [inrank.catch(call) for call in calls]


def test_what_newcomers_misunderstand(pool: harness.Pool) -> None:
    wanted = [
        ("ValueError", "ExactDiffusion.*make one: add"),
        ("ValueError", r"such as bluefog_pg.optim.TopK\(0.01\)"),
        ("ValueError", "ranks differ in topology: rank 0 has 'full', rank 1 'ring'"),
        ("TypeError", "function that makes an optimizer of the anchors"),
        ("TypeError", "SGD is a plain optimizer"),
        ("ValueError", "optim_fn must make an optimizer of the parameters that it is given"),
        ("TypeError", "is a DistributedDataParallel"),
    ]
    for found in pool.run(misunderstood):
        for error, (kind, pattern) in zip(found, wanted, strict=True):
            assert harness.raised(error, kind).kind == kind, error
            assert re.search(pattern, error.text), error


def misspelt(rank: int, _world: int) -> None:
    """A call that fails leaves the optimizer as it was, and the next one works."""
    import bluefog_pg

    model = nn.Linear(2, 2)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    error = inrank.catch(lambda: bluefog_pg.DistributedOptimizer(optimizer, model, topolgy="ring"))
    assert error is not None, "a misspelt argument was accepted"
    assert error.kind == "TypeError", error
    assert type(optimizer) is torch.optim.SGD, optimizer
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, model)
    refused = inrank.catch(setattr, optimizer, "communication", "gossip")
    assert refused is not None, "an unknown communication was accepted"
    assert optimizer.communication == "neighbor_allreduce", optimizer.communication
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.close()
    closed = inrank.catch(setattr, optimizer, "communication", "allreduce")
    again = bluefog_pg.DistributedOptimizer(optimizer, model)
    model(torch.ones(1, 2)).sum().backward()
    again.step()
    assert closed is not None, "a closed optimizer was changed"
    assert "was closed" in closed.text, closed
    assert again.tally.exchanges == 1, again.tally


def test_calls_that_fail_and_next_ones(pool: harness.Pool) -> None:
    pool.run(misspelt)
