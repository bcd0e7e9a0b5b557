"""Describe a topology before a training uses it: `python -m bluefog_pg topology NAME SIZE`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bluefog_pg import topology_util

if TYPE_CHECKING:
    import argparse

    from bluefog_pg.topology.graphs.spectral import Topology


def _erdos_renyi(size: int) -> Any:
    """Return a random graph of twice the density above which most draws are connected."""
    ranks = max(size, 1)
    return topology_util.ErdosRenyiGraph(size, min(1.0, 2 * math.log(ranks) / ranks))


_BUILDERS: dict[str, Callable[[int], Any]] = {
    "ring": topology_util.RingGraph,
    "mesh": topology_util.MeshGrid2DGraph,
    "torus": topology_util.TorusGraph,
    "star": topology_util.StarGraph,
    "full": topology_util.FullyConnectedGraph,
    "er": _erdos_renyi,
    "hypercube": topology_util.HypercubeGraph,
    "onepeer": topology_util.OnePeerExponentialTwoGraphs,
}
_MOST_RANKS = 1024  # The powers of the matrix of so many ranks take minutes.
# A number behind one of these names is its base.
_WITH_BASE: dict[str, Callable[..., Any]] = {
    "exp": topology_util.ExponentialGraph,
    "symexp": topology_util.SymmetricExponentialGraph,
    "debruijn": topology_util.DeBruijnGraph,
    "base": topology_util.BaseKGraphs,
}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "topology",
        help="describe, play and draw a topology",
        description="Say how dense a topology is and how fast it averages.",
    )
    parser.add_argument("name", metavar="NAME", help=_known())
    parser.add_argument("size", metavar="SIZE", type=int, help="number of ranks")
    parser.add_argument("--plot", metavar="FILE", help="draw it; needs matplotlib")
    parser.add_argument(
        "--steps", metavar="N", type=int, default=30, help="averagings to play (default: 30)"
    )
    parser.set_defaults(run=lambda args: _describe(args, parser))


def _describe(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    from bluefog_pg.topology.graphs.facts import facts
    from bluefog_pg.topology.graphs.spectral import graphs_of

    if args.size > _MOST_RANKS:
        parser.error(f"SIZE must be at most {_MOST_RANKS} to be described, got {args.size}")
    try:
        graphs = graphs_of(_builder(args.name), args.size)
        distances = topology_util.simulate_consensus(graphs, args.size, args.steps)
        if args.plot:
            title = f"{args.name}, {args.size} ranks"
            topology_util.plot(graphs, args.plot, title, args.steps)
    except ValueError as error:
        parser.error(str(error))
    except (ImportError, OSError) as error:
        raise SystemExit(f"{parser.prog}: {error}") from error
    told = facts(graphs) | {f"after {args.steps} steps": _left(*distances[[0, -1]])}
    for name, value in told.items():
        print(f"{name:<24}{value}")


def _left(before: float, after: float) -> str:
    share = after / before if before else 0.0
    return f"{share:.3g} of the distance from the mean is left"


def _builder(name: str) -> Topology:
    if name in _BUILDERS:
        return _BUILDERS[name]
    found = re.fullmatch(r"([a-z]+)([0-9]*)", name)
    if not found or found[1] not in _WITH_BASE:
        raise ValueError(f"unknown topology {name!r}; NAME must be one of {_known()}")
    build, base = _WITH_BASE[found[1]], found[2]
    return (lambda size: build(size, int(base))) if base else build


def _known() -> str:
    based = ", ".join(f"{name}2" for name in _WITH_BASE)
    return f"{', '.join(_BUILDERS)}, {based} (or another base)"
