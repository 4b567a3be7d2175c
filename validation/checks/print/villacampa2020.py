"""villacampa2020 in print: its equations on what *fast* found, against fast's own values and plain definitions.

Definitions are the judge's: dense natural parameters, `scipy.stats` densities, truncated Gaussian moments and a long
trapezoidal rule, five-point differences. A printed form with a misprint is held to miss by what the ledger says of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import multivariate_normal, norm

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.definitions import power as dense
from validation.checks.print.printed import held, misprint
from validation.checks.print.villacampa2017 import distribution, given, hard_fixed_points, unmoved
from validation.door.problem import Problem
from validation.implementations.quadrature_rule import kernel
from validation.judge.compare import relative_difference

Array = NDArray[np.float64]

PAPER = "villacampa2020"
_TINY = ("two-points-3-sparse-errors",)
_BOTH = ("two-points-3-sparse-errors", "two-points-3-sparse-threshold")
_ALPHA = 0.5
_FLOOR = 1e-3  # many of the quantities vanish at a point or for a class
_IDENTITY = "an identity of small dense matrices, at sites that fast left at rest to 1e-12"
_MARGIN = 1e-2  # a misprint that moved a number by less would not be told from a slow iteration


def printed(module: str) -> Any:
    """A module of the paper in `reference`, looked up when it is asked, so that a bug planted in it is met."""
    return importlib.import_module(f"reference.villacampa2020.{module}")


def same(equation: str, left: Any, right: Any, whom: str = "definition", *, why: str = _IDENTITY) -> Compared:
    """A printed equation against what it must give."""
    return held(equation, left, right, whom, floor=_FLOOR, because=why)


def missed(equation: str, as_printed: Any, right: Any, gap: Any) -> Iterable[Compared]:
    """A misprint: the printed form is off by `gap`, as the ledger says, and that is no small thing."""
    return misprint(equation, as_printed, np.asarray(right, dtype=float) + gap, right, _MARGIN, floor=_FLOOR)


def derivative(function: Callable[[float], float], unit: float = 1.0) -> float:
    """Derivative at 0, five points, good to 1e-10 of a smooth function that changes over `unit`."""
    h = 2e-3 * unit
    near, far = function(h) - function(-h), function(2.0 * h) - function(-2.0 * h)
    return (8.0 * near - far) / (12.0 * h)


def derivatives(function: Callable[[Array], float], at: Array, unit: float = 1.0) -> Array:
    """Derivatives in every entry of an array, all of them free."""
    values = np.empty(at.size)
    for j in range(at.size):
        away = np.zeros(at.size)
        away[j] = 1.0
        move = away.reshape(at.shape)
        values[j] = derivative(lambda t, move=move: function(at + t * move), unit)  # type: ignore[misc]
    return values.reshape(at.shape)


F = TypeVar("F", bound=Callable[..., Iterable[Outcome]])


def folded(function: F) -> F:
    """Of comparisons of one name, over data and classes, the worst alone."""

    @wraps(function)
    def worst(*arguments: Any) -> Iterable[Outcome]:
        kept: dict[tuple[str, str], Compared] = {}
        for outcome in function(*arguments):
            assert isinstance(outcome, Compared)
            key = outcome.left, outcome.right + outcome.unit
            # a NaN is kept: it is not <= the one before
            if key not in kept or not outcome.observed <= kept[key].observed:
                kept[key] = outcome
        return list(kept.values())

    return cast(F, worst)


class Found:
    """What fast found on a problem with a method, and the judge's matrices of that problem.

    K, V, P (C, m, m), m, h (C, m)   of the prior, and moments and natural parameters of q
    upsilon (n, C, m), rows (C, n, m)   the judge's order and the paper's
    """

    def __init__(self, context: Context, method: str, problem: Problem, alpha: float = _ALPHA, **options: Any) -> None:
        asked = options if method == "vi-robust" else {"alpha": alpha, **options}
        self.answer = answer = context.solve("fast", method, problem, tolerance=1e-12, **asked)
        assert answer.inducing_mean is not None
        assert answer.inducing_cov is not None
        assert answer.log_evidence is not None
        assert problem.Z is not None
        self.problem, self.alpha, self.y, self.log_evidence = problem, alpha, problem.y, answer.log_evidence
        self.model = dense.Dense(problem)
        self.n, self.C = problem.n, problem.n_classes
        self.K = np.array(
            [kernel(problem, k, Z, Z) + problem.jitter[k] * np.eye(len(Z)) for k, Z in enumerate(problem.Z)]
        )
        self.K_XZ = np.array([kernel(problem, k, problem.X, problem.Z[k]) for k in range(self.C)])
        self.k_xx = np.repeat((problem.variance + problem.noise)[:, None], self.n, axis=1)
        self.upsilon, self.s = self.model.upsilon, self.model.cond_var
        self.rows, self.cond_var = np.swapaxes(self.upsilon, 0, 1), self.s.T
        self.m, self.V = answer.inducing_mean, answer.inducing_cov
        self.P = dense.inverse(self.V)
        self.h = np.einsum("kij,kj->ki", self.P, self.m)
        self.u = self.m + np.linspace(-0.4, 0.7, self.m.size).reshape(self.m.shape)  # some inducing values

    @property
    def q(self) -> Any:
        """q for the paper's functions."""
        return printed("posterior").Gaussians(self.m, self.V)

    @property
    def matrices(self) -> Any:
        """What the prior says of the data, for the paper's functions."""
        return printed("hyper").Matrices(self.K, self.rows, self.cond_var, self.k_xx, self.K_XZ)

    @property
    def theta(self) -> Any:
        """Natural parameters of q."""
        return printed("posterior").Natural(self.P, self.h)

    @property
    def prior(self) -> Any:
        """Natural parameters of the prior."""
        return printed("posterior").Natural(self.model.K_inv, np.zeros_like(self.h))

    def latent_power(self, i: int, mean: Array, var: Array, alpha: float) -> float:
        """E[p(y_i|f)^alpha] of independent latent values, (C,)."""
        right = float(dense.largest(self.y[i : i + 1], mean[None], var[None])[0])
        high, low = (float(value**alpha) for value in self.model.labels)
        return high * right + low * (1.0 - right)


