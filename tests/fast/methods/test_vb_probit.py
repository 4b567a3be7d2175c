"""The factorised variational approximation: its integrals, its bound by definition, its fixed point and gradients."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import block_diag
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm

from fast.core.declare import Options
from fast.core.values import Data, Prior
from fast.full_classes import prior as multiclass_prior
from fast.full_classes.predict import independent_probabilities
from fast.likelihood.region import region_moments
from fast.methods import nested_ep, vb_probit
from values_given import classes

PAPER = "riihimaki2013"


def toy(n=9, C=3, *, seed=6):
    """Arguments of `fit`, one parameter vector a class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.append(np.arange(C), rng.integers(0, C, n - C))
    lengths = 0.8 + 0.2 * np.arange(C)[:, None] * np.ones(2)
    return X, y, C, np.linspace(1.0, 3.0, C), lengths, np.full(C, 0.05), np.full(C, 1e-6)


@pytest.mark.parametrize(
    ("a", "b"), [([0.3, -1.0], [1.0, 1.0]), ([-30.0, 5.0], [1.0, 1.0]), ([2.0, -3.0, 8.0], [9.0, 40.0, 0.2])]
)
def test_region_integrals_are_relatively_accurate_however_small(a, b):
    moments = region_moments(np.array([a]), np.array([b]), moments=True, curvature=True)
    with mpmath.workdps(25):
        f = lambda u: mpmath.npdf(u) * mpmath.fprod(mpmath.ncdf(x + y * u) for x, y in zip(a, b, strict=True))  # noqa: E731
        # pieces no wider than the peak, wherever it is
        cuts = sorted({*np.arange(-12.0, 26.0, 1.0), *(-x / y for x, y in zip(a, b, strict=True) if y > 5.0)})
        direct = mpmath.log(mpmath.quad(f, cuts))
    np.testing.assert_allclose(moments.log_mass[0], float(direct), rtol=1e-12, atol=1e-12)  # trapezoidal rule: 1e-13
    for j in range(len(a)):
        step = 1e-4 * np.eye(len(a))[j]
        up, down = (region_moments(np.array([a]) + s * step, np.array([b]), moments=True) for s in (1, -1))
        # central differences of step 1e-4
        np.testing.assert_allclose(moments.hazards[0, j], (up.log_mass - down.log_mass)[0] / 2e-4, rtol=1e-6, atol=1e-8)
        derivative = -(up.hazards - down.hazards)[0] / 2e-4
        np.testing.assert_allclose(moments.curvature[0, j], derivative, rtol=1e-5, atol=1e-7)


@pytest.mark.verifies(PAPER, "24", "u4.3-vb-expectation", route="adaptive quadrature over the label's auxiliary")
def test_region_terms_are_normaliser_and_means_of_the_truncated_normal(rng):
    mean, y = rng.normal(size=(4, 3)), np.array([0, 1, 2, 1])
    result = vb_probit.region_terms(mean, y)
    total = 0.0
    for i in range(4):
        m, label = mean[i], y[i]
        j = [k for k in range(3) if k != label]
        mass = quad(lambda v, m=m, j=j, label=label: norm.pdf(v, m[label]) * norm.cdf(v - m[j]).prod(), -12, 12)[0]
        first = quad(lambda v, m=m, j=j, label=label: v * norm.pdf(v, m[label]) * norm.cdf(v - m[j]).prod(), -12, 12)[0]
        total += np.log(mass)
        expected = np.empty(3)
        expected[label] = first / mass
        for k in j:
            other = next(x for x in j if x != k)
            # E[v_k; v_k < v] = m_k Phi(v - m_k) - phi(v - m_k)
            inner = quad(
                lambda v, m=m, k=k, o=other, label=label: (
                    norm.pdf(v, m[label]) * (m[k] * norm.cdf(v - m[k]) - norm.pdf(v - m[k])) * norm.cdf(v - m[o])
                ),
                -12,
                12,
            )[0]
            expected[k] = inner / mass
        np.testing.assert_allclose(
            mean[i] + result.derivative[i], expected, rtol=1e-7, atol=1e-8
        )  # quad's default 1.5e-8
    np.testing.assert_allclose(result.value, total, rtol=1e-7)


