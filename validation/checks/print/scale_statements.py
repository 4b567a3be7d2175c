"""More of what the papers say in words: costs by operations counted, energies and scales by their definitions.

As in `validation.checks.print.cost_statements`: each check is `print/METHOD/says_ID`, asked by a full run; no clock is
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtr

from validation.checks.core import Compared, Context, Outcome, flaws
from validation.checks.definitions.power import Dense, G
from validation.checks.print.cost_statements import _by_data, _degree, _problem, _quadratic, _step, says_at_length
from validation.door.problem import Problem
from validation.reproduce.operations import counted, operations

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


@says_at_length("izmailov2016", "svi", "cost-svi-bound", "(11) and its derivatives take n m² + m³ operations.")
def svi_cost_svi_bound(context: Context) -> Iterable[Outcome]:
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


@says_at_length("riihimaki2013", "gibbs-probit", "cost-gibbs-likelihood", "Cone draws take n c numbers a sweep.")
def gibbs_probit_cost_gibbs_likelihood(context: Context) -> Iterable[Outcome]:
    yield _degree("random numbers of a sweep's cone draws, in n", [_cone_draws(n, 3) for n in (6, 9, 12, 15)], 1)
    yield _degree("in c", [_cone_draws(12, c) for c in (2, 3, 4, 5)], 1)


def _factors_a_sweep(c: int, *, learn: bool) -> float:
    """Cholesky factors of n × n matrices in a sweep of the sampler, its parameters moved too or held."""
    from validation.door.solve import solve

    distribution = ("half-student-t", 4.0, 1.0)
    rng, y = np.random.default_rng(0), np.arange(23) % c
    problem = Problem(
        "counted", rng.normal(size=(23, 2)) + np.stack([np.cos(y), np.sin(y)], axis=1), y, c, "multinomial-probit",
        2.0, 1.0, jitter=1e-6, hyperprior={"variance": distribution, "lengthscales": distribution} if learn else None,
    )  # fmt: skip
    own: dict[str, Any] = {"learn": ("variance", "lengthscales")} if learn else {}
    counts = []
    for n_draws in (6, 18):
        with counted() as counter:
            solve("gibbs", "gibbs-probit", problem, n_draws=n_draws, n_warmup=4, n_chains=4, seed=0, **own)
            counts.append(counter.factors.get(23, 0))
    return (counts[1] - counts[0]) / 12.0


@says_at_length(
    "riihimaki2013", "gibbs-probit", "cost-mcmc", ("A sweep that moves parameters takes c factors of n × n.")
)
def gibbs_probit_cost_mcmc(context: Context) -> Iterable[Outcome]:
    counts = [_factors_a_sweep(c, learn=True) for c in (3, 4, 5)]
    order = float(np.polyfit(np.log([3.0, 4.0, 5.0]), np.log(np.maximum(counts, 1e-9)), 1)[0])
    listed = ", ".join(f"{count:.5g}" for count in counts)
    # how many moves a sweep makes hangs on what it accepts
    yield Compared(abs(order - 1.0), 0.2, f"order {order:.3f} in c, n³/3 each; factors of four chains: {listed}",
                   "paper", "counts")  # fmt: skip
    yield flaws(_factors_a_sweep(3, learn=False) > 0.0, "a sweep with held parameters", "paper", "factors")


def _tilted(variance: Array) -> tuple[Array, Array]:
    """Mean and covariance of three latent values N(0, variance) times the multinomial probit of the first class."""
    x = np.arange(-6.3, 6.31, 0.3)  # the trapezoidal rule, exact to rounding for what is smooth on this scale
    w = np.exp(-0.5 * x * x)
    w = w / w.sum()
    f = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3) * np.sqrt(variance)
    weight = (w[:, None, None] * w[:, None] * w).ravel()
    u = x[:, None] + f[:, 0]
    weight = weight * (w @ (ndtr(u - f[:, 1]) * ndtr(u - f[:, 2])))
    weight = weight / weight.sum()
    mean = weight @ f
    return mean, (f * weight[:, None]).T @ f - np.outer(mean, mean)


def _best_site(variance: Array, mean: Array, cov: Array) -> tuple[float, Callable[[Array, Array], float]]:
    """The least of KL(tilted || q) up to a constant over sites of the form (12), and that function of q's moments."""

    def divergence(precision: Array, shift: Array) -> float:
        off = mean - np.linalg.solve(precision, shift)
        quadratic = float(np.trace(precision @ cov) + off @ precision @ off)
        return 0.5 * (quadratic - float(np.linalg.slogdet(precision)[1]))

    def of_site(z: Array) -> float:
        pi = np.exp(z[:3])
        nu = np.array([-z[3] - z[4], z[3], z[4]])
        return divergence(np.diag(1.0 / variance) + np.diag(pi) - np.outer(pi, pi) / pi.sum(), nu)

    starts = (np.array([level] * 3 + [0.1, -0.1]) for level in (-1.0, 0.5))
    return min(float(minimize(of_site, start, options={"gtol": 1e-9}).fun) for start in starts), divergence


