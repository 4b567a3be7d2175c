"""The judge's own truth against integrals done another way: adaptive rules of SciPy and mpmath, and known limits."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.interpolate import CubicSpline
from scipy.special import expit, ndtr
from scipy.stats import norm

from bivariate import bivariate_normal_cdf
from validation import Problem, problems, solve
from validation.implementations.quadrature_rule import matern_correlation

LINK = {"logit": expit, "probit": ndtr}


def make(
    variance, likelihood="logit", n=2, noise=0.0, jitter=0.0, Z=None, prior_model="full", X=(-0.7, 0.4, 1.5), **changes
):
    """n points on a line."""
    fields = {
        "name": "few",
        "X": np.array(X)[:n, None],
        "y": np.array([1, 0, 1])[:n],
        "n_classes": 2,
        "likelihood": likelihood,
        "variance": variance,
        "lengthscales": 0.9,
        "noise": noise,
        "jitter": jitter,
        "Z": None if Z is None else np.array(Z)[:, None],
        "prior_model": prior_model,
        "X_test": np.array([[-2.0], [0.3], [0.4]]),
    }
    return Problem(**(fields | changes))


def kernel(problem, A, B):
    """k(A, B), written out again."""
    return problem.variance[0] * np.exp(-0.5 * ((A - B.T) / problem.lengthscales[0, 0]) ** 2)


def joint_covariance(problem, x):
    """Covariance of (f(X), f(x)) of the full model, by the definition."""
    P = np.vstack([problem.X, [[x]]])
    K = kernel(problem, P, P) + problem.noise[0] * np.eye(len(P))
    if problem.Z is None:
        K[: problem.n, : problem.n] += problem.jitter[0] * np.eye(problem.n)
    # a test point that is a datum shares k and not the noise, which the sum above has it right
    return K


SCALAR_LINK = {"logit": lambda f: 1.0 / (1.0 + math.exp(-f)), "probit": lambda f: 0.5 * math.erfc(-f / math.sqrt(2.0))}


def moment(problem, K, g):
    """Integral of g(f) p(y|f) N(f; 0, K) over two latent values by an adaptive rule in whitened coordinates."""
    (p, _), (q, r) = np.linalg.cholesky(K).tolist()
    link, (s, t) = SCALAR_LINK[problem.likelihood], problem.y_sign.tolist()

    def integrand(b, a):
        f1, f2 = p * a, q * a + r * b
        return g(f1, f2) * link(s * f1) * link(t * f2) * math.exp(-0.5 * (a * a + b * b)) / (2.0 * math.pi)

    value, _ = dblquad(integrand, -9.0, 9.0, -9.0, 9.0, epsabs=1e-10, epsrel=1e-10)
    return value


@pytest.mark.parametrize(
    ("variance", "likelihood", "noise", "jitter"),
    [(2.0, "logit", 0.0, 0.0), (5.0, "logit", 0.3, 0.1), (1.5, "probit", 0.2, 0.0)],
)
def test_two_points_are_what_an_adaptive_rule_finds(variance, likelihood, noise, jitter):
    problem = make(variance, likelihood, noise=noise, jitter=jitter)
    got = solve("quadrature", "exact", problem)
    K = joint_covariance(problem, 0.0)[:2, :2]
    Z = moment(problem, K, lambda f1, f2: 1.0)
    mean = np.array([moment(problem, K, lambda f1, f2: f1), moment(problem, K, lambda f1, f2: f2)]) / Z
    second = np.array([moment(problem, K, lambda f1, f2: f1**2), moment(problem, K, lambda f1, f2: f2**2)]) / Z
    # the adaptive rule was asked for 1e-10 of values of order one; quadrature promises 8 digits
    np.testing.assert_allclose(got.log_evidence, np.log(Z), rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_mean[:, 0], mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_cov[:, 0, 0], second - mean**2, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("likelihood", "noise"), [("logit", 0.3), ("probit", 0.0)])
def test_a_test_point_is_what_an_adaptive_rule_finds_in_the_joint_prior(likelihood, noise):
    problem = make(2.0, likelihood, noise=noise)
    got = solve("quadrature", "exact", problem)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    Z = moment(problem, joint_covariance(problem, 0.0)[:2, :2], lambda f1, f2: 1.0)
    for i, x in enumerate(problem.X_test[:, 0]):
        K = joint_covariance(problem, x)
        w1, w2 = np.linalg.solve(K[:2, :2], K[:2, 2]).tolist()
        cond = max(K[2, 2] - w1 * K[0, 2] - w2 * K[1, 2], 0.0)
        # E[p(y* = 1 | f*)] given s = E[f* | f], on a fine grid
        grid = np.linspace(-20.0, 20.0, 4001)
        smooth = LINK[likelihood](grid[:, None] + np.sqrt(cond) * nodes) @ weights / np.sqrt(2.0 * np.pi)
        predictive = CubicSpline(grid, smooth)
        mean = moment(problem, K[:2, :2], lambda f1, f2, w1=w1, w2=w2: w1 * f1 + w2 * f2) / Z
        second = moment(problem, K[:2, :2], lambda f1, f2, w1=w1, w2=w2: (w1 * f1 + w2 * f2) ** 2) / Z
        probability = (
            moment(problem, K[:2, :2], lambda f1, f2, w1=w1, w2=w2, g=predictive: float(g(w1 * f1 + w2 * f2))) / Z
        )
        # sixty Gauss-Hermite nodes at a standard deviation below 1.6 and a cubic spline at steps of 0.01: below 1e-9
        np.testing.assert_allclose(got.test_latent_mean[i, 0], mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(got.test_latent_cov[i, 0, 0], cond + second - mean**2, rtol=0, atol=1e-7)
        np.testing.assert_allclose(got.probabilities[i], [1.0 - probability, probability], rtol=0, atol=1e-8)


def orthant(R):
    """P(all three > 0) of a standard normal with correlations R: the classical closed form."""
    return 0.125 + (np.arcsin(R[0, 1]) + np.arcsin(R[0, 2]) + np.arcsin(R[1, 2])) / (4.0 * np.pi)


@pytest.mark.parametrize(("variance", "noise"), [(2.0, 0.2), (9.0, 0.3), (0.1, 0.0)])
def test_three_probit_points_have_the_evidence_of_a_closed_form(variance, noise):
    # ∫ Π Φ(s_i f_i) N(f; 0, K) df = P(s_i (f_i + ε_i) > 0), an orthant of N(0, S (K + I) S) with unit normal ε
    problem = make(variance, "probit", n=3, noise=noise)
    P = np.diag(problem.y_sign) @ (kernel(problem, problem.X, problem.X) + (noise + 1.0) * np.eye(3))
    P = P @ np.diag(problem.y_sign)
    R = P / np.sqrt(np.outer(np.diag(P), np.diag(P)))
    got = solve("quadrature", "exact", problem)
    np.testing.assert_allclose(got.log_evidence, np.log(orthant(R)), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("variance", "noise"), [(2.0, 0.2), (np.exp(4.0), 0.3)])
def test_probit_probabilities_are_ratios_of_closed_forms(variance, noise):
    # p(y* = 1 | y) = Z(y, y*)/Z(y): orthants of three and of two normals
    problem = make(variance, "probit", n=2, noise=noise, X_test=np.array([[0.9]]))
    got = solve("quadrature", "exact", problem)
    K = joint_covariance(problem, 0.9)
    s = np.append(problem.y_sign, 1.0)
    P3 = np.outer(s, s) * (K + np.eye(3))
    R = P3 / np.sqrt(np.outer(np.diag(P3), np.diag(P3)))
    r = R[0, 1]
    two = 0.25 + np.arcsin(r) / (2.0 * np.pi)
    np.testing.assert_allclose(got.log_evidence, np.log(two), rtol=0, atol=1e-9)
    np.testing.assert_allclose(got.probabilities[0, 1], orthant(R) / two, rtol=0, atol=1e-9)


def test_three_logit_points_are_what_mpmath_finds():
    # independent priors: three points far apart, so that the integral factorises and mpmath needs one dimension
    problem = make(np.exp(2.0), n=3, noise=0.5, X=(-50.0, 0.0, 50.0), X_test=np.array([[0.0]]))
    got = solve("quadrature", "exact", problem)
    v = mpmath.mpf(float(problem.variance[0] + problem.noise[0]))
    with mpmath.workdps(25):

        def density(f):
            return mpmath.exp(-f * f / (2 * v)) / mpmath.sqrt(2 * mpmath.pi * v)

        def one(g):
            return mpmath.quad(lambda f: g(f) * density(f) / (1 + mpmath.exp(-f)), [-40, -10, 0, 10, 40])

        Z, mean, second = one(lambda f: 1), one(lambda f: f), one(lambda f: f * f)
        log_Z, mean, var = float(3 * mpmath.log(Z)), float(mean / Z), float(second / Z - (mean / Z) ** 2)
    np.testing.assert_allclose(got.log_evidence, log_Z, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_mean[:, 0], mean * problem.y_sign, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_cov[:, 0, 0], var, rtol=0, atol=1e-7)


def test_three_dependent_logit_points_are_what_gauss_legendre_finds():
    problem = make(2.0, n=3, noise=0.3)
    K = joint_covariance(problem, 0.0)[:3, :3]
    root, s = np.linalg.cholesky(K), problem.y_sign
    nodes, weights = np.polynomial.legendre.leggauss(120)
    a, w = 9.0 * nodes, 9.0 * weights * norm.pdf(9.0 * nodes)
    A, B, C = np.meshgrid(a, a, a, indexing="ij")
    W = w[:, None, None] * w[None, :, None] * w[None, None, :]
    f = np.stack([A, B, C], axis=-1) @ root.T
    density = W * expit(f * s).prod(axis=-1)
    Z = density.sum()
    mean = np.einsum("abc,abcn->n", density, f) / Z
    var = np.einsum("abc,abcn->n", density, f**2) / Z - mean**2
    got = solve("quadrature", "exact", problem)
    # 120 Gauss nodes over 18 standard deviations: spectral accuracy, below 1e-10 for these widths
    np.testing.assert_allclose(got.log_evidence, np.log(Z), rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_mean[:, 0], mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_cov[:, 0, 0], var, rtol=0, atol=1e-7)


def fitc_covariance(problem, points):
    """Covariance of f at data and test points under FITC: Q off the diagonal, variance + noise on it."""
    Z = problem.Z[0]
    K_uu = kernel(problem, Z, Z) + problem.jitter[0] * np.eye(len(Z))
    K_u = kernel(problem, Z, points)
    K = K_u.T @ np.linalg.solve(K_uu, K_u)
    K[np.diag_indices(len(points))] = problem.variance[0] + problem.noise[0]
    return K


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
def test_the_fitc_prior_is_integrated_as_a_mixture_over_the_inducing_values(likelihood):
    # brute force over u: p(y) = ∫ N(u; 0, K_uu) Π ∫ p(y_i|f_i) N(f_i; k_i' K_uu⁻¹ u, s_i) df_i du, one inducing value
    problem = make(2.0, likelihood, noise=0.2, jitter=0.05, Z=[0.1], prior_model="fitc")
    k_u = kernel(problem, problem.Z[0], problem.X)[0]
    K_uu = problem.variance[0] + problem.jitter[0]
    upsilon = k_u / K_uu
    cond = problem.variance[0] + problem.noise[0] - k_u**2 / K_uu
    link, s = LINK[likelihood], problem.y_sign
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def of_point(i, u, g=lambda f: 1.0):
        f = upsilon[i] * u + np.sqrt(cond[i]) * nodes
        return (weights / np.sqrt(2.0 * np.pi)) @ (g(f) * link(s[i] * f))

    def over_u(g):
        return quad(lambda u: g(u) * norm.pdf(u, 0.0, np.sqrt(K_uu)), -16.0, 16.0, epsabs=1e-12, limit=200)[0]

    Z = over_u(lambda u: of_point(0, u) * of_point(1, u))
    u_mean = over_u(lambda u: u * of_point(0, u) * of_point(1, u)) / Z
    u_second = over_u(lambda u: u * u * of_point(0, u) * of_point(1, u)) / Z
    f_mean = over_u(lambda u: of_point(0, u, lambda f: f) * of_point(1, u)) / Z
    f_second = over_u(lambda u: of_point(0, u, lambda f: f**2) * of_point(1, u)) / Z
    got = solve("quadrature", "exact", problem)
    np.testing.assert_allclose(got.log_evidence, np.log(Z), rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.inducing_mean, [[u_mean]], rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.inducing_cov, [[[u_second - u_mean**2]]], rtol=0, atol=1e-7)
    np.testing.assert_allclose(got.latent_mean[0, 0], f_mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.latent_cov[0, 0, 0], f_second - f_mean**2, rtol=0, atol=1e-7)
    for i, x in enumerate(problem.X_test):
        k = kernel(problem, problem.Z[0], x[:, None])[0, 0]
        mean, var = k / K_uu * u_mean, problem.variance[0] + problem.noise[0] - k**2 / K_uu
        np.testing.assert_allclose(got.test_latent_mean[i, 0], mean, rtol=0, atol=1e-8)
        full_var = var + (k / K_uu) ** 2 * (u_second - u_mean**2)
        np.testing.assert_allclose(got.test_latent_cov[i, 0, 0], full_var, rtol=0, atol=1e-7)


def test_the_fitc_evidence_of_probit_points_is_an_orthant():
    problem = make(3.0, "probit", n=3, noise=0.2, jitter=0.05, Z=[-1.0, 1.2], prior_model="fitc")
    s = problem.y_sign
    P = np.outer(s, s) * (fitc_covariance(problem, problem.X) + np.eye(3))
    R = P / np.sqrt(np.outer(np.diag(P), np.diag(P)))
    got = solve("quadrature", "exact", problem)
    np.testing.assert_allclose(got.log_evidence, np.log(orthant(R)), rtol=0, atol=1e-9)


def test_inducing_values_of_the_full_prior_leave_the_evidence_as_it_is():
    plain, with_Z = make(2.0, noise=0.2), make(2.0, noise=0.2, Z=[-0.7, 1.0], jitter=0.1)
    left, right = solve("quadrature", "exact", plain), solve("quadrature", "exact", with_Z)
    np.testing.assert_allclose(right.log_evidence, left.log_evidence, rtol=0, atol=1e-14)
    np.testing.assert_allclose(right.latent_mean, left.latent_mean, rtol=0, atol=1e-14)
    # u at a test point without noise has its mean, and its variance less the noise, plus the jitter
    at = solve("quadrature", "exact", make(2.0, noise=0.2, X_test=np.array([[1.0]])))
    np.testing.assert_allclose(right.inducing_mean[0, 1], at.test_latent_mean[0, 0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(right.inducing_cov[0, 1, 1], at.test_latent_cov[0, 0, 0] - 0.2 + 0.1, rtol=0, atol=1e-13)


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
@pytest.mark.parametrize("n", [2, 3])
def test_without_a_prior_variance_every_label_is_a_coin(likelihood, n):
    got = solve("quadrature", "exact", make(1e-12, likelihood, n=n))
    # the evidence moves by less than the variance
    np.testing.assert_allclose(got.log_evidence, -n * np.log(2.0), rtol=0, atol=1e-11)
    np.testing.assert_allclose(got.probabilities, 0.5, rtol=0, atol=1e-5)


def test_a_gaussian_posterior_is_the_conjugate_one():
    # log p(y|f) = log Φ is no Gaussian, but for a small variance v both moments follow the expansion to first order:
    # mean_i = Σ_j K_ij s_j φ(0)/Φ(0) + O(v²)
    problem = make(1e-6, "probit")
    got = solve("quadrature", "exact", problem)
    K = joint_covariance(problem, 0.0)[:2, :2]
    derivative = problem.y_sign * 2.0 * norm.pdf(0.0)
    np.testing.assert_allclose(got.latent_mean[:, 0], K @ derivative, rtol=1e-5)


@pytest.mark.parametrize("name", ["two-points", "three-points-fitc", "three-points"])
def test_the_stated_error_covers_the_difference_from_more_digits(name):
    problem = problems.get(name)
    if name == "three-points":
        problem = problem.replace(variance=7.0)  # ten digits at log variance 4 take too many nodes for a quick test
    got, better = solve("quadrature", "exact", problem), solve("quadrature", "exact", problem, digits=10.0)
    for key in ("log_evidence", "latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"):
        stated = got.settings[f"error_{key}"]
        assert np.abs(np.asarray(getattr(got, key)) - np.asarray(getattr(better, key))).max() <= stated
        # and it is no idle promise
        assert stated < 1e-5 * max(1.0, np.abs(getattr(got, key)).max())


@pytest.mark.parametrize("variance", [2.0, 60.0])
@pytest.mark.parametrize("likelihood", ["logit", "probit"])
@pytest.mark.parametrize("gap", [1.0, 1e-6])
def test_the_stated_error_covers_coarse_rules_too(variance, likelihood, gap):
    problem = make(variance, likelihood, X=(0.0, gap))
    fine = solve("quadrature", "exact", problem, digits=11.0)
    for digits in (3.0, 5.0, 8.0):
        coarse = solve("quadrature", "exact", problem, digits=digits)
        for key in ("log_evidence", "latent_mean", "latent_cov", "probabilities"):
            difference = np.abs(np.asarray(getattr(fine, key)) - np.asarray(getattr(coarse, key))).max()
            assert difference <= coarse.settings[f"error_{key}"]


@pytest.mark.parametrize("digits", [3.0, 5.0, 8.0, 11.0])
@pytest.mark.parametrize("variance", [0.5, 50.0, 400.0])
def test_the_stated_error_covers_the_difference_from_a_closed_form(variance, digits):
    problem = make(variance, "probit", noise=0.1)
    K = joint_covariance(problem, 0.0)[:2, :2] + np.eye(2)
    s = problem.y_sign
    exact = np.log(0.25 + np.arcsin(s[0] * s[1] * K[0, 1] / K[0, 0]) / (2.0 * np.pi))
    got = solve("quadrature", "exact", problem, digits=digits)
    assert abs(got.log_evidence - exact) <= got.settings["error_log_evidence"]


def test_probit_probabilities_of_two_points_are_those_of_a_bivariate_normal():
    problem = make(4.0, "probit", noise=0.1)
    s = problem.y_sign
    P = np.outer(s, s) * (joint_covariance(problem, 0.0)[:2, :2] + np.eye(2))
    exact = bivariate_normal_cdf(np.zeros(2), P)
    np.testing.assert_allclose(np.exp(solve("quadrature", "exact", problem).log_evidence), exact, rtol=0, atol=1e-9)


# -- shapes and refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [None, 0, 1])
def test_the_answer_has_the_shapes_of_its_test_set(t):
    got = solve("quadrature", "exact", make(2.0, X_test=None if t is None else np.zeros((t, 1))))
    for key in ("test_latent_mean", "test_latent_cov", "probabilities", "probability_mass"):
        value = getattr(got, key)
        assert (value is None) == (t is None)
        assert t is None or len(value) == t
    assert got.log_evidence_kind == "exact"
    assert got.inducing_cov.shape == (1, 2, 2)


def test_one_point_without_the_other_label_is_no_problem_at_all():
    with pytest.raises(ValueError, match=r"y: found the one class"):
        make(2.0, n=1)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"n": 3, "likelihood": "softmax", "n_classes": 3, "y": (0, 1, 2)},
            r"X: found n \(C - 1\) = 6, expected at most 4",
        ),
        ({"n": 3, "likelihood": "threshold"}, r"X: found n = 3, expected n <= 2"),
    ],
)
def test_a_problem_beyond_quadrature_is_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        solve("quadrature", "exact", make(2.0, **changes))


@pytest.mark.parametrize("order", [0.01, 0.4, 0.5, 1.5, 3.2, 30.0, 1e3])
def test_the_matern_correlation_is_the_bessel_function_of_its_definition(order):
    for s in np.sqrt(2.0 * order) * np.array([1e-12, 1e-3, 0.1, 1.0, 3.0, 20.0]):
        with mpmath.workdps(60):
            nu, at = mpmath.mpf(order), mpmath.mpf(float(s))
            truth = float(2 / mpmath.gamma(nu) * (at / 2) ** nu * mpmath.besselk(nu, at))
        # logarithms of size ν log ν and more are summed: at ν = 1000 that is some 1e4 units of 1e-16
        assert matern_correlation(order, s) == pytest.approx(truth, rel=1e-14 * (10.0 + order), abs=0)
    assert matern_correlation(order, 0.0) == 1.0
    assert matern_correlation(order, 1e9) == 0.0


def test_a_binary_probit_with_a_matern_kernel_is_a_normal_orthant():
    problem = make(2.5, "probit", noise=0.3, jitter=0.1, kernel="matern", smoothness=1.5)
    r = np.sqrt(3.0) * np.abs(problem.X - problem.X.T) / problem.lengthscales[0, 0]
    K = 2.5 * (1.0 + r) * np.exp(-r) + 1.4 * np.eye(2)  # the closed form; noise, jitter and the probit's unit
    signs = problem.y_sign
    truth = np.log(bivariate_normal_cdf(np.zeros(2), signs[:, None] * K * signs))
    solution = solve("quadrature", "exact", problem)
    assert solution.log_evidence == pytest.approx(truth, abs=1e-7)  # a rule of 8 digits, and SciPy's


def test_more_than_three_points_are_refused(make_problem):
    with pytest.raises(ValueError, match=r"X: found n = 5, expected n <= 3"):
        solve("quadrature", "exact", make_problem())


@pytest.mark.parametrize("digits", [0.0, -1.0, 2.9, 12.1, np.inf, np.nan])
def test_digits_that_no_rule_can_give_are_refused(digits):
    with pytest.raises(ValueError, match=r"digits: found"):
        solve("quadrature", "exact", make(2.0), digits=digits)


def test_a_prior_too_wide_for_the_grid_is_refused_and_not_waited_for():
    with pytest.raises(ValueError, match=r"variance: found 1e\+08, for which 8 digits need \d+\^3 nodes"):
        solve("quadrature", "exact", make(1e8, n=3))


@pytest.mark.parametrize(
    ("problem", "matrix"),
    [
        (make(1.0, X=(0.5, 0.5)), r"K_XX \(2, 2\): found smallest eigenvalue .*raise noise or jitter"),
        (make(1.0, Z=[0.5, 0.5], prior_model="fitc"), r"K_ZZ \(2, 2\): found smallest eigenvalue .*raise jitter"),
    ],
)
def test_a_singular_prior_is_refused_by_its_matrix(problem, matrix):
    with pytest.raises(np.linalg.LinAlgError, match=matrix):
        solve("quadrature", "exact", problem)


def test_duplicate_points_with_noise_are_answered():
    got = solve("quadrature", "exact", make(2.0, X=(0.5, 0.5), noise=0.1))
    # opposite labels at one place: the means are opposite, up to the digits promised
    np.testing.assert_allclose(got.latent_mean[0, 0], -got.latent_mean[1, 0], rtol=0, atol=1e-8)
