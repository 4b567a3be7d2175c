"""The probit sampler three ways: conditionals with exact moments, Geweke's joint test, posteriors by quadrature."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from bivariate import bivariate_normal_cdf
from gibbs.chains.diagnostics import standard_error
from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.core.kernels import squared_exponential
from gibbs.models.multilatent import argmax_probability
from gibbs.models.multinomial_probit import (
    draw_auxiliary,
    draw_auxiliary_binary,
    draw_latent,
    likelihood,
    smoother,
    sweep,
)
from gibbs.moves.region import bounce_move, inside, swap_to_label
from gibbs_samplers import sample_probit as sample
from gibbs_samplers import sample_threshold
from in_every_run import others_slow

X3 = np.array([[0.0, 0.2], [0.7, -0.5], [1.1, 1.0]])
X_TEST = np.array([[0.3, 0.0], [2.5, -1.0]])
Z2 = np.array([[0.2, 0.1], [1.0, 0.6]])
SCALES = np.array([1.0, 1.5])
VARIANCES = np.array([4.0, 1.0, 9.0])  # one for each class


class FixedNormals:
    def __init__(self, normals):
        self.normals = normals

    def standard_normal(self, shape):
        assert self.normals.shape == tuple(shape)
        return self.normals


def prior(variances, X, noise=0.1):
    return np.stack([squared_exponential(X, X, v, SCALES) + noise * np.eye(len(X)) for v in variances])


# -- conditionals --------------------------------------------------------------------------------------------------


@pytest.mark.verifies("riihimaki2013", "u4.2.2-gibbs-f", route="dense inverse; the draw's affine map by unit vectors")
@pytest.mark.parametrize("factor", [1.0, 400.0])
def test_the_latent_draw_has_the_dense_mean_and_covariance(rng, factor):
    K = factor * prior(VARIANCES, X3)
    h = rng.normal(size=(3, 3))
    normals = np.concatenate([np.zeros((1, 9)), np.eye(9)]).reshape(10, 3, 3)
    out = draw_latent(FixedNormals(normals), *smoother(K), np.tile(h, (10, 1, 1))).reshape(10, 9)
    jacobian = (out[1:] - out[0]).T
    for c in range(3):
        V = np.linalg.inv(np.linalg.inv(K[c]) + np.eye(3))
        part = slice(3 * c, 3 * c + 3)
        # condition of K below 1e4: twelve digits are left
        np.testing.assert_allclose(out[0, part], V @ h[c], rtol=1e-10)
        np.testing.assert_allclose((jacobian @ jacobian.T)[part, part], V, rtol=1e-10, atol=1e-13)
    off = (jacobian @ jacobian.T) * (1 - np.kron(np.eye(3), np.ones((3, 3))))
    assert np.all(off == 0.0)  # classes are independent given h


@pytest.mark.verifies(
    "riihimaki2013", "u4.2.2-gibbs-v", route="truncated normals by rejection, Monte Carlo", resolves=0.05
)
def test_a_covariance_that_rounding_made_indefinite_has_the_smoother_of_its_limit():
    # K (K + I)⁻¹ of ones, and no spread about it: a correlation just above one leaves a negative eigenvalue
    gain, root = smoother(np.array([[[1.0, 1.0 + 1e-12], [1.0 + 1e-12, 1.0]]]))
    np.testing.assert_allclose(gain[0], 1.0 / 3.0, rtol=1e-10)
    np.testing.assert_allclose(root[0] @ root[0].T, 1.0 / 3.0, rtol=1e-10)


def test_scans_of_the_auxiliary_keep_the_conic_truncation_of_a_normal(rng, assert_z):
    f, y, r = np.array([[0.5, -1.0], [1.5, 2.0], [-0.5, 0.0]]), np.array([0, 2]), 40_000
    free = f + rng.standard_normal((40 * r, 3, 2))
    exact = np.stack([_region(free[:, :, i], y[i], 2 * r) for i in range(2)], axis=2)
    h, fresh = exact[:r], exact[r:]
    for _ in range(3):
        h = draw_auxiliary(rng, np.tile(f, (r, 1, 1)), h, y)
        assert np.all(inside(h, y))
    assert_z(z_between(moments_of(h), moments_of(fresh)))


def _region(h, label, count):
    kept = h[h.argmax(axis=1) == label]
    assert len(kept) >= count
    return kept[:count]


def moments_of(h):
    flat = h.reshape(len(h), -1)
    return np.concatenate([flat, np.einsum("ri,rj->rij", flat, flat)[:, *np.triu_indices(flat.shape[1])]], axis=1)


def z_between(a, b):
    return (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))


def test_the_binary_auxiliary_has_the_moments_of_a_half_normal_cut_at_zero(rng, assert_z):
    f, y = np.array([[-2.0, 0.7, 5.0]]), np.array([1, 0, 1])
    draws = draw_auxiliary_binary(rng, np.tile(f, (60_000, 1, 1)), y)[:, 0]
    s = 2 * y - 1
    hazard = np.exp(-0.5 * f[0] ** 2) / np.sqrt(2 * np.pi) / ndtr(s * f[0])
    mean = f[0] + s * hazard
    assert np.all(s * draws >= 0)
    assert_z((draws.mean(axis=0) - mean) / (draws.std(axis=0) / np.sqrt(len(draws))))
    var = 1 - hazard * (hazard + s * f[0])
    square = (draws - mean) ** 2
    assert_z((square.mean(axis=0) - var) / (square.std(axis=0) / np.sqrt(len(draws))))


@pytest.mark.verifies("riihimaki2013", "24", route="orthant probability of the margins by quadrature over one of them")
def test_the_likelihood_is_the_probability_of_the_region():
    f = np.array([[0.3, -0.2, 1.0], [4.0, 0.0, 1.0], [-3.0, 2.0, 2.0]])
    y = np.array([2, 0, 0])
    got = likelihood(f, y)
    for i in range(3):
        A = np.stack([np.eye(3)[y[i]] - np.eye(3)[j] for j in range(3) if j != y[i]])
        expected = bivariate_normal_cdf(A @ f[i], A @ A.T)
        np.testing.assert_allclose(got[i], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("sd", [[1.0, 1.0, 1.0], [1.0, 20.0, 0.1], [30.0, 0.1, 2.0], [1.0, 300.0, 1.0]])
def test_class_probabilities_are_those_of_adaptive_quadrature_and_sum_to_one(sd):
    mean, sd = np.array([[0.0, 0.5, 1.0], [-3.0, 4.0, 3.0], [0.0, 0.0, 0.0]]), np.array(sd)
    got = argmax_probability(mean, sd**2)
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=0, atol=3e-9)  # QUADRATURE_ERROR, three classes
    for m, row in zip(mean, got, strict=True):
        for c in range(3):
            j, k = (i for i in range(3) if i != c)

            def integrand(x, m=m, c=c, j=j, k=k):
                p = ndtr((x - m[j]) / sd[j]) * ndtr((x - m[k]) / sd[k])
                return p * np.exp(-0.5 * ((x - m[c]) / sd[c]) ** 2) / (sd[c] * np.sqrt(2 * np.pi))

            low, high = m[c] - 9 * sd[c], m[c] + 9 * sd[c]
            breaks = [b for a in m for b in (a - 5 * sd.min(), a, a + 5 * sd.min()) if low < b < high]
            expected = quad(integrand, low, high, points=breaks, limit=500, epsabs=1e-12)[0]
            np.testing.assert_allclose(row[c], expected, rtol=0, atol=1e-9)  # QUADRATURE_ERROR


def test_a_class_without_variance_is_a_threshold_up_to_the_stated_error():
    got = argmax_probability(np.array([[0.0, 0.4]]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(got[0], [ndtr(-0.4), ndtr(0.4)], rtol=0, atol=1e-5)  # stated with QUADRATURE_ERROR
    sure = argmax_probability(np.array([[0.0, 0.4, -1.0]]), np.zeros(3))
    np.testing.assert_allclose(sure[0], [0.0, 1.0, 0.0], rtol=0, atol=1e-12)  # no randomness left


# -- Geweke's joint-distribution test --------------------------------------------------------------------------------

N_CHAINS, N_SWEEPS = 250, 8


def label(h):
    return h.argmax(axis=1)


def successive_conditional(rng, K, update, move_labels=True):
    """(h, y) drawn jointly given f, then updated given y, for chains that start from the prior.

    The moves take one y, so chains run one after the other. With move_labels False y is held at one value.
    """
    n, size, chol, S = K.shape[1], 1, np.linalg.cholesky(K), K + np.eye(K.shape[1])
    sums, counts, changed = [], np.zeros((3, n + 1)), 0
    for _ in range(N_CHAINS):
        f = np.einsum("lij,rlj->rli", chol, rng.standard_normal((size, 3, n)))
        total, y = 0.0, None
        for _ in range(N_SWEEPS):
            if y is None or move_labels:
                h = f + rng.standard_normal(f.shape)
                new = label(h)[0]
                if not move_labels:
                    new = np.arange(3)
                    h = swap_to_label(h, new)
                changed += y is not None and bool(np.any(new != y))
                y = new
            f, h = update(rng, f, h, y, S)
            one_hot = np.eye(3)[y].T[None]
            counts[np.arange(3), np.bincount(y, minlength=3)] += 1
            a, b, c = (v.reshape(size, -1) for v in (f, h, np.broadcast_to(one_hot, f.shape)))
            products = [np.einsum("ri,rj->rij", p, q).reshape(size, -1) for p, q in ((a, a), (a, b), (b, b))]
            total = total + np.concatenate([a, b, c, *products], axis=1).mean(axis=0) / N_SWEEPS
        sums.append(total)
    return np.array(sums), counts, changed / (N_CHAINS * (N_SWEEPS - 1))


def expected_under_prior(K):
    n = K.shape[1]
    full, eye = np.zeros((3 * n, 3 * n)), np.eye(3 * n)
    for c in range(3):
        full[c * n : c * n + n, c * n : c * n + n] = K[c]
    classes = np.stack([argmax_probability(np.zeros((1, 3)), np.diagonal(K, axis1=1, axis2=2)[:, i] + 1)[0]
                        for i in range(n)], axis=1)  # fmt: skip
    return np.concatenate([np.zeros(6 * n), classes.ravel(), full.ravel(), full.ravel(), (full + eye).ravel()])


def geweke_z(sums, K):
    spread = sums.std(axis=0, ddof=1) / np.sqrt(len(sums)) + 1e-12  # what never moves has no spread
    return (sums.mean(axis=0) - expected_under_prior(K)) / spread


def updates(K, *, plain, bounce, root_factor=1.0):
    gain, root = smoother(K)

    def update(rng, f, h, y, S):
        if plain:
            f, h = sweep(rng, f, h, y, gain, root_factor * root)
        if bounce:
            h = bounce_move(rng, h, S, np.linalg.cholesky(S), y).auxiliary
            f = draw_latent(rng, gain, root_factor * root, h)
        return f, h

    return update


@pytest.mark.verifies(
    "riihimaki2013",
    "u4.2.2-gibbs",
    "u4.2.2-gibbs-v",
    "u4.2.2-gibbs-f",
    route="Geweke's joint-distribution test",
    resolves=0.05,
)
def test_the_plain_sampler_leaves_the_joint_distribution_alone(rng, assert_z):
    K = prior(VARIANCES, X3)
    sums, counts, changed = successive_conditional(rng, K, updates(K, plain=True, bounce=False))
    assert np.all(counts > 0)  # every class count is seen
    assert changed > 0.3
    assert_z(geweke_z(sums, K))


def test_the_sampler_with_bounces_leaves_the_joint_distribution_alone(rng, assert_z):
    K = prior(VARIANCES, X3)
    sums, counts, changed = successive_conditional(rng, K, updates(K, plain=True, bounce=True))
    assert np.all(counts > 0)
    assert changed > 0.3
    assert_z(geweke_z(sums, K))


@pytest.mark.parametrize("twin", ["half the conditional variance", "labels that never move", "prior in place of joint"])
def test_the_joint_distribution_test_sees_a_known_fault(rng, twin):
    K = prior(VARIANCES, X3)
    update = updates(K, plain=True, bounce=False, root_factor=0.7 if twin.startswith("half") else 1.0)
    if twin.startswith("prior"):

        def update(rng, f, h, y, S):
            return np.einsum("lij,rlj->rli", np.linalg.cholesky(K), rng.standard_normal(f.shape)), h

    sums, _, _ = successive_conditional(rng, K, update, move_labels=not twin.startswith("labels"))
    z = geweke_z(sums, K)
    assert np.nanmax(np.abs(z)) > 6.0  # far outside what the tests above let pass


# -- small posteriors by quadrature ------------------------------------------------------------------------------------


def model_blocks(variances, X, noise, jitter, fitc):
    """Covariance of f, cross-covariance and variances of test points (and of inducing values), per class, dense."""
    blocks = []
    for v in variances:
        if not fitc:
            K = squared_exponential(X, X, v, SCALES) + (noise + jitter) * np.eye(len(X))
            blocks.append((K, squared_exponential(X_TEST, X, v, SCALES), (v + noise) * np.eye(2)))
            continue
        K_ZZ = squared_exponential(Z2, Z2, v, SCALES) + jitter * np.eye(2)
        both = np.concatenate([X, X_TEST])
        U = squared_exponential(both, Z2, v, SCALES) @ np.linalg.inv(K_ZZ)
        Q = U @ K_ZZ @ U.T
        K = Q + np.diag(v + noise - np.diag(Q))
        n = len(X)
        cross = np.concatenate([K[n:, :n], (U @ K_ZZ)[:n].T])
        blocks.append((K[:n, :n], cross, np.block([[K[n:, n:], (U @ K_ZZ)[n:]], [(U @ K_ZZ)[n:].T, K_ZZ]])))
    return blocks


def compare(assert_z, orthants, got, variances, X, y, noise, jitter, fitc, unit, epsilon=0.0):
    """Means, covariances and class probabilities against Gauss-Legendre over the orthants of the margins."""
    C, n = len(variances), len(X)
    blocks = model_blocks(variances, X, noise, jitter, fitc)
    S = np.stack([K + unit * np.eye(n) for K, _, _ in blocks])
    truth = orthants(S, y, epsilon)
    z = []

    def block_diagonal(parts):
        rows, columns = sum(p.shape[0] for p in parts), sum(p.shape[1] for p in parts)
        out, r, c = np.zeros((rows, columns)), 0, 0
        for p in parts:
            out[r : r + p.shape[0], c : c + p.shape[1]] = p
            r, c = r + p.shape[0], c + p.shape[1]
        return out

    targets = [(np.concatenate([K, cross]), _with_prior(K, cross, rest)) for K, cross, rest in blocks]
    mean, cov = truth.moments(block_diagonal([t[0] for t in targets]), block_diagonal([t[1] for t in targets]))
    size = targets[0][0].shape[0]
    place = {(c, a): c * size + a for c in range(C) for a in range(size)}
    for name, first, count in (("latent", 0, n), ("test_latent", n, 2)):
        for a in range(count):
            index = [place[c, first + a] for c in range(C)]
            gap = getattr(got, f"{name}_mean")[a] - mean[index]
            z.append(gap / getattr(got, f"{name}_mean_se")[a])
            gap = getattr(got, f"{name}_cov")[a] - cov[np.ix_(index, index)]
            z.append(gap / getattr(got, f"{name}_cov_se")[a])
    if fitc:
        for c in range(C):
            index = [place[c, n + 2 + a] for a in range(2)]
            z.append((got.inducing_mean[c] - mean[index]) / got.inducing_mean_se[c])
            z.append((got.inducing_cov[c] - cov[np.ix_(index, index)]) / got.inducing_cov_se[c])
    if (n + 1) * (C - 1) <= 4:  # p(y*) as a ratio of evidences
        for a in range(2):
            one = slice(a, a + 1)
            S_all = np.stack([_with_prior(S[c], cross[one], rest[one, one] + unit)
                              for c, (_, cross, rest) in enumerate(blocks)])  # fmt: skip
            p = [orthants(S_all, np.append(y, c), epsilon).evidence / truth.evidence for c in range(C)]
            z.append((got.probabilities[a] - p) / got.probabilities_se[a])
    z = np.concatenate([np.ravel(v) for v in z])
    assert np.all(np.isfinite(z))
    assert_z(z)
    return truth


def _with_prior(K, cross, rest):
    return np.block([[K, cross.T], [cross, rest]])


CASES = [(1, 2), (2, 2), (3, 2), (1, 3), (2, 3)]


# `exactness/gibbs-probit` of `triad verify` asks one to three data of two and three classes too
@pytest.mark.parametrize(("n", "C"), others_slow(CASES, lambda n, C: (n, C) in {(2, 2), (1, 3)}))
@pytest.mark.parametrize("fitc", [False, True])
def test_chains_agree_with_quadrature(assert_z, orthants, n, C, fitc):
    y, variances = np.array([1, 0, 1])[:n] if C == 2 else np.array([2, 0])[:n], VARIANCES[:C]
    got = sample(
        X3[:n], y, C, variances, SCALES, 0.1, 1e-3, Z2, "fitc" if fitc else "full", X_TEST,
        n_draws=350, n_warmup=20, seed=n,
    )  # fmt: skip
    compare(assert_z, orthants, got, variances, X3[:n], y, 0.1, 1e-3, fitc, 1.0)
    # what the run can see: a tenth of a posterior standard deviation would be 8 s.e. away
    assert np.all(got.latent_mean_se < 0.0125 * np.sqrt(np.einsum("nll->nl", got.latent_cov)))


def test_plain_chains_agree_with_quadrature(assert_z, orthants):
    y = np.array([2, 0])
    got = sample(X3[:2], y, 3, VARIANCES, SCALES, 0.1, 1e-3, None, "full", X_TEST,
                 n_draws=1200, n_warmup=100, seed=3, moves=())  # fmt: skip
    compare(assert_z, orthants, got, VARIANCES, X3[:2], y, 0.1, 1e-3, False, 1.0)


def gap_z(assert_z, first, second, names=("latent_mean", "latent_cov", "test_latent_mean", "probabilities")):
    z = [(getattr(first, k) - getattr(second, k)) / np.hypot(getattr(first, f"{k}_se"), getattr(second, f"{k}_se"))
         for k in names]  # fmt: skip
    assert_z(np.concatenate([np.ravel(v) for v in z]))


def test_binary_probit_is_the_multinomial_probit_of_half_differences(assert_z):
    # h = (f1 - f0)/√2 has the prior of one class, and Φ(h) is the likelihood of two
    y, options = np.array([1, 0, 1]), {"n_draws": 500, "n_warmup": 20}
    one = sample(X3, y, 2, 5.0, SCALES, 0.2, 1e-3, None, "full", X_TEST, likelihood="probit", seed=1, **options)
    two = sample(X3, y, 2, 5.0, SCALES, 0.2, 1e-3, None, "full", X_TEST, seed=2, **options)
    v = np.array([-1.0, 1.0]) / np.sqrt(2)
    h = two.latent_draws @ v
    for raw, got in ((h, one.latent_draws[..., 0]), (h**2, one.latent_draws[..., 0] ** 2)):
        error = np.hypot(standard_error(raw), standard_error(got))
        assert_z((raw.mean(axis=(0, 1)) - got.mean(axis=(0, 1))) / error)
    gap_z(assert_z, one, two, names=("probabilities",))
    assert one.probabilities.shape == (2, 2)


def test_binary_chains_agree_with_quadrature(assert_z, quadrature_posterior):
    K = squared_exponential(X3, X3, 20.0, SCALES) + 0.1 * np.eye(3)
    y = np.array([1, 1, 0])
    truth = quadrature_posterior(K, 2.0 * y - 1, 0.2)
    # the fixture's likelihood is logistic: weigh its grid again
    from scipy.special import expit

    s = 2.0 * y - 1
    weight = truth.weight * np.prod(ndtr(s * truth.f) / expit(s * truth.f), axis=1)
    weight /= weight.sum()
    mean = weight @ truth.f
    var = weight @ (truth.f - mean) ** 2
    got = sample(X3, y, 2, 20.0, SCALES, 0.1, 0.0, likelihood="probit", n_draws=500, n_warmup=20, seed=4)
    assert_z((got.latent_mean[:, 0] - mean) / got.latent_mean_se[:, 0])
    assert_z((got.latent_cov[:, 0, 0] - var) / got.latent_cov_se[:, 0, 0])


def test_multinomial_probit_is_the_threshold_of_unit_noise(assert_z):
    y, options = np.array([1, 0, 2]), {"n_draws": 500, "n_warmup": 20}
    probit = sample(X3, y, 3, VARIANCES, SCALES, 0.0, 1e-3, None, "full", X_TEST, seed=1, **options)
    cut = sample_threshold(X3, y, 3, VARIANCES, SCALES, 1.0, 1e-3, None, "full", X_TEST, seed=2, **options)
    gap_z(assert_z, probit, cut, names=("probabilities", "test_latent_mean"))
    for power in (1, 2):
        a, b = probit.auxiliary_draws**power, cut.latent_draws**power
        error = np.hypot(standard_error(a), standard_error(b))
        assert_z((a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))) / error)


def test_inducing_points_on_the_data_give_the_full_model(assert_z):
    y, options = np.array([1, 0, 2]), {"n_draws": 500, "n_warmup": 20}
    full = sample(X3, y, 3, VARIANCES, SCALES, 0.3, 0.0, None, "full", X_TEST, seed=1, **options)
    fitc = sample(X3, y, 3, VARIANCES, SCALES, 0.3, 0.0, X3, "fitc", X_TEST, seed=2, **options)
    gap_z(assert_z, full, fitc)


# -- mixing, runs, bad input -------------------------------------------------------------------------------------------


def separable(n, C):
    X = np.linspace(-2, 2, n)[:, None]
    return X, np.repeat(np.arange(C), n // C)


@pytest.mark.parametrize("log_variance", [-8.0, 0.0, 8.0])
def test_draws_are_close_to_independent_at_every_variance(log_variance):
    X, y = separable(24, 3)
    got = sample(X, y, 3, np.exp(log_variance), [0.7], 0.0, 1e-6, X_test=X[:2], n_chains=16, n_draws=150, n_warmup=20,
                 seed=1)  # fmt: skip
    for name in ("latent", "latent_square", "log_joint"):
        # 1 is independence; the estimate from 2400 draws has an error of about a tenth
        assert np.max(got.convergence[name].autocorrelation_time) < 2.0
    assert got.settled


def test_plain_chains_at_a_large_variance_do_not_pass_for_converged():
    X, y = separable(24, 3)
    got = sample(X, y, 3, np.exp(8.0), [0.7], 0.0, 1e-6, n_chains=8, n_draws=150, n_warmup=20, seed=1, moves=())
    assert not got.gate
    assert np.max(got.convergence["latent"].r_hat) > 1.5


def test_a_long_enough_run_passes_the_gate_and_a_short_one_does_not():
    y = np.array([0, 1, 2])
    run = {"n_warmup": 20, "seed": 3}
    assert sample(X3, y, 3, 2.0, SCALES, 0.1, 1e-6, n_draws=800, **run).gate
    assert not sample(X3, y, 3, 2.0, SCALES, 0.1, 1e-6, n_draws=50, **run).gate
    assert not sample(X3, y, 3, 2.0, SCALES, 0.1, 1e-6, n_draws=50, n_chains=2, **run).gate


@pytest.mark.parametrize("kind", ["one member", "absent", "one class", "twenty", "duplicates", "one point"])
@pytest.mark.parametrize("log_variance", [-8.0, 8.0])
def test_hard_data_give_finite_answers_or_move_visibly(kind, log_variance):
    X, y, C = np.linspace(-1, 1, 8)[:, None], np.array([0, 1, 0, 1, 1, 0, 1, 0]), 3
    if kind == "one member":
        y[3] = 2
    if kind == "one class":
        y[:] = 1
    if kind == "twenty":
        C, y = 20, np.array([0, 19, 3, 7, 7, 2, 11, 11])
    if kind == "duplicates":
        X[1] = X[0]
        X[5] = X[4] + 1e-12
    if kind == "one point":
        X, y = X[:1], y[:1]
    got = sample(X, y, C, np.exp(log_variance), [0.5], 0.0, 0.0, X_test=X, n_chains=4, n_draws=20, n_warmup=5, seed=1)
    assert all(np.all(np.isfinite(v)) for v in got._asdict().values() if isinstance(v, np.ndarray))
    assert np.all(inside(np.moveaxis(got.auxiliary_draws.reshape(-1, len(X), C), 1, 2), y))
    np.testing.assert_allclose(got.probabilities.sum(axis=1), 1.0, rtol=1e-12)  # normalised
    assert np.all(got.movement == 1.0)


def test_a_seed_fixes_every_number_and_an_interrupted_run_resumes_bit_by_bit(tmp_path):
    def run(seed=3, checkpoint=None, stop=0):
        def callback(progress):
            if progress.sweep == stop:
                raise KeyboardInterrupt

        return sample(X3, np.array([0, 1, 2]), 3, VARIANCES, SCALES, 0.1, 1e-4, Z2, "fitc", X_TEST, n_chains=3,
                      n_draws=10, n_warmup=4, thin=2, seed=seed, callback=callback, checkpoint=checkpoint,
                      checkpoint_every=5)  # fmt: skip

    whole, path = run(), tmp_path / "run.npz"
    for stop in (2, 9, 17):
        with pytest.raises(KeyboardInterrupt):
            run(checkpoint=path, stop=stop)
    resumed = run(checkpoint=path)
    for name, value in whole._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(resumed, name), value)
    assert not np.array_equal(run(seed=4).latent_draws, whole.latent_draws)


BAD = [
    ({"y": [0.0, 1.0, 2.0]}, r"y: found dtype float64, expected integers 0 to 2"),
    ({"y": [0, 1, 3]}, r"y: found labels 0 to 3, expected 0 to 2"),
    ({"y": [0, 1]}, r"y: found shape \(2,\), expected \(3,\)"),
    ({"n_classes": 1}, r"n_classes: found 1, expected an integer >= 2"),
    ({"variance": [1.0, 2.0]}, r"variance: found shape \(2,\), expected \(\) or \(3,\)"),
    ({"variance": [1.0, 0.0, 2.0]}, r"variance: found 0, expected > 0"),
    ({"noise": -1.0}, r"noise: found -1, expected >= 0"),
    ({"jitter": np.nan}, r"jitter: found 1 entries NaN or infinite"),
    ({"lengthscales": [1.0, 0.0]}, r"lengthscales: found 0, expected > 0"),
    ({"lengthscales": np.ones((2, 2))}, r"lengthscales: found shape \(2, 2\), expected \(2,\) or \(3, 2\)"),
    ({"prior_model": "dtc"}, r"prior_model: found 'dtc'"),
    ({"prior_model": "fitc"}, r"Z: found None, expected inducing inputs"),
    ({"prior_model": "fitc", "Z": np.zeros((2, 2, 2))}, r"Z: found shape \(2, 2, 2\), expected \(3, m, 2\)"),
    ({"likelihood": "logit"}, r"likelihood: found 'logit'"),
    ({"likelihood": "probit"}, r"n_classes: found 3, expected 2"),
    ({"moves": "jump"}, r"moves: found 'jump', expected different names out of bounce"),
    ({"moves": ("jump",)}, r"moves: found \('jump',\)"),
    ({"X_test": np.zeros((1, 3))}, r"X_test: found 3 columns, expected 2"),
    ({"n_draws": 3}, r"n_draws: found 3, expected an integer >= 4"),
    ({"n_chains": 0}, r"n_chains: found 0"),
    ({"seed": -1}, r"seed: found -1"),
    ({"X": np.array([[np.inf, 0], [0, 1], [1, 1]])}, r"X: found 1 entries NaN or infinite"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_refused_by_name(change, message):
    arguments = {
        "X": X3, "y": [0, 1, 2], "n_classes": 3, "variance": 1.0, "lengthscales": SCALES, "noise": 0.1, "jitter": 0.0,
        "n_draws": 8, "n_warmup": 0, "seed": 0,
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message):
        sample(**arguments)


def test_duplicate_inducing_points_are_an_error_that_names_them():
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ \(4, 4\): found smallest eigenvalue .* raise jitter"):
        sample(X3, [0, 1, 2], 3, 1.0, SCALES, 0.1, 0.0, np.concatenate([Z2, Z2]), "fitc",
               n_draws=8, n_warmup=0, seed=0)  # fmt: skip


def test_every_pair_of_likelihood_and_prior_without_test_points_gives_empty_predictions():
    for kind, model in itertools.product(("probit", "multinomial-probit"), ("full", "fitc")):
        got = sample(X3, [0, 1, 1], 2, 1.0, SCALES, 0.1, 1e-3, Z2, model, likelihood=kind, n_chains=2, n_draws=8,
                     n_warmup=0, seed=0)  # fmt: skip
        assert got.probabilities.shape == (0, 2)
        assert got.test_latent_cov.shape == (0, 1 if kind == "probit" else 2, 1 if kind == "probit" else 2)