@says_at_length(
    "riihimaki2013", "nested-ep", "seeger-form", "The best site has the form (12), and nested EP's is near it."
)
def nested_ep_seeger_form(context: Context) -> Iterable[Outcome]:
    for variance in (np.array([1.0, 1.0, 1.0]), np.array([1.0, 4.0, 9.0])):
        mean, cov = _tilted(variance)
        least, divergence = _best_site(variance, mean, cov)
        precision: Array = np.asarray(np.linalg.inv(cov), dtype=np.float64)
        # the Gaussian of the tilted moments is the best of all Gaussians
        gap = least - divergence(precision, precision @ mean)
        why = f"variances {variance.tolist()}: nats from the best Gaussian to the best site of (12)"
        yield Compared(gap, 1e-3, why, "paper", "quadrature")
        # three data that know nothing of one another: the cavity of the first is its prior
        problem = Problem("apart", 1e3 * np.arange(3.0)[:, None], np.arange(3), 3, "multinomial-probit", variance, 1.0)
        answer = context.solve("fast", "nested-ep", problem, tolerance=1e-12)
        assert answer.latent_mean is not None
        assert answer.latent_cov is not None
        own = np.linalg.inv(answer.latent_cov[0])
        site = own - np.diag(1.0 / variance)
        yield Compared(float(np.abs(site.sum(axis=1)).max()), 1e-10, "row sums of nested EP's site precision", "paper",
                       "fast")  # fmt: skip
        far = divergence(own, own @ answer.latent_mean[0]) - least
        yield Compared(abs(far), 5e-3, "nats from the best site of (12) to nested EP's", "paper", "fast")


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
    "The scales of factors need no matrix, only m² operations.",
)
def ep_log_scale_efficient(context: Context) -> Iterable[Outcome]:
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


@says_at_length("villacampa2020", "vi-robust", "cost-ep-vb-alike", "A step of VB takes at most three times one of EP.")
def vi_robust_cost_ep_vb_alike(context: Context) -> Iterable[Outcome]:
    for n, m, C in ((60, 10, 3), (60, 40, 3), (60, 20, 6), (200, 20, 3)):
        ratio = _a_step("vi-robust", n, m, C) / _a_step("ep", n, m, C)
        why = f"N = {n}, M = {m}, C = {C}: {ratio:.2f} times EP's products, factors and solves a step"
        yield flaws(not 1.0 / 3.0 < ratio < 3.0, why, "paper", "beyond a factor of three")


@says_at_length("villacampa2020", "rpapep", "rpapep-alpha-1", "(10) at alpha = 1 is EP's with N + 1 tied factors.")
def rpapep_rpapep_alpha_1(context: Context) -> Iterable[Outcome]:
    from validation.checks.print.villacampa2020 import Found, printed

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


# -- parallel updates ----------------------------------------------------------------------------------------------


