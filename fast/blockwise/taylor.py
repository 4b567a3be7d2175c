"""vi-taylor on data in parts: Newton's method on Psi (`fast.methods.vi_taylor`) by sums over leaves. izmailov2016, 4.2.

f_i = a_i'p, so p is all that a visit needs; no number a datum is kept. A step takes two visits: where it leads, and how
high Psi is there.
"""

from __future__ import annotations

from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from fast.blockwise.classes import packed, unpacked
from fast.blockwise.engines import Spread, Visit, spread
from fast.blockwise.kept import kept
from fast.blockwise.quadratic import (
    DEFAULTS,
    BlockwiseOptions,
    BlockwisePosterior,
    Seen,
    checked_options,
    inducing,
    look,
)
from fast.blockwise.rows import Rows
from fast.blockwise.tree import Most
from fast.core.types import FloatArray
from fast.core.values import Prior
from fast.likelihood.quadratic_bounds import taylor
from fast.methods.vi_taylor import Objective, Position, newton
from fast.one_latent.links import link_of
from fast.one_latent.quadratic_sweep import Collapsed, optimum


class State(NamedTuple):
    """What a visit brings: a point and a direction in p."""

    weights: FloatArray  # (m,)
    turn: FloatArray  # (m,)
    link: str


def as_is(state: State) -> State:
    """Nothing is made of it for a part.

    Parameters
    ----------
    state    of the visit
    """
    return state


def leaf_sums(leaf_data: Seen, state: State) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The sums of the expansions at f = a'p of one leaf. Time b m^2 and the kernel.

    Parameters
    ----------
    leaf_data    the leaf
    state        p
    """
    m, log_likelihood = state.weights.size, link_of(state.link).log_likelihood
    B, natural, constant = np.zeros((m, m), order="F"), np.zeros(m), 0.0
    for start, stop, part in leaf_data.tiles():
        xi = part.rows @ state.weights
        quadratic = taylor(leaf_data.y_sign[start:stop], xi, log_likelihood)
        constant += float(quadratic.constant.sum()) - 0.5 * float(quadratic.precision @ part.cond_var)
        natural += quadratic.shift @ part.rows
        scaled = part.rows * np.sqrt(quadratic.precision)[:, None]
        B = dsyrk(1.0, scaled.T, beta=1.0, c=B, lower=1, overwrite_c=1)
    return packed(B), natural, np.array([constant])


def leaf_height(leaf_data: Seen, state: State) -> tuple[FloatArray, Most]:
    """sum log p(y_i | a_i'p), and the largest |a_i'turn| / sqrt(1 + (a_i'p)^2).

    Parameters
    ----------
    leaf_data    the leaf
    state        p, and a direction
    """
    total, longest, log_likelihood = 0.0, 0.0, link_of(state.link).log_likelihood
    for start, stop, part in leaf_data.tiles():
        mean, move = part.rows @ state.weights, part.rows @ state.turn
        total += float(log_likelihood(leaf_data.y_sign[start:stop], mean).value.sum())
        longest = max(longest, float(np.abs(move / np.sqrt(1.0 + mean * mean)).max()))
    return np.array([total]), Most(longest)


SWEEP, HEIGHT = Visit(as_is, leaf_sums), Visit(as_is, leaf_height)


def fit(
    rows: Rows,
    prior: Prior,
    options: BlockwiseOptions = DEFAULTS,
    *,
    likelihood: str = "logit",
    client: Any = None,
    checkpoint: str | PathLike[str] | None = None,
) -> BlockwisePosterior:
    """vi-taylor to the mode, on leaves here or on the workers of a Dask cluster; predictions as of `quadratic.fit`.

    Parameters
    ----------
    rows : Rows         from `fast.blockwise.rows.rows_of`, labels 0 and 1
    prior : Prior       of one latent function, with inducing points
    options             how to iterate; the callback is called with (step, Psi, nan)
    likelihood : str    a name in `fast.one_latent.links.LINKS`
    client              a dask.distributed.Client; None: this process. The digits are the same
    checkpoint : path   folder where sums of sweeps are kept, from which the same call goes on; None: nowhere

    Raises
    ------
    ValueError                  bad input, by name and row
    NotPositiveDefiniteError    K_ZZ is singular
    ClusterLostError            the scheduler is lost
    OSError                     no room for a checkpoint
    """
    link_of(likelihood)  # an unknown one is refused here, not by a worker
    tolerance, most = checked_options(options)
    points = inducing(prior, rows.d)
    zero = np.zeros(points.Z.shape[0])
    with spread(rows, partial(look, points=points, method="vi-taylor"), client) as leaves:
        leaves = kept(leaves, checkpoint, f"vi-taylor {likelihood}", prior, options)
        steps: list[float] = []

        def tell(height: float) -> None:
            steps.append(height)
            if options.callback is not None:
                options.callback(len(steps), height, np.nan)

        def height(position: Position) -> float:
            (weights,) = position
            total, _ = leaves.total(HEIGHT, State(weights, zero, likelihood))
            return float(total[0]) - 0.5 * float(weights @ weights)

        def length(position: Position, move: Position) -> float:
            (weights,), (turn,) = position, move
            _, longest = leaves.total(HEIGHT, State(weights, turn, likelihood))
            return longest.value

        def expanded(position: Position) -> Collapsed:
            (weights,) = position
            return _expanded(leaves, weights, likelihood)

        objective = Objective(lambda position: (expanded(position).weights,), height, length)
        top = newton(objective, (zero,), rows.n, tolerance, most, tell)
        end = expanded(top.position)
    return BlockwisePosterior(
        points, "vi-taylor", end, np.array(top.trace), top.residual, top.converged, likelihood
    )  # fmt: skip


def _expanded(leaves: Spread, weights: FloatArray, link: str) -> Collapsed:
    """q at its optimum given the expansions at f = a'p."""
    B, natural, constant = leaves.total(SWEEP, State(weights, np.zeros_like(weights), link))
    precision = unpacked(B, weights.size)
    precision.flat[:: weights.size + 1] += 1.0
    return optimum(precision, natural, float(constant[0]))
