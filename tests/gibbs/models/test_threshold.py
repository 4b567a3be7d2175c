"""The threshold sampler three ways, with labelling errors and without."""

import itertools

import numpy as np
import pytest

from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.core.kernels import squared_exponential
from gibbs.models.multilatent import argmax_probability
from gibbs.models.threshold import draw_components, draw_indicator, error_probability, log_likelihood
from gibbs.moves.region import bounce_move, inside, log_step, swap_to_label
from gibbs_samplers import sample_threshold as sample
from in_every_run import others_slow

X3 = np.array([[0.0, 0.2], [0.7, -0.5], [1.1, 1.0]])
X_TEST = np.array([[0.3, 0.0], [2.5, -1.0]])
Z2 = np.array([[0.2, 0.1], [1.0, 0.6]])
SCALES = np.array([1.0, 1.5])
VARIANCES = np.array([4.0, 1.0, 9.0])


def prior(variances, X, noise=0.3):
    return np.stack([squared_exponential(X, X, v, SCALES) + noise * np.eye(len(X)) for v in variances])


# -- conditionals --------------------------------------------------------------------------------------------------


def test_the_likelihood_is_the_printed_one_and_sums_to_one_over_the_labels():
    f = np.array([[[0.2, 3.0], [1.0, -1.0], [0.5, 2.0]]])
    for epsilon in (0.0, 0.01, 0.5):
        total = 0.0
        for y in itertools.product(range(3), repeat=2):
            expected = np.prod([(1 - epsilon) * np.all(f[0, y[i], i] >= f[0, :, i]) + epsilon / 3 for i in range(2)])
            got = np.exp(log_likelihood(f, np.array(y), epsilon)[0])
            np.testing.assert_allclose(got, expected, rtol=1e-14)  # two factors
            total += got
        np.testing.assert_allclose(total, 1.0, rtol=1e-14)  # nine terms


def test_indicators_follow_bayes_rule(rng, assert_z):
    f, y, epsilon = np.array([[2.0, 0.0], [1.0, 3.0], [0.0, 1.0]]), np.array([0, 2]), 0.3
    draws = draw_indicator(rng, np.tile(f, (50_000, 1, 1)), y, epsilon)
    assert np.all(draws[:, 1])  # not the largest: the label must have been drawn at random
    right = (epsilon / 3) / (1 - epsilon + epsilon / 3)
    assert_z((draws[:, 0].mean() - right) / np.sqrt(right * (1 - right) / 50_000))
    np.testing.assert_allclose(error_probability(f[None], y, epsilon)[0], [right, 1.0], rtol=1e-14)  # Bayes' rule
    assert not draw_indicator(rng, np.tile(f[:, :1], (1000, 1, 1)), y[:1], 0.0).any()


def statistics(f):
    flat = f.reshape(len(f), -1)
    return np.concatenate([flat, np.einsum("ri,rj->rij", flat, flat)[:, *np.triu_indices(flat.shape[1])]], axis=1)


def z_between(a, b):
    return (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))


def given_indicators(rng, K, y, indicator, r):
    """Rejection from the prior: labels bind where the indicator is False."""
    chol, kept, actual = np.linalg.cholesky(K), [], 0
    while actual < r:
        f = np.einsum("lij,rlj->rli", chol, rng.standard_normal((100_000, *K.shape[:2])))
        kept.append(f[np.all(inside(f, y) | indicator, axis=1)])
        actual += len(kept[-1])
    return np.concatenate(kept)[:r]


@pytest.mark.parametrize("indicator", [[False, False, False], [False, True, False], [True, True, True]])
def test_the_components_keep_the_distribution_given_the_indicators(rng, assert_z, indicator):
    K, y, r = prior(VARIANCES, X3), np.array([1, 0, 2]), 10_000
    f, fresh = (given_indicators(rng, K, y, np.array(indicator), r) for _ in range(2))
    marks = np.tile(indicator, (r, 1))
    for _ in range(2):
        f = draw_components(rng, f, np.linalg.inv(K), y, marks)
        assert np.all(inside(f, y) | marks)
    assert_z(z_between(statistics(f), statistics(fresh)))


