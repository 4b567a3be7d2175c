"""More of what the papers say in words, put to numbers: moments, bounds, integrals and conditional distributions.

As in `validation.checks.print.claims`: each check is `print/METHOD/says_ID`, with formulas of the judge's own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_ndtr, ndtr
from scipy.stats import multivariate_normal

from validation import problems
from validation.checks.core import Compared, Context, Outcome, flaws
from validation.checks.print.claims import log_weights, nodes, normal_mean, says, within

Array = NDArray[np.float64]


def _moments(f: Array, log_density: Array) -> tuple[float, float, float]:
    """Mean, variance and skewness of a density on an even grid, known up to a factor."""
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = float(weight @ f)
    var = float(weight @ (f - mean) ** 2)
    return mean, var, float(weight @ (f - mean) ** 3) / var**1.5


# -- wenzel2019 ----------------------------------------------------------------------------------------------------


@says(
    "wenzel2019",
    "gibbs-logit",
    "conditionally-conjugate",
    "f is Gaussian given omega, and omega is Pólya-Gamma with its latent value given f.",
)
def gibbs_logit_conditionally_conjugate(context: Context) -> Iterable[Outcome]:
    from gibbs.draws.polya_gamma import sample_polya_gamma

    rng = np.random.default_rng(11)
    root = rng.standard_normal((4, 4))
    inverse_K = np.linalg.inv(root @ root.T + 0.5 * np.eye(4))
    omega, sign = rng.gamma(1.0, 0.3, 4), np.array([1.0, -1.0, 1.0, -1.0])

    def log_joint(f: Array) -> float:
        return float(0.5 * sign @ f - 0.5 * omega @ f**2 - 0.5 * f @ inverse_K @ f)

    # third differences of a quadratic function vanish, second ones are its precision
    step, observed = 0.5, 0.0
    for _ in range(20):
        f, a = rng.standard_normal(4), rng.standard_normal(4)
        line = [log_joint(f + k * step * a) for k in range(4)]
        observed = max(observed, abs(line[3] - 3.0 * line[2] + 3.0 * line[1] - line[0]))
        second = (line[2] - 2.0 * line[1] + line[0]) / step**2
        observed = max(observed, float(abs(second + a @ (inverse_K + np.diag(omega)) @ a)))
    yield within(observed, 1e-10, "differences of the log joint density in f, to rounding")
    # omega | f has the density of PG(1, 0) times exp(-omega f²/2): its moments by weighted draws, and by PG(1, f)
    free = sample_polya_gamma(np.random.default_rng(12), np.zeros(100_000))
    for value in (0.7, 2.5):
        weight = np.exp(-0.5 * free * value**2)
        drawn = sample_polya_gamma(np.random.default_rng(13), np.full(100_000, value))
        left, right = float(weight @ free / weight.sum()), float(drawn.mean())
        error = np.hypot(
            np.sqrt(np.mean((weight * (free - left)) ** 2)) / weight.mean(), drawn.std()
        ) / np.sqrt(len(free))  # fmt: skip
        yield Compared(
            abs(left - right) / error, 4.9, f"mean of omega at f = {value}, 100 000 draws of each", "paper", "draws",
            "standard errors",
        )  # fmt: skip
        # the mean of PG(1, c) is tanh(c/2)/(2c)
        exact = np.tanh(0.5 * value) / (2.0 * value)
        z = abs(right - exact) / (drawn.std() / np.sqrt(len(drawn)))
        yield Compared(
            z, 4.9, f"the same against tanh(f/2)/(2f), f = {value}", "paper", "definition", "standard errors"
        )


def _gaussian_objective(eta: Array) -> Array:
    """Mean and covariance of a Gaussian in two dimensions from its natural parameters (5,)."""
    precision = -2.0 * np.array([[eta[2], 0.5 * eta[3]], [0.5 * eta[3], eta[4]]])
    cov = np.linalg.inv(precision)
    return np.concatenate([cov @ eta[:2], [cov[0, 0], cov[0, 1], cov[1, 1]]])


def _natural_from_moments(theta: Array) -> Array:
    precision = np.linalg.inv(np.array([[theta[2], theta[3]], [theta[3], theta[4]]]))
    # f1 f2 stands once among the statistics
    return np.concatenate([precision @ theta[:2], [-0.5 * precision[0, 0], -precision[0, 1], -0.5 * precision[1, 1]]])


@says(
    "wenzel2019",
    "x-gpc-svi",
    "natural-invariant",
    "A natural-gradient direction is the same in every parameterisation of the Gaussian.",
)
def x_gpc_svi_natural_invariant(context: Context) -> Iterable[Outcome]:
    rng, observed = np.random.default_rng(5), 0.0
    for _ in range(5):
        root = rng.standard_normal((2, 2))
        cov = root @ root.T + 0.5 * np.eye(2)
        theta = np.concatenate([rng.standard_normal(2), [cov[0, 0], cov[0, 1], cov[1, 1]]])
        eta = _natural_from_moments(theta)
        # d theta / d eta by central differences; gradients and metrics transform with it
        h = 1e-5
        jacobian = np.stack(
            [(_gaussian_objective(eta + h * e) - _gaussian_objective(eta - h * e)) / (2.0 * h) for e in np.eye(5)],
            axis=1,
        )
        # Fisher matrix in moments: Gaussian in two dimensions, from its closed form
        precision = np.linalg.inv(cov)
        basis = [np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]),
                 np.array([[0.0, 0.0], [0.0, 1.0]])]  # fmt: skip
        metric = np.zeros((5, 5))
        metric[:2, :2] = precision
        for i, A in enumerate(basis):
            for j, B in enumerate(basis):
                metric[2 + i, 2 + j] = 0.5 * np.trace(precision @ A @ precision @ B)
        gradient = rng.standard_normal(5)  # of any objective, in moments
        in_moments = np.linalg.solve(metric, gradient)
        in_natural = np.linalg.solve(jacobian.T @ metric @ jacobian, jacobian.T @ gradient)
        observed = max(observed, float(np.abs(jacobian @ in_natural - in_moments).max() / np.abs(in_moments).max()))
        # and in natural parameters it is the plain gradient by the expectation parameters: metric = d mean / d eta
        mean = np.array([theta[0], theta[1], cov[0, 0] + theta[0] ** 2, cov[0, 1] + theta[0] * theta[1],
                         cov[1, 1] + theta[1] ** 2])  # fmt: skip
        derivative = np.stack(
            [(_expected(eta + h * e) - _expected(eta - h * e)) / (2.0 * h) for e in np.eye(5)], axis=1
        )
        observed = max(
            observed, float(np.abs(derivative - jacobian.T @ metric @ jacobian).max() / np.abs(derivative).max())
        )
        assert np.allclose(_expected(eta), mean)
    yield within(observed, 1e-6, "means and covariances against natural parameters, by differences of step 1e-5")


def _expected(eta: Array) -> Array:
    """E of f1, f2, f1², f1 f2, f2² from natural parameters."""
    m1, m2, a, b, c = _gaussian_objective(eta)
    return np.array([m1, m2, a + m1**2, b + m1 * m2, c + m2**2])


@says(
    "wenzel2019",
    "x-gpc",
    "second-order",
    "A natural-gradient step of rate one reaches the optimum of q at fixed local parameters, as Newton's would.",
)
def x_gpc_second_order(context: Context) -> Iterable[Outcome]:
    rng, observed = np.random.default_rng(6), 0.0
    for _ in range(10):
        root = rng.standard_normal((4, 4))
        K = root @ root.T + 0.5 * np.eye(4)
        W, theta, sign = rng.standard_normal((7, 4)), rng.gamma(1.0, 0.3, 7), np.sign(rng.standard_normal(7))
        inverse_K: Array = np.asarray(np.linalg.inv(K), dtype=float)

        def bound(mean: Array, cov: Array, W: Array = W, theta: Array = theta, sign: Array = sign,
                  inverse_K: Array = inverse_K) -> float:  # fmt: skip
            fit = 0.5 * sign @ (W @ mean) - 0.5 * theta @ ((W @ mean) ** 2 + np.einsum("im,mk,ik->i", W, cov, W))
            return float(fit - 0.5 * (np.trace(inverse_K @ cov) + mean @ inverse_K @ mean - np.linalg.slogdet(cov)[1]))

        # from any q, one step of rate one in natural parameters: precision and precision times mean
        precision, shift = inverse_K + (W.T * theta) @ W, 0.5 * W.T @ sign
        cov: Array = np.asarray(np.linalg.inv(precision), dtype=float)
        best = bound(cov @ shift, cov)
        for _ in range(10):
            away = rng.standard_normal((4, 4))
            step = 1e-3 * (away + away.T)
            other = bound(cov @ shift + 1e-3 * rng.standard_normal(4), cov + 0.05 * cov @ step @ cov)
            observed = max(observed, other - best)
        # Newton's step in the mean, from anywhere, ends at the same mean
        start = rng.standard_normal(4)
        newton = start + np.linalg.solve(precision, shift - precision @ start)
        observed = max(observed, float(np.abs(newton - cov @ shift).max()))
    yield within(observed, 1e-10, "ten conjugate problems of four inducing values: no q near by is better")


@says(
    "wenzel2019",
    "x-gpc",
    "prediction-quadrature",
    "Class probabilities by the method's rule in one dimension are those of a fine grid.",
)
def x_gpc_prediction_quadrature(context: Context) -> Iterable[Outcome]:
    for name in ("toy", "toy-steep"):
        answer = context.solve("reference", "x-gpc", problems.get(name))
        assert answer.test_latent_mean is not None
        assert answer.test_latent_var is not None
        assert answer.probabilities is not None
        f = answer.test_latent_mean + np.sqrt(answer.test_latent_var) * nodes
        observed = float(np.abs(normal_mean(expit(f)) - answer.probabilities[:, 1]).max())
        yield within(observed, 1e-8, f"{name}: the trapezoidal rule over 24 standard deviations")


# -- riihimaki2013 -------------------------------------------------------------------------------------------------


def _posterior_skewness(variance: float) -> float:
    """Of the observed class's latent value: one datum of three classes, multinomial probit, independent priors."""
    f = np.sqrt(variance) * np.linspace(-9.0, 9.0, 3601)
    # the other two are N(0, variance), and u N(0, 1) is shared: E Φ((f + u)/√(1 + variance))²
    inside = 2.0 * log_ndtr((f[:, None] + nodes) / np.sqrt(1.0 + variance)) + log_weights
    return _moments(f, -0.5 * f**2 / variance + np.logaddexp.reduce(inside, axis=1))[2]


