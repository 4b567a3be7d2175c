"""More of what the papers say in words: costs by operations counted, energies and scales by their definitions.

As in `validation.checks.cost_statements`: each check is `print/METHOD/says_ID`, asked by a full run; no clock is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import Compared, Context, Outcome, flaws
from validation.checks.cost_statements import _by_data, _degree, _problem, _quadratic, _step, says_at_length
from validation.checks.operations import operations
from validation.checks.villacampa2020_dense import Dense, G

Array = NDArray[np.float64]


# -- izmailov2016 --------------------------------------------------------------------------------------------------


def _elbo(n: int, m: int) -> float:
    """Operations of (11) and its derivatives in q and in the matrices of the prior."""
    _, y_sign, K_ZZ, K_XZ, k_xx = _quadratic(n, m)
    rng = np.random.default_rng(2)
    mean, root = rng.standard_normal(m), np.eye(m) + 0.1 * np.tril(rng.standard_normal((m, m)), -1)

    def run() -> None:
        from reference.izmailov2016 import bound

        bound.elbo(mean, root @ root.T, y_sign, K_ZZ, K_XZ, k_xx)
        bound.elbo_gradient(mean, root, y_sign, K_ZZ, K_XZ, k_xx)

    return operations(run, elementwise=False)


@says_at_length("izmailov2016", "svi", "cost-svi-bound", "Take (11) and its derivatives n m² + m³ operations?")
def _(context: Context) -> Iterable[Outcome]:
    yield from _by_data("(11) and its derivatives", _elbo)
    # what is left for no datum
    counts = [_elbo(24, m) - 24.0 * (_elbo(60, m) - _elbo(36, m)) / 24.0 for m in (4, 8, 12, 16, 20)]
    yield _degree("what does not grow with n, in m", counts, 3)


# -- riihimaki2013 -------------------------------------------------------------------------------------------------


class _Counting:
    """A generator of random numbers that counts those it gives."""

    def __init__(self) -> None:
        self.count = 0
        self._rng = np.random.default_rng(0)

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self._rng, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            value = draw(*args, **kwargs)
            self.count += int(np.size(value))
            return value

        return counted


def _cone_draws(n: int, c: int) -> float:
    """Random numbers that the Gibbs sampler takes for one draw of the auxiliary values of n data."""
    from gibbs.models.multinomial_probit import draw_auxiliary

    y = np.arange(n) % c
    auxiliary = np.zeros((1, c, n))
    auxiliary[:, y, np.arange(n)] = 1.0
    rng = _Counting()
    draw_auxiliary(rng, np.zeros((1, c, n)), auxiliary, y)  # type: ignore[arg-type]
    return float(rng.count)


@says_at_length("riihimaki2013", "gibbs-probit", "cost-gibbs-likelihood", "Take cone draws n c numbers a sweep?")
def _(context: Context) -> Iterable[Outcome]:
    yield _degree("random numbers of a sweep's cone draws, in n", [_cone_draws(n, 3) for n in (6, 9, 12, 15)], 1)
    yield _degree("in c", [_cone_draws(12, c) for c in (2, 3, 4, 5)], 1)


# -- villacampa2017 ------------------------------------------------------------------------------------------------


def _log_scales(log_norm: Array, coefficients: Any, mean: Array, cov: Array, y: Array, upsilon: Array) -> Array:
    """(61) by determinants and inverses of the cavities' matrices, factor by factor."""
    value = np.array(log_norm)
    for i, label in enumerate(y):
        for k in range(len(mean)):
            if k == label:
                continue
            for j, c1, c2 in (
                (label, coefficients.c1_label[i, k], coefficients.c2_label[i, k]),
                (k, coefficients.c1_other[i, k], coefficients.c2_other[i, k]),
            ):
                precision = np.linalg.inv(cov[j])
                shift, row = precision @ mean[j], upsilon[j, i]
                for sign, P, h in (
                    (1.0, precision - c1 * np.outer(row, row), shift - c2 * row),
                    (-1.0, precision, shift),
                ):
                    value[i, k] += sign * 0.5 * float(h @ np.linalg.solve(P, h) - np.linalg.slogdet(P)[1])
    return value


