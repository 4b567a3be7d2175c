"""Exact probit truth: quadrature for one to three data, SciPy's c.d.f. in small dimensions, identities, extremes."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.models.exact_probit import QUADRATURE_ERROR
from gibbs_samplers import exact_evidence as log_evidence
from gibbs_samplers import sample_exact

X4 = np.array([[-0.7, 0.2], [0.4, -0.5], [1.5, 1.0], [0.1, 0.9]])
X_TEST = np.array([[0.3, 0.1], [-1.2, 0.4], [0.4, -0.5]])
Z2 = np.array([[-0.5, 0.0], [0.9, 0.6]])
SCALES = np.array([0.9, 1.4])
MODELS = ("probit", "multinomial-probit", "threshold")


def kernel(A, B, variance, scales):
    return variance * np.exp(-0.5 * (((A[:, None] - B) / scales) ** 2).sum(axis=2))


def covariances(X, variance, scales, noise, jitter, Z, X_test):
    """Prior covariance of (f(X), f(X_test), u) of one latent function, by the definition; u is empty without Z."""
    P = np.vstack([X, X_test])
    n, p = len(X), len(P)
    if Z is None:
        K = kernel(P, P, variance, scales)
        K[np.arange(n), np.arange(n)] += jitter
        return K + noise * np.eye(p)
    K_ZZ = kernel(Z, Z, variance, scales) + jitter * np.eye(len(Z))
    K_PZ = kernel(P, Z, variance, scales)
    Q = K_PZ @ np.linalg.inv(K_ZZ) @ K_PZ.T
    K = Q - np.diag(np.diag(Q)) + (variance + noise) * np.eye(p)
    return np.block([[K, K_PZ], [K_PZ.T, K_ZZ]])


def orthant(blocks, y, unit_noise, n):
    """Covariance of the margins at the first n points, row by row from their definition."""
    L = len(blocks)
    rows = []
    for i in range(n):
        for j in range(2 if L == 1 else L):
            if j != y[i]:
                row = np.zeros((L, n))
                if L == 1:
                    row[0, i] = 1.0 if y[i] == 1 else -1.0
                else:
                    row[y[i], i], row[j, i] = 1.0, -1.0
                rows.append(row)
    rows = np.array(rows)
    return sum(rows[:, k] @ (blocks[k][:n, :n] + unit_noise * np.eye(n)) @ rows[:, k].T for k in range(L))


def log_cdf(S):
    """log P(N(0, S) > 0) by SciPy, to about 1e-4."""
    distribution = multivariate_normal(np.zeros(len(S)), S, maxpts=20_000 * len(S), abseps=1e-12, releps=1e-4, seed=3)
    return float(np.log(distribution.cdf(np.zeros(len(S)))))


class Grid:
    """Posterior of few latent values by the trapezoid rule in white coordinates, under a given likelihood."""

    def __init__(self, K, likelihood, step):
        size = len(K)
        axis = np.arange(-8.4, 8.4 + 0.5 * step, step)
        white = np.stack([g.ravel() for g in np.meshgrid(*[axis] * size, indexing="ij")], axis=1)
        self.f = white @ np.linalg.cholesky(K).T
        weight = np.exp(-0.5 * np.square(white).sum(axis=1)) * (step / np.sqrt(2 * np.pi)) ** size
        weight *= likelihood(self.f)
        self.log_evidence = float(np.log(weight.sum()))
        self.weight = weight / weight.sum()
        self.mean = self.weight @ self.f
        self.cov = (self.f - self.mean).T @ ((self.f - self.mean) * self.weight[:, None])


def multinomial(f, y):
    """E_u Π_{j≠y} Φ(u + f_y - f_j) by its definition, f (k, C)."""
    u = np.arange(-8.0, 8.01, 0.25)
    weight = np.exp(-0.5 * u * u) / np.exp(-0.5 * u * u).sum()
    out = np.ones((len(f), u.size))
    for j in range(f.shape[1]):
        if j != y:
            out *= ndtr(u + (f[:, y] - f[:, j])[:, None])
    return out @ weight


def z_of(got, name, truth):
    gap, error = getattr(got, name) - truth, getattr(got, name + "_se")
    # entries without any spread are known up to rounding: 1e-9 of prior scales of order one
    return gap / np.hypot(error, 1e-9)


@pytest.mark.parametrize(("n", "variance"), [(1, 4.0), (2, 60.0), (3, 2.0)])
def test_binary_moments_and_evidence_are_those_of_quadrature(assert_z, n, variance):
    y = np.array([1, 0, 1])[:n]
    got = sample_exact(
        "probit", X4[:n], y, 2, variance, SCALES, 0.1, 1e-3, X_test=X_TEST, n_draws=4000, seed=n, target_error=0.003
    )
    K = covariances(X4[:n], variance, SCALES, 0.1, 1e-3, None, X_TEST)
    truth = Grid(K[:n, :n], lambda f: np.prod(ndtr((2 * y - 1) * f), axis=1), 0.04 if n < 3 else 0.15)
    gain = np.linalg.solve(K[:n, :n], K[:n, n:]).T
    var = np.diag(K)[n:] - np.einsum("tn,nt->t", gain, K[:n, n:]) + np.einsum("tn,nm,tm->t", gain, truth.cov, gain)
    cond_var = np.diag(K)[n:] - np.einsum("tn,nt->t", gain, K[:n, n:])
    p = truth.weight @ ndtr(truth.f @ gain.T / np.sqrt(1.0 + cond_var))
    assert_z(
        np.concatenate(
            [
                [(got.log_evidence - truth.log_evidence) / np.hypot(got.log_evidence_se, 1e-9)],
                z_of(got, "latent_mean", truth.mean[:, None]).ravel(),
                z_of(got, "latent_cov", np.diag(truth.cov)[:, None, None]).ravel(),
                z_of(got, "test_latent_mean", (gain @ truth.mean)[:, None]).ravel(),
                z_of(got, "test_latent_cov", var[:, None, None]).ravel(),
                z_of(got, "probabilities", np.stack([1 - p, p], axis=1)).ravel(),
            ]
        )
    )
    assert got.log_evidence_se <= 0.003


def test_one_datum_of_three_classes_has_the_posterior_of_quadrature(assert_z):
    variance, noise = np.array([3.0, 0.5, 9.0]), np.array([0.1, 0.0, 0.4])
    got = sample_exact(
        "multinomial-probit", X4[:1], [2], 3, variance, SCALES, noise, 0.0, n_draws=20000, seed=3, target_error=0.002
    )
    truth = Grid(np.diag(variance + noise), lambda f: multinomial(f, 2), 0.3)
    assert_z(
        np.concatenate(
            [
                [(got.log_evidence - truth.log_evidence) / got.log_evidence_se],
                z_of(got, "latent_mean", truth.mean[None]).ravel(),
                z_of(got, "latent_cov", truth.cov[None])[0][np.triu_indices(3)],
                (got.latent_draws.mean(axis=0)[0] - truth.mean) / np.sqrt(np.diag(truth.cov) / 20000),
            ]
        )
    )


@pytest.mark.parametrize("likelihood", MODELS)
@pytest.mark.parametrize("prior_model", ["full", "fitc"])
def test_log_evidence_and_class_probabilities_are_ratios_of_orthants(assert_z, likelihood, prior_model):
    """p(y* = c | y) = Z(y, c)/Z(y), each by SciPy's c.d.f.: no latent value is integrated as the module does it."""
    L = 1 if likelihood == "probit" else 3
    n_classes, y = (2, [1, 0, 1]) if L == 1 else (3, [2, 0, 1])
    variance, noise, jitter = np.array([2.0, 6.0, 1.0])[:L], np.array([0.3, 0.2, 0.6])[:L], np.full(L, 1e-3)
    scales = np.array([[0.9, 1.4], [2.0, 1.0], [0.7, 0.7]])[:L]
    Z = None if prior_model == "full" else np.stack([Z2, Z2 + 0.2, Z2[::-1] - 0.1])[:L]
    got = sample_exact(
        likelihood, X4[:3], y, n_classes, variance, scales, noise, jitter, Z, prior_model, X_TEST[:2],
        n_draws=20000, seed=8, target_error=0.002,
    )  # fmt: skip
    unit = 0.0 if likelihood == "threshold" else 1.0
    z = []
    for k in range(2):
        blocks = [
            covariances(
                X4[:3], variance[j], scales[j], noise[j], jitter[j], None if Z is None else Z[j], X_TEST[k : k + 1]
            )
            for j in range(L)
        ]
        base = log_cdf(orthant(blocks, y, unit, 3))
        z.append((got.log_evidence - base) / np.hypot(got.log_evidence_se, 1e-4))
        for c in range(n_classes):
            p = np.exp(log_cdf(orthant(blocks, [*y, c], unit, 4)) - base)
            z.append((got.probabilities[k, c] - p) / np.hypot(got.probabilities_se[k, c], 1e-4))
    assert_z(z)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=QUADRATURE_ERROR)
    # rows are normalised in float64
    np.testing.assert_allclose(got.probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("likelihood", MODELS)
def test_moments_given_the_margins_are_those_of_raw_draws(assert_z, likelihood):
    n_classes, y = (2, [1, 0, 1, 1]) if likelihood == "probit" else (3, [2, 0, 1, 1])
    args = (likelihood, X4, y, n_classes, 5.0, SCALES, 0.2, 1e-3, Z2, "fitc")
    got = sample_exact(*args, n_draws=20000, seed=5)
    f = got.latent_draws
    assert f.shape == (20000, 4, 1 if likelihood == "probit" else 3)
    root_s = np.sqrt(len(f))
    centred = f - got.latent_mean
    terms = np.einsum("snl,snp->snlp", centred, centred)
    # both sides come from the same margins: the difference has less spread than the raw mean alone
    assert_z((f.mean(axis=0) - got.latent_mean) / (f.std(axis=0) / root_s))
    assert_z((terms.mean(axis=0) - got.latent_cov) / (terms.std(axis=0) / root_s))
    assert np.all(got.latent_mean_se <= 1.02 * f.std(axis=0) / root_s)  # the point of averaging
    if likelihood == "threshold":
        own = np.take_along_axis(f, np.array(y)[None, :, None], axis=2)
        # f is formed from the margins through sums of a few terms of order 10
        assert (own - f).min() >= -1e-9


def test_inducing_moments_follow_from_those_of_the_latent_values(assert_z):
    y, variance, jitter, noise = np.array([1, 0, 1]), 5.0, 1e-3, 0.2
    got = sample_exact("probit", X4[:3], y, 2, variance, SCALES, noise, jitter, Z2, "fitc", n_draws=8000, seed=6)
    K = covariances(X4[:3], variance, SCALES, noise, jitter, Z2, np.empty((0, 2)))
    truth = Grid(K[:3, :3], lambda f: np.prod(ndtr((2 * y - 1) * f), axis=1), 0.15)
    lift = np.linalg.solve(K[:3, :3], K[:3, 3:]).T
    cov = K[3:, 3:] - lift @ K[:3, 3:] + lift @ truth.cov @ lift.T
    assert_z(
        np.concatenate(
            [
                z_of(got, "inducing_mean", (lift @ truth.mean)[None]).ravel(),
                z_of(got, "inducing_cov", cov[None])[0][np.triu_indices(2)],
                z_of(got, "latent_mean", truth.mean[:, None]).ravel(),
            ]
        )
    )


def data(rng, n, n_classes, d=2):
    X = rng.standard_normal((n, d))
    y = np.argmax(X @ rng.standard_normal((d, n_classes)) + 0.5 * rng.standard_normal((n, n_classes)), axis=1)
    return X, y


def test_two_classes_are_the_binary_model_of_their_scaled_difference(rng, assert_z):
    X, y = data(rng, 25, 2)
    # h = (f1 - f0)/√2 has variance 6 with noise 0.2 and jitter 0.01; the noise e1 - e0 becomes N(0, 1)
    binary = sample_exact("probit", X, y, 2, 6.0, SCALES, 0.2, 0.01, X_test=X_TEST, n_draws=3000, seed=1)
    multi = sample_exact("multinomial-probit", X, y, 2, 6.0, SCALES, 0.2, 0.01, X_test=X_TEST, n_draws=3000, seed=1)
    # the same proposals up to rounding, for Σ and 2Σ
    np.testing.assert_allclose(multi.log_evidence_bound, binary.log_evidence_bound, rtol=1e-9)
    np.testing.assert_allclose(multi.log_evidence, binary.log_evidence, rtol=1e-9)
    difference = (multi.latent_mean[:, 1] - multi.latent_mean[:, 0]) / np.sqrt(2.0)
    np.testing.assert_allclose(difference, binary.latent_mean[:, 0], rtol=0, atol=1e-8)
    np.testing.assert_allclose(multi.probabilities, binary.probabilities, rtol=0, atol=1e-8)


def test_probit_noise_is_threshold_noise_of_variance_one(rng):
    X, y = data(rng, 20, 3)
    common = {"X_test": X_TEST, "n_draws": 1500, "seed": 2}
    probit = sample_exact("multinomial-probit", X, y, 3, [4.0, 9.0, 2.0], SCALES, 0.0, 0.0, **common)
    threshold = sample_exact("threshold", X, y, 3, [4.0, 9.0, 2.0], SCALES, 1.0, 0.0, **common)
    assert probit.log_evidence == threshold.log_evidence  # one matrix, one stream of random numbers
    assert probit.acceptance == threshold.acceptance
    # same draws of the margins; the split of the test covariance sees the noise in another order of additions
    np.testing.assert_allclose(probit.test_latent_mean, threshold.test_latent_mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(probit.probabilities, threshold.probabilities, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        probit.test_latent_cov + np.eye(3), threshold.test_latent_cov, rtol=0, atol=1e-9
    )  # noise is part of the latter alone


@pytest.mark.parametrize("likelihood", MODELS)
def test_inducing_points_on_the_data_give_the_full_model(rng, likelihood):
    X, y = data(rng, 12, 2 if likelihood == "probit" else 3)
    C = 2 if likelihood == "probit" else 3
    args = (likelihood, X, y, C, 4.0, 0.6, 0.5, 0.0)
    full = sample_exact(*args, X_test=X_TEST, n_draws=500, seed=3)
    fitc = sample_exact(*args, X, "fitc", X_TEST, n_draws=500, seed=3)
    # Q = K up to eps times the condition of K_ZZ (1e4 here); the same proposals follow
    np.testing.assert_allclose(fitc.log_evidence, full.log_evidence, rtol=0, atol=1e-7)
    for name in ("latent_mean", "latent_cov", "test_latent_mean", "test_latent_cov", "probabilities"):
        np.testing.assert_allclose(getattr(fitc, name), getattr(full, name), rtol=0, atol=1e-6)


@pytest.mark.parametrize("permuted", ["data", "classes"])
def test_the_order_of_data_and_classes_does_not_matter(rng, assert_z, permuted):
    X, y = data(rng, 15, 3)
    variance = np.array([2.0, 5.0, 1.0])
    one = sample_exact("multinomial-probit", X, y, 3, variance, SCALES, 0.1, 0.0, X_test=X_TEST, n_draws=3000, seed=1)
    rows, names = np.arange(15), np.arange(3)
    if permuted == "data":
        rows = rng.permutation(15)
    else:
        names = np.array([2, 0, 1])  # class c is called names[c]
    back = np.argsort(names)
    two = sample_exact(
        "multinomial-probit", X[rows], names[y[rows]], 3, variance[back], SCALES, 0.1, 0.0, X_test=X_TEST,
        n_draws=3000, seed=2,
    )  # fmt: skip
    assert_z((one.log_evidence - two.log_evidence) / np.hypot(one.log_evidence_se, two.log_evidence_se))
    assert_z(
        (one.probabilities - two.probabilities[:, names])
        / np.hypot(one.probabilities_se, two.probabilities_se[:, names])
    )
    gap = one.latent_mean[rows] - two.latent_mean[:, names]
    assert_z(gap / np.hypot(one.latent_mean_se[rows], two.latent_mean_se[:, names]))


def assert_sound(got):
    for name in got._fields:
        value = getattr(got, name)
        if isinstance(value, np.ndarray):
            assert np.all(np.isfinite(value)), name
    assert got.log_evidence <= got.log_evidence_bound + 4.0 * got.log_evidence_se
    assert got.log_evidence < 0.0
    assert np.all((got.probabilities >= 0.0) & (got.probabilities <= 1.0))
    assert np.linalg.eigvalsh(got.latent_cov).min() > -1e-9 * np.abs(got.latent_cov).max()


@pytest.mark.parametrize("log_variance", [-8.0, 0.0, 8.0])
@pytest.mark.parametrize("likelihood", MODELS)
def test_separable_classes_and_any_variance_give_sound_answers(rng, log_variance, likelihood):
    C = 2 if likelihood == "probit" else 3
    X = np.concatenate([rng.standard_normal((5, 2)) + 8.0 * k for k in range(C)])
    y = np.repeat(np.arange(C), 5)
    got = sample_exact(
        likelihood, X, y, C, np.exp(log_variance), 2.0, 0.01 * np.exp(log_variance), 0.0, X_test=X, n_draws=300, seed=1
    )
    assert_sound(got)
    if log_variance == 8.0:
        assert np.all(got.probabilities.argmax(axis=1) == y)


def test_one_member_in_a_class_and_an_empty_class_give_sound_answers(rng):
    X, _ = data(rng, 15, 3)
    got = sample_exact(
        "multinomial-probit", X, [0] * 14 + [2], 3, 20.0, SCALES, 0.0, 0.0, X_test=X_TEST, n_draws=300, seed=1
    )
    assert_sound(got)
    assert got.probabilities[:, 1].max() < 0.5


def test_twenty_classes_of_one_datum_meet_symmetry(assert_z):
    got = sample_exact("threshold", X4[:1], [7], 20, 3.0, SCALES, 0.1, 0.0, X_test=X4[:1] + 50.0, n_draws=2000, seed=1)
    # one datum of equal classes: each label has probability 1/20; far away from it too
    assert_z((got.log_evidence + np.log(20.0)) / got.log_evidence_se)
    assert_z((got.probabilities - 0.05) / got.probabilities_se)
    np.testing.assert_allclose(got.probability_mass, 1.0, rtol=0, atol=QUADRATURE_ERROR)
    assert_sound(
        sample_exact("multinomial-probit", X4, [7, 3, 19, 0], 20, 9.0, SCALES, 0.1, 0.0, X_test=X4, n_draws=200, seed=1)
    )


@pytest.mark.parametrize("gap", [1e-2, 1e-5, 0.0])
@pytest.mark.parametrize("likelihood", MODELS)
def test_near_duplicate_inputs_of_opposite_classes_give_sound_answers(likelihood, gap):
    X = np.array([[0.0, 0.0], [gap, 0.0], [1.0, 1.0]])
    got = sample_exact(likelihood, X, [0, 1, 1], 2, 50.0, SCALES, 0.01, 0.0, X_test=X, n_draws=500, seed=1)
    assert_sound(got)


def test_without_noise_at_equal_inputs_probit_answers_and_threshold_refuses():
    X = np.zeros((2, 1))
    assert_sound(sample_exact("probit", X, [0, 1], 2, 5.0, 1.0, 0.0, 0.0, X_test=X, n_draws=100, seed=1))
    with pytest.raises(NotPositiveDefiniteError, match="raise noise or jitter, or remove duplicate rows of X"):
        sample_exact("threshold", X, [0, 1], 2, 5.0, 1.0, 0.0, 0.0, n_draws=100, seed=1)


def test_a_test_point_on_a_noiseless_datum_has_its_class():
    X = np.array([[0.0], [3.0], [6.0]])
    got = sample_exact("threshold", X, [0, 1, 2], 3, 5.0, 1.0, 0.0, 0.0, X_test=X, n_draws=500, seed=1)
    # f* = f(x_i) and the label is its argmax
    np.testing.assert_allclose(got.probabilities, np.eye(3), rtol=0, atol=1e-6)


def test_sixty_data_of_three_classes_reach_the_error_asked_for(rng):
    X, y = data(rng, 60, 3)
    got = log_evidence("multinomial-probit", X, y, 3, np.exp(1.0), SCALES, 0.0, 0.0, seed=1, target_error=0.02)
    again = log_evidence("multinomial-probit", X, y, 3, np.exp(1.0), SCALES, 0.0, 0.0, seed=1, target_error=0.02)
    assert got == again
    assert got.dimension == 120
    assert got.log_evidence_se <= 0.02
    assert got.n_proposals <= 200_000  # about 20 microseconds each: a few seconds at most


def test_the_same_seed_gives_the_same_answer_and_predictions_leave_the_rest_alone(rng):
    X, y = data(rng, 10, 3)
    args = ("multinomial-probit", X, y, 3, 2.0, SCALES, 0.1, 0.0, None, "full")
    one, two = (sample_exact(*args, X_TEST, n_draws=700, seed=4) for _ in range(2))
    bare = sample_exact(*args, n_draws=700, seed=4)
    for name in one._fields:
        if name != "seconds":
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_array_equal(one.latent_draws, bare.latent_draws)
    assert one.log_evidence == bare.log_evidence
    assert bare.probabilities.shape == (0, 3)


def test_what_is_out_of_reach_is_refused_with_acceptance_and_dimension(rng):
    X = rng.standard_normal((60, 2))
    y = rng.integers(0, 3, 60)  # labels at random under a smooth prior of variance e^8
    with pytest.raises(ValueError, match=r"acceptance of .* in dimension 120"):
        sample_exact("multinomial-probit", X, y, 3, np.exp(8.0), 1.0, 0.0, 0.0, n_draws=1000, seed=1)
    with pytest.raises(ValueError, match=r"acceptance of .* in dimension 120"):
        log_evidence("multinomial-probit", X, y, 3, np.exp(8.0), 1.0, 0.0, 0.0, seed=1, max_proposals=100_000)
    with pytest.raises(ValueError, match="dimension 1000"):
        log_evidence("threshold", rng.standard_normal((500, 1)), [0, 1] * 250, 3, 1.0, 1.0, 1.0, 0.0, seed=1)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"likelihood": "softmax"}, "likelihood: found 'softmax'"),
        ({"likelihood": "probit"}, "n_classes: found 3, expected 2"),
        ({"n_classes": 1}, "n_classes: found 1"),
        ({"y": [0, 1, 3, 0]}, "y: found"),
        ({"y": [0, 1]}, "y: found shape"),
        ({"X": [[np.nan, 0.0]] * 4}, "X: found"),
        ({"variance": 0.0}, "variance: found"),
        ({"variance": [1.0, 2.0]}, "variance: found shape"),
        ({"lengthscales": -1.0}, "lengthscales: found"),
        ({"noise": -0.1}, "noise: found"),
        ({"prior_model": "fitc"}, "Z: found None"),
        ({"prior_model": "dtc"}, "prior_model: found"),
        ({"X_test": [[0.0]]}, "X_test: found"),
        ({"n_draws": 3}, "n_draws: found"),
        ({"seed": -1}, "seed: found"),
        ({"target_error": 0.0}, "target_error: found"),
    ],
)
def test_bad_input_is_named(changes, match):
    good = {
        "likelihood": "threshold", "X": X4, "y": [0, 1, 2, 0], "n_classes": 3, "variance": 1.0, "lengthscales": 1.0,
        "noise": 0.1, "jitter": 0.0, "n_draws": 10, "seed": 0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=match):
        sample_exact(**(good | changes))
