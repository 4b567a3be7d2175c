"""riihimaki2013, section 5.5: is one method better than another? Intervals of mean scores and of paired differences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from validation.door import arguments
from validation.door.quoting import shown
from validation.ledger.marker import equation

Array = NDArray[np.float64]
_BLOCK = 4_000_000  # weights held at a time


class Interval(NamedTuple):
    """What is believed of one number: mean and standard deviation in closed form, the interval from draws."""

    mean: float
    sd: float
    low: float  # 2.5 % of the draws lie below
    high: float  # 2.5 % above


@equation("riihimaki2013", "u5.5-bootstrap")
def bayesian_bootstrap(scores: ArrayLike, *, n_draws: int = 20_000, seed: int = 0) -> Interval:
    """The mean of what the scores are a sample of: riihimaki2013, section 5.5, Fig. 9.

    The distribution of the scores is any one on the t values seen, with weights w ~ Dirichlet(1, ..., 1) after the
    data; its mean is Σ w_i s_i, with expectation s̄ and variance Σ (s_i - s̄)²/(t (t + 1)). Rubin's scheme, as the
    paper's source for it (Vehtari and Lampinen 2002) has it.

    Parameters
    ----------
    scores : (t,)     log predictive densities of held-out data, or their differences between two methods
    n_draws : int     of w
    seed : int

    Raises
    ------
    ValueError        fewer than two scores, or one that is not finite
    """
    s = arguments.finite(arguments.float_array(scores, "scores"), "scores")
    if s.ndim != 1 or s.size < 2:
        raise ValueError(f"scores: found shape {s.shape}, expected (t,) with t >= 2")
    arguments.integer(n_draws, "n_draws", at_least=100)
    rng = np.random.default_rng(arguments.integer(seed, "seed", at_least=0))
    centre = float(s.mean())
    gap = s - centre  # the weights sum to one only up to rounding
    block = max(1, _BLOCK // s.size)
    draws = []
    for start in range(0, n_draws, block):
        weight = rng.standard_exponential((min(block, n_draws - start), s.size))
        draws.append(weight @ gap / weight.sum(axis=1))
    low, high = np.quantile(np.concatenate(draws), [0.025, 0.975])
    sd = float(np.sqrt(np.square(gap).sum() / (s.size * (s.size + 1.0))))
    return Interval(centre, sd, centre + float(low), centre + float(high))


@equation("riihimaki2013", "u5.5-dirichlet")
def accuracy_comparison(counts: ArrayLike, *, prior: float = 1.0, n_draws: int = 200_000, seed: int = 0) -> Interval:
    """Difference of two accuracies, of a method less that of EP: riihimaki2013, section 5.5, Fig. 10.

    Each held-out label is one of three outcomes, worse than EP (EP alone is right), the same, better (the method alone
    is right), with probabilities p ~ Dirichlet(prior, prior, prior). After the data p is Dirichlet(a), a = counts +
    prior; the difference is p_better - p_worse, with mean (a_b - a_w)/A, A = Σ a, and variance
    [(a_b + a_w)/A - mean²]/(A + 1).

    Parameters
    ----------
    counts : (3,)     worse, same, better: whole numbers
    prior : float     of each outcome; the paper calls its own "non-informative" and does not print it: 1 is uniform
    n_draws : int     of p
    seed : int

    Raises
    ------
    ValueError        counts that are none, or none at all
    """
    n = arguments.finite(arguments.float_array(counts, "counts"), "counts")
    if n.shape != (3,) or (n < 0.0).any() or (n != np.floor(n)).any() or n.sum() == 0.0:
        raise ValueError(f"counts: found {np.asarray(counts).tolist()}, expected three whole numbers, one above 0")
    if not arguments.real(prior, "prior") > 0.0:
        raise ValueError(f"prior: found {shown(prior)}, expected > 0")
    arguments.integer(n_draws, "n_draws", at_least=100)
    rng = np.random.default_rng(arguments.integer(seed, "seed", at_least=0))
    a = n + prior
    total = float(a.sum())
    mean = float((a[2] - a[0]) / total)
    variance = ((a[2] + a[0]) / total - mean * mean) / (total + 1.0)
    p = rng.dirichlet(a, n_draws)
    low, high = np.quantile(p[:, 2] - p[:, 0], [0.025, 0.975])
    return Interval(mean, float(np.sqrt(variance)), float(low), float(high))


def outcomes(right: ArrayLike, right_of_ep: ArrayLike) -> NDArray[np.int64]:
    """(3,) how many labels are worse, the same and better than with EP: right, right_of_ep (t,) of 0 and 1."""
    change = np.asarray(right, dtype=np.int64) - np.asarray(right_of_ep, dtype=np.int64)
    return np.array([(change == k).sum() for k in (-1, 0, 1)])