@says(
    "riihimaki2013",
    "nested-ep",
    "small-magnitude-gaussian",
    "The skewness of the posterior vanishes with the magnitude of the prior.",
)
def nested_ep_small_magnitude_gaussian(context: Context) -> Iterable[Outcome]:
    values = [abs(_posterior_skewness(variance)) for variance in (1.0, 0.1, 0.01)]
    yield flaws(not values[0] > values[1] > values[2], f"skewness {values}", "paper", "skewness that does not fall")
    yield within(values[-1], 1e-3, "one datum of three classes, variance .01")


@says(
    "riihimaki2013",
    "nested-ep",
    "large-magnitude-skews",
    "The skewness of the posterior grows with the magnitude of the prior.",
)
def nested_ep_large_magnitude_skews(context: Context) -> Iterable[Outcome]:
    values = [_posterior_skewness(np.exp(log_variance)) for log_variance in range(-4, 9, 2)]
    why = f"log variance -4 to 8: skewness {values[0]:.2g} to {values[-1]:.2g}"
    yield flaws(int(np.sum(np.diff(values) <= 0.0)), why, "paper", "steps that do not rise")


@says(
    "riihimaki2013",
    "laplace",
    "laplace-propagation-inaccurate",
    "Laplace's tilted moments are off where the tilted distribution is skewed.",
)
def laplace_laplace_propagation_inaccurate(context: Context) -> Iterable[Outcome]:
    offs = []
    for var in (0.01, 25.0):
        f = np.sqrt(var) * np.linspace(-9.0, 9.0, 7201)
        log_density = -0.5 * f**2 / var + log_ndtr(f)
        mean, variance, _ = _moments(f, log_density)
        mode = 0.0
        for _ in range(200):  # Newton's steps, of a log concave function
            ratio = np.exp(-0.5 * mode**2 - log_ndtr(mode)) / np.sqrt(2.0 * np.pi)
            curvature = 1.0 / var + ratio * (ratio + mode)
            mode += (ratio - mode / var) / curvature
        offs.append((abs(mode - mean) / np.sqrt(variance), abs(1.0 / curvature / variance - 1.0)))
    small, large = offs
    yield within(max(small), 1e-2, "cavity variance .01, nearly no skewness: mean in deviations, variance relative")
    yield flaws(int(large[0] < 0.2) + int(large[1] < 0.2),
                f"cavity variance 25: the mean is off by {large[0]:.2f} deviations, the variance by {large[1]:.0%}",
                "paper", "moments that are right after all")  # fmt: skip