def test_a_component_alone_has_the_moments_of_its_univariate_conditional(rng, assert_z):
    # n = 1: f_y given the others is a normal cut from below at the largest of them
    K, y, r = np.array([[[4.0]], [[1.0]]]), np.array([0]), 60_000
    f = np.tile(np.array([[2.0], [0.5]]), (r, 1, 1))
    got = draw_components(rng, f, np.linalg.inv(K), y, np.zeros((r, 1), dtype=bool))
    from scipy.stats import truncnorm

    distribution = truncnorm(0.25, np.inf, scale=2.0)
    assert_z((got[:, 0, 0].mean() - distribution.mean()) / (distribution.std() / np.sqrt(r)))
    square = np.square(got[:, 0, 0] - distribution.mean())
    assert_z((square.mean() - distribution.var()) / (square.std() / np.sqrt(r)))


# -- Geweke's joint-distribution test --------------------------------------------------------------------------------

N_CHAINS, N_SWEEPS = 250, 6


def draw_labels(rng, f, epsilon):
    """Indicators and labels jointly given f (C, n): what the model does."""
    C, n = f.shape
    wrong = rng.random(n) < epsilon
    return np.where(wrong, rng.integers(0, C, n), f.argmax(axis=0)), wrong


def successive_conditional(rng, K, update, epsilon, C=3):
    """Averages per chain of test functions of (f, z, y); z, y are drawn jointly given f, then f is moved."""
    n, chol = K.shape[1], np.linalg.cholesky(K)
    sums, counts = [], np.zeros((C, n + 1))
    for _ in range(N_CHAINS):
        f = np.einsum("lij,lj->li", chol, rng.standard_normal((C, n)))
        total = 0.0
        for _ in range(N_SWEEPS):
            y, wrong = draw_labels(rng, f, epsilon)
            counts[np.arange(C), np.bincount(y, minlength=C)] += 1
            f = update(rng, f[None], y, wrong[None])[0]
            one_hot = np.eye(C)[y].T
            again = error_probability(f[None], y, epsilon)[0]
            total = total + np.concatenate([statistics(f[None])[0], one_hot.ravel(), again]) / N_SWEEPS
        sums.append(total)
    return np.array(sums), counts


def geweke_z(sums, K, epsilon):
    C, n = K.shape[:2]
    full = np.zeros((C * n, C * n))
    for c in range(C):
        full[c * n : c * n + n, c * n : c * n + n] = K[c]
    win = np.stack([argmax_probability(np.zeros((1, C)), K[:, i, i])[0] for i in range(n)], axis=1)
    win = (1 - epsilon) * win + epsilon / C
    expected = np.concatenate([np.zeros(C * n), full[np.triu_indices(C * n)], win.ravel(), np.full(n, epsilon)])
    spread = sums.std(axis=0, ddof=1) / np.sqrt(len(sums)) + 1e-12  # what never moves has no spread
    return (sums.mean(axis=0) - expected) / spread


def updates(K, epsilon, moves, height_factor=1.0):
    chol, precision = np.linalg.cholesky(K), np.linalg.inv(K)

    def update(rng, f, y, wrong):
        if "components" in moves:
            f = draw_components(rng, f, precision, y, wrong)
        if "bounce" in moves:
            f = bounce_move(rng, f, K, chol, y, log_height=height_factor * log_step(epsilon, len(K))).auxiliary
        return f

    return update


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("moves", [("components",), ("bounce",), ("components", "bounce")])
def test_the_sampler_leaves_the_joint_distribution_alone(rng, assert_z, moves, epsilon):
    K = prior(VARIANCES, X3[:2])
    sums, counts = successive_conditional(rng, K, updates(K, epsilon, moves), epsilon)
    assert np.all(counts > 0)  # every class count is seen
    assert_z(geweke_z(sums, K, epsilon))


