"""More of what the papers say in words: fixed points on one latent value, ranks, sums over data, calls of quadratures.

As in `validation.checks.print.claims`: each check is `print/METHOD/says_ID`. On one latent value f ~ N(0, v) with N
factors everything is a sum over an even grid, so that power EP, local bounds and divergences are the judge's own to
rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp, ndtr

from validation import problems
from validation.checks.core import Context, Outcome, flaws
from validation.checks.print.claims import log_weights, nodes, says, within

Array = NDArray[np.float64]
_F = np.linspace(-20.0, 20.0, 8001)
_STEP = float(_F[1] - _F[0])
_VARIANCE = 4.0
_PRIOR = np.array([0.0, 1.0 / _VARIANCE])  # natural parameters: precision times mean, precision


def _factors(error: float = 0.01) -> Array:
    """Logs of six factors (6, q) on the grid: probit with label errors, one label against the others."""
    derivatives, shifts = np.array([0.6, 1.0, 1.4, 1.8, 2.2, -1.2]), np.array([0.5, -0.8, 0.0, 1.0, -0.4, 0.9])
    return np.asarray(np.log(error + (1.0 - 2.0 * error) * ndtr(derivatives[:, None] * _F + shifts[:, None])))


def _gauss(mean: float, var: float) -> Array:
    return np.asarray(-0.5 * (_F - mean) ** 2 / var - 0.5 * np.log(2.0 * np.pi * var))


def _log_sum(log_values: Array) -> float:
    return float(logsumexp(log_values)) + float(np.log(_STEP))


def _moments(log_density: Array) -> tuple[float, float]:
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = float(weight @ _F)
    return mean, float(weight @ (_F - mean) ** 2)


def _power_ep(log_factors: Array, alpha: float, *, tied: bool = False) -> tuple[float, float, Array]:
    """Mean and variance at the fixed point, and natural parameters of the sites (N, 2); tied: one site for all."""
    sites = np.zeros((len(log_factors), 2))
    for _ in range(4000):
        q = sites.sum(axis=0) + _PRIOR
        proposed = np.empty_like(sites)
        for i, log_factor in enumerate(log_factors):
            cavity = q - alpha * sites[i]
            mean, var = _moments(_gauss(cavity[0] / cavity[1], 1.0 / cavity[1]) + alpha * log_factor)
            proposed[i] = (np.array([mean / var, 1.0 / var]) - cavity) / alpha
        if tied:
            proposed[:] = proposed.mean(axis=0)
        step = proposed - sites
        sites += 0.5 * step
        if np.abs(step).max() < 1e-12:
            break
    q = sites.sum(axis=0) + _PRIOR
    return float(q[0] / q[1]), float(1.0 / q[1]), sites


def _divergence(log_p: Array, log_q: Array, alpha: float) -> float:
    """D_alpha[p || q] of densities on the grid; KL[p || q] at one."""
    if alpha == 1.0:
        return float((np.exp(log_p) * (log_p - log_q)).sum() * _STEP)
    return float(-np.expm1(_log_sum(alpha * log_p + (1.0 - alpha) * log_q)) / (alpha * (1.0 - alpha)))


def _derivative(value: Callable[[float, float], float], mean: float, var: float, h: float = 1e-4) -> float:
    """Size of the derivative of value(mean, var) in mean and log variance, by central differences."""
    by_mean = (value(mean + h, var) - value(mean - h, var)) / (2.0 * h)
    by_var = (value(mean, var * np.exp(h)) - value(mean, var * np.exp(-h))) / (2.0 * h)
    return float(np.hypot(by_mean, by_var))


def _from(log_p: Array, alpha: float) -> Callable[[float, float], float]:
    """D_alpha[p || Gaussian] as a function of mean and variance; KL[Gaussian || p] at nought."""
    if alpha == 0.0:
        return lambda mean, var: _divergence(_gauss(mean, var), log_p, 1.0)
    return lambda mean, var: _divergence(log_p, _gauss(mean, var), alpha)


def _posterior(log_factors: Array) -> Array:
    log_p = _gauss(0.0, _VARIANCE) + log_factors.sum(axis=0)
    return np.asarray(log_p - _log_sum(log_p))


def _cavity_times(log_factor: Array, mean: float, var: float, site: Array) -> Array:
    """The tilted density: q without its site, with the factor in place."""
    log_p = _gauss(mean, var) - (site[0] * _F - 0.5 * site[1] * _F**2) + log_factor
    return np.asarray(log_p - _log_sum(log_p))


def _energy(log_factors: Array, sites: Array, alpha: float) -> float:
    """log of the prior times all sites, plus that of each factor's mean in place of its site, power alpha."""
    each = sites[:, :1] * _F - 0.5 * sites[:, 1:] * _F**2
    log_q = _gauss(0.0, _VARIANCE) + each.sum(axis=0)
    whole = _log_sum(log_q)
    return (
        whole + sum(_log_sum(log_q - whole + alpha * (f - t)) for f, t in zip(log_factors, each, strict=True)) / alpha
    )


