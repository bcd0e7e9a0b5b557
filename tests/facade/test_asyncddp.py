"""Tests call what the scripts in Asyncddp's examples call, in their forms, on synthetic images."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support import harness


def images() -> TensorDataset:
    torch.manual_seed(0)
    labels = torch.arange(640) % 10
    means = torch.randn(10, 1, 8, 8)
    return TensorDataset(means[labels] + 0.3 * torch.randn(640, 1, 8, 8), labels)


def trained(rank: int, world: int, sync: bool) -> float:
    """Return the share of the images that the averaged model recognizes."""
    import bluefog_pg.torch as bf
    import bluefog_pg.torch.optim as optim
    from bluefog_pg.common import topology_util
    from bluefog_pg.torch.ddp import DecentralizedDataParallel as ddp
    from bluefog_pg.torch.ddp import LocalStepRandomBatchSampler

    bf.init()
    torch.manual_seed(42)
    model: nn.Module = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)
    )
    topology = {"topology": topology_util.FullyConnectedGraph(bf.size()), "name": "full"}
    optim_fn = partial(optim.optim_fn_adam, beta1=0.974, lr=1e-3 * bf.size())
    wrapper = ddp(
        model,
        optim_fn,
        lr_scheduler_fn=None,
        sync=sync,
        topology=topology,
        sync_buffer_in_global_avg=True,
    )
    wrapper.set_topology(topology)
    data = images()
    sampler = LocalStepRandomBatchSampler(
        data,
        batch_size=32 if sync else 32 + 20 * rank,
        base_seed=42 + rank,
        rank=rank,
        drop_last=True,
    )
    loader = DataLoader(data, batch_sampler=sampler, pin_memory=False)
    wrapper.global_avg()
    wrapper.train()
    # Asynchronous ranks begin as many epochs as their time allows.
    for _ in range(12 if sync else 20 + rank):
        for x, y in loader:
            nn.functional.cross_entropy(wrapper(x), y, label_smoothing=0.025).backward()
    wrapper.global_avg()
    wrapper.eval()
    with torch.no_grad():
        right = wrapper(data.tensors[0]).argmax(1).eq(data.tensors[1])
    wrapper.close()
    return float(right.float().mean())


@pytest.mark.parametrize("sync", [True, False])
def test_test_sync_and_test_async_train(pool: harness.Pool, sync: bool) -> None:
    assert min(pool.run(trained, sync)) > 0.95


def collected_from_neighbors() -> torch.Tensor:
    """Return the sum of what has come to the window "w", and empty it."""
    import bluefog_pg.torch as bf

    total: torch.Tensor = bf.win_update(
        name="w",
        self_weight=0.0,
        neighbor_weights=dict.fromkeys(bf.in_neighbor_ranks(), 1.0),
        reset=True,
        require_mutex=True,
        clone=True,
    )
    return total


def put_on_a_ring(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf
    from bluefog_pg.common import topology_util

    bf.init()
    bf.set_topology(topology_util.RingGraph(bf.size(), connect_style=1))
    for dtype in (torch.float32, torch.float64):
        x = torch.full((8,), float(bf.rank()), dtype=dtype)
        assert bf.win_create(x, name="w", zero_init=True)
        weights = dict.fromkeys(bf.out_neighbor_ranks(), 1.0)
        assert bf.win_put(x, name="w", self_weight=1.0, dst_weights=weights, require_mutex=True)
        bf.barrier()
        got = collected_from_neighbors()
        assert got.tolist() == [float(sum(bf.in_neighbor_ranks()))] * 8
        assert x.tolist() == [float(rank)] * 8
        bf.barrier()
        assert bf.win_free("w")


def test_test(pool: harness.Pool) -> None:
    pool.run(put_on_a_ring)


def read_and_collected(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf

    bf.init()
    x = torch.ones(8) * (rank + 2)
    assert bf.win_create(x, "read", zero_init=True)
    bf.barrier()
    assert bf.win_put(x, "read")
    bf.barrier()
    for source in bf.in_neighbor_ranks():
        got = bf.win_read_neighbor("read", source, require_mutex=True)
        assert got.tolist() == [source + 2.0] * 8
    assert bf.win_free("read")

    x = torch.zeros(16)
    assert bf.win_create(x, "update", zero_init=True)
    for step in range(4):
        x.fill_(rank * 10 + step)
        bf.barrier()
        assert bf.win_put(x, "update")
        bf.barrier()
        got = bf.win_update_then_collect("update", require_mutex=True)
        assert got.tolist() == [sum(r * 10.0 + step for r in [rank, *bf.in_neighbor_ranks()])] * 16
    assert bf.win_free("update")


def test_test_data(pool: harness.Pool) -> None:
    pool.run(read_and_collected)


def out_of_step(rank: int, world: int, op: str, topology: str) -> float:
    """Return the sum of what a rank collects while the others are slower or faster."""
    import bluefog_pg.torch as bf
    from bluefog_pg.common import topology_util as graphs

    bf.init()
    bf.set_skip_negotiate_stage(True)
    make = {
        "ring": partial(graphs.RingGraph, connect_style=1),
        "expo2": partial(graphs.ExponentialGraph, base=2),
        "full": graphs.FullyConnectedGraph,
    }[topology]
    bf.set_topology(make(bf.size()))
    assert bf.win_create(torch.full((8,), float(rank)), name="w", zero_init=True)
    send = bf.win_put_nonblocking if op == "put" else bf.win_accumulate_nonblocking
    collected = 0.0
    for step in range(4):
        if step == 3:
            bf.barrier()  # The last one collects all that is under way.
        elif op == "accumulate" or rank > 0:
            weights = dict.fromkeys(bf.out_neighbor_ranks(), 1.0)
            payload = torch.full((8,), float(rank + step))
            send(payload, name="w", self_weight=1.0, dst_weights=weights, require_mutex=True)
        time.sleep(0.05 * rank)
        got = collected_from_neighbors()
        assert len(set(got.tolist())) == 1
        collected += got[0].item()
    bf.win_free("w")
    return collected


@pytest.mark.parametrize("topology", ["ring", "expo2", "full"])
def test_test_win_async(pool: harness.Pool, topology: str) -> None:
    sources = {"ring": [[1], [2], [0]]}.get(topology, [[1, 2], [0, 2], [0, 1]])
    sent = [[3.0 * r + 3 for r in of_rank] for of_rank in sources]
    assert pool.run(out_of_step, "accumulate", topology, world=3) == [sum(s) for s in sent]
    # A put takes the place of one that has not been collected. Rank 0 sends nothing.
    for rank, got in enumerate(pool.run(out_of_step, "put", topology, world=3)):
        senders = [r for r in sources[rank] if r > 0]
        assert sum(r + 2 for r in senders) <= got <= sum(3 * r + 3 for r in senders)


def alike(rank: int, world: int) -> list[list[float]]:
    """Return rank 0's parameters and buffers, which all ranks begin with."""
    import bluefog_pg.torch as bf
    from bluefog_pg.torch.ddp import DecentralizedDataParallel
    from bluefog_pg.torch.optim import optim_fn_adam

    bf.init()
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))
    for tensor in (model[0].running_mean, *model.parameters()):
        nn.init.constant_(tensor, float(rank + 1))
    DecentralizedDataParallel(model=model, optim_fn=optim_fn_adam).close()
    return [tensor.flatten().tolist() for tensor in (model[0].running_mean, *model.parameters())]


