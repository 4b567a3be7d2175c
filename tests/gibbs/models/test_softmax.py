"""The softmax sampler as a whole: Geweke's joint test, posteriors by quadrature, adaptation, resuming, bad input."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import log_softmax

from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.core.kernels import squared_exponential
from gibbs.models import softmax
from gibbs.moves.softmax import (
    ShiftDistribution,
    draw_shift,
    ellipse_move,
    flow_move,
    make_reference,
    make_target,
    scaled_move,
    shift_distribution,
    to_white,
)
from gibbs_samplers import sample_softmax
from in_every_run import others_slow

X2 = np.array([[0.0, 0.2], [0.7, -0.5]])
X_TEST = np.array([[0.3, 0.0], [2.5, -1.0]])
Z2 = np.array([[0.2, 0.1], [1.0, 0.6]])
SCALES = np.array([1.0, 1.5])
VARIANCES = np.array([4.0, 1.0, 9.0])  # one for each class
NOISE, JITTER = 0.1, 1e-3
Y2 = np.array([0, 2])


def kernels(A, B, variances):
    return np.stack([squared_exponential(A, B, v, SCALES) for v in variances])


# -- Geweke's joint-distribution test --------------------------------------------------------------------------------


def averages(rng, cov, sweep, n_chains=120, n_sweeps=12):
    """Averages per chain of test functions of (f, y), from an exact joint draw; y is drawn given f, then f is moved."""
    C, n = cov.shape[:2]
    chol = np.linalg.cholesky(cov)
    out = []
    for _ in range(n_chains):
        f = np.einsum("cnm,cm->cn", chol, rng.standard_normal((C, n)))
        y, parts = labels(rng, f), []
        for _ in range(n_sweeps):
            f = sweep(rng, f, y)
            y = labels(rng, f)
            parts.append(functions(f, y))
        out.append(np.mean(parts, axis=0))
    return np.array(out)


def labels(rng, f):
    """y | f, all data at once."""
    return (f + rng.gumbel(size=f.shape)).argmax(axis=0)


def functions(f, y):
    counts = [np.mean(y == c) for c in range(len(f))]
    own = f[y, np.arange(len(y))]
    return np.concatenate([f.ravel(), np.square(f).ravel(), counts, [own.mean(), np.square(f.sum(axis=0)).mean()]])


def z_of(actual, rng, cov):
    chol = np.linalg.cholesky(cov)
    joint = []
    for _ in range(4_000):
        f = np.einsum("cnm,cm->cn", chol, rng.standard_normal(cov.shape[:2]))
        joint.append(functions(f, labels(rng, f)))
    joint = np.array(joint)
    error = np.sqrt(actual.var(axis=0, ddof=1) / len(actual) + joint.var(axis=0) / len(joint))
    return (actual.mean(axis=0) - joint.mean(axis=0)) / error


COV = kernels(X2, X2, VARIANCES) + NOISE * np.eye(2)
DISTRIBUTION = shift_distribution(COV)


def joint_sweep(rng, f, y, distribution=DISTRIBUTION):
    """All moves, as a run makes them."""
    target = make_target(COV, y)
    white = to_white(f[None], target)
    white = scaled_move(rng, white, target, 0.7, 1)[0]
    white = ellipse_move(rng, white, target, 1)[0]
    reference = make_reference(np.full(4, 0.2), 0.8 * np.eye(4), target)
    white = flow_move(rng, white, target, reference, 0.4, 3)[0]
    return draw_shift(rng, target.latent(white), distribution)[0]


def test_the_sampler_leaves_the_joint_distribution_alone_and_moves_every_count(rng, assert_z):
    result = averages(rng, COV, joint_sweep)
    assert np.all(result[:, 12:15].std(axis=0) > 0.0)  # shares of the classes
    assert_z(z_of(result, rng, COV))


def shift_of_the_prior(rng, f, y):
    """The common shift drawn with the covariance of one class in place of the conditional one."""
    return joint_sweep(rng, f, y, ShiftDistribution(DISTRIBUTION.weights, COV[1], np.linalg.cholesky(COV[1])))


def wrong_side(rng, f, y):
    """Labels exchanged cyclically: the gradient and the acceptance of another problem."""
    return joint_sweep(rng, f, (y + 1) % 3)


@pytest.mark.parametrize("twin", [shift_of_the_prior, wrong_side])
def test_the_joint_distribution_test_sees_a_known_fault(rng, twin):
    assert np.abs(z_of(averages(rng, COV, twin), rng, COV)).max() > 6.0


# -- posteriors by quadrature ----------------------------------------------------------------------------------------


class Differences:
    """Posterior of e = (f_c - f_0), at most four of them, by a product trapezoid rule; all else is linear in e."""

    def __init__(self, S, y, step=0.5, half_width=7.0):
        C, n = S.shape[:2]
        self.joint = block_diag(*S)  # order: class, datum
        self.A = np.concatenate([-np.tile(np.eye(n), (C - 1, 1)), np.eye((C - 1) * n)], axis=1)
        self.G = self.A @ self.joint @ self.A.T
        axis = np.arange(-half_width, half_width + 0.5 * step, step)
        white = np.stack([g.ravel() for g in np.meshgrid(*[axis] * len(self.G), indexing="ij")], axis=1)
        e = white @ np.linalg.cholesky(self.G).T
        f = np.concatenate([np.zeros((len(e), 1, n)), e.reshape(len(e), C - 1, n)], axis=1)
        log_lik = log_softmax(f, axis=1)[:, y, np.arange(n)].sum(axis=1)
        weight = np.exp(log_lik - 0.5 * np.square(white).sum(axis=1)) * (step / np.sqrt(2 * np.pi)) ** len(self.G)
        self.log_evidence = float(np.log(weight.sum()))
        weight /= weight.sum()
        self.mean = weight @ e
        self.cov = (e * weight[:, None]).T @ e - np.outer(self.mean, self.mean)

    def moments(self, cross, prior):
        """Mean and covariance of Gaussians with Cov(t, f) = cross (T, C n) and prior covariance (T, T)."""
        gain = cross @ self.A.T @ np.linalg.inv(self.G)
        return gain @ self.mean, prior - gain @ self.G @ gain.T + gain @ self.cov @ gain.T


def prior_blocks(prior_model, variances=VARIANCES):
    """Covariances of f, f* with f, u with f, u: (C, ...), written out with dense inverses."""
    if prior_model == "full":
        S = kernels(X2, X2, variances) + (NOISE + JITTER) * np.eye(2)
        return S, kernels(X_TEST, X2, variances), None, None
    K_ZZ = kernels(Z2, Z2, variances) + JITTER * np.eye(2)
    K_XZ, K_TZ = kernels(X2, Z2, variances), kernels(X_TEST, Z2, variances)
    inverse = np.linalg.inv(K_ZZ)
    Q = K_XZ @ inverse @ np.swapaxes(K_XZ, 1, 2)
    S = np.stack([q - np.diag(np.diag(q)) + (v + NOISE) * np.eye(2) for q, v in zip(Q, variances, strict=True)])
    return S, K_TZ @ inverse @ np.swapaxes(K_XZ, 1, 2), np.swapaxes(K_XZ, 1, 2), K_ZZ


def z_values(got, se, expected):
    got, se, expected = (np.ravel(a) for a in (got, se, expected))
    fixed = se < 1e-12  # what the likelihood does not touch is exact
    np.testing.assert_allclose(got[fixed], expected[fixed], rtol=0, atol=1e-10)
    return (got[~fixed] - expected[~fixed]) / se[~fixed]


# `exactness/mh-softmax` of `triad verify` asks a full prior, by these moves and by the plain ones
@pytest.mark.parametrize(
    ("prior_model", "moves", "variances"),
    others_slow(
        [
            ("full", ("flow",), VARIANCES),
            ("fitc", ("flow",), VARIANCES),
            ("full", ("scaled", "ellipse"), VARIANCES),
            ("full", ("flow",), np.full(3, 4.0)),
        ],
        lambda prior_model, moves, variances: prior_model == "fitc",
    ),
)
def test_chains_find_the_posterior_of_quadrature(assert_z, prior_model, moves, variances):
    S, K_TX, K_ZX, K_ZZ = prior_blocks(prior_model, variances)
    exact = Differences(S, Y2)
    chains = sample_softmax(
        X2, Y2, 3, variances, SCALES, NOISE, JITTER, Z2, prior_model, X_TEST,
        n_chains=16, n_draws=500, n_warmup=100, seed=7, moves=moves,
    )  # fmt: skip
    assert chains.settled
    z = []
    for i in range(2):
        for name, cross, var in (
            ("latent", S[:, i], S[:, i, i]),
            ("test_latent", K_TX[:, i], variances + NOISE),
        ):
            mean, cov = exact.moments(block_diag(*cross[:, None]), np.diag(var))
            z.append(z_values(getattr(chains, f"{name}_mean")[i], getattr(chains, f"{name}_mean_se")[i], mean))
            upper = np.triu_indices(3)
            got, se = getattr(chains, f"{name}_cov")[i], getattr(chains, f"{name}_cov_se")[i]
            z.append(z_values(got[upper], se[upper], cov[upper]))
    if prior_model == "fitc":
        for c in range(3):
            cross = np.zeros((2, 6))
            cross[:, 2 * c : 2 * c + 2] = K_ZX[c]
            mean, cov = exact.moments(cross, K_ZZ[c])
            z.append(z_values(chains.inducing_mean[c], chains.inducing_mean_se[c], mean))
            z.append(z_values(chains.inducing_cov[c], chains.inducing_cov_se[c], cov))
    assert_z(np.concatenate(z))


def test_probabilities_are_ratios_of_evidences(assert_z):
    X, y = X2[:1], np.array([2])
    chains = sample_softmax(
        X, y, 3, VARIANCES, SCALES, NOISE, 0.0, X_test=X2[1:], n_chains=16, n_draws=500, n_warmup=100, seed=8
    )
    one = Differences(kernels(X, X, VARIANCES) + NOISE, y)
    both = kernels(X2, X2, VARIANCES) + NOISE * np.eye(2)
    expected = [np.exp(Differences(both, np.array([2, c])).log_evidence - one.log_evidence) for c in range(3)]
    assert_z((chains.probabilities[0] - expected) / chains.probabilities_se[0])
    np.testing.assert_allclose(chains.probability_mass, 1.0, rtol=0, atol=3e-9)  # QUADRATURE_ERROR, three classes


def test_two_classes_are_the_binary_logit_of_the_difference_with_twice_the_variance(assert_z, quadrature_posterior):
    y = np.array([0, 1])
    chains = sample_softmax(X2, y, 2, 4.0, SCALES, NOISE, JITTER, n_chains=16, n_draws=500, n_warmup=100, seed=9)
    K = squared_exponential(X2, X2, 4.0, SCALES) + (NOISE + JITTER) * np.eye(2)
    exact = quadrature_posterior(2.0 * K, 2.0 * y - 1.0, 0.2)
    g = chains.latent_draws[..., 1] - chains.latent_draws[..., 0]
    spread = np.square(g - exact.mean)
    z = []
    for values, expected in ((g, exact.mean), (spread, np.diag(exact.cov))):
        per_chain = values.mean(axis=1)
        z.append((per_chain.mean(axis=0) - expected) / (per_chain.std(axis=0, ddof=1) / np.sqrt(len(per_chain))))
    # errors from 16 chains have 15 degrees of freedom: shrunk by the ratio of the quantiles at 1e-5, t 6.5 over z 4.4
    assert_z(np.array(z) * 4.4 / 6.5)


def test_a_permutation_of_the_classes_permutes_the_posterior(assert_z):
    order = np.array([2, 0, 1])  # new label of class order[k] is k
    run = {"n_chains": 16, "n_draws": 400, "n_warmup": 100}
    one = sample_softmax(X2, Y2, 3, VARIANCES, SCALES, NOISE, JITTER, X_test=X_TEST, seed=1, **run)
    y = np.array([int(np.flatnonzero(order == k)[0]) for k in Y2])
    two = sample_softmax(X2, y, 3, VARIANCES[order], SCALES, NOISE, JITTER, X_test=X_TEST, seed=2, **run)
    z = [
        (getattr(two, name) - getattr(one, name)[:, order])
        / np.hypot(getattr(two, f"{name}_se"), getattr(one, f"{name}_se")[:, order])
        for name in ("latent_mean", "test_latent_mean", "probabilities")
    ]
    assert_z(np.concatenate(z))


# -- adaptation, resuming, bad input ---------------------------------------------------------------------------------


class StopError(Exception):
    pass


@pytest.mark.parametrize("stop_at", [35, 90])  # in the warm-up, between two fits; among the draws
def test_a_run_that_is_interrupted_and_resumed_is_the_same_bit_by_bit(tmp_path, stop_at):
    arguments = (X2, Y2, 3, VARIANCES, SCALES, NOISE, JITTER, None, "full", X_TEST)
    run = {"n_chains": 4, "n_draws": 40, "n_warmup": 80, "seed": 3, "moves": softmax.MOVES}
    whole = sample_softmax(*arguments, **run)

    def stop(progress):
        if progress.sweep == stop_at:
            raise StopError

    path = tmp_path / "chain.npz"
    with pytest.raises(StopError):
        sample_softmax(*arguments, **run, callback=stop, checkpoint=path)
    resumed = sample_softmax(*arguments, **run, checkpoint=path)
    assert np.array_equal(whole.latent_draws, resumed.latent_draws)
    assert np.array_equal(whole.log_joint, resumed.log_joint)
    assert np.array_equal(whole.probabilities, resumed.probabilities)
    assert whole.step_size == resumed.step_size


def test_steps_settle_near_the_acceptance_they_aim_at_and_do_not_change_after_the_warm_up():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(25, 2)), np.arange(25) % 3
    chains = sample_softmax(
        X, y, 3, np.e**4, SCALES, 0.0, 1e-4, n_chains=16, n_draws=200, n_warmup=300, seed=5, moves=("scaled", "flow")
    )
    for move, aim in softmax.TARGET_ACCEPTANCE.items():
        assert abs(chains.acceptance[move].mean() - aim) < 0.1  # gain 2 · 150^-0.6 = 0.1 after the last fit
    assert chains.settled
    assert np.all(chains.movement > 0.5)


def test_an_automatic_warm_up_ends_after_the_adaptation_when_the_chains_agree():
    settings = (X2, Y2, 3, VARIANCES, SCALES, NOISE, JITTER)
    result = sample_softmax(*settings, n_chains=8, n_draws=100, n_warmup="auto", seed=4)
    # looks are after 100, 200, 400, 800 ... sweeps; up to 400 the steps still change
    assert result.n_warmup in (800, 1600)
    assert result.warmed_up
    short = sample_softmax(*settings, n_chains=8, n_draws=10, n_warmup="auto", max_warmup=400, seed=4)
    assert short.n_warmup == 400
    assert not short.warmed_up
    assert not short.gate


def test_chains_that_stand_still_are_reported():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 3
    # no warm-up: the step of 0.2 is far too long here
    chains = sample_softmax(X, y, 3, np.e**8, SCALES, 0.0, 1e-2, n_draws=20, n_warmup=0, seed=5, moves=("scaled",))
    assert chains.collapsed == ("scaled",)
    assert not chains.settled
    assert not chains.gate
    assert chains.movement.min() < 0.5


@pytest.mark.parametrize("log_variance", [-8.0, 8.0])
@pytest.mark.parametrize("case", ["separable", "lonely", pytest.param("many", marks=pytest.mark.slow), "twins"])
def test_hard_problems_are_answered(case, log_variance):
    rng = np.random.default_rng(11)
    X, C = rng.normal(size=(10, 2)), 3
    y = np.arange(10) % 3
    if case == "separable":
        y = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.33, 0.67]))
    elif case == "lonely":
        y = np.where(np.arange(10) == 4, 2, np.arange(10) % 2)
    elif case == "many":
        C, y = 20, np.minimum(np.arange(10), 7)  # classes without members among them
    else:
        X[5:] = X[:5] + 1e-7  # and other labels
    chains = sample_softmax(
        X, y, C, np.exp(log_variance), SCALES, 0.0, 1e-6 * np.exp(log_variance), X_test=X[:1],
        n_chains=6, n_draws=60, n_warmup=100, seed=1,
    )  # fmt: skip
    for name in ("latent_mean", "latent_cov", "test_latent_cov", "probabilities", "log_joint"):
        assert np.all(np.isfinite(getattr(chains, name)))
    assert chains.settled, (chains.step_size, chains.acceptance)
    assert np.max(chains.convergence["contrast"].r_hat) < 1.2  # 360 draws: a chain on its own shows as 1.5 and more
    np.testing.assert_allclose(chains.probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-12)


def test_bad_input_is_refused_by_name():
    good = (X2, Y2, 3, VARIANCES, SCALES, NOISE, JITTER)
    run = {"n_draws": 8, "n_warmup": 2, "seed": 0}
    for kwargs, name in (({"moves": ("bounce",)}, "moves"), ({"moves": ()}, "moves"), ({"n_warmup": -1}, "n_warmup")):
        with pytest.raises(ValueError, match=name):
            sample_softmax(*good, **run | kwargs)
    with pytest.raises(ValueError, match="y:"):
        sample_softmax(X2, np.array([0, 3]), *good[2:], **run)
    with pytest.raises(ValueError, match="n_warmup"):
        sample_softmax(*good, **run | {"n_warmup": "soon"})
    with pytest.raises(NotPositiveDefiniteError, match="K_XX"):
        sample_softmax(np.zeros((2, 2)), Y2, 3, VARIANCES, SCALES, 0.0, 0.0, **run)