@says(
    "riihimaki2013",
    "nested-iep",
    "iep-underestimates",
    "The latent variances of independent EP are below those of full EP.",
)
def nested_iep_iep_underestimates(context: Context) -> Iterable[Outcome]:
    above, count, ratios = 0, 0, []
    for name in ("two-points-3", "two-points-3-steep", "toy-3", "toy-4-steep"):
        full, independent = (
            context.solve("fast", method, problems.get(name)) for method in ("nested-ep", "nested-iep")
        )
        assert full.latent_var is not None
        assert independent.latent_var is not None
        ratio = independent.latent_var / full.latent_var
        above, count = above + int(np.sum(ratio >= 1.0)), count + ratio.size
        ratios.append(float(ratio.mean()))
    words = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    yield flaws(above, f"{count} latent values of four problems, mean ratios {words}", "paper", "that are not below")


@says(
    "riihimaki2013",
    "nested-ep",
    "one-inner-iteration",
    "One inner iteration a site suffices, in a comparable number of outer iterations.",
)
def nested_ep_one_inner_iteration(context: Context) -> Iterable[Outcome]:
    for name in ("two-points-3", "two-points-3-steep", "toy-3"):
        whole, one = (
            context.solve("fast", "nested-ep", problems.get(name), accelerate=False, inner=inner)
            for inner in ("converged", "incremental")
        )
        yield flaws(not (whole.converged and one.converged), name, "paper", "unconverged runs")
        yield within(one.iterations / whole.iterations, 1.25, f"{name}: {one.iterations} outer iterations for "
                     f"{whole.iterations}")  # fmt: skip