def _site_derivative(log_factors: Array, alpha: float, h: float = 1e-4) -> tuple[float, float]:
    """Largest derivative of the energy in a site's parameters at the fixed point of power EP, and 0.1 beside it."""
    _, _, sites = _power_ep(log_factors, alpha)

    def derivative(at: Array) -> float:
        largest = 0.0
        for place in np.ndindex(*sites.shape):
            step = np.zeros_like(sites)
            step[place] = h
            change = _energy(log_factors, at + step, alpha) - _energy(log_factors, at - step, alpha)
            largest = max(largest, abs(change) / (2.0 * h))
        return largest

    return derivative(sites), derivative(sites + 0.1)


# -- villacampa2020 ------------------------------------------------------------------------------------------------


@says(
    "villacampa2020",
    "apep",
    "apep-same-stationary",
    "The energy of separate factors is stationary at a fixed point of power EP.",
)
def apep_apep_same_stationary(context: Context) -> Iterable[Outcome]:
    for alpha in (0.3, 0.7, 1.0):
        at, beside = _site_derivative(_factors(), alpha)
        yield within(
            at,
            1e-6,
            f"alpha {alpha:g}: largest entry of the gradient in the sites' parameters; 0.1 beside it {beside:.2g}",
        )


@says(
    "villacampa2020",
    "pep",
    "pep-minimises-alpha",
    "At a fixed point of power EP, q is stationary for the alpha-divergence from each tilted distribution.",
)
def pep_pep_minimises_alpha(context: Context) -> Iterable[Outcome]:
    log_factors = _factors()
    for alpha in (0.3, 0.7, 1.0):
        mean, var, sites = _power_ep(log_factors, alpha)
        tilted = [_cavity_times(f, mean, var, site) for f, site in zip(log_factors, sites, strict=True)]
        largest = max(_derivative(_from(log_p, alpha), mean, var) for log_p in tilted)
        usual = max(_derivative(_from(log_p, alpha), mean + 0.1, var) for log_p in tilted)
        yield within(
            largest, 1e-6, f"alpha {alpha:g}: largest entry of the gradient over six factors; 0.1 beside it {usual:.2g}"
        )


@says(
    "villacampa2020",
    "pep",
    "global-at-zero",
    "The fixed point of power EP minimises the global divergence as alpha tends to zero, and only then.",
)
def pep_global_at_zero(context: Context) -> Iterable[Outcome]:
    log_factors = _factors()
    log_p = _posterior(log_factors)
    derivatives = {}
    for alpha in (0.02, 0.05, 0.5, 1.0):
        mean, var, _ = _power_ep(log_factors, alpha)
        derivatives[alpha] = _derivative(_from(log_p, alpha), mean, var)
    # what is left is of the order of alpha
    yield within(
        abs(derivatives[0.05] / derivatives[0.02] / 2.5 - 1.0),
        0.1,
        f"derivatives at alpha 0.02 and 0.05: {derivatives}",
    )
    yield flaws(
        not min(derivatives[0.5], derivatives[1.0]) > 5.0 * derivatives[0.05],
        f"derivatives {derivatives}",
        "paper",
        "derivatives that vanish",
    )


