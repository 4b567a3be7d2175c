"""The pairwise model: its density, its two moves, its averages and its log Z, against brute force and orthants."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from gibbs.core.kernels import squared_exponential
from gibbs.draws.truncated_normal import log_probability, tilt
from gibbs.evidence import pairwise as bridge
from gibbs.evidence import sequential
from gibbs.models import pairwise
from gibbs_samplers import prepare_pairwise, sample_exact, sample_pairwise

X3 = np.array([[0.0, 0.2], [0.7, -0.5], [1.1, 1.0]])
Y3 = np.array([0, 2, 1])
X_TEST = np.array([[0.3, 0.0], [2.5, -1.0]])
Z1 = np.array([[0.5, 0.1]])
SCALES = np.array([1.0, 1.5])
VARIANCES = np.array([4.0, 1.0, 9.0])
LIMIT = 4.9  # a single z: passed by chance once in a million


def conditional(u, C, X=X3, noise=0.3, jitter=1e-3, Z=Z1):
    """Mean (r, n, C) and variance (n, C) of f(x_i) given u (r, C, m), by (4) and (5) of the paper."""
    mean, var = [], []
    for k in range(C):
        K_ZZ = squared_exponential(Z, Z, VARIANCES[k], SCALES) + jitter * np.eye(len(Z))
        k_XZ = squared_exponential(X, Z, VARIANCES[k], SCALES)
        upsilon = k_XZ @ np.linalg.inv(K_ZZ)
        mean.append(u[:, k] @ upsilon.T)
        var.append(VARIANCES[k] + noise - np.sum(upsilon * k_XZ, axis=1))
    return np.stack(mean, axis=2), np.stack(var, axis=1)


def brute_pairs(u, y, C, **options):
    """Π_i Π_{k≠y} Φ by its definition, (r,)."""
    mean, var = conditional(u, C, **options)
    out = np.ones(len(u))
    for i, label in enumerate(y):
        for k in range(C):
            if k != label:
                out *= norm.cdf((mean[:, i, label] - mean[:, i, k]) / np.sqrt(var[i, label] + var[i, k]))
    return out


class Grid:
    """The posterior of u for m = 1 on a product grid: the trapezoid rule converges geometrically."""

    def __init__(self, y, C, step=0.45):
        axis = np.arange(-7.2, 7.2 + 0.5 * step, step)
        white = np.stack([g.ravel() for g in np.meshgrid(*[axis] * C, indexing="ij")], axis=1)
        self.u = white * np.sqrt(VARIANCES[:C] + 1e-3)
        weight = np.exp(-0.5 * np.square(white).sum(axis=1)) * (step / np.sqrt(2 * np.pi)) ** C
        weight *= brute_pairs(self.u[:, :, None], y, C)
        self.log_evidence = float(np.log(weight.sum()))
        self.weight = weight / weight.sum()
        self.mean = self.weight @ self.u
        self.cov = (self.u - self.mean).T @ ((self.u - self.mean) * self.weight[:, None])


def prepared(y=Y3, C=3, **options):
    arguments = {"noise": 0.3, "jitter": 1e-3, "Z": Z1} | options
    return prepare_pairwise(X3, y, C, VARIANCES[:C], SCALES, **arguments)


@pytest.mark.verifies("villacampa2017", "6", route="definition by the normal c.d.f., pair by pair")
def test_the_pairwise_probability_is_the_printed_product(rng):
    mean, var, y = rng.normal(size=(5, 4)) * 3, rng.uniform(0.1, 2.0, (5, 4)), np.array([0, 3, 2, 2, 1])
    got = pairwise.pairwise_probability(mean, var, y)
    for i in range(5):
        others = [k for k in range(4) if k != y[i]]
        expected = np.prod([norm.cdf((mean[i, y[i]] - mean[i, k]) / np.sqrt(var[i, y[i]] + var[i, k])) for k in others])
        np.testing.assert_allclose(got[i], expected, rtol=1e-12)  # two c.d.f.s of the same double


@pytest.mark.verifies("villacampa2017", "7", route="product of (6) by its definition and normal densities of u")
@pytest.mark.parametrize("C", [2, 3])
def test_the_log_joint_is_that_of_the_definition_in_white_coordinates(rng, C):
    y = np.array([0, C - 1, 1])
    Z = np.array([[0.5, 0.1], [-0.4, 0.8]])
    model = prepared(y, C, Z=Z)
    white = rng.standard_normal((6, 2 * C))
    u = np.einsum("lmk,rlk->rlm", model.factor, white.reshape(6, C, 2))
    expected = np.log(brute_pairs(u, y, C, Z=Z)) + norm.logpdf(white).sum(axis=1)
    # a few terms of size ten
    np.testing.assert_allclose(pairwise.log_joint(model.loadings, white), expected, rtol=1e-10)


def test_the_gradient_is_that_of_finite_differences(rng):
    model, h = prepared(), 6e-6
    white = 3.0 * rng.standard_normal((4, 3))
    got = pairwise.log_joint_gradient(model.loadings, white)
    for j in range(3):
        step = h * np.eye(3)[j]
        up, down = (pairwise.log_joint(model.loadings, white + s * step) for s in (1.0, -1.0))
        # central differences of values below 100: h² from the third derivative, 1e-14/h from rounding
        np.testing.assert_allclose(got[:, j], (up - down) / (2 * h), rtol=1e-7, atol=1e-7)


def sampler_of(model, factor=1.0):
    peak = pairwise._peak(model.loadings)
    return pairwise._Sampler(model.loadings, peak, factor * peak.step)


def test_the_mode_is_a_mode_and_the_turned_density_is_the_joint_up_to_a_constant(rng):
    model = prepared()
    sampler = sampler_of(model)
    # Newton stops at a decrement of 1e-9
    np.testing.assert_allclose(pairwise.log_joint_gradient(model.loadings, sampler.peak.mode[None]), 0.0, atol=1e-7)
    zeta = 2.0 * rng.standard_normal((5, 3))
    gap = sampler.log_density(zeta) - pairwise.log_joint(model.loadings, sampler.xi(zeta))
    np.testing.assert_allclose(gap, gap[0], rtol=1e-11)  # sums of ten terms
    R = sampler.peak.R
    np.testing.assert_allclose((sampler.xi(zeta) - sampler.peak.mode) @ R, zeta, rtol=1e-10, atol=1e-12)
    by_xi = pairwise.log_joint_gradient(model.loadings, sampler.xi(zeta))
    np.testing.assert_allclose(sampler.gradient(zeta) @ R.T, by_xi, rtol=1e-9, atol=1e-10)


def exact_white(rng, model, size):
    """Rejection from the prior."""
    kept, actual = [], 0
    while actual < size:
        white = rng.standard_normal((50_000, model.loadings.shape[1]))
        accept = rng.random(len(white)) < np.prod(ndtr(white @ model.loadings.T), axis=1)
        kept.append(white[accept])
        actual += len(kept[-1])
    return np.concatenate(kept)[:size]


def statistics(x):
    return np.concatenate([x, np.einsum("ri,rj->rij", x, x)[:, *np.triu_indices(x.shape[1])]], axis=1)


def z_between(a, b):
    return (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))


@pytest.mark.parametrize("move", ["path", "slices", "both"])
def test_the_moves_leave_the_posterior_alone(rng, assert_z, move):
    model = prepared(noise=0.05)
    sampler = sampler_of(model, 1.5)  # long enough a step that some paths are rejected
    before, fresh = (exact_white(rng, model, 6_000) for _ in range(2))
    zeta = (before - sampler.peak.mode) @ sampler.peak.R
    if move != "slices":
        zeta, accepted = sampler.path(rng, zeta)
        assert 0.3 < accepted.mean() < 1.0
    if move != "path":
        zeta = sampler.slices(rng, zeta)
    assert_z(z_between(statistics(sampler.xi(zeta)), statistics(fresh)))


def test_a_path_accepted_without_its_potential_energy_is_seen(rng):
    # the power of the test above: with half of the energy the distribution moves
    model = prepared(noise=0.05)
    sampler = sampler_of(model, 1.8)
    before, fresh = (exact_white(rng, model, 6_000) for _ in range(2))
    zeta = (before - sampler.peak.mode) @ sampler.peak.R

    class Kinetic(pairwise._Sampler):
        def log_density(self, zeta):
            return np.zeros(len(zeta))

    wrong = Kinetic(*sampler)
    for _ in range(5):
        zeta, _ = wrong.path(rng, zeta)
    assert np.abs(z_between(statistics(sampler.xi(zeta)), statistics(fresh))).max() > 6.0


@pytest.mark.parametrize("C", [2, 3])
def test_chains_and_both_routes_to_the_evidence_meet_quadrature(rng, assert_z, C):
    y = np.array([0, C - 1, 1])
    truth = Grid(y, C)
    got = sample_pairwise(
        X3, y, C, VARIANCES[:C], SCALES, 0.3, 1e-3, Z1, "fitc", X_TEST, n_draws=150, n_warmup=20, seed=3
    )
    z = [(got.inducing_mean[:, 0] - truth.mean) / got.inducing_mean_se[:, 0]]
    z.append((got.inducing_cov[:, 0, 0] - np.diag(truth.cov)) / got.inducing_cov_se[:, 0, 0])
    for a, X in (("latent", X3), ("test_latent", X_TEST)):
        mean, var = conditional(truth.u[:, :, None], C, X)
        expected = np.einsum("g,gnl->nl", truth.weight, mean)
        centred = mean - expected
        cov = np.einsum("g,gnl,gnk->nlk", truth.weight, centred, centred) + var[:, :, None] * np.eye(C)
        z.append((getattr(got, f"{a}_mean") - expected) / getattr(got, f"{a}_mean_se"))
        z.append((getattr(got, f"{a}_cov") - cov) / getattr(got, f"{a}_cov_se"))
    mean, var = conditional(truth.u[:, :, None], C, X_TEST)
    for i in range(2):
        p = pairwise.argmax_probability(mean[:, i], var[i])
        z.append((got.probabilities[i] - truth.weight @ p) / got.probabilities_se[i])
    # covariance errors come from 32 batches: their tails are wider than normal, a fifth at this level
    assert_z(np.concatenate([np.ravel(v) for v in z]) / 1.2)
    model = prepared(y, C)
    estimate = bridge.log_evidence(rng, model.loadings, got.white_draws)
    assert estimate.trusted
    assert abs(estimate.value - truth.log_evidence) < LIMIT * estimate.standard_error
    islands = replace(sequential.DEFAULTS, target_error=0.02)
    estimate = sequential.log_evidence_margins(rng, pairwise.moments_of_margins(model), C, options=islands)
    assert estimate.trusted
    assert abs(estimate.value - truth.log_evidence) < LIMIT * estimate.standard_error


def toy(n):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, 2))
    K = squared_exponential(X, X, 20.0, SCALES) + 1e-5 * np.eye(n)
    return X, (np.linalg.cholesky(K) @ rng.standard_normal((n, 3))).argmax(axis=1)


def test_with_two_classes_it_is_the_threshold_model_of_exact_draws(rng, assert_z):
    X, y = toy(20)
    y = np.minimum(y, 1)
    arguments = (X, y, 2, 9.0, SCALES, 0.2, 1e-4, X[:5] + 0.1, "fitc", X_TEST)
    truth = sample_exact("threshold", *arguments, n_draws=2000, seed=1)
    got = sample_pairwise(*arguments, n_draws=150, n_warmup=20, seed=3)
    z = [
        (getattr(got, name) - getattr(truth, name))
        / np.hypot(getattr(got, f"{name}_se"), getattr(truth, f"{name}_se")) / 1.2
        for name in ("inducing_mean", "inducing_cov")
    ]  # fmt: skip
    assert_z(np.concatenate([np.ravel(v) for v in z]))
    estimate = bridge.log_evidence(rng, prepare_pairwise(*arguments).loadings, got.white_draws)
    assert abs(estimate.value - truth.log_evidence) < LIMIT * np.hypot(estimate.standard_error, truth.log_evidence_se)


@pytest.mark.parametrize("prior_model", ["fitc", "full"])
def test_both_routes_meet_minimax_tilting_of_the_margins(rng, prior_model):
    X, y = toy(16)
    arguments = (X, y, 3, 20.0, SCALES, 0.5, 1e-4, X[:6] + 0.1, prior_model)
    model = prepare_pairwise(*arguments)
    G = pairwise.moments_of_margins(model)
    truth = log_probability(rng, tilt(G, 0.0, np.inf, remedy=""), target_error=0.01, max_proposals=10**6)
    got = sample_pairwise(*arguments, n_draws=200, n_warmup=20, seed=3)
    for value in (
        bridge.log_evidence(rng, model.loadings, got.white_draws),
        sequential.log_evidence_margins(rng, G, 3),
    ):
        assert value.trusted
        assert abs(value.value - truth.value) < LIMIT * np.hypot(value.standard_error, truth.standard_error)


def test_the_full_model_is_fitc_at_the_data_and_classes_may_be_renamed(rng):
    X, y = toy(8)
    v = VARIANCES
    full = prepare_pairwise(X, y, 3, v, SCALES, 0.5, 1e-4, None, "full", X_TEST)
    fitc = prepare_pairwise(X, y, 3, v, SCALES, 0.5, 1e-4, X, "fitc", X_TEST)
    for name in ("loadings", "factor", "cond_var", "white_rows_test", "cond_var_test"):
        np.testing.assert_array_equal(getattr(full, name), getattr(fitc, name))
    new = np.array([2, 0, 1])
    moved = prepare_pairwise(X, np.argsort(new)[y], 3, v[new], SCALES, 0.5, 1e-4, X, "fitc")
    white = rng.standard_normal((5, 3, 8))
    here = pairwise.log_joint(full.loadings, white.reshape(5, -1))
    there = pairwise.log_joint(moved.loadings, white[:, new].reshape(5, -1))
    np.testing.assert_allclose(here, there, rtol=1e-11)  # the same terms in another order


def test_a_seed_fixes_every_number_and_an_interrupted_run_resumes_bit_by_bit(tmp_path):
    def run(checkpoint=None, stop=0):
        def callback(progress):
            if progress.sweep == stop:
                raise KeyboardInterrupt

        return sample_pairwise(X3, Y3, 3, VARIANCES, SCALES, 0.3, 1e-3, Z1, "fitc", X_TEST, n_chains=3, n_draws=8,
                               n_warmup=4, thin=2, seed=3, callback=callback, checkpoint=checkpoint,
                               checkpoint_every=5)  # fmt: skip

    whole, path = run(), tmp_path / "run.npz"
    for stop in (2, 9, 15):
        with pytest.raises(KeyboardInterrupt):
            run(path, stop)
    resumed = run(path)
    for name, value in whole._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(resumed, name), value)


@pytest.mark.parametrize("log_variance", [-8.0, 0.0, 8.0])
def test_chains_mix_at_every_variance(log_variance):
    X, y = toy(20)
    v = np.exp(log_variance)
    got = sample_pairwise(X, y, 3, v, SCALES, 0.05 * v, 1e-6 * v, X[:6], n_draws=150, n_warmup=20, seed=1)
    for q in got.convergence.values():
        assert np.max(q.autocorrelation_time) < 10.0  # sweeps; 1 is independence
    assert got.settled
    assert got.acceptance > 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": 0.0, "prior_model": "full", "jitter": 0.0}, r"noise: found variance .* of f given u, expected > 0"),
        ({"prior_model": "dtc"}, r"prior_model: found 'dtc', expected 'full' or 'fitc'"),
        ({"Z": None}, r"Z: found None, expected inducing inputs"),
        ({"noise": -1.0}, r"noise: found -1, expected >= 0"),
        ({"y": [0, 1, 3]}, r"y: found labels 0 to 3, expected 0 to 2"),
        ({"n_draws": 2}, r"n_draws: found 2, expected"),
    ],
)
def test_bad_input_is_refused_by_name(changes, message):
    fields = {"X": X3, "y": Y3, "n_classes": 3, "variance": 1.0, "lengthscales": SCALES, "noise": 0.1, "jitter": 1e-6,
              "Z": Z1, "n_draws": 4, "n_warmup": 1, "seed": 0, "n_chains": 2} | changes  # fmt: skip
    with pytest.raises(ValueError, match=message):
        sample_pairwise(**fields)


def test_too_few_draws_make_no_evidence(rng):
    with pytest.raises(ValueError, match=r"white: found shape \(2, 20, 3\), expected"):
        bridge.log_evidence(rng, prepared().loadings, np.zeros((2, 20, 3)))


def test_the_hazard_far_below_zero_is_the_argument_itself():
    """φ/Φ at -a is a + 1/a - 2/a³ + ...; the difference of the two logarithms overflowed at -1e16."""
    a = np.array([40.0, 900.0, 1100.0, 1e9, 1e16, 1e100])
    np.testing.assert_allclose(pairwise._hazard(-a), a + 1.0 / a - 2.0 / a**3, rtol=1e-7)  # 10/a⁵ is left out