@says(
    "riihimaki2013",
    "nested-ep",
    "fig8-same-solution",
    "Incremental updates converge to the solution of the standard ones.",
)
def nested_ep_fig8_same_solution(context: Context) -> Iterable[Outcome]:
    for name in ("two-points-3", "two-points-3-steep", "toy-3"):
        for method in ("nested-ep", "nested-iep"):
            whole, one = (
                context.solve("fast", method, problems.get(name), accelerate=False, inner=inner)
                for inner in ("converged", "incremental")
            )
            gaps = [float(np.abs(np.asarray(getattr(whole, key)) - np.asarray(getattr(one, key))).max())
                    for key in ("latent_mean", "latent_cov", "log_evidence")]  # fmt: skip
            yield within(max(gaps), 1e-7, f"{method} on {name}: latent moments and log Z")


@says(
    "riihimaki2013",
    "vb-probit",
    "vb-isotropic",
    "VB's posterior is independent between classes, with the same covariance in all of them.",
)
def vb_probit_vb_isotropic(context: Context) -> Iterable[Outcome]:
    for name in ("toy-3", "toy-4-steep"):
        answer = context.solve("fast", "vb-probit", problems.get(name))
        assert answer.latent_cov is not None
        assert answer.latent_var is not None
        cov, var = answer.latent_cov, answer.latent_var
        across = cov - np.einsum("nl,lk->nlk", var, np.eye(var.shape[1]))
        equal = problems.get(name)
        yield within(float(np.abs(across).max()), 0.0, f"{name}: covariances between classes")
        if np.ptp(equal.variance) == 0.0 and np.ptp(equal.lengthscales, axis=0).max() == 0.0:
            yield within(
                float(np.ptp(var, axis=1).max()), 1e-12, f"{name}: variances of the classes, one prior for all"
            )