@says(
    "villacampa2020",
    "vi-robust",
    "vb-local",
    "The optimum of the bound is also one of each local divergence, for the sites that make q.",
)
def vi_robust_vb_local(context: Context) -> Iterable[Outcome]:
    log_factors = _factors()

    def expected(m: float, v: float) -> Array:
        weight = np.exp(_gauss(m, v)) * _STEP
        return np.asarray(log_factors @ weight)

    def negative_bound(at: Array) -> float:
        mean, var = float(at[0]), float(np.exp(at[1]))
        kl = 0.5 * (var / _VARIANCE + mean**2 / _VARIANCE - 1.0 - np.log(var / _VARIANCE))
        return float(kl - expected(mean, var).sum())

    end = minimize(negative_bound, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-11, "fatol": 1e-14})
    mean, var = float(end.x[0]), float(np.exp(end.x[1]))
    h = 1e-4
    # natural parameters: derivatives of E log factor by E f and by E f²
    by_mean = (expected(mean + h, var) - expected(mean - h, var)) / (2.0 * h)
    by_var = (expected(mean, var + h) - expected(mean, var - h)) / (2.0 * h)
    sites = np.stack([by_mean - 2.0 * mean * by_var, -2.0 * by_var], axis=1)
    total = sites.sum(axis=0) + _PRIOR
    yield within(max(abs(total[0] / total[1] - mean), abs(total[1] * var - 1.0)), 1e-5, "the sites make q")
    tilted = [_cavity_times(f, mean, var, site) for f, site in zip(log_factors, sites, strict=True)]
    largest = max(_derivative(_from(log_p, 0.0), mean, var) for log_p in tilted)
    yield within(
        largest, 1e-5, "largest entry of the gradient of KL[q || tilted] over six factors, by differences of step 1e-4"
    )


@says(
    "villacampa2020",
    "vi-robust",
    "parameterisation",
    "The best Gaussian of the bound can have less precision than the prior.",
)
def vi_robust_parameterisation(context: Context) -> Iterable[Outcome]:
    # a wrong label under possible errors: the log likelihood is convex beyond its knee
    error = 0.01
    log_factor = np.log(error + (1.0 - 2.0 * error) * ndtr(-3.0 * (_F - 1.5)))
    var_prior, mean_prior = 0.05, 2.8

    def negative_bound(at: Array) -> float:
        mean, var = float(at[0]), float(np.exp(at[1]))
        kl = 0.5 * (var / var_prior + (mean - mean_prior) ** 2 / var_prior - 1.0 - np.log(var / var_prior))
        return float(kl - (np.exp(_gauss(mean, var)) * log_factor).sum() * _STEP)

    end = minimize(
        negative_bound,
        np.array([mean_prior, np.log(var_prior)]),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-13},
    )
    extra = float(np.exp(-end.x[1]) - 1.0 / var_prior)
    yield flaws(not extra < -1e-3, f"precision of q less that of the prior: {extra:.4f}", "paper", "never below zero")


@says(
    "villacampa2020",
    "bb-alpha",
    "vb-mc-variance",
    "Gradients of a batch by draws have more variance than those by quadrature.",
)
def bb_alpha_vb_mc_variance(context: Context) -> Iterable[Outcome]:
    rng = np.random.default_rng(4)
    mean, var = 0.7 * rng.standard_normal(200), np.exp(rng.normal(-0.5, 0.3, 200))
    # derivative of E log Phi(f) in the mean: exact by the trapezoidal rule, or from one draw a datum

    def ratio(f: Array) -> Array:
        return np.asarray(np.exp(-0.5 * f**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(f)))

    exact = (np.exp(log_weights) * ratio(mean[:, None] + np.sqrt(var)[:, None] * nodes)).sum(axis=1)
    by_rule, by_draws = [], []
    for _ in range(400):
        batch = rng.choice(200, 20, replace=False)
        by_rule.append(10.0 * exact[batch].sum())
        by_draws.append(10.0 * ratio(mean[batch] + np.sqrt(var[batch]) * rng.standard_normal(20)).sum())
    quotient = float(np.var(by_draws) / np.var(by_rule))
    # an F quotient of 400 draws each is below 1.3 with a probability of .995 where variances are equal
    yield flaws(not quotient > 1.3, f"variance by draws over that by quadrature: {quotient:.2f}", "paper", "no more")
    z = (np.mean(by_draws) - exact.sum()) / (np.std(by_draws) / 20.0)
    yield within(abs(float(z)), 4.9, "both are unbiased: z of the mean over 400 batches")


# -- villacampa2017 ------------------------------------------------------------------------------------------------


@says(
    "villacampa2017",
    "sep",
    "fig2",
    "One shared factor approximates a distribution as well as separate factors do.",
)
def sep_fig2(context: Context) -> Iterable[Outcome]:
    derivatives, shifts = np.linspace(0.5, 2.5, 8), np.linspace(-1.0, 1.0, 8)
    log_factors = log_ndtr(derivatives[:, None] * _F + shifts[:, None])
    mean, var = _moments(_posterior(log_factors))
    own, shared = _power_ep(log_factors, 1.0), _power_ep(log_factors, 1.0, tied=True)
    apart = max(abs(own[0] - shared[0]), abs(np.sqrt(own[1]) - np.sqrt(shared[1]))) / np.sqrt(var)
    text = f"truth {mean:.3f}, {np.sqrt(var):.3f}; ep {own[0]:.3f}, {np.sqrt(own[1]):.3f}; sep {shared[0]:.3f}, "
    text += f"{np.sqrt(shared[1]):.3f}: means and deviations of sep and ep in deviations of the truth"
    yield within(float(apart), 0.1, text)


