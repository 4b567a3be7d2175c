"""What an estimator of log Z returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# How islands of particles are worked: like `map`, (function of a module, parts) -> its values in their order. Each
# part has a seed of its own, so the digits depend neither on who works it nor on when.
Workers = Callable[[Callable[[Any], NDArray[np.float64]], Sequence[Any]], Iterable[NDArray[np.float64]]]


class LogEvidence(NamedTuple):
    """log p(y) with every constant."""

    value: float
    standard_error: float
    mean_log: float  # mean of the logs of independent (batch) estimates: below `value` by about half their variance
    bias: float  # estimated bias of `value` itself, as the log of an average; not subtracted
    trusted: bool  # the estimator's own test of its standard error holds
    detail: dict[str, float]