@pytest.mark.parametrize("twin", ["indicators ignored", "indicators swapped", "half the constraint"])
def test_the_joint_distribution_test_sees_a_known_fault(rng, twin):
    K, epsilon = prior(VARIANCES, X3[:2]), 0.3
    good = updates(K, epsilon, ("components",))
    update = {
        "indicators ignored": lambda rng, f, y, wrong: good(rng, swap_to_label(f, y), y, np.zeros_like(wrong)),
        "indicators swapped": lambda rng, f, y, wrong: good(rng, swap_to_label(f, y), y, ~wrong),
        "half the constraint": updates(K, epsilon, ("bounce",), height_factor=0.5),
    }[twin]
    sums, _ = successive_conditional(rng, K, update, epsilon)
    assert np.abs(geweke_z(sums, K, epsilon)).max() > 6.0  # far outside what the test above lets pass


# -- small posteriors by quadrature ------------------------------------------------------------------------------------


def dense(variances, X, noise, jitter, fitc):
    """Prior of (f, f*) or (f, f*, u), per class."""
    both, out = np.concatenate([X, X_TEST]), []
    n = len(X)
    for v in variances:
        if not fitc:
            K = squared_exponential(both, both, v, SCALES) + noise * np.eye(n + 2)
            K[:n, :n] += jitter * np.eye(n)
        else:
            K_ZZ = squared_exponential(Z2, Z2, v, SCALES) + jitter * np.eye(2)
            U = squared_exponential(both, Z2, v, SCALES) @ np.linalg.inv(K_ZZ)
            Q = U @ K_ZZ @ U.T
            K = np.block([[Q + np.diag(v + noise - np.diag(Q)), U @ K_ZZ], [K_ZZ @ U.T, K_ZZ]])
        out.append(K)
    return out


CASES = [
    (1, 2, 0.0, ("bounce",)),
    (2, 2, 0.2, ("bounce",)),
    (3, 2, 0.05, ("bounce",)),
    (3, 2, 0.0, ("components",)),
    (1, 3, 0.5, ("bounce",)),
    (2, 3, 0.0, ("bounce",)),
    (2, 3, 0.3, ("components", "bounce")),
    (2, 3, 0.3, ("components",)),
]


def _often(n, C, epsilon, moves):
    """Each move with errors and without once; `exactness/gibbs-threshold` of `triad verify` asks two data too."""
    return (n, C, moves) in {(2, 2, ("bounce",)), (3, 2, ("components",)), (1, 3, ("bounce",))}


