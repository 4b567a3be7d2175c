"""The judge's softmax truth against integrals done another way: adaptive rules, the binary logit, prior draws."""

import itertools

import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import expit, softmax

from validation import Problem, solve

SCALES = np.array([0.9, 1.4])
X3 = np.array([[0.0, 0.3], [0.8, -0.4], [-0.6, 0.5], [1.2, 0.7]])
X_TEST = np.array([[0.3, 0.1], [-1.5, 1.0]])
Z = np.array([[0.2, 0.0], [-0.7, 0.4]])


def make(n=2, C=3, prior_model="full", variance=(3.0, 1.0, 5.0, 2.0, 2.5), y=(0, 2, 1, 3), **changes):
    fields = {
        "name": "few",
        "X": X3[:n],
        "y": np.array(y)[:n],
        "n_classes": C,
        "likelihood": "softmax",
        "variance": np.array(variance)[:C],
        "lengthscales": SCALES,
        "noise": 0.2,
        "jitter": 1e-3,
        "Z": Z if prior_model == "fitc" else None,
        "prior_model": prior_model,
        "X_test": X_TEST,
    }
    return Problem(**(fields | changes))


def prior_covariance(problem, latent):
    """Covariance of f at X, X_test and u, by the definition of the prior model."""
    variance, noise, jitter = problem.variance[latent], problem.noise[latent], problem.jitter[latent]
    n, both = problem.n, np.concatenate([problem.X, problem.X_test])

    def k(A, B):
        return variance * np.exp(-0.5 * (((A[:, None] - B) / problem.lengthscales[latent]) ** 2).sum(-1))

    if problem.prior_model == "full":
        K = k(both, both) + noise * np.eye(len(both))
        K[:n, :n] += jitter * np.eye(n)
        return K
    inducing = problem.Z[latent]
    K_ZZ = k(inducing, inducing) + jitter * np.eye(len(inducing))
    gain = k(both, inducing) @ np.linalg.inv(K_ZZ)
    K = gain @ K_ZZ @ gain.T
    np.fill_diagonal(K, variance + noise)
    return np.block([[K, gain @ K_ZZ], [K_ZZ @ gain.T, K_ZZ]])


@pytest.mark.parametrize("prior_model", ["full", "fitc"])
def test_two_classes_and_two_data_agree_with_an_adaptive_rule(prior_model):
    problem = make(2, 2, prior_model, y=(0, 1), X_test=X_TEST[:1])
    solution = solve("quadrature", "exact", problem)
    # d = f_0 - f_1 at the data: only it is seen
    D = (prior_covariance(problem, 0) + prior_covariance(problem, 1))[:2, :2]
    (p, _), (q, r) = np.linalg.cholesky(D)

    def integral(g):
        def integrand(b, a):
            first, second = p * a, q * a + r * b
            return g(first, second) * expit(first) * expit(-second) * np.exp(-0.5 * (a * a + b * b)) / (2.0 * np.pi)

        return dblquad(integrand, -9.0, 9.0, -9.0, 9.0, epsabs=1e-10, epsrel=1e-9)[0]

    z = integral(lambda a, b: 1.0)
    # the stated error covers the gap, up to what the adaptive rule was asked for
    assert abs(solution.log_evidence - np.log(z)) <= solution.settings["error_log_evidence"] + 1e-8
    mean, square = (integral(lambda a, b, j=j: a**j) / z for j in (1, 2))
    gap = solution.latent_mean[0, 0] - solution.latent_mean[0, 1]
    assert gap == pytest.approx(mean, abs=2 * solution.settings["error_latent_mean"] + 1e-8)
    spread = np.array([1.0, -1.0]) @ solution.latent_cov[0] @ np.array([1.0, -1.0])
    assert spread == pytest.approx(square - mean**2, abs=4 * solution.settings["error_latent_cov"] + 1e-7)


@pytest.mark.parametrize("prior_model", ["full", "fitc"])
def test_two_classes_are_the_binary_logit_of_the_difference(prior_model):
    problem = make(3, 2, prior_model, variance=(2.0, 2.0), y=(0, 1, 1))
    solution = solve("quadrature", "exact", problem)
    binary = solve(
        "quadrature",
        "exact",
        make(3, 2, prior_model, likelihood="logit", variance=(4.0,), noise=0.4, jitter=2e-3, y=(0, 1, 1)),
    )
    # f_1 - f_0 has twice the kernel, the noise and the jitter; both are rules of 8 digits
    assert solution.log_evidence == pytest.approx(binary.log_evidence, abs=1e-8)
    np.testing.assert_allclose(solution.probabilities, binary.probabilities, rtol=0, atol=1e-8)
    difference = solution.test_latent_mean[:, 1] - solution.test_latent_mean[:, 0]
    np.testing.assert_allclose(difference, binary.test_latent_mean[:, 0], rtol=0, atol=1e-7)
    if prior_model == "fitc":
        between = solution.inducing_mean[1] - solution.inducing_mean[0]
        np.testing.assert_allclose(between, binary.inducing_mean[0], rtol=0, atol=1e-7)