def test_ranks_begin_alike(pool: harness.Pool) -> None:
    assert pool.run(alike) == [[[1.0]] * 5] * 4


def buffers(rank: int, world: int) -> list[list[float]]:
    """Return the running means of ranks that have seen other images, averaged and not averaged."""
    import bluefog_pg.torch as bf
    from bluefog_pg.torch.ddp import DecentralizedDataParallel
    from bluefog_pg.torch.optim import optim_fn_adam

    bf.init()
    means = []
    for sync_buffer in (True, False):
        model = nn.Sequential(nn.BatchNorm1d(1, momentum=1.0), nn.Linear(1, 1))
        wrapper = DecentralizedDataParallel(
            model, optim_fn_adam, sync_buffer_in_global_avg=sync_buffer
        )
        wrapper(torch.full((2, 1), float(rank))).sum().backward()
        wrapper.global_avg()
        means.append(model[0].running_mean.item())
        wrapper.close()
    return means


def test_buffers_are_averaged_where_asked_for(pool: harness.Pool) -> None:
    assert pool.run(buffers, world=3) == [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]


def test_its_optimizers_and_schedule() -> None:
    from bluefog_pg.torch import ddp, optim

    kinds = {
        optim.optim_fn_adam: (torch.optim.Adam, 1 / 32768),
        optim.optim_fn_adamw: (torch.optim.AdamW, 0.1),
        optim.optim_fn_accum_adam: (optim.AccumAdam, 1 / 32768),
        optim.optim_fn_accum_adamw: (optim.AccumAdamW, 0.1),
    }
    for make, (kind, decay) in kinds.items():
        made: ddp.OPTIM_FN_TYPE = make
        model = nn.Sequential(nn.Linear(2, 2))
        model.bn = nn.BatchNorm1d(2)
        optimizer = made(list(model.named_parameters()))
        assert type(optimizer) is kind
        weights, others = optimizer.param_groups
        assert weights["weight_decay"] == decay
        assert [list(p.shape) for p in weights["params"]] == [[2, 2]]
        assert others["weight_decay"] == 0.0
        assert len(others["params"]) == 3
        schedule: ddp.LR_SCHEDULER_FN_TYPE = partial(
            optim.lr_scheduler_fn_cosine_with_warmup, t_max=8, t_warmup=2, cosine_eta_min=0.0
        )
        scheduler, rates = schedule(optimizer), []
        for _ in range(10):
            rates.append(weights["lr"])
            optimizer.step()
            scheduler.step()
        assert rates[0] == pytest.approx(1e-5)
        assert rates[2] == pytest.approx(1e-3)
        assert rates[6] == pytest.approx(5e-4)


