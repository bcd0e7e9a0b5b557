"""Find the mean of all ranks' numbers by push-sum, in which no rank waits for another.

    torchrun --standalone --nproc-per-node 4 examples/average_consensus.py

Every rank adds a share of what it has to its out-neighbors' slots whenever it likes, and takes out
what it finds in its own. The graph is random and directed, and the last rank is five times slower.
Nevertheless, x / p goes to the mean on every rank.
"""

import argparse
import sys
import time

import networkx as nx
import torch
import torch.distributed as dist
from devices import own_device

import bluefog_pg.torch


def random_digraph(size: int, seed: int) -> "nx.DiGraph[int]":
    """Return a strongly connected digraph: a ring with some random edges."""
    graph: nx.DiGraph[int] = nx.gnp_random_graph(size, 0.3, seed=seed, directed=True)
    graph.add_edges_from((rank, (rank + 1) % size) for rank in range(size))
    return graph


def consensus(x: torch.Tensor, seconds: float, nap: float) -> tuple[torch.Tensor, int]:
    """Return this rank's estimate of the mean of all x, and its number of steps."""
    window = bluefog_pg.Window(x, "x", zero_init=True)
    share = 1 / (1 + len(window.destinations))
    end, steps = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        window.accumulate(self_weight=share, dst_weights=dict.fromkeys(window.destinations, share))
        window.update_then_collect(require_mutex=False)
        time.sleep(nap)
        steps += 1
    dist.barrier()  # Then nothing is in flight, and p adds up to the number of ranks.
    window.update_then_collect(require_mutex=False)
    estimate = x / window.associated_p
    window.free()
    return estimate, steps


def main() -> None:
    parser = argparse.ArgumentParser(description="Average asynchronously.")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--elements", type=int, default=10_000)
    parser.add_argument("--nap", type=float, default=0.002, help="seconds between steps")
    parser.add_argument(
        "--factor", type=float, default=5.0, help="how much slower the last rank is"
    )
    parser.add_argument("--device", type=own_device, default="cpu", help="cuda: of GPUs")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    bluefog_pg.set_topology(random_digraph(world, args.seed))
    bluefog_pg.torch.turn_on_win_ops_with_associated_p()
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(args.elements, dtype=torch.float64, generator=generator).to(args.device)
    mean = x.clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    is_slow = rank == world - 1
    estimate, steps = consensus(x, args.seconds, args.nap * (args.factor if is_slow else 1))
    error = (estimate - mean).abs().max().item()
    print(f"rank {rank}: {steps} steps, at most {error:.1e} from the mean", flush=True)
    dist.destroy_process_group()
    if error > 1e-6:
        sys.exit(f"rank {rank} has not reached the mean")


if __name__ == "__main__":
    main()