class Sites(Found):
    """The same for pep, with its sites, cavities and tilted distributions.

    c1, c2 (n, C); T (n, C, m, m), t (n, C, m) natural parameters of the factors; log_z (n,) log E[p^alpha] under the
    cavity; tilted_f, tilted_ff (n, C) mean and variance of the latent values under p^alpha q\\, by truncated Gaussians
    """

    def __init__(
        self, context: Context, problem: Problem, alpha: float = _ALPHA, shares: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        super().__init__(context, "pep", problem, alpha)
        self.c1, self.c2 = shares[0] * self.answer.local["site_precision"], shares[1] * self.answer.local["site_shift"]
        self.T = np.einsum("nk,nki,nkj->nkij", self.c1, self.upsilon, self.upsilon)
        self.t = self.c2[:, :, None] * self.upsilon
        if shares != (1.0, 1.0):  # q of other sites than fast's
            self.P, self.h = self.model.K_inv + self.T.sum(axis=0), self.t.sum(axis=0)
            self.V = dense.inverse(self.P)
            self.m = np.einsum("kij,kj->ki", self.V, self.h)
        self.cavity = [(self.P - alpha * self.T[i], self.h - alpha * self.t[i]) for i in range(self.n)]
        self.cavity_V = np.array([dense.inverse(P) for P, _ in self.cavity])
        self.cavity_m = np.array(
            [np.einsum("kij,kj->ki", V, h) for V, (_, h) in zip(self.cavity_V, self.cavity, strict=True)]
        )
        self.a = np.einsum("nki,nki->nk", self.upsilon, self.cavity_m)
        self.b = self.s + np.einsum("nki,nkij,nkj->nk", self.upsilon, self.cavity_V, self.upsilon)
        self.log_z = np.array([self.model.log_powers(alpha, *self.cavity[i])[i] for i in range(self.n)])
        moments = [self._tilted(i) for i in range(self.n)]
        self.tilted_f, self.tilted_ff = (np.array(part) for part in zip(*moments, strict=True))
        # Gaussian identities: derivatives of log E in the mean and the variance of a latent value
        self.g = (self.tilted_f - self.a) / self.b
        self.dv = 0.5 * ((self.tilted_ff + (self.tilted_f - self.a) ** 2) / self.b - 1.0) / self.b
        # u given f is Gaussian and the label sees f alone
        gain = np.einsum("nkij,nkj->nki", self.cavity_V, self.upsilon) / self.b[:, :, None]
        self.new_m = self.cavity_m + gain * (self.tilted_f - self.a)[:, :, None]
        shrunk = (self.tilted_ff - self.b)[:, :, None, None]
        self.new_V = self.cavity_V + shrunk * gain[:, :, :, None] * gain[:, :, None, :]

    def _tilted(self, i: int) -> tuple[Array, Array]:
        """Means and variances of f_i under p(y_i|f_i)^alpha and its cavity: the others are cut off at f_y = x."""
        a, b, own = self.a[i], self.b[i], int(self.y[i])
        x = np.linspace(-9.0, 9.0, 1201)
        weights = np.exp(-0.5 * x * x) * (x[1] - x[0]) / np.sqrt(2.0 * np.pi)
        x = a[own] + np.sqrt(b[own]) * x
        below = {k: (x - a[k]) / np.sqrt(b[k]) for k in range(self.C) if k != own}
        high, low = (float(value**self.alpha) for value in self.model.labels)
        total, first, second = 0.0, low * a, low * (a**2 + b)
        all_below = np.prod([norm.cdf(z) for z in below.values()], axis=0)
        total = low + (high - low) * float(weights @ all_below)
        first[own] += (high - low) * float(weights @ (x * all_below))
        second[own] += (high - low) * float(weights @ (x * x * all_below))
        for k, z in below.items():
            rest = np.prod([norm.cdf(other) for j, other in below.items() if j != k], axis=0)
            once = a[k] * norm.cdf(z) - np.sqrt(b[k]) * norm.pdf(z)
            twice = (a[k] ** 2 + b[k]) * norm.cdf(z) - np.sqrt(b[k]) * (x + a[k]) * norm.pdf(z)
            first[k] += (high - low) * float(weights @ (rest * once))
            second[k] += (high - low) * float(weights @ (rest * twice))
        mean = first / total
        return mean, second / total - mean**2

    def refined(self) -> tuple[Array, Array]:
        """C1 and C2 (n, C) that the tilted moments ask for: natural parameters over the cavity's, over alpha."""
        P = dense.inverse(self.new_V)
        precision = P - np.array([each for each, _ in self.cavity])
        shift = np.einsum("nkij,nkj->nki", P, self.new_m) - np.array([each for _, each in self.cavity])
        length = np.einsum("nki,nki->nk", self.upsilon, self.upsilon)
        c1 = np.einsum("nki,nkij,nkj->nk", self.upsilon, precision, self.upsilon) / length**2
        return c1 / self.alpha, np.einsum("nki,nki->nk", self.upsilon, shift) / length / self.alpha

    def included(self, i: int) -> Any:
        """The printed tilted distribution of one datum under its cavity."""
        one = self.y[i : i + 1], self.k_xx[:, i : i + 1], self.rows[:, i : i + 1], self.K
        return printed("pep").pep_include([self.gaussians(i)], *one, self.problem.epsilon, self.alpha)[0]

    def site(self, i: int) -> Any:
        """Natural parameters of a factor."""
        return printed("posterior").Natural(self.T[i], self.t[i])

    def gaussians(self, i: int) -> Any:
        """Moments of a cavity."""
        return printed("posterior").Gaussians(self.cavity_m[i], self.cavity_V[i])

    def coefficients(self) -> Any:
        """Numbers of all factors."""
        return printed("posterior").Coefficients(self.c1, self.c2)

    def log_density(self, mean: Array, cov: Array, u: Array) -> float:
        """Of inducing values under independent Gaussians."""
        return float(sum(multivariate_normal.logpdf(x, m, V) for x, m, V in zip(u, mean, cov, strict=True)))

    def log_ratio(self, i: int) -> float:
        """log E_q[(p/phi~)^alpha], phi~ of scale one: q phi~^-alpha is the cavity times a number, read off at one u."""
        own = float(np.sum(self.u * self.t[i]) - 0.5 * np.einsum("ki,kij,kj->", self.u, self.T[i], self.u))
        apart = self.log_density(self.m, self.V, self.u) - self.log_density(self.cavity_m[i], self.cavity_V[i], self.u)
        return float(self.log_z[i] + apart - self.alpha * own)


# -- the four steps --------------------------------------------------------------------------------------------------


@check(
    "print/pep/steps",
    paper=PAPER,
    question=(
        "The four printed steps, on fast's converged sites, remove, include and project as the densities say, and "
        "give those sites back."
    ),
    problems=_BOTH,
)
@folded
def steps(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Section 3.1, (A.7) to (A.15) and (A.8), (A.9) beside them."""
    at = Sites(context, problem)
    pep, cavity, alpha = printed("pep"), printed("cavity"), at.alpha
    for i in range(at.n):
        P, h = at.cavity[i]
        left = pep.pep_remove(at.q, at.c1[i], at.c2[i], at.upsilon[i], alpha)
        yield same("u15-pep-remove mean", left.mean, at.cavity_m[i])
        yield same("u15-pep-remove covariance", left.cov, at.cavity_V[i])
        too_much = printed("posterior").Natural(1.5 / alpha * at.P, at.t[i])
        try:
            cavity.power_cavity(at.theta, too_much, alpha)
            refused = False
        except np.linalg.LinAlgError:
            refused = True
        yield same("(A.7) refuses more than q has", refused, True, "no distribution is left")
        distribution = cavity.power_cavity(at.theta, at.site(i), alpha)
        yield same("(A.7) precision", distribution.precision, P)
        yield same("(A.7) shift", distribution.shift, h)
        numbers = [(float(at.c1[i, k]), float(at.c2[i, k]), at.upsilon[i, k]) for k in range(at.C)]
        results = [cavity.power_cavity_covariance(at.V[k], c1, u, alpha) for k, (c1, _, u) in enumerate(numbers)]
        yield same("(A.8)", results, at.cavity_V[i])
        results = [
            cavity.power_cavity_mean(at.m[k], at.V[k], c1, c2, u, alpha) for k, (c1, c2, u) in enumerate(numbers)
        ]
        yield same("(A.9)", results, at.cavity_m[i])
        included = at.included(i)
        given = np.log(at.latent_power(i, np.sum(at.upsilon[i] * at.u, axis=1), at.s[i], alpha))
        yield same(
            "u16-pep-include", included.log_density(at.u), given + at.log_density(at.cavity_m[i], at.cavity_V[i], at.u)
        )
        yield same("u16-pep-include log Z_i", included.log_norm, at.log_z[i])
        yield same("u16-pep-include by means", included.d_mean, at.g[i], "truncated Gaussian moments")
        yield same("u16-pep-include by variances", included.d_var, at.dv[i], "truncated Gaussian moments")
        new = pep.pep_project(included)
        yield same("u17-pep-project mean", new.mean, at.new_m[i], "truncated Gaussian moments")
        yield same("u17-pep-project covariance", new.cov, at.new_V[i], "truncated Gaussian moments")
        yield same("u17-pep-project mean", new.mean, at.m, "fast: q, which a projection must leave")
        yield same("u17-pep-project covariance", new.cov, at.V, "fast: q, which a projection must leave")
        factor = pep.pep_update(included, new, alpha)
        yield same("u18-pep-update C1", factor.c1, at.c1[i], "fast: its own site")
        yield same("u18-pep-update C2", factor.c2, at.c2[i], "fast: its own site")
        site = factor.site
        yield same("u18-pep-update precision", site.precision, at.T[i], "fast: its own site")
        yield same("u18-pep-update shift", site.shift, at.t[i], "fast: its own site")
        value = at.log_z[i] + at.log_density(at.new_m[i], at.new_V[i], at.u)
        log_value = (value - at.log_density(at.cavity_m[i], at.cavity_V[i], at.u)) / alpha
        value = printed("posterior").approximate_factor(site, at.u)
        yield same("(A.1), u13-pep-factor-recovery", value, np.exp(log_value), "(Z_i q_new/q\\)^(1/alpha) at some u")
        yield same("(A.1) logarithm", printed("posterior").log_approximate_factor(site, at.u), log_value)


@check(
    "print/pep/factors",
    paper=PAPER,
    question=(
        "The printed forms (A.2), (A.3) and (A.10) to (A.21) of a factor, and the printed sweeps, give fast's sites."
    ),
    problems=_BOTH,
)
@folded
def factors(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Appendices A.2, A.4 and A.5."""
    at = Sites(context, problem)
    r, posterior, alpha = printed("refinement"), printed("posterior"), at.alpha
    for i in range(at.n):
        latent = [r.cavity_latent_mean(at.upsilon[i, k], at.cavity_m[i, k]) for k in range(at.C)]
        yield same("(A.10)", latent, at.a[i])
        arguments = [(float(at.k_xx[k, i]), at.upsilon[i, k], at.K[k], at.cavity_V[i, k]) for k in range(at.C)]
        yield same("(A.11)", [r.cavity_latent_variance(*each) for each in arguments], at.b[i])
        for k in range(at.C):
            u, m, V = at.upsilon[i, k], at.cavity_m[i, k], at.cavity_V[i, k]
            g, dv, c1 = float(at.g[i, k]), float(at.dv[i, k]), float(at.c1[i, k])
            new_m, new_V = at.new_m[i, k], at.new_V[i, k]

            def log_norm(m: Array, V: Array, i: int = i, k: int = k, u: Array = u) -> float:
                """log Z_i where one class's cavity has these moments, V not symmetric."""
                mean, var = at.a[i].copy(), at.b[i].copy()
                mean[k], var[k] = u @ m, at.s[i, k] + u @ V @ u
                return float(np.log(at.latent_power(i, mean, var, alpha)))

            told = "five-point differences, good to 1e-10"
            unit = float(np.sqrt(at.b[i, k]))
            by_mean = derivatives(lambda x, V=V, f=log_norm: f(x, V), m, unit)  # type: ignore[misc]
            yield same("(A.12)", r.dlogz_dmean(g, u), by_mean, "differences of log Z_i", why=told)
            by_cov = derivatives(lambda x, m=m, f=log_norm: f(m, x), V, unit**2)  # type: ignore[misc]
            yield same("(A.13)", r.dlogz_dcov(dv, u), by_cov, "differences of log Z_i", why=told)
            yield same("(A.14)", r.tilted_mean(m, V, g, u), new_m, "truncated Gaussian moments")
            yield same("(A.15)", r.tilted_covariance(V, g, dv, u), new_V, "truncated Gaussian moments")
            yield same("(A.16) first line", r.factor_precision_from_moments(new_V, V), alpha * at.T[i, k], "fast")
            yield same("(A.16) last line", r.factor_precision_from_derivatives(g, dv, u, V), alpha * at.T[i, k], "fast")
            yield same("(A.17)", r.update_c1(g, dv, u, V, alpha), c1, "fast: its own site")
            linear = r.factor_linear_from_moments(new_m, new_V, m, V)
            yield same("(A.19) first line", linear, alpha * at.t[i, k], "fast: its own site")
            linear = r.factor_linear_from_derivatives(g, c1, u, m, V, alpha)
            yield same("(A.19) last line", linear, alpha * at.t[i, k], "fast: its own site")
            yield same("(A.20)", r.update_c2(g, c1, u, m, V, alpha), at.c2[i, k], "fast: its own site")
    naturals = [
        posterior.Natural(
            np.array([posterior.factor_precision(float(at.c1[i, k]), at.upsilon[i, k]) for k in range(at.C)]),
            np.array([posterior.factor_linear(float(at.c2[i, k]), at.upsilon[i, k]) for k in range(at.C)]),
        )
        for i in range(at.n)
    ]
    total = posterior.natural_parameter_sum(at.prior, naturals)
    yield same("(A.2), (A.18), u31-natural-sum", total.precision, at.P, "fast: precision of q")
    yield same("(A.3), (A.21), u31-natural-sum", total.shift, at.h, "fast: shift of q")
    tied = printed("sparse").sep_tied_factor(at.coefficients(), at.rows)
    yield same("u6-sep-tied precision", tied.precision, at.P - at.model.K_inv, "fast: q over the prior")
    yield same("u6-sep-tied shift", tied.shift, at.h, "fast: q over the prior")


@check(
    "print/pep/sweeps",
    paper=PAPER,
    question="No printed sweep moves fast's converged sites, and one from elsewhere gives the tilted moments.",
    problems=_BOTH,
)
@folded
def sweeps(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Appendix A.5, sections 2.2 and 3.1: parallel, damped, at power alpha and 1."""
    for alpha in (_ALPHA, 1.0):
        at = Sites(context, problem, alpha)
        r, posterior = printed("pep"), printed("posterior")
        data = at.y, at.matrices
        rest = r.parallel_pep_sweep(at.coefficients(), *data, problem.epsilon, alpha, 0.5)
        for name, value, own in zip(("C1", "C2"), rest[0], (at.c1, at.c2), strict=True):
            yield same(f"u29-parallel-updates {name}, alpha {alpha:g}", value, own, "fast: its own sites")
        yield same(f"u29-parallel-updates mean, alpha {alpha:g}", rest[1].mean, at.m, "fast: its own q")
        yield same(f"u29-parallel-updates covariance, alpha {alpha:g}", rest[1].cov, at.V, "fast: its own q")
        if alpha == 1.0:
            done = r.ep_refine_factors(at.coefficients(), at.q, *data, problem.epsilon)
            yield same("u5-ep-refinement C1", done.coefficients.c1, at.c1, "fast: its own sites")
            yield same("u5-ep-refinement C2", done.coefficients.c2, at.c2, "fast: its own sites")
            continue
        done = r.pep_refine_factors(at.coefficients(), at.q, *data, problem.epsilon, alpha)
        yield same("(1/alpha) log Z_i of a sweep", done.log_norm, at.answer.local["log_tilted_norm"], "fast")
        yield same("improper cavities of a sweep", done.n_improper, 0.0, "fast: all proper")
        # a factor with more precision than q itself has no cavity: it stays, and the others move
        large = at.c1.copy()
        large[0, 1] = 1.5 / (alpha * float(at.upsilon[0, 1] @ at.V[1] @ at.upsilon[0, 1]))
        done = r.pep_refine_factors(posterior.Coefficients(large, at.c2), at.q, *data, problem.epsilon, alpha)
        expected = np.vstack([large[:1], at.c1[1:]])
        yield same("sweep with an improper cavity C1", done.coefficients.c1, expected, "that factor kept")
        yield same("sweep with an improper cavity C2", done.coefficients.c2, at.c2, "that factor kept")
        kept = np.concatenate([[0.0], at.answer.local["log_tilted_norm"][1:]])
        yield same("sweep with an improper cavity log Z_i", done.log_norm, kept, "0 for it")
        yield same("sweep with an improper cavity, their number", done.n_improper, 1.0, "one")
        distributions = r.tilted_distributions(at.coefficients(), at.q, *data, problem.epsilon, alpha)
        yield same("cavities' means", [distribution.cavity.mean for distribution in distributions], at.cavity_m)
        yield same("cavities' covariances", [distribution.cavity.cov for distribution in distributions], at.cavity_V)
        for name, right in (("log_norm", at.log_z), ("d_mean", at.g), ("d_var", at.dv)):
            yield same(
                f"{name} under all cavities", [getattr(distribution, name) for distribution in distributions], right
            )
        # more than all of q's precision, but a share alpha of it leaves a cavity
        large[0, 1] *= 1.2 * alpha / 1.5
        done = r.pep_refine_factors(posterior.Coefficients(large, at.c2), at.q, *data, problem.epsilon, alpha)
        yield same("improper cavities at 1.2 of q's precision", done.n_improper, 0.0, "none")
        # halfway from no sites at all: no fixed point, so that the step and its damping are seen
        there = Sites(context, problem, alpha, (0.5, 0.25))
        start, full = there.coefficients(), there.refined()
        done = r.pep_refine_factors(start, there.q, *data, problem.epsilon, alpha)
        yield same("refined C1, no fixed point", done.coefficients.c1, full[0], "truncated Gaussian moments")
        yield same("refined C2, no fixed point", done.coefficients.c2, full[1], "truncated Gaussian moments")
        yield same("alpha times (1/alpha) log Z_i, no fixed point", alpha * done.log_norm, there.log_z)
        moved, new, _ = r.parallel_pep_sweep(start, *data, problem.epsilon, alpha, 0.25)
        c1, c2 = (0.75 * before + 0.25 * after for before, after in zip(start, full, strict=True))
        yield same("u29-parallel-updates damped C1", moved.c1, c1)
        yield same("u29-parallel-updates damped C2", moved.c2, c2)
        P = at.model.K_inv + np.einsum("nk,nki,nkj->kij", c1, at.upsilon, at.upsilon)
        yield same("u29-parallel-updates damped covariance", dense.inverse(new.cov), P)
        yield same(
            "u29-parallel-updates damped mean",
            np.einsum("kij,kj->ki", P, new.mean),
            np.einsum("nk,nki->ki", c2, at.upsilon),
        )


# -- densities, evidence, gradient -----------------------------------------------------------------------------------


@check(
    "print/pep/evidence",
    paper=PAPER,
    question=(
        "Every printed form of q and of its normaliser, (8), (A.4), (A.5) and (A.22) to (A.27), gives fast's log Z."
    ),
    problems=_BOTH,
)
@folded
def evidence(context: Context, problem: Problem) -> Iterable[Outcome]:
    """(8), appendices A.2 and A.6, and the joint view of section 2.2."""
    at = Sites(context, problem)
    ev, posterior, alpha = printed("evidence"), printed("posterior"), at.alpha
    for k in range(at.C):
        value = -float(multivariate_normal.logpdf(np.zeros(at.m.shape[1]), at.m[k], at.V[k]))
        yield same("(A.25)", ev.gaussian_log_normaliser(at.m[k], at.V[k]), value, "minus the log density at 0")
    three = at.a[0], np.diag(at.b[0])  # of another dimension than inducing values have here
    value = float(multivariate_normal.logpdf(np.zeros(at.C), *three))
    yield same("(A.25)", ev.gaussian_log_normaliser(*three), -value, "minus the log density at 0")
    value = float(multivariate_normal.logpdf(at.a[0], cov=three[1]))
    yield same("(A.4)", posterior.inducing_prior(at.a[:1], three[1][None]), value, "scipy.stats")
    whole = float(-at.log_density(at.m, at.V, np.zeros_like(at.m)))
    yield same("(A.25) from natural parameters", ev.log_normaliser_of(at.theta), whole, "minus the log density at 0")
    ratios = np.array([at.log_ratio(i) for i in range(at.n)])
    told = "q phi~^-alpha over the cavity's density, at one u"
    results = [
        ev.site_log_normaliser(float(at.log_z[i]), posterior.Natural(*at.cavity[i]), at.theta) for i in range(at.n)
    ]
    yield same("(A.22), (A.24)", results, ratios, told)
    results = [ev.site_log_normaliser_from_moments(float(at.log_z[i]), at.gaussians(i), at.q) for i in range(at.n)]
    yield same("(A.27)", results, ratios, told)
    results = ev.site_log_normaliser_rank_one(at.log_z, at.coefficients(), at.q, at.rows, alpha)
    yield same("u30-efficient-scale", results, ratios, told)
    value = printed("pep").pep_log_evidence(at.coefficients(), at.q, at.y, at.matrices, problem.epsilon, alpha)
    yield same("(8), (A.23)", value, at.log_evidence, "fast: log Z")
    yield same("(A.26)", ev.pep_log_evidence_from_moments(at.q, at.K, ratios, alpha), at.log_evidence, "fast: log Z")
    prior = at.log_density(np.zeros_like(at.u), at.K, at.u)
    yield same("(A.4)", posterior.inducing_prior(at.u, at.K), prior, "scipy.stats")
    sites = [posterior.Site(float(ratios[i]) / alpha, at.T[i], at.t[i]) for i in range(at.n)]
    own = at.log_density(at.m, at.V, at.u)
    value = posterior.posterior_approximation(at.u, sites, at.K, at.log_evidence)
    yield same("(A.5)", value, own, "fast: density of its q, by its log Z")
    # latent values of the joint view: f given u is the prior's, so that q(f, u) = q(u) p(f, u)/p(u)
    K_XX = np.array([kernel(problem, k, problem.X, problem.X) + problem.noise[k] * np.eye(at.n) for k in range(at.C)])
    f = 0.3 + np.arange(at.n * at.C, dtype=float).reshape(at.n, at.C) / 7.0
    joint = 0.0
    for k in range(at.C):
        cov = np.block([[K_XX[k], at.K_XZ[k]], [at.K_XZ[k].T, at.K[k]]])
        joint += float(multivariate_normal.logpdf(np.concatenate([f[:, k], at.u[k]]), cov=cov))
    value = printed("sparse").joint_posterior_approximation(f, at.u, sites, K_XX, at.K_XZ, at.K)
    yield same("u7-joint-posterior-view, u19-pep-posterior", value, at.log_evidence + own + joint - prior, "fast: q")
    given = printed("sparse").fitc_conditional(at.u, at.k_xx, at.K_XZ, at.K)
    for k in range(at.C):
        pull = np.linalg.solve(at.K[k], at.K_XZ[k].T).T
        yield same("u3-fitc-prior mean", given.mean[k], pull @ at.u[k])
        yield same("u3-fitc-prior variance", given.var[k], np.diag(K_XX[k] - pull @ at.K_XZ[k].T))
    for i in range(at.n):
        value = printed("sparse").exact_site_factor(given.mean[:, i], given.var[:, i], int(at.y[i]), problem.epsilon)
        yield same("u4-likelihood-factor", value, at.latent_power(i, given.mean[:, i], given.var[:, i], 1.0))
        power = printed("power_likelihood")
        arguments = at.a[i], at.b[i], int(at.y[i]), problem.epsilon, alpha
        yield same("u27-power-expectation", power.expected_power_likelihood(*arguments), np.exp(at.log_z[i]))
        for name, one, scale in (
            ("log E", power.log_expected_power(*arguments), 1.0),
            ("(1/alpha) log E", power.scaled_log_expected_power(*arguments), alpha),
        ):
            yield same(name, scale * one.log_expectation, at.log_z[i])
            yield same(f"{name} by means", scale * one.d_mean, at.g[i], "truncated Gaussian moments")
            yield same(f"{name} by variances", scale * one.d_var, at.dv[i], "truncated Gaussian moments")
            # heat equation: twice by the mean is twice by the variance, of E itself
            yield same(f"{name} twice by means", scale * one.d2_mean, 2.0 * at.dv[i] - at.g[i] ** 2, "heat equation")
    right = dense.largest(at.y, at.a, at.b)
    log_p, log_q = printed("power_likelihood").log_largest_probability(at.a, at.b, at.y)
    yield same("log P(f_y is the largest)", log_p, np.log(right))
    yield same("log P(it is not)", log_q, np.log1p(-right))
    # a variance of zero: the label's value known, the others below it one by one
    var = at.b.copy()
    var[np.arange(at.n), at.y] = 0.0
    top = at.a[np.arange(at.n), at.y][:, None]
    z = np.array([np.delete((top[i] - at.a[i]) / np.sqrt(at.b[i]), at.y[i]) for i in range(at.n)])
    log_p, _ = printed("power_likelihood").log_largest_probability(at.a, var, at.y)
    yield same("log P, the label's value known", log_p, norm.logcdf(z).sum(axis=1), "scipy.stats")


def moved_matrices(problem: Problem, k: int, by: float) -> tuple[Array, Array, Array]:
    """K_ZZ (m, m), K_XZ (n, m) and variances (n,) of a class whose first lengthscale has grown by `by`."""
    assert problem.Z is not None
    lengthscales = problem.lengthscales.copy()
    lengthscales[k, 0] += by
    there = problem.replace(lengthscales=lengthscales)
    Z = problem.Z[k]
    K = kernel(there, k, Z, Z) + problem.jitter[k] * np.eye(len(Z))
    return K, kernel(there, k, problem.X, Z), np.full(problem.n, problem.variance[k] + problem.noise[k])


@check(
    "print/pep/gradient",
    paper=PAPER,
    question="(A.28) at fast's sites is fast's own gradient, term by term, and its printed form is not.",
    problems=_BOTH,
)
@folded
def gradient(context: Context, problem: Problem) -> Iterable[Outcome]:
    """(A.28) and (A.29) in the lengthscales, and the misprint of (A.28)."""
    at = Sites(context, problem)
    gr, alpha = printed("gradients"), at.alpha
    assert at.answer.gradients is not None
    distributions = [at.included(i) for i in range(at.n)]
    for k in range(at.C):
        step = 1e-3
        ends = {t: moved_matrices(problem, k, t * step) for t in (-2, -1, 1, 2)}
        dK, dX = ((8.0 * (ends[1][j] - ends[-1][j]) - ends[2][j] + ends[-2][j]) / (12.0 * step) for j in (0, 1))
        reported = float(at.answer.gradients["lengthscales"][k, 0])
        direction = gr.Direction(dK, dX, np.zeros(at.n))
        value = gr.pep_log_evidence_gradient(k, at.q, distributions, at.matrices, alpha, direction)
        told = "five-point differences of the kernel, good to 1e-11"
        yield same("(A.28)", value, reported, "fast: its gradient in a lengthscale", why=told)
        # a kernel that also moves the variances, as one with a changed amplitude does
        Z = problem.Z
        assert Z is not None
        own = kernel(problem, k, Z[k], Z[k])
        direction = gr.Direction(own, at.K_XZ[k], np.full(at.n, problem.variance[k]))
        value = gr.pep_log_evidence_gradient(k, at.q, distributions, at.matrices, alpha, direction)
        by_variance = float(at.answer.gradients["variance"][k] * problem.variance[k])
        yield same("(A.28)", value, by_variance, "fast: its gradient in a variance")
        matrix = gr.prior_term_matrix(at.m[k], at.V[k], at.K[k])
        moment = at.V[k] + np.outer(at.m[k], at.m[k])

        def expected(t: float, moment: Array = moment, k: int = k) -> float:
            """E_q log N(u|0, K) along the direction."""
            K = moved_matrices(problem, k, t)[0]
            return float(-0.5 * np.linalg.slogdet(K)[1] - 0.5 * np.trace(np.linalg.solve(K, moment)))

        prior_part = derivative(expected)
        yield same("(A.29), (A.30)", gr.prior_term_gradient(matrix, dK), prior_part, "differences of E_q log p(u)")
        # the two terms of each datum: theta of the cavity moves as the prior's does, natural parameters of sites held
        inner, parts = [], []
        for i in range(at.n):

            def log_norm(t: float, i: int = i, k: int = k) -> float:
                K, X, kappa = moved_matrices(problem, k, t)
                moved = np.linalg.solve(K, X[i])
                P = at.cavity[i][0][k] + np.linalg.inv(K) - at.model.K_inv[k]
                mean, var = at.a[i].copy(), at.b[i].copy()
                V = np.linalg.inv(P)
                mean[k] = moved @ V @ at.cavity[i][1][k]
                var[k] = kappa[i] - X[i] @ moved + moved @ V @ moved
                return float(np.log(at.latent_power(i, mean, var, alpha)))

            inner.append(derivative(log_norm))
            left = at.cavity_V[i, k] + np.outer(at.cavity_m[i, k], at.cavity_m[i, k])
            inverse = at.model.K_inv[k]
            parts.append(0.5 * float(np.sum((left - moment) * (inverse @ dK @ inverse))))
        right = prior_part + sum(inner) / alpha + sum(parts) / alpha
        yield same("(A.28) term by term", right, reported, "fast: its gradient in a lengthscale", why=told)
        errata = printed("errata_appendix")
        # that of the ratio under q, as it is printed, has the parts in it
        ratio, left = np.array(inner) + np.array(parts), np.array(parts)
        as_printed = errata.pep_log_evidence_gradient_as_printed(prior_part, ratio, left, alpha)
        yield from missed("(A.28)", as_printed, reported, sum(parts) / alpha)
    matrices = [at.K[0], at.V[1], at.P[2], at.K[1]]
    value = np.einsum("ij,jk,kl,li->", *matrices)
    yield same("u32-trace-rotation", gr.cyclic_trace(matrices), value)


# -- misprints -------------------------------------------------------------------------------------------------------


@check(
    "print/pep/misprints",
    paper=PAPER,
    question=(
        "At fast's sites, every printed form that the ledger calls a misprint is off by the effect of the misprint."
    ),
    problems=_BOTH,
)
@folded
def misprints(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Appendix A and step four of section 3.1, as printed; the corrected forms are held to fast by the other checks."""
    at = Sites(context, problem)
    e, alpha = printed("errata_appendix"), at.alpha
    ratios = np.array([at.log_ratio(i) for i in range(at.n)])
    for i in range(at.n):
        own = float(np.sum(at.u * at.t[i]) - 0.5 * np.einsum("ki,kij,kj->", at.u, at.T[i], at.u))
        log_value = np.log(e.approximate_factor_as_printed(float(ratios[i]), at.T[i], at.t[i], at.u))
        yield from missed("(A.1)", log_value, ratios[i] / alpha + own, ratios[i] * (1.0 - 1.0 / alpha))
        for k in range(at.C):
            u, m, V = at.upsilon[i, k], at.cavity_m[i, k], at.cavity_V[i, k]
            g, c1, c2 = float(at.g[i, k]), float(at.c1[i, k]), float(at.c2[i, k])
            value = e.power_cavity_mean_as_printed(at.m[k], at.V[k], V, c2, u)
            yield from missed("(A.9)", value, m, -(1.0 - alpha) * c2 * (V @ u))
            value = e.cavity_latent_variance_as_printed(float(at.k_xx[k, i]), u, at.K[k], V)
            yield from missed("(A.11)", value, at.b[i, k], u @ at.K[k] @ u - u @ np.linalg.solve(at.K[k], u))
            bracket = c1 * float(u @ m) + g * c1 * float(u @ V @ u)
            value = e.factor_linear_as_printed(g, c1, u, m, V)
            yield from missed("(A.19)", value, alpha * at.t[i, k], (1.0 - alpha) * bracket * u)
            value = e.update_c2_as_printed(g, c1, u, m, V, alpha)
            yield from missed("(A.20)", value, at.c2[i, k], (1.0 / alpha - 1.0) * bracket)
        distribution = e.cavity_as_printed(at.q, at.T[i], at.t[i])
        P, h = at.cavity[i]
        precision = dense.inverse(distribution.cov)
        shift = np.einsum("kij,kj->ki", precision, distribution.mean)
        yield from missed("u30-efficient-scale precision", precision, P, -(1.0 - alpha) * at.T[i])
        yield from missed("u30-efficient-scale shift", shift, h, -(1.0 - alpha) * at.t[i])
        g_cavity = -at.log_density(at.cavity_m[i], at.cavity_V[i], np.zeros_like(at.u))
        g_own = -at.log_density(at.m, at.V, np.zeros_like(at.u))
        value = e.site_log_normaliser_as_printed(float(ratios[i]), g_cavity, g_own)
        yield from missed("(A.22), (A.24)", value, ratios[i], g_cavity - g_own)
        # (A.27) is right by two errors: fed with the expectation that it prints it is (8), with the cavity's it is not
        y = int(at.y[i])
        value = e.site_log_normaliser_from_moments_as_printed(float(ratios[i]), at.cavity_m[i, y], at.cavity_V[i, y])
        yield same("(A.27) as printed, of (8)", value, ratios[i], why="its two errors cancel")
        value = e.site_log_normaliser_from_moments_as_printed(float(at.log_z[i]), at.cavity_m[i, y], at.cavity_V[i, y])
        yield from missed("(A.27)", value, ratios[i], g_own - g_cavity)
        new = printed("posterior").Gaussians(at.new_m[i], at.new_V[i])
        site = e.pep_update_as_printed(new, at.gaussians(i), alpha)
        yield from missed("u18-pep-update", site.log_scale, ratios[i] / alpha, -at.log_z[i] / alpha)
        yield same("u18-pep-update as printed, precision", site.precision, at.T[i], "fast: its own site")
        yield same("u18-pep-update as printed, shift", site.shift, at.t[i], "fast: its own site")
    value = e.pep_log_evidence_from_moments_as_printed(at.q, at.K, ratios, alpha)
    gap = 0.5 * float(np.sum((logs := np.linalg.slogdet(at.K)[1]) - np.exp(logs)))
    yield from missed("(A.26)", value, at.log_evidence, gap)


# -- energies and bounds ---------------------------------------------------------------------------------------------


@check(
    "print/apep/energy",
    paper=PAPER,
    question=(
        "The printed cavity and objective of apep are fast's own at its optimum, and its limits are those of (9)."
    ),
    problems=_BOTH,
)
@folded
def apep(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Section 3.2, (9) as the limit of section 3.3, and the form with a proper Gaussian factor."""
    at = Found(context, "apep", problem)
    tied, energies, posterior, alpha = printed("tied"), printed("energies"), printed("posterior"), at.alpha
    factor = posterior.Natural(at.answer.local["tied_precision"], at.answer.local["tied_shift"])
    cavity = tied.apep_cavity(at.theta, factor, at.n, alpha)
    log_norm = at.model.log_powers(alpha, *cavity) / alpha
    yield same("u21-apep-cavity", log_norm, at.answer.local["log_tilted_norm"], "fast: (1/alpha) log Z_i under it")
    yield same("u21-apep-cavity precision", cavity.precision, at.P - alpha / at.n * (at.P - at.model.K_inv))
    yield same("u21-apep-cavity shift", cavity.shift, (1.0 - alpha / at.n) * at.h)
    data = at.y, at.rows, at.cond_var, at.K, problem.epsilon
    whole = at.y, at.matrices, problem.epsilon, alpha
    yield same("u22-apep-objective", energies.apep_objective(at.q, *whole), at.log_evidence, "fast: log Z")
    away = posterior.Gaussians(at.u, 0.8 * at.V)  # no optimum, where derivatives would hide small errors of q
    value = at.model.energy("apep", alpha, at.u, 0.8 * at.V)
    yield same("u22-apep-objective away from it", energies.apep_objective(away, *whole), value)
    for count in (at.n, 3.0 * at.n):
        # the sum is over the data that are given, N in the cavity's power
        P, h, share = dense.inverse(0.8 * at.V), np.einsum("kij,kj->ki", dense.inverse(0.8 * at.V), at.u), alpha / count
        distribution = (1.0 - share) * P + share * at.model.K_inv, (1.0 - share) * h
        value = dense.G(P, h) - dense.G(at.model.K_inv, np.zeros_like(h))
        value += (dense.G(*distribution) - dense.G(P, h)) / share + float(
            at.model.log_powers(alpha, *distribution).sum()
        ) / alpha
        yield same("u23-arpep-limit", energies.arpep_limit(away, *data, alpha, float(count)), value)
    proper = context.solve("reference", "apep", problem, alpha=alpha, tied_factor="gaussian")
    least = float(np.linalg.eigvalsh(at.answer.local["tied_precision"]).min())
    yield Compared(
        -least, 0.0, "fast's factor is a proper Gaussian here", "fast", "section 3.2", "minus its least eigenvalue"
    )
    told = "the maximum over proper Gaussian factors is the free one where that is proper"
    yield same("apep with a Gaussian factor", proper.log_evidence, at.log_evidence, "fast: log Z", why=told)
    assert proper.inducing_mean is not None
    assert proper.inducing_cov is not None
    for name, left, right in (
        ("mean", proper.inducing_mean, at.m),
        ("covariance", proper.inducing_cov, at.V),
    ):
        yield Compared(
            relative_difference(left, right),
            1e-6,
            f"{name}: {told}; a search that ends at derivatives of 1e-9 nat is some 1e-8 away",
            "print apep with a Gaussian factor",
            "fast",
        )


@check(
    "print/arpep/energy",
    paper=PAPER,
    question="(9) at fast's optimum of arpep is fast's log Z, and the limit of apep.",
    problems=_BOTH,
)
@folded
def arpep(context: Context, problem: Problem) -> Iterable[Outcome]:
    """(9) and section 3.3."""
    at = Found(context, "arpep", problem)
    energies, alpha = printed("energies"), at.alpha
    data = at.y, at.rows, at.cond_var, at.K, problem.epsilon
    away = printed("posterior").Gaussians(at.u, 0.8 * at.V)
    value = at.model.energy("arpep", alpha, at.u, 0.8 * at.V)
    whole = at.y, at.matrices, problem.epsilon, alpha
    yield same("(9)", energies.arpep_objective(at.q, *whole), at.log_evidence, "fast: log Z")
    yield same("(9) away from the optimum", energies.arpep_objective(away, *whole), value)
    told = "extrapolated from n = 1e4 and 1e5: the second order of alpha/n, and rounding times n/alpha, leave 1e-9"
    for name, q, limit, whom in (("", at.q, at.log_evidence, "fast: log Z"), (", away", away, value, "definition")):
        near, nearer = (energies.arpep_limit(q, *data, alpha, n) for n in (1e4, 1e5))
        yield same(f"u23-arpep-limit{name}", (10.0 * nearer - near) / 9.0, limit, whom, why=told)


@check(
    "print/rpapep/energy",
    paper=PAPER,
    question="The printed cavity of rpapep and (10) are fast's own at its optimum.",
    problems=_TINY,
)
@folded
def rpapep(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Section 3.4 and (10)."""
    alpha = 0.25
    at = Found(context, "rpapep", problem, alpha)
    cavity = printed("tied").rpapep_cavity(at.theta, at.n, alpha)
    log_norm = at.model.log_powers(alpha, *cavity)
    yield same("u24-rpapep-free-gaussian", log_norm / alpha, at.answer.local["log_tilted_norm"], "fast")
    left = 1.0 - alpha / (at.n + 1)
    yield same("u24-rpapep-free-gaussian precision", cavity.precision, left * at.P)
    yield same("u24-rpapep-free-gaussian shift", cavity.shift, left * at.h)
    objective = printed("energies").rpapep_objective
    data = at.y, at.matrices, problem.epsilon, alpha
    yield same("(10)", objective(at.q, *data), at.log_evidence, "fast: log Z")
    away = printed("posterior").Gaussians(at.u, 0.8 * at.V)
    yield same("(10) away from it", objective(away, *data), at.model.energy("rpapep", alpha, at.u, 0.8 * at.V))


@check(
    "print/vi-robust/bounds",
    paper=PAPER,
    question="(3), (4) and (5) are fast's bound, and they are bounds.",
    problems=_TINY,
)
@folded
def bounds(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Section 2.3: Jensen's inequality twice."""
    at = Found(context, "vi-robust", problem)
    v, posterior = printed("variational"), printed("posterior")
    data = at.y, at.rows, at.cond_var, at.K, problem.epsilon
    yield same("(5)", v.variational_elbo(at.q, *data), at.log_evidence, "fast: its bound")
    away = posterior.Gaussians(at.u, 0.8 * at.V)
    yield same("(5) away from it", v.variational_elbo(away, *data), at.model.energy("vi-robust", 0.0, at.u, 0.8 * at.V))
    inner = float(at.model.log_labels(at.P, at.h).sum()) - at.log_evidence
    yield same("KL of (4), (5)", v.kl_to_prior(at.q, at.K), inner, "fast: its bound without the labels")
    mean, var = np.einsum("nki,ki->nk", at.upsilon, at.u), at.s
    right = dense.largest(at.y, mean, var)
    high, low = at.model.labels
    value = float(np.sum(np.log(high) * right + np.log(low) * (1.0 - right)))
    result = v.vb_inner_bound(mean, var, at.y, problem.epsilon)
    yield same("(3)", result, value)
    exact = float(np.log(high * right + low * (1.0 - right)).sum())
    yield Compared(result - exact, 0.0, "Jensen: (3) is a lower bound of log p(y|u)", "print (3)", "definition", "nat")
    # with the factors of pep in the place of p(y|u), q is the exact posterior, and (4) is tight: log Z_q
    sites = Sites(context, problem)
    factors = [posterior.Site(sites.log_ratio(i) / sites.alpha, sites.T[i], sites.t[i]) for i in range(sites.n)]

    def log_factors(u: Array) -> float:
        return float(sum(posterior.log_approximate_factor(site, u) for site in factors))

    value = v.vb_outer_bound(sites.q, log_factors, sites.K, nodes=2)
    told = (
        "a quadratic is integrated by two nodes without error, and the bound is tight at the posterior of its factors"
    )
    yield same("(4)", value, sites.log_evidence, "fast: log Z of pep", why=told)


# -- divergences -----------------------------------------------------------------------------------------------------


@check(
    "print/pep/divergence",
    paper=PAPER,
    question=(
        "On the latent values under fast's cavities, (7) is the gradient of (6), and only the corrected local "
        "divergence of section 2.3 depends on the label."
    ),
    problems=_TINY,
)
@folded
def divergence(context: Context, problem: Problem) -> Iterable[Outcome]:
    """(6), (7), the tilted density below it, and the end of section 2.3."""
    at = Sites(context, problem)
    d, e = printed("divergence"), printed("errata")
    alpha = 0.3  # at a half p and q could change places
    i, k = 0, int(at.y[0])
    a, b = float(at.a[i, k]), float(at.b[i, k])
    mean, var = float(at.tilted_f[i, k]), float(at.tilted_ff[i, k])
    others = [j for j in range(at.C) if j != k]
    high, low = at.model.labels

    def log_label(x: float) -> float:
        """log p(y|f_y = x), the other latent values under their cavities."""
        below = np.prod([norm.cdf((x - at.a[i, j]) / np.sqrt(at.b[i, j])) for j in others])
        return float(np.log(low + (high - low) * below))

    def log_q(x: float, mean: float = mean, var: float = var) -> float:
        return float(-0.5 * (x - mean) ** 2 / var - 0.5 * np.log(2.0 * np.pi * var))

    reach = 11.0 * float(np.sqrt(max(b, var)))
    lower, upper = min(a, mean) - reach, max(a, mean) + reach
    x = np.linspace(lower, upper, 1601)
    h = float(x[1] - x[0])
    label = np.log(low + (high - low) * np.prod([norm.cdf(x, at.a[i, j], np.sqrt(at.b[i, j])) for j in others], axis=0))
    log_c, own = norm.logpdf(x, a, np.sqrt(b)), norm.logpdf(x, mean, np.sqrt(var))
    log_norm = float(np.log(np.sum(np.exp(label + log_c)) * h))
    exact = label + log_c - log_norm

    def log_p(at_x: float) -> float:
        return log_label(at_x) + log_q(at_x, a, b) - log_norm

    tilted = d.geometric_tilted(log_p, log_q, alpha, lower, upper)
    mixed = np.exp(alpha * exact + (1.0 - alpha) * own)
    told = "a trapezoidal rule of analytic densities that end at 1e-26"
    yield same("u14-tilted-density normaliser", tilted.normaliser, np.sum(mixed) * h, why=told)
    some = x[::100]
    density = np.log(mixed[::100] / (np.sum(mixed) * h))
    yield same("u14-tilted-density", [tilted.log_density(float(each)) for each in some], density, why=told)

    def value(theta: Array) -> float:
        """(6) of q with these natural parameters."""
        spread = -0.5 / theta[1]
        q = norm.logpdf(x, spread * theta[0], np.sqrt(spread))
        return float((1.0 - np.sum(np.exp(alpha * exact + (1.0 - alpha) * q)) * h) / (alpha * (1.0 - alpha)))

    start = np.array([mean / var, -0.5 / var])
    gradients = d.alpha_divergence_gradient(log_p, mean, var, alpha, lower, upper)
    numeric = np.array([derivative(lambda t, j=j: value(start + t * np.eye(2)[j]), 0.05) for j in (0, 1)])  # type: ignore[misc]
    yield same("(7)", gradients, numeric, "differences of (6)", why="five-point differences, good to 1e-10")
    # section 2.3: with the exact function the divergence of q is KL[q||p]; with its Gaussian it is zero at this very q
    right = float(np.sum(np.exp(own) * (own - exact)) * h)
    gradients = d.vb_as_reversed_divergence(mean, var, log_label, a, b)
    yield same("u9-vb-local", gradients, right, why=told)
    for far, narrow in ((a + 30.0, 0.3), (a - 30.0, 0.02)):  # q and cavity apart: the range has to hold both
        near = far + np.sqrt(narrow) * np.linspace(-9.0, 9.0, 401)
        distribution = norm.logpdf(near, far, np.sqrt(narrow))
        below = np.prod([norm.cdf(near, at.a[i, j], np.sqrt(at.b[i, j])) for j in others], axis=0)
        apart = distribution - np.log(low + (high - low) * below) - norm.logpdf(near, a, np.sqrt(b)) + log_norm
        right_there = float(np.sum(np.exp(distribution) * apart) * (near[1] - near[0]))
        gradients = d.vb_as_reversed_divergence(far, narrow, log_label, a, b)
        yield same("u9-vb-local, far away", gradients, right_there, why=told)
    c1, c2 = 1.0 / var - 1.0 / b, mean / var - a / b
    flat = e.vb_as_reversed_divergence_as_printed(mean, var, c1, c2, a, b)
    yield from missed("u9-vb-local", flat, right, -right)
    # and elsewhere it is the divergence of two Gaussians
    spread = 1.0 / (1.0 / b + 0.7 * c1)
    other = norm.logpdf(x, spread * (a / b + 0.4 * c2), np.sqrt(spread))
    flat = e.vb_as_reversed_divergence_as_printed(mean, var, 0.7 * c1, 0.4 * c2, a, b)
    yield same("u9-vb-local as printed", flat, np.sum(np.exp(own) * (own - other)) * h, why=told)


# -- what is asked of the answer -------------------------------------------------------------------------------------


@check(
    "print/pep/model",
    paper=PAPER,
    question="The printed rule of labels, (1), (2), the kernel and the choice of a point are those of fast.",
    problems=_TINY,
)
@folded
def model(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Sections 2, 5 and 5.6."""
    at = Sites(context, problem)
    m, x = printed("model"), printed("experiments")
    latents = np.vstack([at.a, at.tilted_f, at.u.T])
    labels = m.label_from_latents(latents)
    yield same("u1-labelling-rule", labels, [sorted(range(at.C), key=lambda k, f=f: f[k])[-1] for f in latents])  # type: ignore[misc]
    yield same("(1) of its own labels", m.hard_max_likelihood(latents, labels), 1.0)
    yield same("(1) of another label", m.hard_max_likelihood(latents, np.roll(labels, 1)), 0.0)
    ties = np.array([[0.3, 0.3, -1.0], [2.0, 2.0, 2.0]])
    yield same("(1) at ties", m.hard_max_likelihood(ties, np.array([1, 2])), 1.0 / 6.0, "an equal share each")
    for f, label in zip(latents, labels, strict=True):
        values = [m.robust_likelihood(f, k, problem.epsilon) for k in range(at.C)]
        expected = np.where(np.arange(at.C) == label, *at.model.labels)
        yield same("(2)", values, expected, "the two values that fast's labels are held to have")
    for k in range(at.C):
        assert problem.Z is not None
        arguments = float(np.sqrt(problem.variance[k])), problem.lengthscales[k], float(problem.noise[k])
        result = x.ard_gaussian_kernel(problem.X, problem.Z[k], *arguments)
        yield same("u35-kernel, two sets", result, at.K_XZ[k])
        prior = kernel(problem, k, problem.X, problem.X) + problem.noise[k] * np.eye(at.n)
        yield same("u35-kernel, with noise", x.ard_gaussian_kernel(problem.X, None, *arguments), prior)
    probabilities = at.answer.probabilities
    assert probabilities is not None
    for p in (probabilities, probabilities[::-1], np.array([[0.5, 0.5, 0.0], [0.72, 0.14, 0.14], [0.14, 0.72, 0.14]])):
        first = int(np.argmax(stats.entropy(p, axis=1)))
        yield same("u44-entropy-selection", x.select_by_entropy(p), first, "scipy.stats.entropy of fast's classes")


@check(
    "print/pep/hard-cases",
    paper=PAPER,
    question="One printed sweep of power EP does not move fast's sites, on every hard case.",
    problems=(),
    full=(NO_PROBLEM,),
)
def hard_cases(context: Context, problem: None) -> Iterable[Outcome]:
    """(A.6) to (A.21) from fast's sites."""
    for answer, limit, name in hard_fixed_points(context, "pep"):
        asked, K = answer.problem, given(answer.problem)
        matrices = printed("hyper").Matrices(K.K_ZZ, K.upsilon, K.cond_var, K.k_xx, K.K_XZ)
        sites = printed("posterior").Coefficients(answer.local["site_precision"], answer.local["site_shift"])
        alpha = float(answer.settings["alpha"])
        new = printed("pep").parallel_pep_sweep(sites, asked.y, matrices, asked.epsilon, alpha, 1.0).coefficients
        q = distribution(answer)
        p = np.einsum("kim,km->ik", K.upsilon, q.mean)
        v = np.einsum("kim,kml,kil->ik", K.upsilon, q.cov, K.upsilon)
        d1, d2 = new.c1 - sites.c1, new.c2 - sites.c2
        moved = max(float(np.max(np.abs(d1) * v)), float(np.max(np.abs(d2 - d1 * p) * np.sqrt(np.maximum(v, 0.0)))))
        yield unmoved(moved, limit, name)


@check(
    "print/pep/divergence_of_gaussians",
    paper=PAPER,
    question="(6) of two Gaussians is its closed form, with its limits and its symmetry at one half.",
    problems=(NO_PROBLEM,),
)
def divergence_of_gaussians(context: Context, problem: Problem) -> Iterable[Outcome]:
    """(6) of two Gaussians by quadrature against its closed form, its limits, and its symmetry at one half."""
    code = printed("divergence")
    (m1, v1), (m2, v2) = (0.4, 0.7), (-0.3, 1.6)
    p, q = code.gaussian_log_density(m1, v1), code.gaussian_log_density(m2, v2)
    span = (-16.0, 16.0)

    def closed(alpha: float) -> float:
        mixed = alpha * v2 + (1.0 - alpha) * v1
        log_mass = 0.5 * (alpha * np.log(v2) + (1.0 - alpha) * np.log(v1) - np.log(mixed))
        log_mass -= 0.5 * alpha * (1.0 - alpha) * (m1 - m2) ** 2 / mixed
        return float(-np.expm1(log_mass) / (alpha * (1.0 - alpha)))

    pairs = [(f"at {alpha:g}", code.alpha_divergence(p, q, alpha, *span), closed(alpha)) for alpha in (1e-6, 0.3, 0.8)]
    limits = code.alpha_divergence_limits(p, q, *span)
    halves = [2.0 * closed(alpha) - closed(2.0 * alpha) for alpha in (1e-5,)]
    pairs += [("as alpha goes to 0", limits.at_zero, halves[0])]
    pairs += [("as alpha goes to 1", limits.at_one, 2.0 * closed(1.0 - 1e-5) - closed(1.0 - 2e-5))]
    swapped = code.alpha_divergence(q, p, 0.5, *span)
    pairs += [("at one half, turned round", code.alpha_divergence(p, q, 0.5, *span), swapped)]
    pairs += [("at one half, by square roots", code.hellinger_identity(p, q, *span), closed(0.5))]
    for what, left, right in pairs:
        yield Compared(
            relative_difference(left, right),
            1e-8,
            f"{what}: adaptive quadrature to 1e-11, limits extrapolated from 1e-5",
            "reference",
            "closed form",
        )