@says("villacampa2017", "ep", "factor-memory", "The log normaliser of a factor has a second derivative of rank one.")
def ep_factor_memory(context: Context) -> Iterable[Outcome]:
    # f_y - f_c = a'(u_y) - b'(u_c) + noise under a Gaussian cavity: log Z depends on each mean through one number
    rng, m, h = np.random.default_rng(6), 5, 1e-3
    for _ in range(3):
        a, b = rng.standard_normal((2, m))
        root_y, root_c = rng.standard_normal((2, m, m))
        spread = float(np.sqrt(1.0 + a @ root_y @ root_y.T @ a + b @ root_c @ root_c.T @ b))
        mean_c = rng.standard_normal(m)

        def log_norm(mean: Array, a=a, b=b, other=mean_c, spread=spread) -> float:  # type: ignore[no-untyped-def]
            return float(log_ndtr((a @ mean - b @ other) / spread))

        at, unit = 0.3 * rng.standard_normal(m), h * np.eye(m)
        hessian = np.array([
            [log_norm(at + u + w) - log_norm(at + u - w) - log_norm(at - u + w) + log_norm(at - u - w) for w in unit]
            for u in unit
        ]) / (4.0 * h * h)  # fmt: skip
        values = np.sort(np.abs(np.linalg.eigvalsh(hessian)))[::-1]
        yield within(float(values[1] / values[0]), 1e-5, "second eigenvalue over the first, by differences of 1e-3")


@says(
    "villacampa2017",
    "gfitc",
    "gfitc-no-sum",
    "The evidence of GFITC couples the data: it is no sum over them.",
)
def gfitc_gfitc_no_sum(context: Context) -> Iterable[Outcome]:
    # Gaussian sites at fixed values: what a datum adds depends on which others are there, so that no sum gives it
    rng = np.random.default_rng(2)
    A, D = rng.standard_normal((4, 3)), np.array([0.3, 0.5, 0.2, 0.4])
    at, width = rng.standard_normal(4), np.array([0.5, 1.0, 0.8, 0.6])

    def evidence(rows: list[int]) -> float:
        cov = A[rows] @ A[rows].T + np.diag(D[rows] + width[rows])
        part = at[rows]
        return float(-0.5 * part @ np.linalg.solve(cov, part) - 0.5 * np.linalg.slogdet(2.0 * np.pi * cov)[1])

    mixed = evidence([0, 1, 2, 3]) - evidence([0, 1, 2]) - evidence([0, 1, 3]) + evidence([0, 1])
    yield flaws(not abs(mixed) > 1e-3, f"mixed difference of two data {mixed:.4f}", "paper", "sums over data")
    whole = problems.get("toy-3-sparse-threshold").replace(X_test=None, y_test=None)
    labels = np.arange(whole.n) % 2
    parts = [whole.replace(X=whole.X[labels == k], y=whole.y[labels == k]) for k in (0, 1)]
    values = [context.solve("fast", "gfitc", each).log_evidence for each in (whole, *parts)]
    gap = float(values[0]) - float(values[1]) - float(values[2])  # type: ignore[arg-type]
    yield flaws(not abs(gap) > 1.0, f"whole less two halves: {gap:.2f} nat", "paper", "sums over data")


# -- calls of quadratures ------------------------------------------------------------------------------------------

_INTEGRALS = ("hermgauss", "hermegauss", "leggauss", "line_integral", "expect_log_phi")
_MODULES = ("reference.common.quadrature", "scipy.integrate")


def _integrals(run: Callable[[], Any]) -> int:
    """How many calls of a rule or an integral a run makes."""
    run()  # what is imported or kept the first time is no part of it
    calls, before = 0, sys.getprofile()

    def count(frame: Any, event: str, value: object) -> None:
        nonlocal calls
        if event == "call":
            module = str(frame.f_globals.get("__name__", ""))
            calls += frame.f_code.co_name in _INTEGRALS or module.startswith(_MODULES)

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


