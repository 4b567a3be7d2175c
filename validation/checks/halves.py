"""Bridges to log Z, half by half: log ratios at the draws of either side, and what an answer says of the two estimates.

A bridge fits a Gaussian (or cut normals) to one half of the draws, meets the other half, and changes roles. What it
passes to the fixed point is held against densities of the judge's own, in the coordinates of the latent values; what it
makes of two fixed points, given here, against its documentation, on both sides of each of its limits.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_ndtr, log_softmax, ndtr
from scipy.stats import multivariate_normal

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check
from validation.checks.standard_errors import LOADINGS, PAPER, ROUTES, Route
from validation.checks.standard_errors import _fitc_parts as fitc_parts
from validation.checks.standard_errors import _inducing_draws as inducing_draws
from validation.checks.standard_errors import _shaped as shaped
from validation.problem import Problem

Array = NDArray[np.float64]
BRIDGES = tuple(entry for entry in ROUTES if entry.name.startswith("bridge"))
_MODULES = {"gibbs-logit": "bridge", "gibbs-pairwise": "pairwise", "mh-softmax": "softmax_bridge"}


def _module(entry: Route) -> Any:
    return importlib.import_module(f"gibbs.evidence.{_MODULES.get(entry.method, 'fitted')}")


def _asked(
    entry: Route, point: Callable[[int, Array, Array], float], batch: tuple[float, float], target: float
) -> tuple[Any, list[tuple[Array, Array, float]]]:
    """The answer of a bridge whose fixed points are point(half, at draws, at fit), with the sides it passed on.

    batch: relative errors of the chains' side of each half, in place of those by batch means.
    """
    sides: list[tuple[Array, Array, float]] = []
    module = _module(entry)

    def fixed_point(at_post: Array, at_fit: Array, share: float) -> float:
        sides.append((at_post, at_fit, share))
        return point(len(sides) - 1, at_post, at_fit)

    def error(values: Array) -> float:
        return batch[len(sides) - 1] * float(values.mean())

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(module, "_log_bridge", fixed_point))
        stack.enter_context(mock.patch.object(module, "_batch_error", error))
        answer = entry.answer(np.random.default_rng(61), entry.few, target_error=target)
    return answer, sides


def _error_of_fit(at_fit: Array, log_z: float) -> float:
    side = 1.0 / (1.0 + np.exp(log_z - at_fit))
    return float(side.std(ddof=1) / np.sqrt(side.size) / side.mean())


def _overlap(at_fit: Array, log_z: float) -> float:
    return 2.0 * float(expit(at_fit - log_z).mean())


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is zero."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) > 0.0 else (low, middle)
    return 0.5 * (low + high)


def _statements(entry: Route) -> Iterable[Outcome]:
    from gibbs.evidence.bridge import _log_bridge

    rows: list[tuple[str, object, object]] = []
    for factor in (0.98, 1.02):
        batch = (0.02, 0.4)
        points: list[float] = []
        errors: list[float] = []

        def apart(
            half: int, at_post: Array, at_fit: Array, factor: float = factor, batch: tuple[float, float] = batch,
            points: list[float] = points, errors: list[float] = errors,
        ) -> float:  # fmt: skip
            """The second so far from the first that it is beyond what the errors allow, or just within."""
            log_z = _log_bridge(at_post, at_fit, 0.5)
            error = float(np.hypot(batch[half], _error_of_fit(at_fit, log_z)))
            for _ in range(60 * half):
                log_z = points[0] - factor * 4.0 * float(np.hypot(errors[0], error))
                error = float(np.hypot(batch[half], _error_of_fit(at_fit, log_z)))
            errors.append(error)
            points.append(log_z)
            return log_z

        answer, sides = _asked(entry, apart, batch, 1e3)
        overlap = min(_overlap(sides[k][1], points[k]) for k in range(2))
        error = 0.5 * sum(errors)
        wanted = np.array([0.5 * sum(points), error, 0.5 * sum(points), 0.5 * error**2, overlap,
                           abs(points[0] - points[1])])  # fmt: skip
        came = np.array([answer.value, answer.standard_error, answer.mean_log, answer.bias,
                         answer.detail["overlap"], answer.detail["gap_between_halves"]])  # fmt: skip
        worst = float(np.abs(came - wanted).max())
        yield Compared(worst, 1e-9, f"{entry.name}: averages, errors as if of one, overlap and gap", "gibbs",
                       "definition", "absolute")  # fmt: skip
        rows.append((f"halves {factor:g} of what four errors allow apart: trusted", answer.trusted, factor < 1.0))
        shares = {share for _, _, share in sides}
        rows.append(("share of the draws of a chain", shares, {0.5}))
        # relative entropies are positive: draws of the posterior are where it is higher than the fit, on average
        higher = all(at_post.mean() > at_fit.mean() for at_post, at_fit, _ in sides)
        rows.append(("sides in their places, as many draws on each", higher and len({a.size for a, _, _ in sides} |
                     {b.size for _, b, _ in sides}) == 1, True))  # fmt: skip
    for half in range(2):
        for limit in (0.0198, 0.0202):

            def thin(which: int, at_post: Array, at_fit: Array, half: int = half, limit: float = limit) -> float:
                log_z = _log_bridge(at_post, at_fit, 0.5)
                if which != half:
                    return log_z
                return _root(lambda at: _overlap(at_fit, at) - limit, log_z - 20.0, log_z + 40.0)

            answer, _ = _asked(entry, thin, (1e2, 1e2), 1e3)
            rows.append((f"half {half} overlaps by {limit:g}: trusted", answer.trusted, limit > 0.02))
    yield as_documented(rows, "gibbs", "answers")


# -- log ratios ----------------------------------------------------------------------------------------------------


def _log_normal(x: Array, mean: Array, cov: Array) -> Array:
    return np.asarray(multivariate_normal.logpdf(x, mean, cov)).reshape(len(x))


def _expected_logistic(mean: Array, sd: Array) -> Array:
    """log E σ(mean + sd z) by a long rule: mean (k, n), sd (n,)."""
    z = np.linspace(-9.0, 9.0, 1201)
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    return np.asarray(np.log(np.stack([expit(mean + sd * node) for node in z], axis=-1) @ weight))


def _density(entry: Route, rng: np.random.Generator) -> tuple[Array, Callable[[Array], Array]]:
    """Draws (r, s, p) as the route draws them, and the log of prior times likelihood, of (k, p)."""
    few = entry.few
    if entry.method == "gibbs-pairwise":
        white = rng.standard_normal((16_000, 2))
        white = white[rng.random(len(white)) < ndtr(white @ LOADINGS.T).prod(axis=1)][: 4 * 160]
        return white.reshape(
            4, 160, 2
        ), lambda x: log_ndtr(x @ LOADINGS.T).sum(axis=1) + _log_normal(x, np.zeros(2), np.eye(2))
    draws = shaped(few, rng)
    sign = 2.0 * few.y - 1.0
    if entry.method == "mh-softmax":
        # differences to the last class say the same as any contrasts
        joint = np.block([[few.cov[2] + (a == b) * few.cov[a] for b in range(2)] for a in range(2)])

        def of_classes(e: Array) -> Array:
            f = np.concatenate([e.reshape(len(e), 2, -1), np.zeros((len(e), 1, len(few.y)))], axis=1)
            scores = log_softmax(f, axis=1)[:, few.y, np.arange(len(few.y))].sum(axis=1)
            return np.asarray(scores + _log_normal(e, np.zeros(len(joint)), joint))

        return (draws[:, :, :2] - draws[:, :, 2:]).reshape(4, 160, -1), of_classes
    f = draws[:, :, 0]
    if not few.fitc:
        return f, lambda x: log_expit(sign * x).sum(axis=1) + _log_normal(x, np.zeros(len(sign)), few.cov[0])
    K_ZZ, K_XZ, k_xx = fitc_parts(few)
    gain = np.linalg.solve(K_ZZ, K_XZ.T).T
    sd = np.sqrt(k_xx - np.einsum("nm,nm->n", gain, K_XZ))
    return inducing_draws(
        few, f, rng
    ), lambda u: _expected_logistic(sign * (u @ gain.T), sd).sum(axis=1) + _log_normal(u, np.zeros(len(K_ZZ)), K_ZZ)


def _log_ratios(entry: Route) -> Iterable[Outcome]:
    from gibbs.evidence.bridge import _log_bridge

    _, sides = _asked(entry, lambda _, at_post, at_fit: _log_bridge(at_post, at_fit, 0.5), (1.0, 1.0), 1.0)
    rng = np.random.default_rng(61)
    draws, density = _density(entry, rng)
    p, middle = draws.shape[2], draws.shape[1] // 2
    halves = [draws[:, :middle].reshape(-1, p), draws[:, middle:].reshape(-1, p)]
    post, drawn = [], []
    for fit, met in (halves, halves[::-1]):
        mean, cov = fit.mean(axis=0), np.cov(fit.T).reshape(p, p)
        post.append(density(met) - _log_normal(met, mean, cov))
        fresh = mean + rng.standard_normal(met.shape) @ np.linalg.cholesky(cov).T
        drawn.append(density(fresh) - _log_normal(fresh, mean, cov))
    worst = max(float(np.abs(side[0] - at).max()) for side, at in zip(sides, post, strict=True))
    yield Compared(worst, 1e-8, f"{entry.name}: at the draws of the other half", "gibbs", "scipy.stats", "nat")
    # contrasts may be chosen otherwise: the same normals are then other draws of the same Gaussian
    if entry.method != "mh-softmax":
        worst = max(float(np.abs(side[1] - at).max()) for side, at in zip(sides, drawn, strict=True))
        yield Compared(worst, 1e-8, f"{entry.name}: at draws of the fit", "gibbs", "scipy.stats", "nat")


# -- registration --------------------------------------------------------------------------------------------------


def _register(method: str) -> None:
    own = [entry for entry in BRIDGES if entry.method == method]

    @check(
        f"identity/{method}/halves_of_a_bridge",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Does a bridge say of its two halves what they are, and trust them within its limits and not beyond?",
        problems=(NO_PROBLEM,),
    )
    def _(_context: Context, _problem: Problem | None) -> list[Outcome]:
        return [outcome for entry in own for outcome in _statements(entry)]

    if _MODULES.get(method) is None:
        return

    @check(
        f"identity/{method}/log_ratios_of_a_bridge",
        paper=PAPER.get(method, "riihimaki2013"),
        question="Are the log ratios that meet in a bridge those of the posterior over the fitted Gaussian?",
        problems=(NO_PROBLEM,),
    )
    def _(_context: Context, _problem: Problem | None) -> list[Outcome]:
        return [outcome for entry in own for outcome in _log_ratios(entry)]


for _method in dict.fromkeys(entry.method for entry in BRIDGES):
    _register(_method)
