"""Seconds to a log Z that can be trusted: independent draws and particles on up to six hundred constraints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from validation import Problem, solve
from validation.bench.measure import Row

_SECONDS, _ERROR = 10.0, 0.01


def labelled(n: int, C: int, log_variance: float, likelihood: str, epsilon: float = 0.0) -> Problem:
    """A problem whose labels are drawn from its own prior: a kernel shared by the classes, inputs in the plane."""
    rng = np.random.default_rng([n, C])
    X = rng.standard_normal((n, 2))
    squared = np.square(X[:, None] - X[None]).sum(axis=2)
    K = np.exp(log_variance - 0.5 * squared) + 1e-6 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal((n, C)) + rng.standard_normal((n, C))
    y = f.argmax(axis=1)
    wrong = rng.random(n) < epsilon
    y[wrong] = rng.integers(0, C, int(wrong.sum()))
    return Problem(
        name=f"n = {n}, C = {C}, log variance {log_variance:g}", X=X, y=y, n_classes=C, likelihood=likelihood,
        variance=np.exp(log_variance), lengthscales=1.0, noise=1.0 if likelihood == "threshold" else 0.0, jitter=1e-6,
        epsilon=epsilon, shared=True,
    )  # fmt: skip


Case = tuple[Problem, str, dict[str, Any]]


def asked() -> tuple[Case, ...]:
    """Problems up to six hundred constraints, and labelling errors at log variance 8: problem, method, options."""
    # log Z is all that is asked: the chains beside the particles are as short as they may be
    particles = {"evidence": "particles", "target_error": _ERROR, "n_chains": 4, "n_warmup": 0, "n_draws": 4}
    many = labelled(300, 3, 0.0, "multinomial-probit")
    wrong = labelled(30, 3, 8.0, "threshold", 0.05)
    return (
        (labelled(60, 3, 2.0, "multinomial-probit"), "exact-probit", {"n_draws": 2000}),
        (labelled(40, 6, 4.0, "multinomial-probit"), "exact-probit", {"n_draws": 2000}),
        (many, "exact-probit", {"n_draws": 2000}),
        (many, "gibbs-probit", particles),
        (wrong, "gibbs-threshold", particles),
    )


def evidence(*, cases: Sequence[Case] | None = None) -> Iterable[Row]:
    """Seconds to log Z, with its standard error, for each problem; asked are both.

    Parameters
    ----------
    cases    problems, methods of gibbs, options; None: those of `asked`
    """
    for problem, method, options in asked() if cases is None else cases:
        started, what = time.perf_counter(), f"{method}, {problem.name}"
        try:
            error = solve("gibbs", method, problem, seed=1, **options).log_evidence_se
        except ValueError as why:  # a row all the same: it was asked
            yield Row("truth/evidence", f"{what}: {why}", float("nan"), "nat", f"<= {_ERROR:g}", False)
            continue
        yield from rows(what, time.perf_counter() - started, error)


def rows(what: str, seconds: float, error: float | None) -> Iterable[Row]:
    """Seconds and standard error; a log Z that no route trusts has none."""
    yield Row("truth/evidence", f"{what}: seconds", seconds, "s", f"<= {_SECONDS:g}", seconds <= _SECONDS)
    value = float("nan") if error is None else error
    yield Row("truth/evidence", f"{what}: standard error", value, "nat", f"<= {_ERROR:g}", value <= _ERROR)