@pytest.mark.verifies(PAPER, "u4.3-vb-bound", "u4.3-vb-family", route="E_q[log p] - KL by dense algebra")
def test_the_bound_is_its_definition_and_the_family_its_covariance(rng):
    prior = multiclass_prior.prepare(*classes(Options, *toy())[:2])
    weights = 0.3 * rng.normal(size=(3, 9))
    at = vb_probit.factorised_posterior(prior, weights)
    K = block_diag(*[prior.K(k) for k in range(3)])
    S = np.linalg.inv(np.linalg.inv(K) + np.eye(27))
    m = K @ weights.ravel()
    np.testing.assert_allclose(at.mean.T.ravel(), m, rtol=1e-12, atol=1e-13)  # one product
    var = np.column_stack([one.cond_var for one in at.factors])
    np.testing.assert_allclose(var.T.ravel(), S.diagonal(), rtol=1e-9, atol=1e-12)  # condition of K 1e3
    log_mass = vb_probit.region_terms(at.mean, prior.y).value
    # E_q[log p(v|f)] - E_q[log q(v)] leaves log Z - tr S / 2
    kl = 0.5 * (np.trace(np.linalg.solve(K, S)) + m @ np.linalg.solve(K, m) - 27)
    kl += 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1])
    direct = log_mass - 0.5 * np.trace(S) - kl
    result = vb_probit.vb_bound(weights, at.mean.T, log_mass, at.log_det)
    np.testing.assert_allclose(result, direct, rtol=1e-10)  # condition of K 1e3


def test_newton_and_plain_sweeps_end_at_one_point_and_sweeps_never_lower_the_bound():
    mixed, plain = (
        vb_probit.fit(*classes(vb_probit.VBOptions, *toy())),
        vb_probit.fit(*classes(vb_probit.VBOptions, *toy(), accelerate=False)),
    )
    assert mixed.converged
    assert plain.converged
    # residual 1e-10 in a sweep, contraction of the plain sweep about 0.95
    np.testing.assert_allclose(mixed.latent_mean, plain.latent_mean, rtol=0, atol=5e-9)
    np.testing.assert_allclose(mixed.elbo, plain.elbo, rtol=1e-12)
    assert (np.diff(plain.trace) > -1e-12).all()
    prior = mixed.prior
    for k in range(3):
        K = prior.K(k)
        image = K @ np.linalg.solve(K + np.eye(9), mixed.expected_auxiliary[:, k])
        np.testing.assert_allclose(image, mixed.latent_mean[:, k], rtol=0, atol=1e-9)
    # two plain sweeps from zero, by hand
    two = vb_probit.fit(*classes(vb_probit.VBOptions, *toy(), accelerate=False, max_iterations=2))
    m = np.zeros((9, 3))
    for _ in range(2):
        expected = m + vb_probit.region_terms(m, prior.y).derivative
        for k in range(3):
            m[:, k] = prior.K(k) @ np.linalg.solve(prior.K(k) + np.eye(9), expected[:, k])
    np.testing.assert_allclose(two.latent_mean, m, rtol=0, atol=1e-12)
    assert not two.converged


def test_the_bound_lies_below_nested_ep():
    # EP's estimate is within hundredths of log Z here, the bound far below
    assert (
        vb_probit.fit(*classes(vb_probit.VBOptions, *toy())).elbo
        < nested_ep.fit(*classes(nested_ep.NestedOptions, *toy())).log_evidence
    )


def test_gradients_are_those_of_the_maximised_bound():
    X, y, C, variance, lengths, noise, jitter = toy()
    gradients = vb_probit.gradients(
        vb_probit.fit(Data(X, y, C), Prior(variance, lengths, noise, jitter), vb_probit.VBOptions(tolerance=1e-13))
    )

    def derivative(change):
        up, down = (
            vb_probit.fit(Data(X, y, C), Prior(*change(s * 1e-4), jitter), vb_probit.VBOptions(tolerance=1e-13)).elbo
            for s in (1.0, -1.0)
        )
        return (up - down) / 2e-4

    for k in range(C):
        e = np.eye(C)[k]
        # central differences of step 1e-4
        by_variance = derivative(lambda s, e=e: (variance + s * e, lengths, noise))
        np.testing.assert_allclose(gradients.variance[k], by_variance, rtol=1e-5, atol=1e-7)
        by_noise = derivative(lambda s, e=e: (variance, lengths, noise + s * e))
        np.testing.assert_allclose(gradients.noise[k], by_noise, rtol=1e-5, atol=1e-5)
        for j in range(2):
            by_length = derivative(lambda s, e=e, j=j: (variance, lengths + s * np.outer(e, np.eye(2)[j]), noise))
            np.testing.assert_allclose(gradients.lengthscales[k, j], by_length, rtol=1e-5, atol=1e-6)