@says(
    "riihimaki2013",
    "laplace-tkp",
    "tkp-ratio",
    "A predictive probability is the ratio of the evidences with and without the new point.",
)
def laplace_tkp_tkp_ratio(context: Context) -> Iterable[Outcome]:
    observed = 0.0
    for correlation in (-0.6, 0.3, 0.95):
        for variance in (0.5, 30.0):
            # two latent values, data and test: the product of their likelihoods over the first one's alone
            root = np.sqrt(variance)
            first = root * nodes[:, None]
            second = root * (correlation * nodes[:, None] + np.sqrt(1.0 - correlation**2) * nodes[None])
            w = np.exp(log_weights[:, None] + log_weights[None])
            ratio = float(np.sum(w * expit(first) * expit(second)) / np.sum(w * expit(first)))
            # the same by the predictive distribution of f* given y: its density from p(f* | f) averaged over p(f | y)
            f = root * np.linspace(-9.0, 9.0, 721)
            weight = np.exp(-0.5 * f**2 / variance + log_expit(f))
            weight /= weight.sum()
            inner = correlation * f[:, None] + root * np.sqrt(1.0 - correlation**2) * nodes
            predictive = float(weight @ normal_mean(expit(inner)))
            observed = max(observed, abs(ratio - predictive))
    yield within(observed, 1e-9, "six pairs of one datum and one test point, on two grids")


# -- izmailov2016 --------------------------------------------------------------------------------------------------


@says(
    "izmailov2016",
    "svi",
    "quadrature-effective",
    "Gauss-Hermite quadrature gives the expectations of the bound.",
)
def svi_quadrature_effective(context: Context) -> Iterable[Outcome]:
    from reference.izmailov2016.bound import gauss_hermite_expectation

    mean, var = (axis.ravel() for axis in np.meshgrid(np.linspace(-6.0, 6.0, 13), np.geomspace(0.01, 4.0, 9)))
    exact = normal_mean(log_expit(mean[:, None] + np.sqrt(var)[:, None] * nodes))
    errors = {count: float(np.abs(gauss_hermite_expectation(mean, var, np.ones(mean.size), count) - exact).max())
              for count in (10, 20, 40)}  # fmt: skip
    yield flaws(not errors[10] > errors[20] > errors[40], f"10, 20, 40 nodes: {errors}", "paper", "errors that grow")
    yield within(errors[20], 1e-4, "20 nodes, means -6 to 6 and variances .01 to 4, in nats")


@says(
    "izmailov2016",
    "vi-taylor",
    "taylor-local",
    "The error of the quadratic expansion is of third order in the distance from its point.",
)
def vi_taylor_taylor_local(context: Context) -> Iterable[Outcome]:
    xi = np.linspace(-4.0, 4.0, 17)
    xi = xi[np.abs(xi) > 0.3]  # the third derivative is zero at nought
    derivative, curvature = expit(-xi), -expit(xi) * expit(-xi)
    third = curvature * (1.0 - 2.0 * expit(xi))
    observed = 0.0
    for h in (0.02, -0.02):
        error = log_expit(xi + h) - (log_expit(xi) + derivative * h + 0.5 * curvature * h**2)
        observed = max(observed, float(np.abs(error / (third * h**3 / 6.0) - 1.0).max()))
    yield within(observed, 0.1, "third derivative times h³/6 at h = .02: relative difference, itself of the order of h")