@pytest.mark.parametrize(("n", "C", "epsilon", "moves"), others_slow(CASES, _often))
@pytest.mark.parametrize("fitc", [False, True])
def test_chains_agree_with_quadrature(assert_z, orthants, n, C, epsilon, moves, fitc):
    y, variances = (np.array([1, 0, 0])[:n] if C == 2 else np.array([2, 0])[:n]), VARIANCES[:C]
    got = sample(
        X3[:n], y, C, variances, SCALES, 0.4, 1e-3, Z2, "fitc" if fitc else "full", X_TEST, epsilon,
        n_draws=250, n_warmup=20, seed=n, moves=moves,
    )  # fmt: skip
    blocks = dense(variances, X3[:n], 0.4, 1e-3, fitc)
    truth = orthants(np.stack([K[:n, :n] for K in blocks]), y, epsilon)
    size = len(blocks[0])
    whole = np.zeros((C * size, C * size))
    for c, K in enumerate(blocks):
        whole[c * size : (c + 1) * size, c * size : (c + 1) * size] = K
    data = np.concatenate([c * size + np.arange(n) for c in range(C)])
    mean, cov = truth.moments(whole[:, data], whole)
    z = []
    for a in range(n + 2):
        index = np.arange(C) * size + a
        name, row = ("latent", a) if a < n else ("test_latent", a - n)
        z.append((getattr(got, f"{name}_mean")[row] - mean[index]) / getattr(got, f"{name}_mean_se")[row])
        z.append((getattr(got, f"{name}_cov")[row] - cov[np.ix_(index, index)]) / getattr(got, f"{name}_cov_se")[row])
    if fitc:
        for c in range(C):
            index = c * size + n + 2 + np.arange(2)
            z.append((got.inducing_mean[c] - mean[index]) / got.inducing_mean_se[c])
            z.append((got.inducing_cov[c] - cov[np.ix_(index, index)]) / got.inducing_cov_se[c])
    if (n + 1) * (C - 1) <= 3:  # p(y*) as a ratio of evidences
        for a in range(2):
            index = np.append(np.arange(n), n + a)
            S = np.stack([K[np.ix_(index, index)] for K in blocks])
            p = [orthants(S, np.append(y, c), epsilon).evidence / truth.evidence for c in range(C)]
            z.append((got.probabilities[a] - p) / got.probabilities_se[a])
    z = np.concatenate([np.ravel(v) for v in z])
    assert np.all(np.isfinite(z))
    assert_z(z)


def test_the_probability_of_a_labelling_error_is_that_of_quadrature(assert_z, orthants):
    y, epsilon = np.array([1, 0, 0]), 0.2
    got = sample(X3, y, 2, VARIANCES[:2], SCALES, 0.4, 1e-3, epsilon=epsilon, n_draws=400, n_warmup=20, seed=5)
    K = prior(VARIANCES[:2], X3, 0.401)
    total = orthants(K, y, epsilon).evidence
    for i in range(3):
        # z_i = 1: the likelihood of datum i is ε/C whatever f_i
        rest = np.delete(np.arange(3), i)
        without = orthants(K[:, rest][:, :, rest], y[rest], epsilon).evidence
        truth = epsilon / 2 * without / total
        assert_z((got.error_probability[i] - truth) / got.error_probability_se[i])


# -- mixing, bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_variance", [-8.0, 0.0, 8.0])
def test_draws_are_close_to_independent_at_every_variance(log_variance):
    X, y = np.linspace(-2, 2, 24)[:, None], np.repeat(np.arange(3), 8)
    got = sample(X, y, 3, np.exp(log_variance), [0.7], np.exp(log_variance) * 1e-2, 0.0, n_chains=16, n_draws=150,
                 n_warmup=20, seed=1)  # fmt: skip
    for name in ("latent", "latent_square", "log_joint"):
        # 1 is independence; the estimate from 2400 draws has an error of about a tenth
        assert np.max(got.convergence[name].autocorrelation_time) < 2.0
    assert got.settled


@pytest.mark.parametrize("kind", ["one member", "absent", "one class", "twenty", "near duplicates", "one point"])
@pytest.mark.parametrize(
    ("epsilon", "log_variance"),
    [
        (0.0, 8.0), (1e-3, -8.0), (0.5, 8.0),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.0, -8.0), (1e-3, 8.0), (0.5, -8.0))),
    ],
)  # fmt: skip
def test_hard_data_give_finite_answers_and_move_visibly(kind, epsilon, log_variance):
    X, y, C = np.linspace(-1, 1, 8)[:, None], np.array([0, 1, 0, 1, 1, 0, 1, 0]), 3
    v = np.exp(log_variance)
    if kind == "one member":
        y[3] = 2
    if kind == "one class":
        y[:] = 1
    if kind == "twenty":
        C, y = 20, np.array([0, 19, 3, 7, 7, 2, 11, 11])
    if kind == "near duplicates":
        X[1], X[5] = X[0] + 1e-9, X[4] + 1e-7  # with other labels: only the noise of 1e-4 v tells them apart
    if kind == "one point":
        X, y = X[:1], y[:1]
    got = sample(X, y, C, v, [0.5], 1e-4 * v, 0.0, X_test=X, epsilon=epsilon, n_chains=4, n_draws=10, n_warmup=3,
                 seed=1)  # fmt: skip
    assert all(np.all(np.isfinite(a)) for a in got._asdict().values() if isinstance(a, np.ndarray))
    np.testing.assert_allclose(got.probabilities.sum(axis=1), 1.0, rtol=1e-12)  # normalised
    if epsilon == 0.0:
        assert np.all(inside(np.moveaxis(got.latent_draws.reshape(-1, len(X), C), 1, 2), y))
    assert np.all(got.movement == 1.0)