@pytest.mark.verifies(PAPER, "u4.3-vb-hyper", route="E_q[log p(f)] from SciPy's normal density, Brent's search")
@pytest.mark.parametrize("shared", [True, False])
def test_an_update_maximises_the_expected_log_prior_with_q_held(shared):
    X, y, C, variance, lengths, noise, jitter = toy()
    if shared:
        variance, lengths = np.full(C, 2.0), np.full((C, 2), 0.9)
    at = vb_probit.fit(Data(X, y, C), Prior(variance, lengths, noise, jitter, shared=shared))
    result = vb_probit.update_hyperparameters(at, ("variance",))
    for k in range(1 if shared else C):

        def expected(log_variance, k=k):
            total = 0.0
            for j in range(C) if shared else [k]:
                hyper = at.prior.hyper._replace(variance=np.exp(log_variance) * np.ones(C)).of(j)
                K, K0 = multiclass_prior.class_covariance(X, hyper), at.prior.K(j)
                S = np.linalg.inv(np.linalg.inv(K0) + np.eye(9))
                density = multivariate_normal(np.zeros(9), K)
                total += density.logpdf(at.latent_mean[:, j]) - 0.5 * np.trace(np.linalg.solve(K, S))
            return -total

        best = minimize_scalar(expected, bounds=(-4.0, 3.0), method="bounded", options={"xatol": 1e-8}).x
        # Brent's search knows a maximum to the root of rounding
        np.testing.assert_allclose(np.log(result.variance[k]), best, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(result.lengthscales, lengths)


def test_alternation_never_lowers_the_bound_and_ends_where_it_has_zero_gradient():
    X, y = np.linspace(-2.0, 2.0, 8)[:, None], np.array([0, 0, 0, 1, 1, 2, 2, 2])
    prior = multiclass_prior.prepare(Data(X, y, 3), Prior(1.0, [0.8], 0.05, 1e-2, shared=True))
    visited = []
    result = vb_probit.alternate(prior, learn=("lengthscales",), learning_tolerance=1e-4, callback=visited.append)
    assert result.converged
    assert len(visited) == result.trace.size == result.n_evaluations
    # rounding of sums of n C terms
    assert (np.diff(np.append(result.trace, result.objective)) > -1e-10).all()
    assert result.objective > result.trace[0] + 0.1
    derivative = result.hyper.lengthscales[0, 0] * vb_probit.gradients(result.posterior).lengthscales[0, 0]
    # a last move of 1e-4 in a logarithm, nine more of them to come, times a curvature of order one; 0.5 at the start
    np.testing.assert_allclose(derivative, 0.0, rtol=0, atol=2e-3)
    cut = vb_probit.alternate(prior, learn="lengthscales", max_iterations=2)
    assert not cut.converged
    assert cut.reason == "iteration limit reached"


def test_class_probabilities_of_independent_classes_sum_to_one(rng):
    mean, var = 3.0 * rng.normal(size=(20, 5)), 10.0 ** rng.uniform(-3, 3.5, size=(20, 5))
    raw = independent_probabilities(mean, var)
    np.testing.assert_allclose(raw.sum(axis=1), 1.0, rtol=0, atol=1e-12)  # five integrals of 1e-13


@pytest.mark.parametrize("case", ["log variance 8", "duplicates", "c = 20"])
def test_hard_cases_converge(case, rng):
    X, y, C, *_ = toy(n=24)
    variance = 2.0
    if case == "log variance 8":
        variance = np.exp(8.0)
    elif case == "duplicates":
        X, y = np.vstack([X, X]), np.append(y, (y + 1) % C)
    else:
        C, y = 20, np.append(np.arange(20), [0, 1, 2, 3])
    posterior = vb_probit.fit(Data(X, y, C), Prior(variance, [1.5, 1.5], 0.0, 0.0, shared=True))
    assert posterior.residual < 1e-8
    assert np.isfinite(posterior.elbo)
    p = vb_probit.predict(posterior, rng.normal(size=(3, 2))).probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
