"""Train by local steps, with a step of an outer optimizer after every 20 of them.

This sends a twentieth of the messages of an average at each step.

    torchrun --standalone --nproc-per-node 4 examples/local_sgd.py

With outer momentum this is SlowMo, or DiLoCo. If only neighbors average, it is NoLoCo
(`--communication neighbor_allreduce`).
"""

import argparse
import sys

import torch
import torch.distributed as dist
from devices import own_device
from digits import accuracy, batches, load_data, make_net
from torch import nn

import bluefog_pg
from bluefog_pg import optim


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits by local steps.")
    parser.add_argument("--communication", default="allreduce")
    parser.add_argument("--every", type=int, default=20, help="steps for each exchange")
    parser.add_argument("--outer-momentum", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", type=own_device, default="cpu", help="cuda: of GPUs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--require-accuracy", type=float, default=0.0, metavar="0.95")
    args = parser.parse_args()

    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = load_data(rank, world, args.seed, args.device)
    torch.manual_seed(args.seed)  # gives all ranks the same first parameters
    net = make_net().to(args.device)
    outer = {"lr": 0.7, "momentum": args.outer_momentum, "nesterov": args.outer_momentum > 0}
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.Adam(net.parameters(), lr=3e-3),
        net,
        args.communication,
        order=optim.LocalSteps(lambda anchors: torch.optim.SGD(anchors, **outer)),
        every=args.every,
    )
    for batch in batches(len(labels), args.epochs, args.seed, "local steps"):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
        optimizer.step()
    bluefog_pg.allreduce_parameters(net.parameters())

    right = accuracy(net, test_images, test_labels)
    exchanges, sent = optimizer.tally.exchanges, bluefog_pg.stats()["bytes_sent"]
    print(f"rank {rank}: {right:.2%} after {exchanges} exchanges, {sent:,} bytes", flush=True)
    dist.destroy_process_group()
    if right < args.require_accuracy:
        sys.exit(f"rank {rank}: test accuracy {right:.2%} is below {args.require_accuracy:.2%}")


if __name__ == "__main__":
    main()
