"""What Asyncddp's two training scripts call, in their forms, on synthetic images of ten classes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.support import harness


def images() -> TensorDataset:
    torch.manual_seed(0)
    labels = torch.arange(640) % 10
    means = torch.randn(10, 1, 8, 8)
    return TensorDataset(means[labels] + 0.3 * torch.randn(640, 1, 8, 8), labels)


def trained(rank: int, world: int, sync: bool) -> float:
    """The share of the images that the averaged model recognizes."""
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
    if sync:
        sampler = DistributedSampler(data, num_replicas=bf.size(), rank=bf.rank(), shuffle=True)
        loader = DataLoader(data, batch_size=32, sampler=sampler)
    else:
        batches = LocalStepRandomBatchSampler(data, 32, base_seed=42, rank=bf.rank())
        loader = DataLoader(data, batch_sampler=batches)
    for _ in range(12):
        wrapper.train()
        for x, y in loader:
            nn.functional.cross_entropy(wrapper(x), y).backward()
        wrapper.global_avg()
    wrapper.eval()
    with torch.no_grad():
        right = wrapper(data.tensors[0]).argmax(1).eq(data.tensors[1])
    wrapper.close()
    return float(right.float().mean())


@pytest.mark.parametrize("sync", [True, False])
def test_its_scripts_train(pool: harness.Pool, sync: bool) -> None:
    assert min(pool.run(trained, sync)) > 0.95


def given(rank: int, world: int) -> None:
    """Arguments by position, `model` by name, and a state that Asyncddp has saved."""
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
