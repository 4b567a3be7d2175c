"""Whole chains against small posteriors known by quadrature, against each other, and against bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gibbs.chains.diagnostics import standard_error
from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.core.kernels import squared_exponential
from gibbs.models.quadrature import logistic_normal_mean
from gibbs_samplers import fitc_white, full_covariance, sample_fitc, sample_full
from in_every_run import others_slow

X3 = np.array([[0.0, 0.2], [0.7, -0.5], [1.1, 1.0]])
Y3 = np.array([1.0, -1.0, 1.0])
X_TEST = np.array([[0.3, 0.0], [2.5, -1.0]])
Z2 = np.array([[0.2, 0.1], [1.0, 0.6]])
SCALES = np.array([1.0, 1.5])


def prior_blocks(n, variance, noise, jitter):
    K = full_covariance(X3[:n], variance, SCALES, noise, jitter)
    return K, squared_exponential(X_TEST, X3[:n], variance, SCALES)


def test_moments_from_quadrature(posterior, cross, K, k_test):
    """Mean, variance and class probability at test points: f* | f is Gaussian, f is on a grid."""
    gain = cross @ np.linalg.inv(K)
    mean_given_f = posterior.f @ gain.T
    rest = k_test - np.einsum("tn,tn->t", gain, cross)
    mean = posterior.weight @ mean_given_f
    var = rest + posterior.weight @ (mean_given_f - mean) ** 2
    keep = posterior.weight > 1e-14  # what is left out sums to less than 1e-8
    probability = posterior.weight[keep] @ logistic_normal_mean(mean_given_f[keep], np.maximum(rest, 0.0))
    return mean, var, probability


test_moments_from_quadrature.__test__ = False


# `exactness/gibbs-logit` of `triad verify` asks three points, with inducing points and without, of the moves of a run
FULL = [(1, 9.0, ()), (2, 60.0, ("scale",)), (3, 2.0, ("scale", "ellipse"))]


@pytest.mark.parametrize(("n", "variance", "moves"), others_slow(FULL, lambda n, variance, moves: n == 2))
def test_full_chains_agree_with_quadrature(assert_z, quadrature_posterior, n, variance, moves):
    K, cross = prior_blocks(n, variance, 0.1, 1e-4)
    got = sample_full(
        X3[:n], Y3[:n], variance, SCALES, 0.1, 1e-4, X_TEST, n_draws=1500, n_warmup=100, seed=n, moves=moves
    )
    truth = quadrature_posterior(K, Y3[:n], 0.05 if n < 3 else 0.2)
    mean, var, probability = test_moments_from_quadrature(truth, cross, K, variance + 0.1)
    assert_z(
        np.concatenate(
            [
                (got.latent_mean - truth.mean) / got.latent_mean_se,
                (got.latent_var - np.diag(truth.cov)) / got.latent_var_se,
                (got.test_latent_mean - mean) / got.test_latent_mean_se,
                (got.test_latent_var - var) / got.test_latent_var_se,
                (got.probabilities - probability) / got.probabilities_se,
                (got.latent_draws.mean(axis=(0, 1)) - truth.mean) / standard_error(got.latent_draws),
            ]
        )
    )
    # what the run can see: a tenth of a posterior standard deviation would be at least 5 s.e. away
    assert np.all(got.latent_mean_se < 0.02 * np.sqrt(np.diag(truth.cov)))


@pytest.mark.parametrize("noise", others_slow([0.2, 0.0], lambda noise: noise > 0.0))
def test_fitc_chains_agree_with_quadrature(assert_z, quadrature_posterior, noise):
    variance, jitter = 20.0, 1e-3
    data, test = (fitc_white(A, Z2, variance, SCALES, noise, jitter) for A in (X3, X_TEST))
    K = data.white_rows @ data.white_rows.T + np.diag(data.cond_var)
    cross = test.white_rows @ data.white_rows.T
    got = sample_fitc(X3, Y3, Z2, variance, SCALES, noise, jitter, X_TEST, n_draws=1500, n_warmup=100, seed=5)
    truth = quadrature_posterior(K, Y3, 0.2)
    mean, var, probability = test_moments_from_quadrature(truth, cross, K, variance + noise)
    lift = data.factor @ data.white_rows.T @ np.linalg.inv(K)  # E[u | f] = lift f
    K_ZZ = data.factor @ data.factor.T
    u_mean = lift @ truth.mean
    u_cov = K_ZZ - lift @ K @ lift.T + lift @ truth.cov @ lift.T
    assert_z(
        np.concatenate(
            [
                (got.latent_mean - truth.mean) / got.latent_mean_se,
                (got.latent_var - np.diag(truth.cov)) / got.latent_var_se,
                (got.inducing_mean - u_mean) / got.inducing_mean_se,
                (got.test_latent_mean - mean) / got.test_latent_mean_se,
                (got.test_latent_var - var) / got.test_latent_var_se,
                (got.probabilities - probability) / got.probabilities_se,
            ]
        )
    )
    # this standard error comes from 16 chains: Student's t with 15 degrees of freedom passes 7 once in 200 000
    assert np.all(np.abs(got.inducing_cov - u_cov) < 7.0 * got.inducing_cov_se)


def test_inducing_points_on_the_data_give_the_full_model(assert_z):
    full = sample_full(X3, Y3, 5.0, SCALES, 0.3, 0.0, X_TEST, n_draws=1000, n_warmup=50, seed=1)
    # Z = X with the noise outside K_ZZ: given u the f_i are independent in both models
    fitc = sample_fitc(X3, Y3, X3, 5.0, SCALES, 0.3, 0.0, X_TEST, n_draws=1000, n_warmup=50, seed=2)
    for name in ("latent_mean", "latent_var", "test_latent_mean", "test_latent_var", "probabilities"):
        gap = getattr(full, name) - getattr(fitc, name)
        assert_z(gap / np.hypot(getattr(full, name + "_se"), getattr(fitc, name + "_se")))


def test_conditional_averages_are_those_of_the_raw_draws(assert_z):
    got = sample_fitc(X3, Y3, Z2, 5.0, SCALES, 0.2, 1e-3, n_draws=2000, n_warmup=50, seed=4)
    n_eff = got.convergence["latent"].ess_bulk
    raw = got.latent_draws.reshape(-1, 3)
    # the raw mean has the larger error; 10 % for the dependence of both on one chain
    assert_z((raw.mean(axis=0) - got.latent_mean) / (1.1 * raw.std(axis=0) / np.sqrt(n_eff)))
    assert np.all(got.latent_mean_se < raw.std(axis=0) / np.sqrt(n_eff))  # the point of averaging


def test_a_long_enough_run_of_chains_passes_the_gate_and_a_short_one_does_not():
    long = sample_full(X3, Y3, 1.0, SCALES, 0.1, 1e-6, n_draws=2000, n_warmup=100, seed=8)
    short = sample_full(X3, Y3, 1.0, SCALES, 0.1, 1e-6, n_draws=50, n_warmup=10, seed=8)
    assert long.gate
    assert not short.gate
    assert not sample_full(X3, Y3, 1.0, SCALES, 0.1, 1e-6, n_chains=2, n_draws=50, n_warmup=1, seed=8).gate


def test_a_seed_fixes_every_number_and_another_seed_changes_them():
    def run(seed):
        return sample_full(X3, Y3, 5.0, SCALES, 0.1, 1e-6, X_TEST, n_chains=2, n_draws=20, n_warmup=3, seed=seed)

    first, again, other = run(1), run(1), run(2)
    np.testing.assert_array_equal(first.latent_draws, again.latent_draws)
    np.testing.assert_array_equal(first.probabilities, again.probabilities)
    assert not np.array_equal(first.latent_draws, other.latent_draws)


@pytest.mark.parametrize("fitc", [False, True])
def test_an_interrupted_run_resumes_bit_by_bit(tmp_path, fitc):
    def run(callback=None, checkpoint=None):
        common = {"n_chains": 3, "n_draws": 12, "n_warmup": 5, "thin": 2, "seed": 3, "moves": ("scale", "ellipse")}
        common |= {"callback": callback, "checkpoint": checkpoint, "checkpoint_every": 7}
        if fitc:
            return sample_fitc(X3, Y3, Z2, 5.0, SCALES, 0.1, 1e-4, X_TEST, **common)
        return sample_full(X3, Y3, 5.0, SCALES, 0.1, 1e-4, X_TEST, **common)

    def interrupt_at(sweep):
        def callback(progress):
            if progress.sweep == sweep:
                raise KeyboardInterrupt

        return callback

    whole, path = run(), tmp_path / "run.npz"
    for sweep in (2, 9, 20):  # in the warm-up, and twice among the draws
        with pytest.raises(KeyboardInterrupt):
            run(interrupt_at(sweep), path)
    resumed = run(checkpoint=path)
    for name, value in whole._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(resumed, name), value)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_no_test_points_are_empty_results():
    got = sample_full(X3, Y3, 1.0, SCALES, 0.1, 0.0, np.empty((0, 2)), n_chains=2, n_draws=8, n_warmup=0, seed=0)
    assert got.probabilities.shape == got.test_latent_mean.shape == got.probabilities_se.shape == (0,)


BAD = [
    ({"X": np.array([[0.0, np.nan], [1, 1], [2, 2]])}, r"X: found 1 entries NaN or infinite, expected 0"),
    ({"X": np.zeros(3)}, r"X: found shape \(3,\), expected 2 axes"),
    ({"X": np.zeros((0, 2))}, r"X: found shape \(0, 2\)"),
    ({"X": [["a", "b"]] * 3}, r"X: found list of dtype <U1, expected real numbers"),
    ({"y_sign": np.ones(2)}, r"y: found shape \(2,\), expected \(3,\)"),
    ({"variance": 0.0}, r"variance: found 0, expected > 0"),
    ({"variance": np.inf}, r"variance: found 1 entries NaN or infinite"),
    ({"lengthscales": [1.0, -1.0]}, r"lengthscales: found \[1.0, -1.0\], expected finite and > 0"),
    ({"lengthscales": [1.0]}, r"lengthscales: found shape \(1,\), expected \(2,\)"),
    ({"noise": -0.1}, r"noise: found -0.1, expected >= 0"),
    ({"jitter": np.nan}, r"jitter: found 1 entries NaN or infinite"),
    ({"X_test": np.zeros((2, 3))}, r"X_test: found 3 columns, expected 2"),
    ({"n_chains": 0}, r"n_chains: found 0, expected an integer in \[1, 2147483647\]"),
    ({"n_draws": 2}, r"n_draws: found 2, expected an integer >= 4"),
    ({"n_draws": 5.0}, r"n_draws: found 5.0, expected an integer"),
    ({"n_warmup": -1}, r"n_warmup: found -1"),
    ({"thin": 0}, r"thin: found 0"),
    ({"seed": -1}, r"seed: found -1"),
    ({"moves": ("jump",)}, r"moves: found \('jump',\), expected different names out of scale, ellipse"),
    ({"moves": ("scale", "scale")}, r"moves: found .*, expected different names"),
    ({"max_kept_bytes": 10}, r"max_kept_bytes: found 10, expected >= \d+"),
    ({"checkpoint_every": 0}, r"checkpoint_every: found 0"),
    ({"checkpoint": "/no/such/folder/run.npz"}, r"checkpoint: found .* expected a path in a folder that exists"),
    ({"checkpoint": "x" * 256}, r"checkpoint: found .* \(File name too long\), expected a path to write"),
    ({"checkpoint": "."}, r"checkpoint: found '\.', a folder, expected a file"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
@pytest.mark.parametrize("fitc", [False, True])
def test_bad_input_is_refused_by_name(change, message, fitc):
    arguments = {
        "X": X3, "y_sign": Y3, "variance": 1.0, "lengthscales": SCALES, "noise": 0.1, "jitter": 1e-6, "X_test": X_TEST,
        "n_draws": 8, "n_warmup": 0, "seed": 0,
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message):
        sample_fitc(Z=Z2, **arguments) if fitc else sample_full(**arguments)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 2), st.integers(0, 1), st.booleans())
def test_an_entry_that_is_not_finite_never_reaches_the_numerics(value, row, column, fitc):
    X = X3.copy()
    X[row, column] = value
    options = {"n_draws": 8, "n_warmup": 0, "seed": 0}
    sample = (
        (lambda: sample_fitc(X, Y3, Z2, 1.0, SCALES, 0.1, 0.0, **options))
        if fitc
        else (lambda: sample_full(X, Y3, 1.0, SCALES, 0.1, 0.0, **options))
    )
    with pytest.raises(ValueError, match=r"X: found 1 entries NaN or infinite"):
        sample()


def test_a_singular_covariance_is_an_error_that_names_it():
    doubled = np.concatenate([X3, X3])
    with pytest.raises(NotPositiveDefiniteError, match=r"K_XX \(6, 6\): found smallest eigenvalue .* noise or jitter"):
        sample_full(doubled, np.tile(Y3, 2), 1.0, SCALES, 0.0, 0.0, n_draws=8, n_warmup=0, seed=0)
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(4, 4\): found smallest eigenvalue .* raise jitter"):
        sample_fitc(X3, Y3, np.concatenate([Z2, Z2]), 1.0, SCALES, 0.1, 0.0, n_draws=8, n_warmup=0, seed=0)


@pytest.mark.parametrize("fitc", [False, True])
def test_duplicate_rows_constant_features_and_one_class_are_survived(fitc):
    X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 2.0], [1.0, -1.0]])  # the noise keeps K_XX regular
    options = {"n_chains": 2, "n_draws": 20, "n_warmup": 2, "seed": 0}
    if fitc:
        got = sample_fitc(X, np.ones(4), X[1:3], 2.0, SCALES, 0.1, 0.0, X, **options)
    else:
        got = sample_full(X, np.ones(4), 2.0, SCALES, 0.1, 0.0, X, **options)
    assert all(np.all(np.isfinite(v)) for v in got._asdict().values() if isinstance(v, np.ndarray))
    # duplicate rows share their smooth part but not their noise: equal test moments, up to rounding
    np.testing.assert_allclose(got.test_latent_mean[0], got.test_latent_mean[1], rtol=1e-10)


def test_a_zero_conditional_variance_is_no_obstacle():
    # no noise, inducing points on the data: f is a function of u
    got = sample_fitc(X3, Y3, X3, 4.0, SCALES, 0.0, 0.0, n_chains=2, n_draws=20, n_warmup=2, seed=0)
    np.testing.assert_allclose(got.latent_draws, got.inducing_draws, rtol=0, atol=1e-6)  # √ of rounding in cond_var


def test_the_kernel_is_its_definition(rng):
    A, B = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    got = squared_exponential(A, B, 2.5, SCALES)
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            expected = 2.5 * np.exp(-0.5 * sum((a[k] - b[k]) ** 2 / SCALES[k] ** 2 for k in range(2)))
            np.testing.assert_allclose(got[i, j], expected, rtol=1e-14)  # a handful of roundings
    assert np.all(np.diag(squared_exponential(A, A, 2.5, SCALES)) == 2.5)
