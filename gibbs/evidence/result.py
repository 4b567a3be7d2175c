"""What an estimator of log Z returns."""

from __future__ import annotations

from typing import NamedTuple


class LogEvidence(NamedTuple):
    """log p(y) with every constant."""

    value: float
    standard_error: float
    mean_log: float  # mean of the logs of independent (batch) estimates: below `value` by about half their variance
    bias: float  # estimated bias of `value` itself, as the log of an average; not subtracted
    trusted: bool  # the estimator's own test of its standard error holds
    detail: dict[str, float]