@says(
    "izmailov2016",
    "vi-taylor",
    "taylor-not-global",
    "The objective by expansion can exceed log p(y).",
)
def vi_taylor_taylor_not_global(context: Context) -> Iterable[Outcome]:
    # one datum, f ~ N(0, v), expanded at xi: the integral of N(f) exp(a + b (f - xi) + c (f - xi)²/2) in closed form
    xi, var = 3.0, 4.0
    a, b, c = log_expit(xi), expit(-xi), -expit(xi) * expit(-xi)
    exact = float(np.log(0.5))  # by symmetry
    f = np.sqrt(var) * nodes
    approximate = float(np.log(normal_mean(np.exp(a + b * (f - xi) + 0.5 * c * (f - xi) ** 2))))
    precision = 1.0 / var - c
    closed = a - b * xi + 0.5 * c * xi**2 + 0.5 * (b - c * xi) ** 2 / precision - 0.5 * np.log(var * precision)
    yield within(abs(closed - approximate), 1e-6, "closed form against the grid")
    why = f"{approximate:.3f} against log p(y) = {exact:.3f}, expanded at 3, prior variance 4"
    yield flaws(not approximate > exact + 0.1, why, "paper", "values that stay below")


@says(
    "izmailov2016",
    "svi",
    "many-inducing-suffice",
    "The inducing values determine f as their number grows.",
)
def svi_many_inducing_suffice(context: Context) -> Iterable[Outcome]:
    X = np.linspace(0.0, 3.0, 60)
    left = []
    for m in (3, 6, 12, 24):
        Z = np.linspace(0.0, 3.0, m)
        K_ZZ = np.exp(-0.5 * (Z[:, None] - Z) ** 2) + 1e-9 * np.eye(m)
        K_XZ = np.exp(-0.5 * (X[:, None] - Z) ** 2)
        # the variance of f given u, of a prior variance of one: nothing is left for the labels to tell
        left.append(float(np.max(1.0 - np.einsum("im,mi->i", K_XZ, np.linalg.solve(K_ZZ, K_XZ.T)))))
    yield flaws(int(np.sum(np.diff(left[:3]) >= 0.0)), f"m = 3, 6, 12, 24: {left}", "paper", "steps that do not fall")
    yield within(left[-1], 1e-6, "var(f | u) of prior variance 1 at m = 24, jitter 1e-9")


# -- villacampa2017 and 2020 ---------------------------------------------------------------------------------------


@says(
    "villacampa2017",
    "vi-robust",
    "hard-likelihood-no-vi",
    "The expectation of the log of likelihood (1) is minus infinity for every Gaussian.",
)
def vi_robust_hard_likelihood_no_vi(context: Context) -> Iterable[Outcome]:
    rng, finite = np.random.default_rng(4), 0
    for _ in range(200):
        mean, deviation = 5.0 * rng.standard_normal(), np.exp(rng.normal(0.0, 1.0))
        # of f_y - f_c; log 0 has the weight of what is below nought, which no Gaussian leaves empty
        finite += not log_ndtr(-mean / deviation) > -np.inf
    yield flaws(finite, "200 Gaussians of a difference of two latent values", "paper", "without a negative part")


@says(
    "villacampa2020",
    "pep",
    "robust-likelihood",
    "One wrong label costs at most log(C/epsilon), and without labelling errors any number of nats.",
)
def pep_robust_likelihood(context: Context) -> Iterable[Outcome]:
    epsilon, C = 1e-3, 4
    worst = 0.0
    for size in (1.0, 10.0, 1e3):
        mean = np.array([-size, 0.0, 0.5, size])
        # the probability that the first of unit Gaussians is the largest
        others = np.prod(ndtr(nodes[:, None] + mean[0] - mean[1:]), axis=1)
        largest = float(normal_mean(others))
        cost = -np.log((1.0 - epsilon) * largest + epsilon / C)
        worst = max(worst, float(cost))
        if size == 10.0:
            yield flaws(not -np.log(largest) > 50.0, f"without errors {-np.log(largest):.0f} nats at distance 10",
                        "paper", "costs that stay small")  # fmt: skip
    yield within(worst - np.log(C / epsilon), 1e-9, f"epsilon {epsilon:g}, {C} classes: {worst:.3f} nats at most")