@pytest.mark.parametrize(("n", "C", "prior_model"), [(2, 3, "full"), (2, 3, "fitc"), (4, 2, "full"), (3, 2, "fitc")])
def test_moments_and_probabilities_agree_with_weighted_prior_draws(n, C, prior_model):
    rng = np.random.default_rng(5)
    problem = make(n, C, prior_model, y=(0, 2, 1, 2) if C == 3 else (0, 1, 1, 0))
    solution = solve("quadrature", "exact", problem, digits=6.0)
    size, t = 400_000, problem.t
    draws = np.stack(
        [
            np.linalg.cholesky(prior_covariance(problem, c))
            @ rng.standard_normal((n + t + 2 * (prior_model == "fitc"), size))
            for c in range(C)
        ]
    )
    likelihood = softmax(draws[:, :n], axis=0)[problem.y, np.arange(n)].prod(axis=0)
    z = likelihood.mean()
    statistics = [(solution.log_evidence - np.log(z)) * np.sqrt(size) * z / likelihood.std()]

    def compare(values, expected):
        """Ratio estimate of E[values | y] and its delta-method error."""
        mean = (likelihood * values).mean() / z
        error = (likelihood * (values - mean)).std() / z / np.sqrt(size)
        statistics.append((expected - mean) / error)

    for c, i in itertools.product(range(C), range(n)):
        compare(draws[c, i], solution.latent_mean[i, c])
    chosen = softmax(draws[:, n : n + t], axis=0)
    for c, j in itertools.product(range(C), range(t)):
        compare(draws[c, n + j], solution.test_latent_mean[j, c])
        compare(chosen[c, j], solution.probabilities[j, c])
        for d in range(c + 1):
            centred = draws[[c, d], n + j] - solution.test_latent_mean[j, [c, d]][:, None]
            compare(centred.prod(axis=0), solution.test_latent_cov[j, c, d])
    if prior_model == "fitc":
        for c in range(C):
            compare(draws[c, n + t], solution.inducing_mean[c, 0])
            centred = draws[c, n + t :] - solution.inducing_mean[c][:, None]
            compare(centred.prod(axis=0), solution.inducing_cov[c, 0, 1])
    # two-sided, Bonferroni at 1e-4 over at most 60 statistics: 4.9; the sums have many draws each
    assert np.abs(statistics).max() < 4.9
    np.testing.assert_allclose(solution.probability_mass, 1.0, rtol=0, atol=1e-6)  # the rule's own error


@pytest.mark.parametrize("prior_model", ["full", "fitc"])
def test_a_probability_is_a_ratio_of_evidences(prior_model):
    changes = {"jitter": 0.0} if prior_model == "full" else {}  # the full prior has its jitter at the data only
    problem = make(2, 2, prior_model, y=(0, 1), X_test=X3[2:3], **changes)
    solution = solve("quadrature", "exact", problem)
    more = solve("quadrature", "exact", make(3, 2, prior_model, y=(0, 1, 1), X_test=None, **changes))
    ratio = np.exp(more.log_evidence - solution.log_evidence)
    assert solution.probabilities[0, 1] == pytest.approx(ratio, rel=1e-7)  # two rules of 8 digits


def test_more_digits_change_no_more_than_the_stated_error_and_classes_may_be_renamed():
    problem = make()
    rough, fine = solve("quadrature", "exact", problem, digits=4.0), solve("quadrature", "exact", problem, digits=7.0)
    for key in ("log_evidence", "latent_mean", "latent_cov", "probabilities", "test_latent_cov"):
        gap = np.abs(np.subtract(getattr(rough, key), getattr(fine, key))).max()
        assert gap <= rough.settings[f"error_{key}"]
        assert fine.settings[f"error_{key}"] < 1e-4
    order = np.array([2, 0, 1])  # new class k is the old order[k]
    renamed = solve(
        "quadrature", "exact",
        make(variance=problem.variance[order], y=np.argsort(order)[problem.y]), digits=7.0,
    )  # fmt: skip
    assert renamed.log_evidence == pytest.approx(fine.log_evidence, abs=1e-6)  # seven digits
    np.testing.assert_allclose(renamed.probabilities, fine.probabilities[:, order], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 3}, r"X: found n \(C - 1\) = 6, expected at most 4"),
        ({"variance": (1e4, 1e4, 1e4)}, r"variance: found differences of sd .*; lower digits"),
        ({"noise": 0.0, "jitter": 0.0, "X": np.zeros((2, 2))}, r"differences of K_XX .*expected > 0"),
    ],
)
def test_what_it_cannot_answer_is_refused(changes, message):
    with pytest.raises((ValueError, np.linalg.LinAlgError), match=message):
        solve("quadrature", "exact", make(**changes))


def test_digits_out_of_range_are_refused():
    with pytest.raises(ValueError, match="digits: found 2"):
        solve("quadrature", "exact", make(), digits=2.0)