def test_a_chain_that_stands_still_is_not_passed(monkeypatch):
    from gibbs.models import threshold

    real = threshold.bounce_move

    def stuck(rng, auxiliary, *args, **options):
        got = real(rng, auxiliary, *args, **options)
        got.auxiliary[0] = auxiliary[0]  # the first chain alone
        return got

    monkeypatch.setattr(threshold, "bounce_move", stuck)
    got = sample(X3, [0, 1, 2], 3, 1.0, SCALES, 0.1, 0.0, n_chains=4, n_draws=50, n_warmup=2, seed=0)
    assert not got.settled
    assert not got.gate
    np.testing.assert_array_equal(got.movement, [0.0, 1.0, 1.0, 1.0])


def test_a_seed_fixes_every_number_and_an_interrupted_run_resumes_bit_by_bit(tmp_path):
    def run(seed=3, checkpoint=None, stop=0):
        def callback(progress):
            if progress.sweep == stop:
                raise KeyboardInterrupt

        return sample(X3, np.array([0, 1, 2]), 3, VARIANCES, SCALES, 0.1, 1e-4, Z2, "fitc", X_TEST, 0.1, n_chains=3,
                      n_draws=10, n_warmup=4, thin=2, seed=seed, callback=callback, checkpoint=checkpoint,
                      checkpoint_every=5, moves=("components", "bounce"))  # fmt: skip

    whole, path = run(), tmp_path / "run.npz"
    for stop in (2, 9, 17):
        with pytest.raises(KeyboardInterrupt):
            run(checkpoint=path, stop=stop)
    resumed = run(checkpoint=path)
    for name, value in whole._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(resumed, name), value)
    assert not np.array_equal(run(seed=4).latent_draws, whole.latent_draws)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 1.0}, r"epsilon: found 1, expected a probability in \[0, 1\)"),
        ({"epsilon": -0.1}, r"epsilon: found -0.1, expected >= 0"),
        ({"epsilon": np.nan}, r"epsilon: found 1 entries NaN"),
        ({"moves": ()}, r"moves: found \(\), expected at least one"),
        ({"moves": ("scale",)}, r"moves: found \('scale',\)"),
        ({"n_classes": 1}, r"n_classes: found 1"),
        ({"y": [0, 1, 5]}, r"y: found labels 0 to 5, expected 0 to 2"),
        ({"max_kept_bytes": 5}, r"max_kept_bytes: found 5, expected >= \d+"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    arguments = {
        "X": X3, "y": [0, 1, 2], "n_classes": 3, "variance": 1.0, "lengthscales": SCALES, "noise": 0.1, "jitter": 0.0,
        "n_draws": 8, "n_warmup": 0, "seed": 0,
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message):
        sample(**arguments)


def test_a_singular_covariance_is_an_error_that_names_it():
    doubled = np.concatenate([X3, X3])
    with pytest.raises(NotPositiveDefiniteError, match=r"K_XX \(6, 6\): found smallest eigenvalue .* noise or jitter"):
        sample(doubled, [0, 1, 2] * 2, 3, 1.0, SCALES, 0.0, 0.0, n_draws=8, n_warmup=0, seed=0)