def given(rank: int, world: int) -> None:
    """Pass arguments by position, `model` by name, and a state that Asyncddp has saved."""
    import bluefog_pg.torch as bf
    from bluefog_pg.torch.ddp import DecentralizedDataParallel
    from bluefog_pg.torch.optim import optim_fn_adam

    bf.init()
    ring = bf.RingGraph(world)
    options = (None, {"topology": ring, "name": "ring"}, True, None, 1.0, True, True, 1, world)
    by_position = DecentralizedDataParallel(nn.Linear(2, 1), optim_fn_adam, *options)
    by_name = DecentralizedDataParallel(model=nn.Linear(2, 1), optim_fn=optim_fn_adam)
    saved = {"_model.weight": torch.ones(1, 2), "_model.bias": torch.zeros(1)}
    for wrapper in (by_position, by_name):
        wrapper(torch.ones(1, 2)).sum().backward()
        wrapper.load_state_dict(saved)
        assert wrapper(torch.ones(1, 2)).item() == 2.0
        assert set(wrapper.state_dict()) == {"module.weight", "module.bias"}
        wrapper.close()
    bf.win_create(torch.ones(2), "w")
    handle = bf.win_put_nonblocking(torch.ones(2), "w")
    assert bf.mpi_ops.win_cancel(handle) is None
    assert bf.win_wait(handle) is False
    assert bf.mpi_ops.win_cancel(handle) is None
    bf.win_free()


def test_its_arguments(pool: harness.Pool) -> None:
    pool.run(given, world=3)