def _counted(method: str, name: str, options: dict[str, Any], *, tests: bool = False) -> int:
    from validation.door.solve import solve

    problem = problems.get(name)
    if not tests:
        problem = problem.replace(X_test=None, y_test=None)
    return _integrals(lambda: solve("reference", method, problem, **options))


@says("villacampa2017", "ep", "vi-quadrature-only", "VI integrates numerically in training, and EP never.")
def ep_vi_quadrature_only(context: Context) -> Iterable[Outcome]:
    for method in ("ep", "sep"):
        calls = _counted(method, "toy-3-sparse-threshold", {"max_iterations": 5})
        yield flaws(calls, f"integrals of {method} in training", "paper", "calls of a quadrature")
    calls = _counted("vi-robust", "toy-3-sparse-errors", {"max_iterations": 3})
    yield flaws(not calls > 0, f"integrals of vi-robust in training: {calls}", "paper", "runs without a quadrature")


@says("riihimaki2013", "nested-ep", "no-quadrature", "Nested EP needs no quadrature for moments and predictions.")
def nested_ep_no_quadrature(context: Context) -> Iterable[Outcome]:
    for method in ("nested-ep", "nested-iep"):
        calls = _counted(method, "two-points-3", {"max_iterations": 5}, tests=True)
        yield flaws(calls, f"integrals of {method}, predictions too", "paper", "calls of a quadrature")
    calls = _counted("qep", "two-points-3", {"max_iterations": 5})
    yield flaws(not calls > 0, f"integrals of qep: {calls}", "paper", "runs without a quadrature")


@says(
    "wenzel2019",
    "x-gpc",
    "probit-quadrature",
    "X-GPC's updates need no quadrature, and those of the probit link need one.",
)
def x_gpc_probit_quadrature(context: Context) -> Iterable[Outcome]:
    for method, name, steps in (("x-gpc", "toy", "max_iterations"), ("x-gpc-svi", "toy-sparse", "n_steps")):
        calls = _counted(method, name, {steps: 5})
        yield flaws(calls, f"integrals of {method} in training", "paper", "calls of a quadrature")
    calls = _counted("svgpc", "toy-probit", {"n_steps": 3})
    data = 3 * problems.get("toy-probit").n
    yield flaws(not calls > 0, f"calls of svgpc in three steps on {data // 3} data, each for a batch: {calls}", "paper",
                "runs without a quadrature")  # fmt: skip


# -- izmailov2016 and riihimaki2013 --------------------------------------------------------------------------------


@says(
    "izmailov2016", "svi", "fig1", "Draws of a process are within three deviations of its mean as often as a Gaussian."
)
def svi_fig1(context: Context) -> Iterable[Outcome]:
    rng = np.random.default_rng(12)
    x = np.linspace(0.0, 5.0, 40)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-9 * np.eye(40)
    draws = 1.5 * np.linalg.cholesky(K) @ rng.standard_normal((40, 60_000))
    # one point of each draw, so that counts are binomial
    inside = np.abs(draws[rng.integers(40, size=60_000), np.arange(60_000)]) < 4.5
    wanted = float(2.0 * ndtr(3.0) - 1.0)
    z = (float(inside.mean()) - wanted) / np.sqrt(wanted * (1.0 - wanted) / inside.size)
    yield within(abs(z), 4.0, f"share {inside.mean():.4f} of 60 000 draws at a point, {wanted:.4f} of a Gaussian; z")


@says(
    "riihimaki2013",
    "nested-iep",
    "no-convergence-guarantee",
    "There is a problem on which undamped nested IEP does not converge.",
)
def nested_iep_no_convergence_guarantee(context: Context) -> Iterable[Outcome]:
    problem = problems.get("iris-3")
    undamped = context.solve("fast", "nested-iep", problem, damping=1.0, accelerate=False, max_iterations=300)
    yield flaws(undamped.converged, f"iris-3, undamped, {undamped.iterations} iterations", "paper", "that converge")


@says(
    "riihimaki2013",
    "nested-ep",
    "stationary-points",
    "The evidence of EP is stationary in the sites at a fixed point of EP.",
)
def nested_ep_stationary_points(context: Context) -> Iterable[Outcome]:
    # probit factors alone: no wrong labels
    derivatives, shifts = np.linspace(0.5, 2.5, 6), np.linspace(-1.0, 1.0, 6)
    at, beside = _site_derivative(log_ndtr(derivatives[:, None] * _F + shifts[:, None]), 1.0)
    yield within(
        at, 1e-6, f"largest entry of the gradient of log Z in the sites' parameters; 0.1 beside it {beside:.2g}"
    )