def _factors(n: int, m: int) -> tuple[Any, ...]:
    """log Z, coefficients, q, labels and projections of n data with three classes, all cavities proper."""
    from reference.villacampa2017.posterior import Coefficients, Gaussians

    rng, C = np.random.default_rng(3), 3
    y = np.arange(n) % C
    upsilon = rng.standard_normal((C, n, m)) / np.sqrt(m)
    root = np.eye(m) + 0.3 * np.tril(rng.standard_normal((C, m, m)), -1) / np.sqrt(m)
    mean, cov = rng.standard_normal((C, m)), root @ np.swapaxes(root, 1, 2)
    q = np.einsum("cnm,cmk,cnk->cn", upsilon, cov, upsilon).max()
    sites = [rng.uniform(-0.5, 0.5, (n, C)) / q for _ in range(4)]
    own = np.arange(n), y
    for site in sites:
        site[own] = 0.0
    log_norm = rng.standard_normal((n, C))
    log_norm[own] = 0.0
    return log_norm, Coefficients(*sites), Gaussians(mean, cov), y, upsilon


@says_at_length(
    "villacampa2017",
    "ep",
    "log-scale-efficient",
    "Need the scales of factors no matrix but m² operations?",
)
def _(context: Context) -> Iterable[Outcome]:
    from reference.villacampa2017.evidence import factor_log_scale_rank_one

    log_norm, sites, q, y, upsilon = _factors(7, 5)
    asked = factor_log_scale_rank_one(log_norm, sites, q, y, upsilon)
    whole = _log_scales(log_norm, sites, q.mean, q.cov, y, upsilon)
    yield Compared(float(np.abs(asked - whole).max()), 1e-11, "(61) by matrices and by the rank-one form", "paper",
                   "reference")  # fmt: skip

    def count(m: int) -> float:
        given = _factors(4, m)

        def run() -> None:
            from reference.villacampa2017 import evidence

            evidence.factor_log_scale_rank_one(*given)

        return operations(run, elementwise=False)

    yield _degree("the rank-one form, in M", [count(m) for m in (4, 8, 12, 16)], 2)


# -- villacampa2020 ------------------------------------------------------------------------------------------------


def _a_step(method: str, n: int, m: int, C: int, **own: Any) -> float:
    """Products, factors and solves of one step on a mini-batch of six."""
    options: dict[str, Any] = {"batch_size": 6, "seed": 0, "gradients": False, "learn": ("variance",),
                               "optimizer": "adam", "rate": 0.01}  # fmt: skip
    return _step("fast", method, _problem(n, m, C, epsilon=0.01 if method != "ep" else 0.0), elementwise=False,
                 key="n_steps", **own, **options)  # fmt: skip


@says_at_length("villacampa2020", "vi-robust", "cost-ep-vb-alike", "Is a step of VB within three times one of EP?")
def _(context: Context) -> Iterable[Outcome]:
    for n, m, C in ((60, 10, 3), (60, 40, 3), (60, 20, 6), (200, 20, 3)):
        ratio = _a_step("vi-robust", n, m, C) / _a_step("ep", n, m, C)
        why = f"N = {n}, M = {m}, C = {C}: {ratio:.2f} times EP's products, factors and solves a step"
        yield flaws(not 1.0 / 3.0 < ratio < 3.0, why, "paper", "beyond a factor of three")


@says_at_length("villacampa2020", "rpapep", "rpapep-alpha-1", "Is (10) at alpha = 1 EP's with N + 1 tied factors?")
def _(context: Context) -> Iterable[Outcome]:
    from validation.checks.print_villacampa2020 import Found, printed

    problem = _problem(6, 2, 3, epsilon=0.1)
    at = Found(context, "arpep", problem, 0.5)  # a q that is not at rest
    P, h, model = at.P, at.h, Dense(problem)
    left = 1.0 - 1.0 / (problem.n + 1)  # a cavity is q without one of N + 1 like factors
    # EP: log Z = g(q) - g(none) + sum over factors of log E_cavity[factor] + g(cavity) - g(q), the prior one of them
    data = float(np.sum(model.log_powers(1.0, left * P, left * h)))
    of_q, of_cavity = G(P, h), G(left * P, left * h)
    of_prior = G(left * P + model.K_inv, left * h) - G(model.K_inv, 0.0 * h) - of_cavity
    value = of_q + data + problem.n * (of_cavity - of_q) + of_prior + of_cavity - of_q
    asked = printed("energies").rpapep_objective(at.q, at.y, at.matrices, problem.epsilon, 1.0)
    yield Compared(abs(value - asked) / abs(value), 1e-9, "EP's energy by its definition, and (10) at the same q",
                   "paper", "reference")  # fmt: skip
