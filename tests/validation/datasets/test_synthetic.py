"""Generated data against their definitions: moments, class probabilities, the known Bayes error."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, logsumexp, ndtr, softmax
from scipy.stats import norm

from validation import datasets
from validation.datasets.synthetic import waveform_bases


def limit(tests):
    """Two-sided normal limit for the largest of that many z-scores, at 1e-4 together (Bonferroni)."""
    return norm.isf(0.5e-4 / tests)


def test_latent_draws_have_the_covariance_of_the_model():
    rng = np.random.default_rng(11)
    X = np.array([[0.0, 0.0], [0.3, -0.2], [1.0, 0.5], [1.0, 0.5], [4.0, 4.0]])  # two equal rows: K is singular
    draws = 20_000
    f = datasets.draw_latents(rng, X, draws, variance=np.full(draws, 3.0), lengthscales=[0.7, 1.3], noise=0.25)
    squares = ((X[:, None] - X[None]) ** 2 / np.array([0.7, 1.3]) ** 2).sum(axis=2)
    K = 3.0 * np.exp(-0.5 * squares) + 0.25 * np.eye(5)
    z_mean = f.mean(axis=1) / np.sqrt(np.diag(K) / draws)
    variance = (np.outer(np.diag(K), np.diag(K)) + K**2) / draws
    z_cov = ((f @ f.T / draws - K) / np.sqrt(variance))[np.triu_indices(5)]
    assert np.abs([*z_mean, *z_cov]).max() < limit(20)


def test_latent_values_without_noise_agree_at_equal_rows_of_a_singular_covariance():
    rng = np.random.default_rng(12)
    X = np.repeat(rng.uniform(-2.5, 2.5, (150, 2)), 2, axis=0)
    f = datasets.draw_latents(rng, X, 3, variance=[1.0, 4.0, 100.0])
    # What pivoted Cholesky cuts off has a standard deviation below sqrt(300 eps 100) = 3e-6; four of these.
    np.testing.assert_allclose(f[::2], f[1::2], rtol=0, atol=1.2e-5)


def test_each_latent_has_its_own_variance_and_lengthscales():
    rng = np.random.default_rng(13)
    X = np.array([[0.0], [1.0]])
    scales = np.tile([[0.5], [5.0]], (10_000, 1))
    f = datasets.draw_latents(rng, X, 20_000, variance=np.tile([1.0, 9.0], 10_000), lengthscales=scales)
    for part, v, ell in ((f[:, ::2], 1.0, 0.5), (f[:, 1::2], 9.0, 5.0)):
        covariance = v * np.exp(-0.5 / ell**2)
        z = (np.mean(part[0] * part[1]) - covariance) / np.sqrt((v**2 + covariance**2) / 10_000)
        assert abs(z) < limit(2)


def multinomial_probit(f):
    return np.array(
        [
            quad(lambda t, k=k: norm.pdf(t - f[k]) * np.prod(ndtr(t - np.delete(f, k))), -12, 12)[0]
            for k in range(f.size)
        ]
    )


@pytest.mark.parametrize(
    ("likelihood", "f", "epsilon", "probabilities"),
    [
        ("logit", [0.8], 0.0, lambda f: np.array([1 - expit(f[0]), expit(f[0])])),
        ("probit", [-0.6], 0.0, lambda f: np.array([1 - ndtr(f[0]), ndtr(f[0])])),
        ("softmax", [0.2, -1.0, 1.1], 0.0, softmax),
        ("multinomial-probit", [0.2, -1.0, 1.1], 0.0, multinomial_probit),
        ("threshold", [0.2, 1.1, -1.0], 0.3, lambda f: np.array([0.1, 0.8, 0.1])),
    ],
)
def test_labels_have_the_probabilities_of_their_likelihood(likelihood, f, epsilon, probabilities):
    rng = np.random.default_rng(14)
    n = 40_000
    y = datasets.draw_labels(rng, np.tile(f, (n, 1)), likelihood, epsilon)
    p = probabilities(np.array(f))
    z = (np.bincount(y, minlength=p.size) / n - p) / np.sqrt(p * (1 - p) / n)
    assert np.abs(z).max() < limit(5 * 3)


def test_threshold_labels_without_errors_are_the_largest_latent():
    f = np.array([[0.0, 1.0, -1.0], [3.0, 2.9, 2.0]])
    assert datasets.draw_labels(np.random.default_rng(0), f, "threshold").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"likelihood": "cauchit"}, "likelihood: found 'cauchit'"),
        ({"likelihood": "logit", "n_classes": 3}, "n_classes: found 3, expected 2"),
        ({"n_classes": 1, "likelihood": "softmax"}, "n_classes: found 1"),
        ({"epsilon": 0.1}, "epsilon: found 0.1"),
        ({"likelihood": "threshold", "epsilon": 1.0}, "epsilon: found 1.0"),
        ({"variance": 0.0}, "variance: found 0"),
        ({"lengthscales": [1.0, -1.0]}, "lengthscales: found -1"),
        ({"lengthscales": [1.0, 1.0, 1.0]}, "lengthscales: found shape"),
        ({"noise": -0.1}, "noise: found -0.1"),
        ({"n": 0}, "n: found 0"),
        ({"X": [[np.nan]]}, "X: found nan"),
    ],
)
def test_generator_refuses_what_no_model_has(arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.make_gp_classification(np.random.default_rng(0), **arguments)


@pytest.mark.parametrize("likelihood", ["logit", "probit", "softmax", "multinomial-probit", "threshold"])
def test_generated_set_repeats_by_seed_and_says_where_it_is_from(likelihood):
    one, again = (
        datasets.make_gp_classification(np.random.default_rng(5), n=30, d=3, likelihood=likelihood) for _ in range(2)
    )
    assert (one.n, one.d, one.n_classes, one.source) == (30, 3, 2, "make_gp_classification")
    assert one.sha256 == again.sha256 == one.content_sha256


def test_waveform_bases_are_the_three_triangles():
    h1, h2, h3 = waveform_bases()
    assert [int(h.argmax()) + 1 for h in (h1, h2, h3)] == [11, 15, 7]
    assert h1.sum() == h2.sum() == h3.sum() == 36.0
    assert h2[4:].tolist() == h1[:-4].tolist()
    assert h3[:-4].tolist() == h1[4:].tolist()


def test_waveform_has_the_published_bayes_error():
    n = 20_000
    waveform = datasets.make_waveform(np.random.default_rng(15), n)
    assert (waveform.d, waveform.n_classes) == (21, 3)
    nodes, weights = np.polynomial.legendre.leggauss(24)  # on u: exponents of size 40, resolved far below 1e-3
    u, h = 0.5 * (nodes + 1.0), waveform_bases()
    scores = np.empty((n, 3))
    for k, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        means = np.outer(u, h[a]) + np.outer(1.0 - u, h[b])
        exponents = waveform.X @ means.T - 0.5 * (means**2).sum(axis=1)
        scores[:, k] = logsumexp(exponents, axis=1, b=weights)
    error = np.mean(scores.argmax(axis=1) != waveform.y)
    # Published as 0.14, so known to half a unit of its last digit; the rest is sampling.
    assert abs(error - 0.14) < 0.005 + limit(1) * np.sqrt(0.14 * 0.86 / n)


def test_waveform_classes_have_the_means_of_their_two_triangles():
    waveform = datasets.make_waveform(np.random.default_rng(16), 6000)
    h = waveform_bases()
    for k, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        rows = waveform.X[waveform.y == k]
        variance = 1.0 + (h[a] - h[b]) ** 2 / 12.0
        z = (rows.mean(axis=0) - 0.5 * (h[a] + h[b])) / np.sqrt(variance / len(rows))
        assert np.abs(z).max() < limit(3 * 21)


def test_riihimaki_toy_has_three_classes_with_the_printed_normals():
    toy = datasets.make_riihimaki2013_toy(np.random.default_rng(17))
    assert (toy.n, toy.d, list(toy.class_counts.values())) == (15, 1, [5, 5, 5])
    many = datasets.make_riihimaki2013_toy(np.random.default_rng(18), 4000)
    for k, (mean, std) in enumerate([(-1.0, 1.0), (2.0, 0.5), (3.0, 0.5)]):
        x = many.X[many.y == k, 0]
        z = [(x.mean() - mean) / (std / np.sqrt(4000)), (x.var() / std**2 - 1.0) / np.sqrt(2 / 4000)]
        assert np.abs(z).max() < limit(6)


def test_villacampa_toy_fills_the_box_and_labels_the_largest_latent():
    rng = np.random.default_rng(19)
    toy = datasets.make_villacampa2017_toy(rng, 300)
    assert (toy.n, toy.d, toy.n_classes, toy.name) == (300, 2, 3, "villacampa2017-toy")
    assert np.abs(toy.X).max() < 2.5
    # Uniform on [-2.5, 2.5]: variance 25/12, of whose estimate the standard error is 25/12 sqrt(0.8/300).
    z = (np.mean(toy.X**2, axis=0) - 25 / 12) / (25 / 12 * np.sqrt(0.8 / 300))
    assert np.abs(z).max() < limit(2)
    rng = np.random.default_rng(19)
    X = rng.uniform(-2.5, 2.5, (300, 2))
    assert np.array_equal(toy.y, datasets.draw_latents(rng, X, 3).argmax(axis=1))
