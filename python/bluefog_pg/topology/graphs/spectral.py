"""This module measures how fast a topology averages: spectral gap, mixing time, simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bluefog_pg.topology.graphs.arguments import integer, positive, real, size_of

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float64]
    Steps = Sequence[nx.DiGraph[int]]
    Topology = nx.DiGraph[int] | Steps | Callable[[int], nx.DiGraph[int] | Steps]

# Higher powers are below rounding errors: a matrix that has not converged by then never will.
_LONGEST = 2**40
_LARGEST = 2**13  # the most ranks; their matrix has 512 MiB
_MOST_STEPS = 1_000_000


def weight_matrix(topology: nx.DiGraph[int]) -> Matrix:
    """Return the float64 matrix A of shape (n, n), where A[i, j] is the weight of the edge i -> j.

    An edge without a weight counts as 1. One averaging of the ranks' values x is A^T x.

    Raises:
        TypeError: `topology` is no networkx.DiGraph of nodes 0 to n-1.
        ValueError: a weight is no number, or there are more ranks than a matrix may have rows.
    """
    import networkx as nx
    import numpy as np

    size = size_of(topology)
    if size > _LARGEST:
        raise ValueError(f"topology must have at most {_LARGEST} ranks for this, got {size}")
    try:
        matrix: Matrix = nx.to_numpy_array(topology, range(size), np.dtype(np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the weights of topology must be numbers: {error}") from error
    return matrix


def is_doubly_stochastic(topology: nx.DiGraph[int], tolerance: float = 1e-9) -> bool:
    """Return whether no weight is negative and all rows and columns of the weights sum to one.

    Repeated averaging then keeps the mean of all ranks' values.

    Args:
        topology: a DiGraph of nodes 0 .. n-1; an edge without "weight" weighs 1.
        tolerance: how far each weight and each sum may be off.

    Raises:
        TypeError: `topology` is no networkx.DiGraph of nodes 0 to n-1.
        ValueError: `tolerance` is negative.

    Example:
        >>> import networkx as nx
        >>> from bluefog_pg.topology_util import RingGraph, is_doubly_stochastic
        >>> is_doubly_stochastic(RingGraph(5)), is_doubly_stochastic(nx.DiGraph([(0, 1)]))
        (True, False)
    """
    if not real("tolerance", tolerance) >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    return doubly_stochastic(weight_matrix(topology), tolerance)


def second_singular_value(topology: nx.DiGraph[int]) -> float:
    """Return the most that one averaging leaves of the distance from the mean: ||W - 11^T/n||_2.

    For doubly stochastic W this is the second largest singular value. It bounds every step. Where W
    is normal (symmetric, or a circulant as exponential-2), it is the second largest |eigenvalue|,
    too, which is the factor of the long run. For one rank it is 0.

    Raises:
        TypeError: `topology` is no networkx.DiGraph of nodes 0 to n-1.
        ValueError: the weights are not doubly stochastic.

    Example:
        >>> from bluefog_pg.topology_util import RingGraph, second_singular_value
        >>> round(second_singular_value(RingGraph(8)), 4)
        0.8047
    """
    return _norm(_deviation(averaging_matrix(topology)))


def spectral_gap(topology: nx.DiGraph[int]) -> float:
    """Return 1 - ||W - 11^T/n||_2, from 0 (never agree) to 1 (one averaging is the mean).

    This is the definition of Ying et al., NeurIPS 2021. Others take the second largest
    |eigenvalue|, which is the same for normal W and less for others. A graph whose steps are exact
    only together, as de Bruijn's, has gap 0: see `mixing_time`.

    Raises:
        TypeError: `topology` is no networkx.DiGraph of nodes 0 to n-1.
        ValueError: the weights are not doubly stochastic.

    Example:
        >>> from bluefog_pg.topology_util import ExponentialTwoGraph, RingGraph, spectral_gap
        >>> round(spectral_gap(ExponentialTwoGraph(8)), 4), round(spectral_gap(RingGraph(8)), 4)
        (0.5, 0.1953)
    """
    return gap(averaging_matrix(topology))


def mixing_time(topology: nx.DiGraph[int], tolerance: float = 1e-3) -> int | float:
    """Return the smallest t with ||W^t - 11^T/n||_2 <= `tolerance`, or infinity if there is none.

    The time counts averagings. The search takes about 2 log2(t) products of n x n matrices.

    Raises:
        TypeError: `topology` is no networkx.DiGraph of nodes 0 to n-1.
        ValueError: the weights are not doubly stochastic, or `tolerance` is not positive.

    Example:
        >>> from bluefog_pg.topology_util import ExponentialTwoGraph, RingGraph, mixing_time
        >>> mixing_time(ExponentialTwoGraph(16)), mixing_time(RingGraph(16))
        (14, 133)
    """
    return steps_to_mean(averaging_matrix(topology), tolerance)


def simulate_consensus(topology: Topology, n: int, steps: int, seed: int = 0) -> Matrix:
    """Average random numbers over `topology` and return how far the ranks are from their mean.

    Args:
        topology: one DiGraph; a list of them, taken in turn; or a function that makes one of the
            two from the number of ranks, as the builders of this package do.
        n: number of ranks, each with one number from the normal distribution.
        steps: number of averagings.
        seed: seeds the numbers.

    Returns:
        float64 (steps + 1,): sqrt(mean over ranks of (x_i - mean at the start)^2) before the first
        averaging and after each. Where the weights do not keep the mean it does not go to 0.

    Raises:
        TypeError: `topology` is none of the three.
        ValueError: the graphs are not of `n` ranks, there is none, or `steps` or `seed` is
            negative.

    Example:
        >>> from bluefog_pg.topology_util import ExponentialTwoGraph, simulate_consensus
        >>> distances = simulate_consensus(ExponentialTwoGraph, n=8, steps=10)
        >>> distances.shape, bool(distances[10] < 0.01 * distances[0])
        ((11,), True)
    """
    import numpy as np

    n, steps = positive("n", n), integer("steps", steps)
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}")
    if steps > _MOST_STEPS:
        raise ValueError(f"steps must be at most {_MOST_STEPS}, got {steps}")
    if integer("seed", seed) < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    matrices = [weight_matrix(graph) for graph in graphs_of(topology, n)]
    for matrix in matrices:
        if len(matrix) != n:
            raise ValueError(f"topology must be of n = {n} ranks, got one of {len(matrix)}")
    values = np.random.default_rng(seed).standard_normal(n)
    mean = values.mean()
    distances = np.empty(steps + 1)
    for step in range(steps + 1):
        distances[step] = np.sqrt(np.square(values - mean).mean())
        values = matrices[step % len(matrices)].T @ values
    return distances


def graphs_of(topology: Topology, size: int) -> list[nx.DiGraph[int]]:
    """Return the graphs of one round: a builder is called, and a single graph is a round of one.

    Raises:
        TypeError: `topology` is no graph, and nothing that lists graphs.
        ValueError: there is no graph, or the graphs have different numbers of ranks.
    """
    import networkx as nx

    made = topology(size) if callable(topology) else topology
    try:
        graphs = [made] if isinstance(made, nx.Graph) else list(made)
    except TypeError:
        raise TypeError(
            f"topology must be a networkx.DiGraph or a list of them, not {type(made).__name__}"
        ) from None
    if not graphs:
        raise ValueError("topology must have at least one graph, got an empty sequence")
    if len(sizes := {size_of(graph) for graph in graphs}) > 1:
        raise ValueError(
            f"all graphs of topology must have the same number of ranks, got {sorted(sizes)}"
        )
    return graphs


def averaging_matrix(topology: nx.DiGraph[int]) -> Matrix:
    """Return the matrix of weights; raise ValueError if it is not doubly stochastic."""
    matrix = weight_matrix(topology)
    if not doubly_stochastic(matrix):
        raise ValueError(
            "topology must have doubly stochastic weights: none negative, all rows and columns "
            f"with sum 1, got rows {matrix.sum(axis=1)} and columns {matrix.sum(axis=0)}; "
            "MetropolisHastingsWeights gives such weights"
        )
    return matrix


def doubly_stochastic(matrix: Matrix, tolerance: float = 1e-9) -> bool:
    """Return for a matrix what `is_doubly_stochastic` returns for a graph."""
    worst = max(abs(matrix.sum(axis=axis) - 1.0).max() for axis in (0, 1))
    return bool(matrix.min() >= -tolerance and worst <= tolerance)


def gap(matrix: Matrix) -> float:
    """Return for a doubly stochastic matrix what `spectral_gap` returns for a graph."""
    return max(0.0, 1.0 - _norm(_deviation(matrix)))


def steps_to_mean(matrix: Matrix, tolerance: float) -> int | float:
    """Return for a doubly stochastic matrix what `mixing_time` returns for a graph.

    The norm never grows with t, so the binary digits of t give the largest power that is not within
    the tolerance; one step more is the result. A doubly stochastic W has W^t - 11^T/n = (W -
    11^T/n)^t.
    """
    import numpy as np

    if not real("tolerance", tolerance) > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance}")
    reached = np.eye(len(matrix)) - 1.0 / len(matrix)
    if _norm(reached) <= tolerance:
        return 0
    powers = [_deviation(matrix)]
    while _norm(powers[-1]) > tolerance:
        if 2 ** len(powers) > _LONGEST:
            return math.inf
        powers.append(powers[-1] @ powers[-1])
    steps = 0
    for digit in range(len(powers) - 2, -1, -1):
        further = reached @ powers[digit]
        if _norm(further) > tolerance:
            reached, steps = further, steps + 2**digit
    return steps + 1


def _deviation(matrix: Matrix) -> Matrix:
    return matrix - 1.0 / len(matrix)


def _norm(matrix: Matrix) -> float:
    import numpy as np

    return float(np.linalg.norm(matrix, 2))
