"""The judge's truth for several classes, by other routes: definitions, the binary rule, orthants, rejected draws."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from validation import Problem, problems, solve
from validation.implementations.quadrature_orthant import bivariate_cdf, solve_orthant


def few(n: int = 2, n_classes: int = 3, **changes: Any) -> Problem:
    fields: dict[str, Any] = {
        "name": "few",
        "X": np.array([[-0.5], [0.6]])[:n],
        "y": np.array([1, 0])[:n],
        "n_classes": n_classes,
        "likelihood": "threshold",
        "variance": np.array([1.0, 2.0, 0.7, 1.4])[:n_classes],
        "lengthscales": np.array([0.8, 1.2, 1.0, 0.7])[:n_classes, None],
        "noise": np.array([0.2, 0.1, 0.4, 0.3])[:n_classes],
        "X_test": np.array([[0.1], [2.0]]),
    }
    return Problem(**(fields | changes))


def covariance(problem: Problem, latent: int, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    scaled = (A[:, None, 0] - B[None, :, 0]) / problem.lengthscales[latent, 0]
    same = A[:, None, 0] == B[None, :, 0]
    return problem.variance[latent] * np.exp(-0.5 * scaled**2) + problem.noise[latent] * same


def largest(y: int, n_classes: int) -> np.ndarray:
    """(C - 1, C): rows that are positive where class y is the largest."""
    return np.delete(np.eye(n_classes)[y] - np.eye(n_classes), y, axis=0)


# -- the normal c.d.f. in two dimensions ---------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [-0.98, -0.3, 0.0, 0.5, 0.999])
def test_the_bivariate_cdf_is_the_integral_of_its_density(rho):
    h = np.array([0.0, 0.0, 0.0, -0.0, 1.3, -0.7, 2.1, -3.0, 0.4, 6.0])
    k = np.array([0.0, 1.1, -1.1, 0.3, 0.0, -0.2, -1.5, -2.0, 0.4, -5.0])
    with mpmath.workdps(25):
        root = mpmath.sqrt(1 - mpmath.mpf(rho) ** 2)
        expected = [
            float(
                mpmath.quad(
                    lambda x, b=b: mpmath.npdf(x) * mpmath.ncdf((b - rho * x) / root),
                    # a steep c.d.f. at b/rho is split there
                    sorted({-12, *([b / rho] if rho and -12 < b / rho < a else []), a}),
                )
            )
            for a, b in zip(h, k, strict=True)
        ]
    # Owen's T is good to some eps in absolute terms
    np.testing.assert_allclose(bivariate_cdf(h, k, rho), expected, rtol=0, atol=2e-15)


# -- one datum: the definition -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_one_datum_has_the_evidence_and_moments_of_the_definition(epsilon):
    # a problem needs two classes to occur, so the second datum lies so far away that nothing is shared
    problem = few(epsilon=epsilon, X=np.array([[-0.5], [300.0]]), X_test=np.array([[-0.1]]))
    result = solve_orthant(problem)
    sd = np.sqrt(problem.variance + problem.noise)
    y = 1

    def density(a: float, c: int) -> float:
        return math.exp(-0.5 * (a / sd[c]) ** 2) / (math.sqrt(2.0 * math.pi) * sd[c])

    def others(a: float, without: tuple[int, ...]) -> float:
        return math.prod(float(ndtr(a / sd[c])) for c in range(3) if c not in without)

    mass = quad(lambda a: density(a, y) * others(a, (y,)), -12, 12, epsabs=1e-11)[0]
    own = quad(lambda a: a * density(a, y) * others(a, (y,)), -12, 12, epsabs=1e-11)[0]
    other, between, square = (
        dblquad(
            lambda b, a, power=power, cross=cross: (a if cross else 1.0) * b**power * density(b, 0) * density(a, y)
            * others(a, (y, 0)),
            -12, 12, -12, lambda a: a, epsabs=1e-9, epsrel=1e-9,
        )[0]
        for power, cross in ((1, False), (1, True), (2, False))
    )  # fmt: skip
    right, floor = 1.0 - epsilon, epsilon / 3.0
    evidence = right * mass + floor
    mean = np.array([right * other / evidence, right * own / evidence])
    # 1e-8: the tolerance of the adaptive rules, and the digits asked for of this one
    np.testing.assert_allclose(result.latent_mean[0, :2], mean, rtol=0, atol=1e-8)
    expected_cov = right * between / evidence - mean[0] * mean[1]
    np.testing.assert_allclose(result.latent_cov[0, 0, 1], expected_cov, rtol=0, atol=1e-8)
    expected_var = (right * square + floor * sd[0] ** 2) / evidence - mean[0] ** 2
    np.testing.assert_allclose(result.latent_cov[0, 0, 0], expected_var, rtol=0, atol=1e-8)
    # the second datum is another problem of the same kind: label 0 in place of 1
    second = right * quad(lambda a: density(a, 0) * others(a, (0,)), -12, 12, epsabs=1e-11)[0] + floor
    np.testing.assert_allclose(result.log_evidence, np.log(evidence * second), rtol=0, atol=1e-9)


# -- two data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[1, 0], [2, 1], [0, 2]])
@pytest.mark.parametrize("likelihood", ["threshold", "multinomial-probit"])
def test_the_evidence_of_two_data_is_an_orthant_probability(labels, likelihood):
    link = likelihood == "multinomial-probit"
    problem = few(likelihood=likelihood, y=np.array(labels))
    K = np.zeros((2, 3, 2, 3))
    for c in range(3):
        K[:, c, :, c] = covariance(problem, c, problem.X, problem.X) + link * np.eye(2)
    rows = np.zeros((4, 6))
    for i, y in enumerate(labels):
        rows[2 * i : 2 * i + 2, 3 * i : 3 * i + 3] = largest(y, 3)
    g = rows @ K.reshape(6, 6) @ rows.T
    expected = multivariate_normal.cdf(
        np.zeros(4), np.zeros(4), g, abseps=1e-8, releps=1e-8, maxpts=1_000_000, rng=np.random.default_rng(1)
    )
    # Genz's rule in four dimensions with a million points: some 1e-7
    np.testing.assert_allclose(np.exp(solve_orthant(problem).log_evidence), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_two_classes_are_the_binary_probit_through_their_scaled_difference(sparse):
    changes: dict[str, Any] = {"lengthscales": 0.9, "y": np.array([1, 0]), "likelihood": "multinomial-probit"}
    if sparse:
        changes |= {"Z": np.array([[-1.0], [0.4], [1.3]]), "prior_model": "fitc"}
    classes = few(n_classes=2, **changes)
    binary = classes.replace(
        likelihood="probit",
        variance=classes.variance.mean(),
        noise=classes.noise.mean(),
        lengthscales=0.9,
        jitter=0.0,
        Z=None if not sparse else classes.Z[0],
    )
    result, expected = solve_orthant(classes), solve("quadrature", "exact", binary)
    contrast = np.array([-1.0, 1.0]) / np.sqrt(2.0)
    # both rules state errors below 1e-7
    tolerance = {"rtol": 0, "atol": 1e-7}
    np.testing.assert_allclose(result.log_evidence, expected.log_evidence, **tolerance)
    np.testing.assert_allclose(result.probabilities, expected.probabilities, **tolerance)
    for name in ("latent", "test_latent"):
        mean, cov = getattr(result, f"{name}_mean"), getattr(result, f"{name}_cov")
        np.testing.assert_allclose(mean @ contrast, getattr(expected, f"{name}_mean")[:, 0], **tolerance)
        var = np.einsum("l,nlp,p->n", contrast, cov, contrast)
        np.testing.assert_allclose(var, getattr(expected, f"{name}_cov")[:, 0, 0], **tolerance)
    if sparse:
        np.testing.assert_allclose(contrast @ result.inducing_mean, expected.inducing_mean[0], **tolerance)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("n_classes", [3, 4])
def test_moments_and_probabilities_are_those_of_weighted_prior_draws(epsilon, n_classes):
    """Self-normalised importance sampling from the prior: latents and test latents of both data at once."""
    problem = few(n_classes=n_classes, epsilon=epsilon)
    result = solve_orthant(problem)
    rng = np.random.default_rng(20190127)
    points = np.vstack([problem.X, problem.X_test])
    s = 400_000
    f = np.stack(
        [
            rng.standard_normal((s, 4)) @ np.linalg.cholesky(covariance(problem, c, points, points)).T
            for c in range(n_classes)
        ],
        axis=2,
    )  # (s, points, C)
    hits = f[:, :2].argmax(axis=2) == problem.y
    weight = np.prod(np.where(hits, 1.0 - epsilon + epsilon / n_classes, epsilon / n_classes), axis=1)
    share = weight / weight.sum()
    statistics = []

    def held(values: np.ndarray, expected: float) -> None:
        error = np.sqrt(np.sum((share * (values - expected)) ** 2))
        statistics.append((share @ values - expected) / error)

    for i in range(4):
        name, row = ("latent", i) if i < 2 else ("test_latent", i - 2)
        mean, cov = getattr(result, f"{name}_mean")[row], getattr(result, f"{name}_cov")[row]
        for c in range(n_classes):
            held(f[:, i, c], mean[c])
            for other in range(c + 1):
                # about the known mean, so that each term is a plain average
                held((f[:, i, c] - mean[c]) * (f[:, i, other] - mean[other]), cov[c, other])
    for t in range(2):
        chosen = f[:, 2 + t].argmax(axis=1)
        for c in range(n_classes):
            p = (1.0 - epsilon) * (chosen == c) + epsilon / n_classes
            held(p, result.probabilities[t, c])
    z_evidence = (weight.mean() - np.exp(result.log_evidence)) / (weight.std() / np.sqrt(s))
    statistics.append(z_evidence)
    # two-sided, 1e-4 over all statistics of the test (Bonferroni)
    assert np.abs(statistics).max() < norm.isf(0.5e-4 / len(statistics))


def test_the_stated_errors_cover_the_distance_to_more_digits():
    problem = problems.get("two-points-3-steep-errors")
    plain, better = solve_orthant(problem, digits=6.0), solve_orthant(problem, digits=9.0)
    for key in ("log_evidence", "latent_mean", "latent_cov", "test_latent_cov", "probabilities"):
        gap = np.abs(np.subtract(getattr(plain, key), getattr(better, key))).max()
        assert gap <= plain.settings[f"error_{key}"]
    # the derivative of a product of shares that run from 0 to 1 integrates to one
    np.testing.assert_allclose(plain.probability_mass, 1.0, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"likelihood": "softmax"}, r"likelihood: found 'softmax', expected one of"),
        (
            {"X": np.array([[0.0], [1.0], [2.0]]), "y": np.array([0, 1, 2])},
            r"X: found n = 3, expected n <= 2 for quadrature with several classes",
        ),
        ({"noise": 0.0, "X": np.array([[0.0], [1e-5]])}, "lower digits"),
        ({"noise": 0.0, "X": np.array([[0.3], [0.3]])}, "noise: found latent values of two data that are one"),
    ],
)
def test_what_is_out_of_reach_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        solve_orthant(few(**changes))


@pytest.mark.parametrize("digits", [2.0, 13.0])
def test_digits_out_of_range_are_refused(digits):
    with pytest.raises(ValueError, match="digits: found"):
        solve_orthant(few(), digits=digits)
