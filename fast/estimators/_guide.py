"""Parameters of the prior found by EP for classifiers of the same model whose own evidence costs more to maximise.

The threshold likelihood has one prior and one evidence, whatever approximates it. EP's estimate of it is among the
best, its tilted moments are formulas where the others need an integral a row and class, and some of the others' bounds
prefer parameters at which they are tight over those at which the model is good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fast.core.types import IntArray

if TYPE_CHECKING:
    from fast.estimators._base import GPClassifier, Start

ROWS = 400  # rows that EP looks at: parameters are known from these as far as predictions tell


def parameters_by_ep(asking: GPClassifier, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState) -> Start:
    """The start with the parameters that EP learns from it, on all rows or on a sample with every class in it.

    Parameters
    ----------
    asking           who asks: its settings of the prior are those of EP
    X (n, d), codes (n,)    rows and their classes
    start            where EP starts; Z stays as it is
    rng              of the sample and of EP
    """
    from fast.estimators.villacampa2017 import EPClassifier  # it is one of those that this module serves

    settings = {name: value for name, value in asking.get_params(deep=False).items() if name in _SHARED}
    seed = int(rng.randint(np.iinfo(np.int32).max))
    ep = EPClassifier(
        variance=start.variance, lengthscales=start.lengthscales, noise=start.noise, jitter=start.jitter,
        training="batch", random_state=seed, verbose=asking.verbose, **settings,
    )  # fmt: skip
    rows = sample(codes, ROWS, rng)
    if rows.size == codes.size:
        ep.set_params(inducing_points=start.Z)
    ep.fit(np.asarray(X[rows]), codes[rows])
    return start._replace(variance=ep.variance_, lengthscales=ep.lengthscales_, noise=ep.noise_)


_SHARED = ("shared", "prior")


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
