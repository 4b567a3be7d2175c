"""sep on data in parts: tied factors by sums over leaves. villacampa2017, section 2.3.

Of each leaf come sum_i of the factors' contributions to P and w of every class (`fast.sparse_classes.sep`):
C (m (m + 1) / 2 + m) + C numbers up a node, as many down to each worker for q. No number a datum is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from fast.blockwise.classes import COUNT, Natural, Seen, StandsFor, checked_points, look
from fast.blockwise.engines import Spread, Visit, spread, streamed
from fast.blockwise.kept import kept
from fast.blockwise.quadratic import ROUNDED, estimated_distance
from fast.blockwise.rows import Leaf, Rows
from fast.core import inputs
from fast.core.results import ClassPrediction
from fast.core.types import FloatArray
from fast.core.values import Prior
from fast.sparse_classes.inference import predict
from fast.sparse_classes.pairwise_factors import pair_sites, pair_totals
from fast.sparse_classes.projections import ClassDistribution, InducingClasses, add_projected
from fast.sparse_classes.sep import TiedFactors, tied_change, tied_update

_PATIENCE = 20  # sweeps without a smaller change, after which rounding is what is left


class State(NamedTuple):
    """What a sweep brings: q by its natural parameters, and the data that the tied factors stand for."""

    q: Natural
    stands_for: StandsFor
    root_of: str  # the factors whose n-th root is taken, "all" or "per-class": `SEPSweeps.count`


def ready(state: State) -> tuple[ClassDistribution, State]:
    """q as matrices, factorised once for all leaves of a part. Time C m^3 / 3.

    Parameters
    ----------
    state    of the sweep
    """
    return state.q.distribution(), state


def leaf_sums(leaf_data: Seen, ready: tuple[ClassDistribution, State]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What the factors of a leaf add to P and w, and their log Z. Time 2 C b m^2 and the kernels.

    Parameters
    ----------
    leaf_data    the leaf
    ready        q before, and the data that the factors stand for
    """
    q, state = ready
    factors = TiedFactors(state.stands_for, leaf_data.points, state.root_of, q)
    added, shift = np.zeros_like(q.precision), np.zeros_like(q.shift)
    norm = 0.0
    for _, view, y in leaf_data.tiles():
        tilt, sides = factors.tilt(view, y)
        add_projected(added, shift, view, *pair_totals(y, pair_sites(tilt, *sides)))
        norm += float(tilt.log_norm.sum())
    return *Natural.of(added, shift), np.array([norm])


SWEEP = Visit(ready, leaf_sums)


@dataclass(frozen=True, eq=False)
class BlockwiseSEP:
    """Tied factors and q where the sweeps stopped; nothing of the size of the data."""

    factors: TiedFactors
    log_evidence: float  # log Z_q of all data
    residual: float  # estimated standardised distance of a tied factor from the fixed point
    iterations: int
    converged: bool

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.factors.points.inducing_moments(self.factors.q)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.factors.points.inducing_moments(self.factors.q)[1]


@dataclass(frozen=True)
class SEPSweeps:
    """How tied factors on data in parts iterate.

    count             the n of the n-th root: "all" factors, or those that touch the class ("per-class")
    damping           in [1e-8, 1]
    tolerance         largest standardised distance of a tied factor from the fixed point
    max_iterations    sweeps after which to give up
    callback          called with (sweep, change) after every sweep
    """

    count: str = "all"
    damping: float = 0.5
    tolerance: float = 1e-8
    max_iterations: int = 1000
    callback: Callable[[int, float], None] | None = None


DEFAULTS = SEPSweeps()