@says(
    "villacampa2020",
    "pep",
    "quadrature-1d",
    "The probability that one Gaussian exceeds several others is an integral in one dimension.",
)
def pep_quadrature_1d(context: Context) -> Iterable[Outcome]:
    rng = np.random.default_rng(8)
    for _ in range(3):
        mean, var = rng.standard_normal(4), np.exp(rng.normal(0.0, 0.7, 4))
        f = mean[0] + np.sqrt(var[0]) * nodes
        single = float(normal_mean(np.prod(ndtr((f[:, None] - mean[1:]) / np.sqrt(var[1:])), axis=1)))
        # in three dimensions: differences to the first are jointly Gaussian
        cov = np.diag(var[1:]) + var[0]
        orthant = float(multivariate_normal(mean[1:] - mean[0], cov, seed=1).cdf(np.zeros(3)))
        yield within(abs(single - orthant), 1e-4, "the same by SciPy's integral over an orthant, good to 1e-5")


def _tilted_power(alpha: float) -> tuple[Array, float]:
    """p(y|f)^alpha over the nodes of a Gaussian, and the log of its mean over alpha."""
    values = (1e-3 + (1.0 - 1e-3) * ndtr(1.5 * nodes - 0.5)) ** alpha
    return values, float(np.log(normal_mean(values)) / alpha)


@says(
    "villacampa2020",
    "bb-alpha",
    "mc-biased",
    "Estimates of (11) by draws are biased, as the log of an average is.",
)
def bb_alpha_mc_biased(context: Context) -> Iterable[Outcome]:
    rng = np.random.default_rng(9)
    for alpha in (0.5, 1.0):
        _, exact = _tilted_power(alpha)
        draws = (1e-3 + (1.0 - 1e-3) * ndtr(1.5 * rng.standard_normal((40_000, 10)) - 0.5)) ** alpha
        estimates = np.log(draws.mean(axis=1)) / alpha
        z = (estimates.mean() - exact) / (estimates.std() / np.sqrt(len(estimates)))
        yield flaws(not z < -5.0, f"alpha {alpha:g}, ten draws: {estimates.mean() - exact:.4f}, z = {z:.0f}", "paper",
                    "unbiased estimates")  # fmt: skip
        # by the second order of the logarithm
        wanted = -draws.var() / (20.0 * draws.mean() ** 2) / alpha
        yield within(
            abs((estimates.mean() - exact) / wanted - 1.0), 0.25, f"alpha {alpha:g}: -var/(2 K mean²), relative"
        )


@says(
    "villacampa2020",
    "bb-alpha",
    "mc-less-efficient",
    "Quadrature is much better than as many draws.",
)
def bb_alpha_mc_less_efficient(context: Context) -> Iterable[Outcome]:
    from reference.izmailov2016.bound import gauss_hermite_expectation  # a rule of so many nodes, for E log σ

    mean, var = np.linspace(-2.0, 2.0, 9), np.ones(9)
    exact = normal_mean(log_expit(mean[:, None] + nodes))
    rule = float(np.abs(gauss_hermite_expectation(mean, var, np.ones(9), 20) - exact).max())
    draws = log_expit(mean[:, None, None] + np.random.default_rng(2).standard_normal((9, 400, 20))).mean(axis=-1)
    drawn = float(np.sqrt(np.mean((draws - exact[:, None]) ** 2)))
    yield flaws(not drawn > 1000.0 * rule, f"20 nodes {rule:.1e}, 20 draws {drawn:.1e}", "paper", "draws as good")
