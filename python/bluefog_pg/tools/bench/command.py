"""Measure this machine: `python -m bluefog_pg bench`, or with `--model` a synthetic training."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from bluefog_pg.tools import forks
from bluefog_pg.tools.arguments import positive

_DESCRIPTION = """\
Compare gloo with bluefog on this machine, in a minute: with 2 ranks, and with one rank a core. With
--model, train a synthetic model and say how many samples a second each communication reaches."""
_EXAMPLES = """\
examples:
  %(prog)s
  %(prog)s -np 2,4 --operations all_reduce --sizes 4,64K,16M
  %(prog)s --model gpt --communication ddp-gloo,win_put --slow-rank 0 --slow-factor 5"""
_SIZES = "4,1K,4K,64K,1M,4M,16M"
_OPERATIONS = "all_reduce,broadcast,all_gather"
_COMMUNICATIONS = "ddp-gloo,ddp,neighbor_allreduce,win_put"
_SECONDS = 40.0
_BEYOND = 60.0  # seconds that ranks may take beyond those for which they measure
# These options belong to one kind of bench each. Here are the values that they have by default.
_OF_COLLECTIVES = {"operations": _OPERATIONS, "sizes": _SIZES, "rounds": 7}
_OF_TRAININGS = {
    "communication": _COMMUNICATIONS, "topology": "one-peer-exp2", "slow_rank": None,
    "slow_factor": 5.0,
}  # fmt: skip


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="compare gloo with bluefog on this machine, or train a synthetic model",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-np", "--num-proc", metavar="N,N", help="numbers of ranks (default: 2, and the cores)"
    )
    parser.add_argument(
        "--seconds",
        type=positive,
        default=_SECONDS,
        metavar="S",
        help="how long it measures, in all (default: %(default)g)",
    )
    collectives = parser.add_argument_group("gloo beside bluefog")
    collectives.add_argument(
        "--operations", metavar="OP,OP", help=f"what is called (default: {_OPERATIONS})"
    )
    collectives.add_argument(
        "--sizes", metavar="B,B", help=f"bytes of the larger buffer (default: {_SIZES})"
    )
    collectives.add_argument(
        "--rounds", type=int, metavar="N", help="turns of each backend (default: 7)"
    )
    trainings = parser.add_argument_group("a synthetic training")
    trainings.add_argument("--model", metavar="NAME", help="resnet or gpt")
    trainings.add_argument(
        "--communication", metavar="C,C", help=f"how ranks average (default: {_COMMUNICATIONS})"
    )
    trainings.add_argument(
        "--topology", metavar="NAME", help="with whom they do (default: one-peer-exp2)"
    )
    trainings.add_argument("--slow-rank", type=int, metavar="R", help="a rank that computes slower")
    trainings.add_argument(
        "--slow-factor", type=positive, metavar="F", help="how many times as long (default: 5)"
    )
    parser.set_defaults(run=lambda args: _run(args, parser))


def _run(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    # The program ends by an exception then, and with it the ranks.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        _complete(args)
        bench = _collectives if args.model is None else _training
        bench(args, _ranks(args.num_proc))
    except ValueError as error:
        parser.error(str(error))
    except forks.RankError as error:
        raise SystemExit(f"{parser.prog}: a rank failed: {error}") from error
    except TimeoutError as error:
        raise SystemExit(f"{parser.prog}: the ranks did not end in time") from error
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as a shell has it


def _complete(args: argparse.Namespace) -> None:
    """Set what is not given.

    Raises:
        ValueError: there are flags that do not go together.
    """
    trains = args.model is not None
    for name in _OF_COLLECTIVES if trains else _OF_TRAININGS:
        if getattr(args, name) is not None:
            goes = "without" if trains else "with"
            raise ValueError(f"--{name.replace('_', '-')} goes {goes} --model")
    if args.slow_factor is not None and args.slow_rank is None:
        raise ValueError("--slow-factor needs --slow-rank")
    for name, value in (_OF_TRAININGS if trains else _OF_COLLECTIVES).items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _collectives(args: argparse.Namespace, all_ranks: list[int]) -> None:
    _import("networkx")
    from bluefog_pg.tools.bench import collectives, columns
    from bluefog_pg.tools.bench.cases import COALESCED, GRAPHS, OPS
    from bluefog_pg.tools.bench.verdict import is_right, verdicts

    # torch has no coalesced call without a warning, and gloo averages over no graph.
    known = [op for op in OPS if op not in (COALESCED, *GRAPHS)]
    operations = _names("--operations", args.operations, known)
    sizes = [_size(text) for text in args.sizes.split(",")]
    if args.rounds < 1:
        raise ValueError(f"--rounds {args.rounds}: there is at least one")
    said: list[str] = []
    is_all_right = True
    for ranks in all_ranks:
        rows: list[dict[str, Any]] = []

        def show(told: Any, rows: list[dict[str, Any]] = rows, ranks: int = ranks) -> None:
            if isinstance(told, int):
                _say(f"# {told} sizes are left out, because the time is over: see --seconds")
                return
            if not rows or rows[-1]["op"] != told["op"]:
                _say(columns.heading(told["op"], ranks))
            rows.append(told)
            _say(columns.line(told))

        seconds = args.seconds / len(all_ranks)
        body = collectives.Comparison(operations, sizes, seconds, args.rounds).run
        _start(ranks, body, seconds, show)
        said += verdicts(rows, ranks)
        is_all_right = is_all_right and is_right(rows)
    for sentence in said:
        _say(sentence)
    if not is_all_right:
        raise SystemExit("There are wrong results: see the columns #wrong.")
    _say("All results are right." + _doubts())


def _training(args: argparse.Namespace, all_ranks: list[int]) -> None:
    _import("networkx", "torch._dynamo")  # The first step of an optimizer imports the second one.
    from bluefog_pg.tools.bench import samples, training

    model = _name("--model", args.model, training.MODELS)
    communications = _names("--communication", args.communication, training.COMMUNICATIONS)
    topology = _name("--topology", args.topology, training.TOPOLOGIES)
    slow, factor = args.slow_rank, args.slow_factor
    if slow is not None and not 0 <= slow < min(all_ranks):
        raise ValueError(f"--slow-rank {slow}: the ranks are 0 to {min(all_ranks) - 1}")
    if factor < 1:
        raise ValueError(f"--slow-factor {factor:g}: a slow rank takes at least as long as others")
    seconds = args.seconds / len(all_ranks) / len(communications)
    for ranks in all_ranks:
        for at, communication in enumerate(communications):
            is_first = at == 0

            def show(told: Any, is_first: bool = is_first, ranks: int = ranks) -> None:
                if is_first:
                    _say(samples.heading(model, ranks, told))
                _say("\n".join(samples.lines(told)))

            body = training.Training(model, communication, topology, seconds, slow, factor).run
            _start(ranks, body, seconds, show, f" that train over {communication}")
    if slow is not None:
        _say(f"Rank {slow} was made to compute {factor:g} times as long as the others.")
    if doubts := _doubts():
        _say(doubts.strip())


def _start(
    ranks: int,
    body: Callable[[forks.Rank], None],
    seconds: float,
    show: Callable[[Any], None],
    what: str = "",
) -> None:
    _say(f"# Starting {ranks} ranks{what}; they measure for {seconds:.3g} s at most ...")
    # All ranks are on this host, whatever its name stands for.
    environ = {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    forks.run(body, ranks, seconds + _BEYOND, environ, show)


def _say(text: str) -> None:
    print(text, flush=True)


def _import(*modules: str) -> None:
    """Import what each fork would have to import."""
    _say("# Importing what the ranks need ...")
    for module in modules:
        importlib.import_module(module)


def _ranks(text: str | None) -> list[int]:
    if text is None:
        cores = len(os.sched_getaffinity(0))
        return [2, cores] if cores > 2 else [2]
    numbers = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if min(numbers) < 2:
        raise ValueError(f"-np {text}: give numbers of two or more ranks, such as 2,4")
    return numbers


def _names(flag: str, text: str, known: Any) -> list[str]:
    names: list[str] = text.split(",")
    for name in names:
        if name not in known:
            raise ValueError(f"{flag} {name}: there is no such; there are {', '.join(known)}")
    return names


def _name(flag: str, text: str, known: Any) -> str:
    name, *others = _names(flag, text, known)
    if others:
        raise ValueError(f"{flag} {text}: give one of them")
    return name


def _size(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    number = text if factor == 1 else text[:-1]
    size = int(number) * factor if number.isdecimal() else 0
    if size < 4 or size % 4:
        raise ValueError(f"--sizes {text}: it must be a multiple of 4 bytes, such as 4K or 16M")
    return size


def _doubts() -> str:
    """Return a sentence where other programs use the machine so much that times mean little."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load < 2 * cores:
        return ""
    return f" The machine was busy (load {load:.0f} on {cores} cores), so the times say little."