@says(
    "riihimaki2013",
    "qep",
    "quadrature-unstable",
    "EP with few nodes meets improper cavities or does not converge where nested EP converges without.",
)
def qep_quadrature_unstable(context: Context) -> Iterable[Outcome]:
    plan = {"max_iterations": 100, "damping": 0.8, "accelerate": False, "tolerance": 1e-4}
    for name in ("toy-3", "iris-3"):
        for log_variance in (4.0, 8.0):
            problem = problems.get(name).replace(variance=np.full(3, np.exp(log_variance)))
            nested = context.solve("fast", "nested-ep", problem, **plan)
            rule = context.solve("fast", "qep", problem, nodes=5, **plan)
            why = (
                f"{name}, log variance {log_variance:g}: nested EP {nested.iterations} iterations, {nested.n_improper} "
            )
            why += f"improper cavities; five nodes {rule.iterations}, {rule.n_improper}"
            stable = rule.converged and not rule.n_improper
            yield flaws((not nested.converged) + stable, why, "paper", "ends that are otherwise")


@says(
    "izmailov2016",
    "vi-jj",
    "collapsed-no-mean",
    "In the compact bounds, mean and covariance are at their optimum.",
)
def vi_jj_collapsed_no_mean(context: Context) -> Iterable[Outcome]:
    from reference.izmailov2016.jaakkola_jordan import jj_collapsed_bound
    from reference.izmailov2016.taylor import taylor_collapsed_bound

    rng = np.random.default_rng(14)
    X, Z = np.linspace(-2.0, 2.0, 9)[:, None], np.linspace(-2.0, 2.0, 4)[:, None]

    def kernel(A: Array, B: Array) -> Array:
        return np.asarray(1.7 * np.exp(-0.5 * (A - B.T) ** 2))

    K_ZZ, K_XZ, k_xx = kernel(Z, Z) + 1e-6 * np.eye(4), kernel(X, Z), np.full(9, 1.7)
    sign, xi = rng.choice([-1.0, 1.0], 9), rng.uniform(0.3, 2.0, 9)
    project = np.linalg.solve(K_ZZ, K_XZ.T).T
    left = k_xx - np.einsum("im,im->i", project, K_XZ)
    # sigma(y f) is at least exp of a quadratic; log sigma(y f) is expanded to the second order
    width = np.tanh(0.5 * xi) / (4.0 * xi)
    sigma = 1.0 / (1.0 + np.exp(-sign * xi))
    second = 0.5 * sigma * (1.0 - sigma)
    cases = (
        ("vi-jj", jj_collapsed_bound, width, 0.5 * sign, -np.log1p(np.exp(-xi)) - 0.5 * xi + width * xi**2),
        ("vi-taylor", taylor_collapsed_bound, second, sign * (1.0 - sigma) + 2.0 * second * xi,
         np.log(sigma) - (sign * (1.0 - sigma) + 2.0 * second * xi) * xi + second * xi**2),
    )  # fmt: skip
    for name, compact, a, b, c in cases:
        # of c + b f - a f² in expectation, less KL[q(u) || p(u)]
        precision = np.linalg.inv(K_ZZ) + 2.0 * (project.T * a) @ project

        def bound(mean: Array, cov: Array, a=a, b=b, c=c) -> float:  # type: ignore[no-untyped-def]
            f = project @ mean
            var = left + np.einsum("im,mn,in->i", project, cov, project)
            kl = 0.5 * (np.trace(np.linalg.solve(K_ZZ, cov)) + mean @ np.linalg.solve(K_ZZ, mean) - 4.0
                        + np.linalg.slogdet(K_ZZ)[1] - np.linalg.slogdet(cov)[1])  # fmt: skip
            return float(np.sum(c + b * f - a * (f**2 + var)) - kl)

        cov = np.linalg.inv(precision)
        mean = cov @ (project.T @ b)
        best = bound(mean, cov)
        yield within(abs(best - float(compact(xi, sign, K_ZZ, K_XZ, k_xx))), 1e-9, f"{name}: the same number")
        above = 0
        for _ in range(50):
            root = np.linalg.cholesky(cov) @ (np.eye(4) + 0.1 * rng.standard_normal((4, 4)))
            above += bound(mean + 0.1 * rng.standard_normal(4), root @ root.T) > best
        yield flaws(above, f"{name}: fifty other means and covariances", "paper", "better bounds")
