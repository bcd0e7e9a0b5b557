"""Compare where the algorithms end, and how fast, with what their recursions say.

python benchmarks/algorithms.py         a table: half a minute, on 5 ranks of this machine

Ranks have quadratic losses h/2 (w - c)^2 of their own, with h from 0.5 to 1.5. An algorithm is
affine on such losses. Its fixed point solves a linear system, and its error falls by the spectral
radius.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import algorithms_report
import collectives
import launch
import numpy as np
import places
from algorithms_report import RANKS

H = np.linspace(0.5, 1.5, RANKS)
C = np.arange(RANKS, dtype=float) ** 2
SOLUTION = float(H @ C / H.sum())
BETA = 0.9  # the momentum of algorithms that have one
OUTER = 0.5  # the momentum of an outer optimizer
LOCAL = 4  # steps between two averages of local steps
ONE, NONE = np.eye(RANKS), np.zeros((RANKS, RANKS))
EVERYONE = np.full((RANKS, RANKS), 1 / RANKS)
Affine = tuple[np.ndarray, np.ndarray]  # M and b of z <- M z + b, where w is the first part of z


def ring() -> np.ndarray:
    """Return the weights of a ring: a third for a rank itself, and for each of both neighbors."""
    return (ONE + np.roll(ONE, 1, 0) + np.roll(ONE, -1, 0)) / 3


def directed() -> np.ndarray:
    """Return the weights of a digraph, whose columns sum to 1.

    Each rank shares equally with the next one. Rank 0 shares with rank 2, too.
    """
    links = ONE + np.roll(ONE, 1, 0)
    links[2, 0] = 1
    return links / links.sum(0)


def awc(lr: float) -> Affine:
    return ring() - lr * np.diag(H), lr * H * C


def atc(lr: float) -> Affine:
    return ring() @ (ONE - lr * np.diag(H)), lr * ring() @ (H * C)


def local_steps(lr: float) -> Affine:
    kept = np.diag((1 - lr * H) ** LOCAL)
    return ring() @ kept, ring() @ (ONE - kept) @ C


def outer_steps(lr: float, share: np.ndarray) -> Affine:
    """Return the recursion of anchors a and speeds v of an outer optimizer.

    v <- 0.5 v + share (a - w after local steps); a <- share a - v.
    """
    move = share @ np.diag(1 - (1 - lr * H) ** LOCAL)
    matrix = np.block([[share - move, -OUTER * ONE], [move, OUTER * ONE]])
    shift = move @ C
    return matrix, np.concatenate([shift, -shift])


def atc_momentum(lr: float) -> Affine:
    """Return the recursion of (w, m): m <- beta m + gradient; w <- W (w - lr m)."""
    w, hess = ring(), np.diag(H)
    matrix = np.block([[w @ (ONE - lr * hess), -lr * BETA * w], [hess, BETA * ONE]])
    return matrix, np.concatenate([lr * w @ (H * C), -H * C])


def decentlam(lr: float) -> Affine:
    """Return the recursion of (w, m): m <- beta m + (w - W (w - lr gradient)) / lr; w <- w - lr
    m.
    """
    matrix, shift = atc(lr)
    gradient = (ONE - matrix) / lr
    both = np.block([[ONE - lr * gradient, -lr * BETA * ONE], [gradient, BETA * ONE]])
    return both, np.concatenate([shift, -shift / lr])


def quasi_global(lr: float) -> Affine:
    """Return the recursion of (w, m) with quasi-global momentum.

    w' = W (w - lr (gradient + beta m)); m <- beta m + (1 - beta) (w - w') / lr.
    """
    top = np.hstack([atc(lr)[0], -lr * BETA * ring()])
    below = BETA * np.hstack([NONE, ONE]) + (1 - BETA) / lr * (np.hstack([ONE, NONE]) - top)
    shift = atc(lr)[1]
    return np.vstack([top, below]), np.concatenate([shift, -(1 - BETA) / lr * shift])


def exact_diffusion(lr: float) -> Affine:
    """Return the recursion of w and the psi before, of exact diffusion.

    psi = w - lr gradient; w <- (I + W)/2 (psi + w - psi before).
    """
    half, kept = (ONE + ring()) / 2, ONE - lr * np.diag(H)
    matrix = np.block([[half @ (kept + ONE), -half], [kept, NONE]])
    return matrix, lr * np.concatenate([half @ (H * C), H * C])


def tracking(lr: float, w: np.ndarray, is_atc: bool, hess: np.ndarray) -> Affine:
    """Return the recursion of (w, y), of gradient tracking.

    w' = W w - lr y, or W (w - lr y) where `is_atc`; y <- W y + gradient(w') - gradient(w).
    """
    top = np.hstack([w, -lr * (w if is_atc else ONE)])
    below = np.hstack([NONE, w]) + hess @ (top - np.hstack([ONE, NONE]))
    return np.vstack([top, below]), np.zeros(2 * RANKS)


def stationary() -> np.ndarray:
    """Return what p of push-sum tends to."""
    return RANKS * np.linalg.matrix_power(directed(), 1000)[:, 0]


def push_sum(lr: float) -> Affine:
    """Return the recursion of x = w p, with p at its limit: x <- A (x - lr gradient(x / p))."""
    a, hess = directed(), np.diag(H / stationary())
    return a @ (ONE - lr * hess), lr * a @ (H * C)


@dataclass
class Case:
    """A Case is an algorithm with what theory says of it, to compare a run with."""

    name: str
    order: str  # the name of the order in algorithms_run.py
    lr: float
    affine: Affine
    is_exact: bool = False
    momentum: float = 0.0
    every: int = 1
    is_directed: bool = False

    def rate(self) -> float:
        """Return the largest size of eigenvalues but 1, whose directions nothing excites."""
        sizes = np.abs(values := np.linalg.eigvals(self.affine[0]))
        return float(sizes[np.abs(values - 1) > 1e-6].max())

    def ends(self) -> np.ndarray:
        if self.is_exact:
            return np.full(RANKS, SOLUTION)
        matrix, shift = self.affine
        found = np.linalg.solve(np.eye(len(shift)) - matrix, shift)[:RANKS]
        return found / stationary() if self.is_directed else found


def cases() -> list[Case]:
    ring_tracking = tracking(0.1, ring(), False, np.diag(H))
    digraph_tracking = tracking(0.1, directed(), True, np.diag(H / stationary()))
    plain = [
        Case(f"{name} ({which})", which, lr, affine(lr))
        for which, name, affine in (("awc", "D-PSGD", awc), ("atc", "diffusion", atc))
        for lr in (0.2, 0.1, 0.05)
    ]
    return [
        *plain,
        Case("diffusion, momentum", "atc", 0.02, atc_momentum(0.02), momentum=BETA),
        Case("DecentLaM", "DecentLaM", 0.02, decentlam(0.02), momentum=BETA),
        Case("quasi-global momentum", "QuasiGlobalMomentum", 0.1, quasi_global(0.1)),
        Case("4 local steps (atc)", "atc", 0.05, local_steps(0.05), every=LOCAL),
        Case("SlowMo", "SlowMo", 0.05, outer_steps(0.05, EVERYONE), every=LOCAL),
        Case("NoLoCo", "NoLoCo", 0.05, outer_steps(0.05, ring()), every=LOCAL),
        Case("SGP", "push_sum", 0.1, push_sum(0.1), is_directed=True),
        Case("exact diffusion", "ExactDiffusion", 0.1, exact_diffusion(0.1), is_exact=True),
        Case("gradient tracking", "GradientTracking", 0.1, ring_tracking, is_exact=True),
        Case("push-DIGing", "PushDiging", 0.1, digraph_tracking, is_exact=True, is_directed=True),
    ]


def slope(errors: np.ndarray) -> float:
    """Return the factor of the error in a step, a mean while the error falls from 1e-3 to 1e-9."""
    inside = np.flatnonzero((errors > 1e-9) & (errors < 1e-3))
    return math.exp(np.polyfit(inside, np.log(errors[inside]), 1)[0])


def main() -> None:
    todo = cases()
    plan = [
        {k: v for k, v in asdict(case).items() if k != "affine"}
        | {"steps": round(1.2 * math.log(1e-14) / math.log(case.rate())) * case.every}
        for case in todo
    ]
    args = {"runs": plan, "h": H.tolist(), "c": C.tolist(), "outer": OUTER}
    found = launch.run_ranks("algorithms_run.py", RANKS, args, 300)
    rows = []
    for case in todo:
        path = np.array(found[case.name + str(case.lr)])[:: case.every]
        ends = case.ends()
        row = {
            "name": case.name,
            "lr": case.lr,
            "bias_in_theory": float(np.abs(ends - SOLUTION).max()),
            "bias": float(np.abs(path[-1] - SOLUTION).max()),
            "off": float(np.abs(path[-1] - ends).max()),
            "rate_in_theory": case.rate(),
            "rate": slope(np.abs(path - ends).max(1)),
        }
        rows.append(row)
    found = {"machine": collectives.machine(), "rows": rows}
    algorithms_report.ALGORITHMS.write(found, places.result("algorithms"))


if __name__ == "__main__":
    main()