def fit(
    rows: Rows,
    n_classes: int,
    prior: Prior,
    options: SEPSweeps = DEFAULTS,
    *,
    client: Any = None,
    checkpoint: str | PathLike[str] | None = None,
) -> BlockwiseSEP:
    """SEP to its fixed point, on leaves here or on the workers of a Dask cluster. Tied factors start at zero.

    Parameters
    ----------
    rows : Rows        from `fast.blockwise.rows.rows_of`, labels 0 .. C - 1
    n_classes : int    C >= 2
    prior : Prior      of C latent functions, with inducing points
    options            how to iterate
    client             a dask.distributed.Client; None: this process. The digits are the same
    checkpoint : path  folder where sums of sweeps are kept, from which the same call goes on; None: nowhere

    Raises
    ------
    ValueError                  bad input, by name and row
    NotPositiveDefiniteError    K_ZZ of a class is singular
    ClusterLostError            the scheduler is lost
    OSError                     no room for a checkpoint
    """
    if not isinstance(options, SEPSweeps):
        raise TypeError(
            f"options: found {type(options).__name__}, expected SEPSweeps: on data in parts sweeps are plain, and "
            "nothing is learned"
        )
    inputs.one_of("count", options.count, ("all", "per-class"))
    damping = inputs.share("damping", options.damping)
    if damping < 1e-8:
        raise ValueError(f"damping: found {damping}, expected a number from 1e-8 to 1")
    tolerance = inputs.scalar("tolerance", options.tolerance, positive=True)
    most = inputs.count("max_iterations", options.max_iterations)
    points = checked_points(n_classes, rows.d, prior)
    C = points.n_classes
    with spread(rows, partial(look, points=points), client) as leaves:
        leaves = kept(leaves, checkpoint, f"sep, {n_classes} classes", prior, options)
        stands_for = StandsFor(leaves.total(COUNT, None)[0].astype(np.int64), rows.n, rows.d)
        factors = TiedFactors(stands_for, points, options.count)
        changes: list[float] = []
        while True:
            added, shift, _ = _swept(leaves, factors, stands_for)
            q, share = factors.q, np.ones(C)
            changes.append(tied_change(q, added, shift, share))
            factors._set(ClassDistribution.of(*tied_update(q.precision, q.shift, added, shift, share, damping)))
            # the change is that of an undamped sweep: the ratio of two is that of the damped iteration
            residual = estimated_distance(changes)
            if options.callback is not None:
                options.callback(len(changes), changes[-1])
            stalled = len(changes) > _PATIENCE and changes[-1] <= ROUNDED and min(changes[-_PATIENCE:]) > min(changes)
            if residual <= tolerance or stalled or len(changes) >= most:
                norm = float(_swept(leaves, factors, stands_for)[2][0])
                value = norm + _prior_part(factors)
                return BlockwiseSEP(factors, value, residual, len(changes), residual <= tolerance)


def _swept(leaves: Spread, factors: TiedFactors, stands_for: StandsFor) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums over all leaves under the present q: added to P (C, m, m), to w (C, m), and log Z of all factors (1,)."""
    state = State(Natural.of(factors.q.precision, factors.q.shift), stands_for, factors.count)
    triangles, shift, norm = leaves.total(SWEEP, state)
    return Natural(triangles, shift).matrices(), shift, norm


def _prior_part(factors: TiedFactors) -> float:
    """log Z_q less log Z of the factors: villacampa2017, u43."""
    q, cavity = factors.q, factors.cavity
    whole = 0.5 * (q.shift_norm - q.log_det)
    part = 0.5 * (cavity.shift_norm - cavity.log_det)
    return float(whole.sum() + (factors.counts * (part - whole)).sum())


def predictions(posterior: BlockwiseSEP, rows: Rows, *, client: Any = None) -> Iterator[tuple[int, ClassPrediction]]:
    """(first row, predictions) leaf by leaf, in order: villacampa2017 (66) to (68).

    Parameters
    ----------
    posterior        from `fit`
    rows : Rows      test inputs
    client           a dask.distributed.Client; None: this process
    """
    yield from streamed(rows, partial(_predict, posterior.factors.points, posterior.factors.q), client)


def _predict(points: InducingClasses, q: ClassDistribution, leaf: Leaf) -> ClassPrediction:
    return predict(points, q, inputs.finite_rows("X_test", leaf.inputs(), leaf.first))
