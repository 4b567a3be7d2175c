"""Parameters of the prior found by EP for classifiers of the same model whose own evidence costs more to maximise.

The threshold likelihood has one prior and one evidence, whatever approximates it. EP's estimate of it is among the
best, its tilted moments are formulas where the others need an integral a row and class, and some of the others' bounds
prefer parameters at which they are tight over those at which the model is good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fast.core.hyperprior import LINK_VARIANCES
from fast.core.types import IntArray

if TYPE_CHECKING:
    from fast.estimators._base import GPClassifier
    from fast.estimators._hyper import Start
    from fast.sparse_classes.projections import ClassDistribution

ROWS = 2000  # rows that EP looks at, as many as a classifier has in batch by itself


class Guide(NamedTuple):
    """What EP leaves to who asked it."""

    start: Start  # with EP's parameters
    q: ClassDistribution | None  # of u at the inducing points of the start; None: EP saw a sample, at points of its own


def guide(
    asking: GPClassifier, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, *, shared: bool
) -> Guide:
    """The start with the parameters that EP learns from it, on all rows or on a sample with every class in it.

    Parameters
    ----------
    asking           who asks: its prior of what is learned is that of EP
    X (n, d), codes (n,)    rows and their classes
    start            where EP starts; Z stays as it is
    rng              of the sample and of EP
    shared           one kernel for all classes, or one for each
    """
    from fast.estimators.villacampa2017 import EPClassifier  # it is one of those that this module serves

    seed = int(rng.randint(np.iinfo(np.int32).max))
    ep = EPClassifier(
        variance=start.variance, lengthscales=start.lengthscales, noise=start.noise, jitter=start.jitter,
        training="batch", random_state=seed, verbose=asking.verbose, prior=asking.prior, shared=shared,
    )  # fmt: skip
    rows = sample(codes, ROWS, rng)
    whole = rows.size == codes.size
    if whole:
        ep.set_params(inducing_points=start.Z)
    ep.fit(np.asarray(X[rows]), codes[rows])
    lengthscales, held = ep.lengthscales_, np.isinf(ep.lengthscales_)
    if held.any():  # a column that does not vary in the sample moves with the others
        moved = np.where(held, 0.0, np.log(np.where(held, 1.0, lengthscales) / start.lengthscales))
        factor = np.exp(moved.sum(axis=-1, keepdims=True) / np.maximum((~held).sum(axis=-1, keepdims=True), 1))
        lengthscales = np.where(held, factor * start.lengthscales, lengthscales)
    learned = start._replace(variance=ep.variance_, lengthscales=lengthscales, noise=ep.noise_)
    return Guide(learned, ep.posterior_.run.q if whole else None)


def probit_parameters_by_ep(
    asking: GPClassifier, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState
) -> Start:
    """The same for a multinomial probit with one kernel, which is the threshold model with the noise 1.

    Only the ratio of variance and noise counts there: EP starts at the usual noise of its model and learns both.

    Parameters
    ----------
    asking, X, codes, start, rng    as for `guide`; the noise of the start, beside the link, stays
    """
    usual = LINK_VARIANCES["threshold"]
    begin = start._replace(variance=usual * start.variance, noise=usual)
    result = guide(asking, X, codes, begin, rng, shared=True).start
    variance = np.asarray(result.variance)[0] / np.asarray(result.noise)[0]
    return start._replace(variance=float(variance), lengthscales=result.lengthscales[0])


def sample(codes: IntArray, size: int, rng: np.random.RandomState) -> IntArray:
    """Rows (min(n, size),), ascending, each class in its share and at least once.

    Parameters
    ----------
    codes : (n,)    classes
    size : int      rows wanted, no fewer than classes
    rng             which of a class
    """
    if codes.size <= size:
        return np.arange(codes.size)
    first = np.array([rng.choice(np.flatnonzero(codes == k)) for k in np.unique(codes)])
    rest = np.setdiff1d(np.arange(codes.size), first)
    # a systematic sample of rows sorted by class, shuffled within it, has every class in its share
    order = rest[np.lexsort((rng.permutation(rest.size), codes[rest]))]
    wanted = size - first.size
    taken = order[(np.arange(wanted) * rest.size) // wanted]
    return np.sort(np.concatenate([first, taken]))
