"""log Z of probit and threshold models by particles and by a bridge, against quadrature, tilting and enumeration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from gibbs.core.kernels import squared_exponential
from gibbs.evidence import fitted, sequential, softmax_annealed, softmax_bridge
from gibbs_samplers import check, sample_probit, sample_threshold
from gibbs_samplers import exact_evidence as tilted

X3 = np.array([[0.0, 0.2], [0.7, -0.5], [1.1, 1.0]])
Z2 = np.array([[0.2, 0.1], [1.0, 0.6]])
SCALES = np.array([1.0, 1.5])
VARIANCES = np.array([4.0, 1.0, 9.0])
# A single z per route and case; 4.9 is passed by chance once in a million, and some thirty are drawn.
LIMIT = 4.9


def islands(**changes):
    return replace(sequential.DEFAULTS, **changes)


def within(actual, expected, expected_error=0.0, most=0.05):
    """The estimate meets the truth, and is sharp enough for that to mean something."""
    assert actual.trusted
    assert 0.0 < actual.standard_error <= most
    assert abs(actual.value - expected) < LIMIT * np.hypot(actual.standard_error, expected_error)


def by_latent(draws):
    return np.moveaxis(draws, 2, 3)


@pytest.mark.parametrize(("n", "C", "epsilon"), [(1, 3, 0.0), (3, 2, 0.0), (2, 3, 0.0), (3, 2, 0.2), (2, 3, 0.4)])
def test_both_routes_meet_quadrature(rng, orthants, n, C, epsilon):
    y, variances = np.array([1, 0, 0])[:n] if C == 2 else np.array([2, 0])[:n], VARIANCES[:C]
    cov = np.stack([squared_exponential(X3[:n], X3[:n], v, SCALES) + 0.4 * np.eye(n) for v in variances])
    truth = np.log(orthants(cov, y, epsilon).evidence)
    within(sequential.log_evidence(rng, cov, y, epsilon, islands(target_error=0.02)), truth)
    chains = sample_threshold(X3[:n], y, C, variances, SCALES, 0.4, 0.0, epsilon=epsilon, n_draws=200, n_warmup=20,
                              seed=n)  # fmt: skip
    within(fitted.log_evidence(rng, cov, y, by_latent(chains.auxiliary_draws), epsilon), truth)


def toy(n, variance, C=3):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, 2))
    K = squared_exponential(X, X, variance, SCALES) + 1e-6 * variance * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal((n, C)) + rng.standard_normal((n, C))
    return X, f.argmax(axis=1)


@pytest.mark.parametrize(
    ("log_variance", "prior_model"),
    [
        (1.0, "fitc"), (8.0, "full"), (4.0, "fitc"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1.0, "full"), (4.0, "full"), (8.0, "fitc"))),
    ],
)  # fmt: skip
def test_both_routes_meet_minimax_tilting_for_the_multinomial_probit(rng, log_variance, prior_model):
    v = np.exp(log_variance)
    X, y = toy(24, v)
    arguments = (X, y, 3, v, SCALES, 0.1, 1e-6 * v, X[:8] + 0.05, prior_model)
    truth = tilted("multinomial-probit", *arguments, seed=1, target_error=0.01)
    cov = check(X, y, 3, 3, *arguments[3:], None).prior.K_XX + np.eye(24)
    estimate = sequential.log_evidence(rng, cov, y, options=islands(target_error=0.05))
    within(estimate, truth.log_evidence, truth.log_evidence_se)
    chains = sample_probit(*arguments, n_draws=200, n_warmup=20, seed=2)
    estimate = fitted.log_evidence(rng, cov, y, by_latent(chains.auxiliary_draws))
    within(estimate, truth.log_evidence, truth.log_evidence_se)


def test_both_routes_meet_minimax_tilting_for_the_binary_probit(rng):
    X, y = toy(30, 20.0, 2)
    arguments = (X, y, 2, 20.0, SCALES, 0.1, 1e-5)
    truth = tilted("probit", *arguments, seed=1, target_error=0.01)
    cov = check(X, y, 2, 1, *arguments[3:], None, "full", None).prior.K_XX + np.eye(30)
    within(sequential.log_evidence(rng, cov, y), truth.log_evidence, truth.log_evidence_se)
    chains = sample_probit(*arguments, likelihood="probit", n_draws=70, n_warmup=20, seed=2)
    estimate = fitted.log_evidence(rng, cov, y, by_latent(chains.auxiliary_draws))
    within(estimate, truth.log_evidence, truth.log_evidence_se)


@pytest.mark.parametrize("epsilon", [0.01, 0.3])
def test_both_routes_meet_the_sum_over_all_sets_of_labelling_errors(rng, epsilon):
    n, C = 6, 3
    X, y = toy(n, 9.0)
    y[2] = (y[2] + 1) % 3  # a label that the others contradict
    values, errors = [], []
    for size in range(n + 1):
        for rest in itertools.combinations(range(n), size):
            weight = size * np.log1p(-epsilon) + (n - size) * np.log(epsilon / C)
            part = tilted("threshold", X[list(rest)], y[list(rest)], C, 9.0, SCALES, 0.2, 0.0, seed=0) if rest else None
            values.append(weight + (part.log_evidence if part else 0.0))
            errors.append(part.log_evidence_se if part else 0.0)
    truth = np.logaddexp.reduce(values)
    error = np.sum(np.exp(values - truth) * errors)  # one seed: their errors may be correlated
    cov = np.stack([squared_exponential(X, X, 9.0, SCALES) + 0.2 * np.eye(n)] * C)
    within(sequential.log_evidence(rng, cov, y, epsilon, islands(target_error=0.02)), truth, error)
    chains = sample_threshold(X, y, C, 9.0, SCALES, 0.2, 0.0, epsilon=epsilon, n_draws=150, n_warmup=20, seed=2)
    within(fitted.log_evidence(rng, cov, y, by_latent(chains.auxiliary_draws), epsilon), truth, error)


def test_both_routes_agree_on_labelling_errors_where_no_enumeration_reaches(rng):
    X, y = toy(24, 10.0)
    y[::9] = (y[::9] + 1) % 3
    cov = np.stack([squared_exponential(X, X, 10.0, SCALES) + 0.3 * np.eye(24)] * 3)
    chains = sample_threshold(X, y, 3, 10.0, SCALES, 0.3, 0.0, epsilon=0.1, n_draws=300, n_warmup=30, seed=2)
    bridge = fitted.log_evidence(rng, cov, y, by_latent(chains.auxiliary_draws), 0.1, target_error=0.12)
    within(
        sequential.log_evidence(rng, cov, y, 0.1, islands(target_error=0.05)),
        bridge.value,
        bridge.standard_error,
    )
    assert bridge.trusted


def test_an_evidence_out_of_reach_is_given_up_at_once_and_not_trusted(rng):
    # sixty data with labelling errors under a prior of variance e^8, where hundredths of a nat cost 600 000 particles
    X = rng.normal(size=(60, 2))
    cov = np.stack([squared_exponential(X, X, np.exp(8.0), SCALES) + 0.5 * np.eye(60)] * 3)
    y = np.array([(np.linalg.cholesky(K) @ rng.standard_normal(60)) for K in cov]).argmax(axis=0)
    y[::8] = (y[::8] + 1) % 3
    estimate = sequential.log_evidence(rng, cov, y, 0.1, islands(target_error=1e-4))
    assert not estimate.trusted
    assert estimate.detail["rounds"] <= 2.0  # the default allows four
    assert estimate.detail["needed_particles"] > 4.0 * estimate.detail["n_particles"]


def test_the_covariances_of_the_margins_are_those_of_the_definition(rng):
    y, L, n = np.array([2, 0, 1, 0]), 3, 4
    cov = np.stack([(lambda a: a @ a.T)(rng.standard_normal((n, n))) for _ in range(L)])
    A = []
    for i in range(n):
        for j in range(L):
            if j != y[i]:
                row = np.zeros((L, n))
                row[y[i], i] += 1.0
                row[j, i] -= 1.0
                A.append(row)
    A = np.array(A)
    expected = np.einsum("alm,lmk,blk->ab", A, cov, A)
    # sums of a few products
    np.testing.assert_allclose(sequential._covariance(cov, y), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fitted._differences(y, L), A.reshape(len(A), -1), rtol=0, atol=0)
    sign = np.array([1.0, -1.0, 1.0, 1.0])
    binary = sequential._covariance(cov[:1], np.array([1, 0, 1, 1]))
    np.testing.assert_allclose(binary, np.outer(sign, sign) * cov[0], rtol=1e-15)


def test_the_answer_does_not_depend_on_the_order_of_data_or_classes(rng):
    X, y = toy(20, 6.0)
    cov = np.stack([squared_exponential(X, X, v, SCALES) + np.eye(20) for v in (6.0, 2.0, 30.0)])
    here = sequential.log_evidence(rng, cov, y, 0.05)
    data, classes = rng.permutation(20), np.array([2, 0, 1])
    moved = cov[np.ix_(classes, data, data)]
    there = sequential.log_evidence(rng, moved, np.argsort(classes)[y[data]], 0.05)
    within(here, there.value, there.standard_error)


def test_the_stated_errors_are_the_spread_of_repetitions(rng):
    X, y = toy(20, 6.0)
    cov = np.stack([squared_exponential(X, X, 6.0, SCALES) + np.eye(20)] * 3)
    runs = [sequential.log_evidence(rng, cov, y, options=islands(n_particles=200, max_rounds=1)) for _ in range(20)]
    ratio = np.std([r.value for r in runs], ddof=1) / np.mean([r.standard_error for r in runs])
    # with 20 repetitions χ²₁₉ puts the ratio in (0.45, 1.75) but for one run in 10 000
    assert 0.45 < ratio < 1.75
    draws = by_latent(sample_probit(X, y, 3, 6.0, SCALES, 0.0, 0.0, n_chains=160, n_draws=80, n_warmup=20,
                                                seed=3).auxiliary_draws)  # fmt: skip
    runs = [fitted.log_evidence(rng, cov, y, draws[8 * k : 8 * k + 8]) for k in range(20)]
    ratio = np.std([r.value for r in runs], ddof=1) / np.mean([r.standard_error for r in runs])
    # the errors of the two halves are added as if they were one: less is allowed
    assert 0.35 < ratio < 1.75


def test_the_distribution_with_all_factors_is_gaussian_algebra(rng):
    root = rng.standard_normal((5, 5))
    G = root @ root.T + 0.1 * np.eye(5)
    precision, shift = rng.random(5), rng.standard_normal(5)
    factors = sequential.Factors.of(np.linalg.cholesky(G), precision, shift)
    V = np.linalg.inv(np.linalg.inv(G) + np.diag(precision))
    # inverses of matrices of condition below 1e4
    np.testing.assert_allclose(factors.chol @ factors.chol.T, V, rtol=1e-10, atol=1e-10)
    assert (np.triu(factors.chol, 1) == 0.0).all()
    assert (np.diagonal(factors.chol) > 0.0).all()
    np.testing.assert_allclose(factors.mean, V @ shift, rtol=1e-10, atol=1e-10)
    integral = 0.5 * (np.linalg.slogdet(V)[1] - np.linalg.slogdet(G)[1] + shift @ V @ shift)
    assert factors.log_norm == pytest.approx(integral, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_factors_change_the_error_and_never_the_mean(rng, epsilon):
    X, y = toy(8, 6.0)
    cov = np.stack([squared_exponential(X, X, 6.0, SCALES) + np.eye(8)] * 3)
    best = sequential.choose_schedule_of_labels(cov, y, epsilon)
    G = sequential._covariance(cov, y)
    order = sequential._order(G, 2)
    chol, D = np.linalg.cholesky(G[np.ix_(order, order)]), len(G)
    ways = [
        sequential.Factors.of(chol, np.zeros(D), np.zeros(D)),
        sequential.Factors.of(chol, 0.2 * rng.random(D), 0.2 * rng.standard_normal(D)),
    ]
    options = islands(n_particles=2000, n_islands=32, max_rounds=1, target_error=0.1)
    known, *others = (
        sequential.estimate(rng, best._replace(factors=one), options=options) for one in (best.factors, *ways)
    )
    for other in others:
        within(other, known.value, known.standard_error)
        assert known.standard_error < other.standard_error


def test_factors_are_the_fixed_point_of_moments(rng):
    """Of one datum of two classes: the moments of a cut normal, from its density on a grid."""
    for epsilon in (0.0, 0.3):
        factors = sequential._factors(np.array([[1.7]]), 1, epsilon, 2)
        grid = np.linspace(-12.0, 12.0, 240_001)
        weight = norm.pdf(grid, scale=1.7) * ((1.0 - epsilon) * (grid > 0.0) + epsilon / 2.0)
        weight /= weight.sum()
        mean = weight @ grid
        var = weight @ np.square(grid - mean)
        power = sequential._SOFTER if epsilon else 1.0
        # EP of one factor is done after one undamped step; damped, it ends 1e-2 of q's scale from it
        assert factors.precision[0] / power == pytest.approx(1.0 / var - 1.0 / 1.7**2, abs=2e-2 / var)
        assert factors.shift[0] / power == pytest.approx(mean / var, rel=3e-2)


def test_six_hundred_constraints_are_in_reach_of_a_hundredth_of_a_nat(rng):
    X, y = toy(300, 1.0)
    cov = np.stack([squared_exponential(X, X, 1.0, SCALES) + np.eye(300)] * 3)
    options = islands(n_particles=100, n_islands=8, max_rounds=1, target_error=0.05)
    estimate = sequential.log_evidence(rng, cov, y, options=options)
    assert estimate.trusted  # by 800 particles: a hundredth asks for 16 000 at most
    blind = sequential.choose_schedule_of_labels(cov, y)
    empty = np.zeros(600)
    chol = np.linalg.cholesky(sequential._covariance(cov, y))
    blind = blind._replace(factors=sequential.Factors.of(chol, empty, empty))
    assert not sequential.estimate(rng, blind, options=options).trusted


def test_few_particles_are_as_right_as_many(rng):
    # no bias from the number of particles: 400 islands of 50 against islands of 4000
    X, y = toy(12, 6.0)
    cov = np.stack([squared_exponential(X, X, 6.0, SCALES) + np.eye(12)] * 3)
    few = sequential.log_evidence(
        rng, cov, y, 0.1, islands(n_particles=50, n_islands=400, max_rounds=1, target_error=0.1)
    )
    many = sequential.log_evidence(rng, cov, y, 0.1, islands(n_particles=4000, max_rounds=1))
    assert abs(few.value - many.value) < LIMIT * np.hypot(few.standard_error, many.standard_error)


def test_a_wrong_covariance_or_error_rate_is_seen(rng):
    # the power of `within`: the forgotten unit noise and another epsilon are far outside
    X, y = toy(24, 3.0)
    K = np.stack([squared_exponential(X, X, 3.0, SCALES) + 1e-4 * np.eye(24)] * 3)
    right = sequential.log_evidence(rng, K + np.eye(24), y)
    for wrong in (sequential.log_evidence(rng, K + 0.8 * np.eye(24), y),
                  sequential.log_evidence(rng, K + np.eye(24), y, 0.05)):  # fmt: skip
        assert abs(right.value - wrong.value) > LIMIT * np.hypot(right.standard_error, wrong.standard_error)


COV = np.stack([np.eye(3)] * 3)
Y = np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: sequential.log_evidence(r, COV[:, :2], Y), r"cov: found shape \(3, 2, 3\)"),
        (lambda r: sequential.log_evidence(r, np.nan * COV, Y), r"cov: found 27 entries NaN"),
        (lambda r: sequential.log_evidence(r, COV, Y + 1), r"y: found labels 1 to 3, expected 0 to 2"),
        (lambda r: sequential.log_evidence(r, COV, Y, 1.0), r"epsilon: found 1, expected a probability"),
        (lambda r: sequential.log_evidence(r, COV, Y, options=islands(n_islands=2)), r"n_islands: found 2, expected"),
        (lambda r: sequential.log_evidence_margins(r, np.eye(3), 3), r"covariance: found shape \(3, 3\)"),
        (lambda r: sequential.log_evidence(r, np.ones((3, 3, 3)), Y), r"covariance \(6, 6\): found smallest eigenv"),
        (lambda r: fitted.log_evidence(r, COV, Y, np.zeros((2, 9, 3, 3))), r"auxiliary: found shape \(2, 9, 3, 3\)"),
        (lambda r: fitted.log_evidence(r, COV, Y, np.full((2, 64, 3, 3), -np.eye(3))), r"auxiliary: found 384 values"),
        (lambda r: fitted.log_evidence(r, COV, Y, np.full((2, 64, 3, 3), np.eye(3)), -0.1), r"epsilon: found -0.1"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(rng, call, message):
    with pytest.raises((ValueError, np.linalg.LinAlgError), match=message):
        call(rng)


@pytest.mark.parametrize("y", [["0", "1", "2"], [0.0, 1.0, 2.0], [None, 1, 2], [0, 1], [[0, 1, 2]], []])
@pytest.mark.parametrize(
    "call",
    [
        lambda r, y: sequential.log_evidence(r, COV, y),
        lambda r, y: fitted.log_evidence(r, COV, y, np.zeros((2, 64, 3, 3))),
        lambda r, y: softmax_annealed.log_evidence(r, COV, y),
        lambda r, y: softmax_bridge.log_evidence(r, COV, y, np.zeros((2, 128, 3, 3))),
    ],
)  # fmt: skip
def test_labels_of_any_type_but_integers_are_refused_before_their_extremes_are_asked_for(rng, call, y):
    with pytest.raises(ValueError, match=r"^y: found (shape|dtype) .*, expected"):
        call(rng, y)


def test_the_hazard_is_density_over_tail_at_every_gap():
    gap = np.linspace(-8.0, 8.0, 41)
    np.testing.assert_allclose(fitted._hazard(gap), np.exp(norm.logpdf(gap) - norm.logsf(gap)), rtol=1e-12)
    wide = np.array([1e4, 1e8, 1e15, 1e150])  # gap + 1/gap - 2/gap^3
    np.testing.assert_allclose(fitted._hazard(wide), wide + 1.0 / wide, rtol=1e-12)
