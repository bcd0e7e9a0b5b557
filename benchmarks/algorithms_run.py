"""This program is one rank, which takes steps by each algorithm on a quadratic loss of its own."""

from __future__ import annotations

from typing import Any

import launch
import networkx as nx
import torch
import torch.distributed as dist
from torch import nn

import bluefog_pg
from bluefog_pg import optim


def graph_of(run: dict[str, Any], n: int) -> nx.DiGraph:
    if run["is_directed"]:
        graph = nx.DiGraph([(rank, (rank + 1) % n) for rank in range(n)])
        graph.add_edge(0, 2)
        return graph
    return bluefog_pg.topology_util.RingGraph(n)


def path_of(me: launch.Rank, run: dict[str, Any]) -> list[float]:
    """Return this rank's w at the start, which is 0, and after each step."""
    h, c = me.args["h"][me.rank], me.args["c"][me.rank]
    model, order = nn.Linear(1, 1, bias=False).double(), run["order"]
    nn.init.zeros_(model.weight)
    options: dict[str, Any] = {"every": run["every"], "topology": graph_of(run, me.n)}
    if order in ("SlowMo", "NoLoCo"):
        options["communication"] = "allreduce" if order == "SlowMo" else "neighbor_allreduce"
        options["order"] = optim.LocalSteps(
            lambda anchors: torch.optim.SGD(anchors, lr=1.0, momentum=me.args["outer"])
        )
    elif order == "push_sum":
        options["communication"] = order
    else:
        options["order"] = order if order in ("awc", "atc") else getattr(optim, order)()
    sgd = torch.optim.SGD(model.parameters(), lr=run["lr"], momentum=run["momentum"])
    optimizer = bluefog_pg.DistributedOptimizer(sgd, model, **options)
    found, one = [0.0], torch.ones(1, 1, dtype=torch.float64)
    for _ in range(run["steps"]):
        optimizer.zero_grad()
        (h / 2 * (model(one) - c).square()).sum().backward()
        optimizer.step()
        found.append(model.weight.item())
    optimizer.close()
    return found


def main() -> None:
    me = launch.join()
    store = dist.PrefixStore("job", me.store)
    dist.init_process_group("bluefog", store=store, rank=me.rank, world_size=me.n)
    found = {}
    for run in me.args["runs"]:
        paths: list[Any] = [None] * me.n
        dist.all_gather_object(paths, path_of(me, run))
        found[run["name"] + str(run["lr"])] = list(zip(*paths, strict=True))
    me.give_back(found)
    me.together("end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