def _oscillating() -> Problem:
    """Thirty data of three classes without order along a line, and next to no noise: their factors pull far."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 30)
    y[:3] = [0, 1, 2]
    X = rng.normal(size=(30, 1))
    return Problem("oscillating", X, y, 3, "threshold", 20.0, 0.5, noise=0.1, jitter=1e-3, Z=X[:4].copy(), epsilon=0.0)


def _unstable(context: Context, method: str, **own: Any) -> tuple[float, float, float]:
    """Residuals of undamped sweeps, of damped ones, and of undamped steps on single data."""
    asked: dict[str, Any] = {"gradients": False, "tolerance": 1e-9, **own}
    problem = _oscillating()
    undamped = context.solve("fast", method, problem, damping=1.0, max_iterations=300, **asked)
    damped = context.solve("fast", method, problem, damping=0.5, max_iterations=600, **asked)
    steps = context.solve(
        "fast", method, problem, damping=1.0, batch_size=1, n_steps=3000, learn=(), seed=0, gradients=False, **own
    )
    residuals = [answer.residual for answer in (undamped, damped, steps)]
    assert all(value is not None for value in residuals)
    first, second, third = (float(value) for value in residuals if value is not None)
    return first, second, third


@says_at_length("villacampa2017", "ep", "parallel-unstable", "There is a problem where parallel updates need damping.")
def ep_parallel_unstable(context: Context) -> Iterable[Outcome]:
    undamped, damped, steps = _unstable(context, "ep")
    yield flaws(undamped < 1.0, f"residual of 300 undamped sweeps: {undamped:.3g}", "paper", "convergence")
    yield Compared(damped, 1e-3, "residual of 600 sweeps damped by a half", "paper", "fast")
    yield Compared(steps, 1e-6, "residual of 3000 undamped steps on a datum each", "paper", "fast")


@says_at_length(
    "villacampa2020", "pep", "parallel-unstable", ("There is a problem where parallel updates need damping.")
)
def pep_parallel_unstable(context: Context) -> Iterable[Outcome]:
    undamped, damped, _ = _unstable(context, "pep", alpha=1.0)
    yield flaws(undamped < 1.0, f"residual of 300 undamped sweeps: {undamped:.3g}", "paper", "convergence")
    yield Compared(damped, 5e-3, "residual of 600 sweeps damped by a half", "paper", "fast")


def _until(context: Context) -> tuple[float, float, float, int, float]:
    """Operations of a sweep and of N single updates; sweeps until a residual of 1e-6; passes of as many, and theirs."""
    problem = _problem(30, 6, 3, epsilon=0.01)
    alone: dict[str, Any] = {"alpha": 0.5, "damping": 1.0, "batch_size": 1, "seed": 0, "learn": (), "gradients": False}
    sweep = _step("fast", "pep", problem, elementwise=False, alpha=0.5, tolerance=1e-14, gradients=False)
    single = problem.n * _step("fast", "pep", problem, elementwise=False, key="n_steps", **alone)
    parallel = context.solve("fast", "pep", problem, alpha=0.5, damping=0.5, tolerance=1e-6, gradients=False)
    assert parallel.iterations is not None
    passes = max(int(parallel.iterations * sweep / single), 1)
    answer = context.solve("fast", "pep", problem, n_steps=passes * problem.n, **alone)
    assert answer.residual is not None
    return sweep, single, float(parallel.iterations), passes, float(answer.residual)


@says_at_length(
    "villacampa2020", "pep", "parallel-faster", "Parallel sweeps take fewer operations than single updates."
)
def pep_parallel_faster(context: Context) -> Iterable[Outcome]:
    sweep, single, sweeps, passes, residual = _until(context)
    why = f"products, factors and solves: a sweep {sweep:.4g}, N single updates {single:.4g}"
    yield Compared(sweep / single, 1.0, why, "paper", "counts")
    why = f"residual 1e-6 after {sweeps:g} sweeps damped by a half, {residual:.3g} after {passes} passes, as much work"
    yield flaws(residual < 1e-6, why, "paper", "passes of single updates that converge with as many operations")
