"""This program trains by Hugging Face Accelerate, for which only the backend's name is chosen.

It is chosen before the Accelerator is made:

torchrun --standalone --nproc-per-node 2 train_accelerate.py BACKEND FOLDER
"""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support import stack


def main(backend: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    # Accelerate itself would choose gloo with cpu=True, whatever InitProcessGroupKwargs says.
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = stack.mlp()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    # The last batch of 250 rows is not full, and gather_for_metrics drops the rows that fill it up.
    loader = DataLoader(TensorDataset(*stack.batch(0, 250)), batch_size=16, shuffle=True)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)

    losses = []
    for _ in range(4):
        rows = []
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = (net(x) - y).square().mean(1)
                accelerator.backward(loss.mean())
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            rows.append(accelerator.gather_for_metrics(loss.detach()))
        epoch = torch.cat(rows)
        assert len(epoch) == 250, len(epoch)
        losses.append(epoch.mean().item())

    accelerator.save_state(folder)
    saved = [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    accelerator.wait_for_everyone()
    accelerator.load_state(folder)
    assert stack.distance(net.parameters(), saved) == 0
    total = accelerator.reduce(torch.tensor(float(accelerator.process_index + 1)), "sum")
    assert total.item() == 3, total
    wrapped = isinstance(net, nn.parallel.DistributedDataParallel)
    sys.stdout.write(
        f"rank {accelerator.process_index} of {accelerator.num_processes} "
        f"backend {dist.get_backend()} ddp {wrapped} losses {losses} "
        f"operations {stack.operations() if backend == 'bluefog' else 0}\n"
    )
    # end_training() destroys the group. Where a DDP model is the last to let go of it, gloo joins
    # its threads while it holds the GIL, and one of those may wait for the GIL.
    if backend != "gloo":
        accelerator.end_training()


main(*sys.argv[1:])
