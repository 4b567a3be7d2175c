"""Power EP on one factor a datum: tilted moments on grids, (A.26) by matrices, finite differences, robust runs."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

import sparse_models
from fast.core.results import ScalarMoments
from fast.methods import apep, ep, pep
from fast.sparse_classes.pairwise_factors import Side, site_integral
from fast.sparse_classes.power_factors import PowerDatum, power_sites
from sparse_models import dense, log_normaliser, log_power
from values_given import fitted

C, M, D, N = 3, 2, 2, 5
EPSILON = 0.1


problem = partial(sparse_models.problem, n=N, m=M, epsilon=EPSILON)


def site_matrices(p, c1, c2):
    """The sites' natural parameters as full matrices (n, C, m, m) and vectors (n, C, m)."""
    upsilon = dense(p)[1].transpose(1, 0, 2)
    return np.einsum("nk,nki,nkj->nkij", c1, upsilon, upsilon), c2[:, :, None] * upsilon


def dense_log_z(p, sites, alpha):
    """(A.23) with (A.24): natural parameters as matrices, cavities by subtraction."""
    K, upsilon, s = dense(p)
    T_p, (T_i, t_i) = np.linalg.inv(K), sites
    T, t = T_p + T_i.sum(axis=0), t_i.sum(axis=0)
    value = log_normaliser(T, t) - log_normaliser(T_p, np.zeros_like(t))
    for i in range(p["X"].shape[0]):
        T_c, t_c = T - alpha * T_i[i], t - alpha * t_i[i]
        V = np.linalg.inv(T_c)
        m = (V @ t_c[:, :, None])[:, :, 0]
        e = np.einsum("km,km->k", upsilon[:, i], m)
        v = np.einsum("km,kmp,kp->k", upsilon[:, i], V, upsilon[:, i])
        value += log_power(e, s[i] + v, p["y"][i], alpha, p["epsilon"])
        if alpha:
            value += (log_normaliser(T_c, t_c) - log_normaliser(T, t)) / alpha
        else:  # minus the derivative of G along the site: expected sufficient statistics of q
            value -= np.einsum("km,km->", t_i[i], m)
            value += 0.5 * np.einsum("kij,kij->", T_i[i], V + m[:, :, None] * m[:, None, :])
    return value


def _grid_moments(e, v, s, label, alpha, epsilon):
    """Means and variances of two projections under the cavity times the powered likelihood, by a grid."""
    axes = [e[k] + 9.0 * np.sqrt(v[k]) * np.linspace(-1.0, 1.0, 401) for k in range(2)]
    w = np.stack(np.meshgrid(*axes, indexing="ij"))
    P = norm.cdf((w[label] - w[1 - label]) / np.sqrt(s.sum()))
    powered = (1.0 - 0.5 * epsilon) ** alpha * P + (0.5 * epsilon) ** alpha * (1.0 - P)
    weight = powered * np.exp(-0.5 * sum((w[k] - e[k]) ** 2 / v[k] for k in range(2)))
    weight /= weight.sum()
    mean = np.array([(weight * w[k]).sum() for k in range(2)])
    return mean, np.array([(weight * (w[k] - mean[k]) ** 2).sum() for k in range(2)])


@pytest.mark.verifies("villacampa2020", "A.17", route="tilted moments on a grid")
@pytest.mark.verifies("villacampa2020", "A.20", route="tilted moments on a grid")
@pytest.mark.parametrize("alpha", [1e-5, 0.4, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_cavity_times_powered_site_has_the_tilted_moments(alpha, epsilon):
    p, q = np.array([[0.3, -0.2]]), np.array([[0.8, 1.3]])
    c1, c2, s = np.array([[0.2, 0.1]]), np.array([[0.3, -0.4]]), np.array([[0.3, 0.2]])
    factors, y = PowerDatum(alpha, epsilon), np.array([1])
    tilt = factors.tilted(y, ScalarMoments(p, q), s, (c1, c2))
    # the cavity is q over the powered site
    v = 1.0 / (1.0 / q - alpha * c1)
    e = v * (p / q - alpha * c2)
    np.testing.assert_allclose(tilt.side.var, v, rtol=1e-13, atol=0.0)  # rounding
    np.testing.assert_allclose(tilt.side.mean, e, rtol=1e-13, atol=1e-14)
    mean, var = _grid_moments(e[0], v[0], s[0], 1, alpha, epsilon)
    new = power_sites(tilt.side, tilt.powers, alpha)
    # grid exact to 1e-14, divided by alpha
    tolerance = 1e-11 / alpha
    np.testing.assert_allclose(new[0][0], (1.0 / var - 1.0 / v[0]) / alpha, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(new[1][0], (mean / var - e[0] / v[0]) / alpha, rtol=0.0, atol=tolerance)
    # F is the logarithm of the expectation: moments of the tilted distribution follow from its derivatives
    np.testing.assert_allclose(e[0] + alpha * v[0] * tilt.powers.derivative[0], mean, rtol=1e-11, atol=1e-12)
    # what a gradient needs of them, over alpha
    t, x = factors.moved_moments(y, ScalarMoments(p, q), s, (c1, c2))
    np.testing.assert_allclose(q[0] * t[0], (mean - p[0]) / alpha, rtol=0.0, atol=tolerance)
    second = var + (mean - p[0]) ** 2 - q[0]
    np.testing.assert_allclose(q[0] ** 2 * x[0], second / alpha, rtol=0.0, atol=3.0 * tolerance)


@pytest.mark.verifies("villacampa2020", "u30-efficient-scale", route="ratio of Gaussian normalisers")
@pytest.mark.verifies("villacampa2017", "58", route="ratio of Gaussian normalisers, power one")
@pytest.mark.verifies("villacampa2017", "61", route="ratio of Gaussian normalisers, power one")
@pytest.mark.verifies("villacampa2017", "u26-efficient-scale", route="ratio of Gaussian normalisers, power one")
@pytest.mark.parametrize("alpha", [0.0, 1e-300, 1e-12, 0.4, 1.0])
def test_the_integral_of_a_site_is_the_ratio_of_normalisers(alpha):
    rng = np.random.default_rng(3)
    q, p = rng.uniform(0.5, 2.0, (6, C)), rng.standard_normal((6, C))
    c1, c2 = rng.uniform(-0.4, 0.4, (6, C)), rng.standard_normal((6, C))
    left = 1.0 - alpha * c1 * q
    side = Side((p - alpha * c2 * q) / left, q / left, left, c2 - c1 * p)
    result = site_integral(side, c1, c2, alpha)

    def g(share):
        precision, shift = 1.0 / q - share * c1, p / q - share * c2
        return 0.5 * (shift**2 / precision - np.log(precision))

    if alpha > 0.1:
        # numbers of size 10
        np.testing.assert_allclose(result, (g(0.0) - g(alpha)) / alpha, rtol=0.0, atol=1e-13)
    else:  # the limit, expected statistics of q, is within 30 alpha
        np.testing.assert_allclose(result, c2 * p - 0.5 * c1 * (q + p * p), rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 1e-8, 0.5, 1.0])
def test_log_z_is_the_printed_one_at_the_fixed_point(alpha):
    p = problem(1)
    posterior = fitted(pep, **p, alpha=alpha)
    assert posterior.trained.converged
    assert posterior.trained.residual <= 1e-10
    sites = site_matrices(p, *posterior.sites.values())
    reference = 0.0 if alpha < 1e-6 else alpha
    # condition of K 1e3 squared, printed form divided by alpha; its limit is within alpha of it
    wanted = dense_log_z(p, sites, reference)
    np.testing.assert_allclose(posterior.log_evidence, wanted, rtol=1e-9 + alpha - reference, atol=0.0)
    T = np.linalg.inv(dense(p)[0]) + sites[0].sum(axis=0)
    np.testing.assert_allclose(posterior.inducing_cov, np.linalg.inv(T), rtol=1e-9, atol=1e-11)
    mean = np.linalg.solve(T, sites[1].sum(axis=0)[:, :, None])[:, :, 0]
    np.testing.assert_allclose(posterior.inducing_mean, mean, rtol=1e-9, atol=1e-10)


def test_at_the_fixed_point_every_projection_has_its_powered_tilted_moments():
    p = problem(2, n=4, n_classes=2)
    alpha = 0.6
    posterior = fitted(pep, **p, alpha=alpha)
    _, upsilon, s = dense(p)
    c1, c2 = posterior.sites.values()
    for i in range(4):
        m = np.einsum("km,km->k", upsilon[:, i], posterior.inducing_mean)
        q = np.einsum("km,kmp,kp->k", upsilon[:, i], posterior.inducing_cov, upsilon[:, i])
        v = 1.0 / (1.0 / q - alpha * c1[i])
        mean, var = _grid_moments(v * (m / q - alpha * c2[i]), v, s[i], p["y"][i], alpha, EPSILON)
        # residual 1e-10 in units of the projection
        np.testing.assert_allclose(mean, m, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(var, q, rtol=1e-9, atol=0.0)


def test_power_one_is_ep_and_power_zero_is_the_variational_optimum():
    p = problem(3, n=8, epsilon=0.0)
    posterior = fitted(pep, **p, alpha=1.0)
    plain = fitted(ep, **{name: value for name, value in p.items() if name != "epsilon"}, factors="datum")
    # the same fixed point, residual 1e-10
    np.testing.assert_allclose(posterior.log_evidence, plain.log_evidence, rtol=1e-10, atol=0.0)
    np.testing.assert_allclose(posterior.inducing_mean, plain.inducing_mean, rtol=1e-8, atol=1e-9)
    p = problem(3, n=8)
    posterior, bound = (
        fitted(pep, **p, alpha=0.0),
        fitted(apep, **p, alpha=0.0),
    )
    np.testing.assert_allclose(posterior.log_evidence, bound.log_evidence, rtol=1e-10, atol=0.0)
    np.testing.assert_allclose(posterior.inducing_mean, bound.inducing_mean, rtol=1e-7, atol=1e-8)
    near = fitted(pep, **p, alpha=1e-8)
    np.testing.assert_allclose(near.log_evidence, posterior.log_evidence, rtol=1e-6, atol=0.0)  # gradient below 100


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_log_z_is_stationary_in_the_sites(alpha):
    p = problem(4)
    posterior = fitted(pep, **p, alpha=alpha)
    c1, c2 = posterior.sites.values()
    rng, h = np.random.default_rng(0), 1e-4
    for _ in range(4):
        d1, d2 = rng.standard_normal((2, N, C))
        values = [dense_log_z(p, site_matrices(p, c1 + w * h * d1, c2 + w * h * d2), alpha) for w in (1, -1)]
        # h^2 = 1e-8 times third derivatives, rounding 1e-14 / h; derivatives elsewhere are about 1
        assert abs(values[0] - values[1]) / (2 * h) < 1e-7


def _differences(p, objective, tolerance, actual):
    h = 1e-5
    for name in ("variance", "lengthscales", "noise", "Z"):
        derivative = getattr(actual, name)
        for place in np.ndindex(derivative.shape):
            if p["shared"] and place[0]:
                continue
            values = []
            for sign in (1, -1):
                moved = p[name].copy()
                moved[(slice(None), *place[1:]) if p["shared"] else place] += sign * h
                values.append(objective(p | {name: moved}))
            difference = (values[0] - values[1]) / (2 * h)
            np.testing.assert_allclose(derivative[place], difference, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.verifies("villacampa2020", "A.28", route="central differences of log Z_q, iterated anew")
@pytest.mark.parametrize("rule", ["28", "exact"])
@pytest.mark.parametrize(("alpha", "shared"), [(0.5, False), (0.0, True)])
def test_gradients_at_the_fixed_point_are_those_of_the_converged_log_z(rule, alpha, shared):
    p = problem(5, n=4, shared=shared)
    posterior = fitted(pep, **p, alpha=alpha, gradient_rule=rule, tolerance=1e-12)
    # h^2 = 1e-10 times third derivatives; two fixed points to 1e-12, whose errors count to second order
    _differences(
        p,
        lambda changed: fitted(pep, **changed, alpha=alpha, tolerance=1e-11).log_evidence,
        3e-5,
        pep.gradients(posterior),
    )


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_off_the_fixed_point_one_rule_holds_numbers_and_the_other_matrices(alpha):
    p = problem(6)
    options = {"alpha": alpha, "max_iterations": 1}
    exact, other = (fitted(pep, **p, **options, gradient_rule=rule) for rule in ("exact", "28"))
    c1, c2 = exact.sites.values()
    held = site_matrices(p, c1, c2)
    assert not exact.trained.converged
    # h^2 = 1e-10 times third derivatives, rounding 1e-12 / h
    _differences(
        p, lambda changed: dense_log_z(changed, site_matrices(changed, c1, c2), alpha), 3e-6, pep.gradients(exact)
    )
    _differences(p, lambda changed: dense_log_z(changed, held, alpha), 3e-6, pep.gradients(other))


def test_one_sweep_and_one_batch_are_damped_proposals():
    p = problem(7)
    halved, full = (fitted(pep, **p, alpha=0.5, damping=damping, max_iterations=1) for damping in (0.5, 1.0))
    for one, other in zip(halved.run.sites, full.run.sites, strict=True):
        np.testing.assert_allclose(one, 0.5 * other, rtol=1e-14, atol=0.0)  # sites start at zero
    batch = fitted(pep, **p, alpha=0.5, damping=1.0, batches=[[1, 3, 1]])
    for one, other in zip(batch.run.sites, full.run.sites, strict=True):
        np.testing.assert_allclose(one[[1, 3]], other[[1, 3]], rtol=1e-12, atol=1e-14)
        assert not one[[0, 2, 4]].any()
    # a batch's gradient counts its data n / b times: over a partition the mean is the whole
    run = full.run
    whole = run.gradient(None, "28")
    parts = [run.gradient(np.array(rows), "28") for rows in ([0], [1], [2], [3], [4])]
    for name in whole._fields:
        mean = np.mean([getattr(part, name) for part in parts], axis=0)
        np.testing.assert_allclose(mean, getattr(whole, name), rtol=1e-9, atol=1e-11)  # sums in another order


def test_a_sweep_without_a_covariance_is_shortened_and_counted():
    p = problem(8, n=1, n_classes=2, m=1, epsilon=0.3) | {"X": np.zeros((1, D)), "Z": np.zeros((2, 1, D))}
    run = fitted(pep, **p, alpha=0.5, max_iterations=1).run
    before = run.q
    P = before.precision
    damping, halvings = run._move_damped(-1.5 * P, np.zeros_like(before.shift), 1.0)
    assert (damping, halvings) == (0.5, 1)
    np.testing.assert_allclose(run.q.precision, 0.25 * P, rtol=1e-12, atol=0.0)  # rounding


def test_learning_improves_log_z_by_every_schedule():
    p = problem(9, n=20)
    held = fitted(pep, **p, alpha=0.5)
    outer = fitted(pep, **p, alpha=0.5, learn=("variance", "noise"), scheme="outer", optimizer="lbfgs", n_steps=4)
    assert outer.log_evidence > held.log_evidence
    for scheme, optimizer, rate in (("inner", "adaptive", 0.01), ("outer", "adam", 0.05), ("inner", "adam", 0.05)):
        posterior = fitted(
            pep, **p, alpha=0.5, learn=("variance", "Z"), scheme=scheme, optimizer=optimizer, rate=rate, n_steps=8
        )
        assert posterior.log_evidence > held.log_evidence, (scheme, optimizer)


def test_a_killed_run_continues_identically(tmp_path):
    p = problem(10, n=20) | {
        "batch_size": 6,
        "learn": ("variance", "Z"),
        "seed": 3,
        "checkpoint_every": 4,
        "n_steps": 11,
    }

    def kill(progress):
        if progress.iteration == 7:
            raise KeyboardInterrupt

    whole = fitted(pep, **p)
    file = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        fitted(pep, **p, checkpoint=file, callback=kill)
    again = fitted(pep, **p, checkpoint=file)
    assert np.array_equal(whole.run.sites, again.run.sites)
    assert np.array_equal(whole.run.points.Z, again.run.points.Z)
    assert whole.log_evidence == again.log_evidence


def test_blocks_and_memory_maps_change_nothing(tmp_path):
    p = problem(11, n=150)
    mapped = np.memmap(tmp_path / "X", np.float64, "w+", shape=p["X"].shape)
    mapped[:] = p["X"]
    options = {"alpha": 0.5, "max_iterations": 5}
    whole = fitted(pep, **p, **options)
    cut = fitted(pep, **(p | {"X": mapped}), **options, block_size=64, memory_budget=0)
    # the stated invariance
    np.testing.assert_allclose(whole.log_evidence, cut.log_evidence, rtol=1e-12, atol=0.0)
    np.testing.assert_allclose(whole.run.sites, cut.run.sites, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pep.log_norms(whole), pep.log_norms(cut), rtol=1e-12, atol=1e-12)
    one, other = (pep.predict(whole, p["X"], block_size=size).probabilities for size in (64, 1024))
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=0.0)


@pytest.mark.verifies("villacampa2020", "A.31", route="dense algebra and a closed form for two classes")
@pytest.mark.verifies("villacampa2020", "A.32", route="dense algebra and a closed form for two classes")
@pytest.mark.verifies("villacampa2020", "A.33", route="dense algebra and a closed form for two classes")
@pytest.mark.verifies("villacampa2020", "A.34", route="dense algebra and a closed form for two classes")
def test_predictions_are_the_robust_ones():
    p = problem(12, n_classes=2)
    posterior = fitted(pep, **p)
    t = np.random.default_rng(1).standard_normal((6, D))
    prediction = pep.predict(posterior, t)
    _, upsilon, s = dense(p | {"X": t})
    mean = np.einsum("knm,km->nk", upsilon, posterior.inducing_mean)
    var = s + np.einsum("knm,kmp,knp->nk", upsilon, posterior.inducing_cov, upsilon)
    np.testing.assert_allclose(prediction.latent_mean, mean, rtol=1e-9, atol=1e-10)
    P = norm.cdf((mean[:, 1] - mean[:, 0]) / np.sqrt(var.sum(axis=1)))
    # the stated error, after means to 1e-10
    np.testing.assert_allclose(prediction.probabilities[:, 1], (1.0 - EPSILON) * P + EPSILON / 2, rtol=1e-9, atol=0.0)


def test_extreme_problems_give_finite_numbers():
    cases = [
        ({"epsilon": 0.5}, 1e-8),
        ({"epsilon": 0.5}, 1.0),
        ({"epsilon": 0.0}, 1e-8),
        ({"variance": np.full(C, 1e8)}, 0.5),
        ({"variance": np.full(C, 1e-8), "noise": np.zeros(C), "jitter": 1e-11}, 0.5),
        ({"variance": np.array([1e8, 1.0, 1e-8]), "noise": np.zeros(C), "jitter": 1e-11}, 0.25),
        ({"X": np.full((N, D), 40.0)}, 0.0),
    ]
    for changed, alpha in cases:
        p = problem(13) | changed
        posterior = fitted(pep, **p, alpha=alpha, max_iterations=30)
        assert np.isfinite(posterior.run.sites).all()
        assert posterior.log_evidence is None or np.isfinite(posterior.log_evidence)
        if posterior.log_evidence is not None:
            assert all(np.isfinite(part).all() for part in pep.gradients(posterior))
        prediction = pep.predict(posterior, np.concatenate([p["X"], 1e3 * p["X"]]))
        assert np.isfinite(prediction.latent_mean).all()
        assert np.isfinite(prediction.probabilities).all()
        np.testing.assert_allclose(prediction.probability_mass, 1.0, rtol=0.0, atol=1e-11)  # the stated error
    many = fitted(pep, **problem(14, n=60, n_classes=50, m=2), alpha=0.5, max_iterations=3)
    assert np.isfinite(many.log_evidence)


def test_what_cannot_be_is_refused_by_name():
    p = problem()
    for changed, name in (
        ({"alpha": -0.1}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"alpha": 0.0, "epsilon": 0.0}, "epsilon: found 0"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"damping": 0.0}, "damping"),
        ({"gradient_rule": "10"}, "gradient_rule"),
        ({"scheme": "inner-exact"}, "scheme"),
        ({"optimizer": "lbfgs", "learn": ("variance",), "batch_size": 3}, "optimizer"),
        ({"Z": None}, "Z"),
    ):
        with pytest.raises(ValueError, match=name):
            fitted(pep, **(p | changed))


@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("k", range(C))
def test_a_datum_keeps_its_site_and_is_counted_where_no_precision_is_left(alpha, k):
    # what the cavity keeps of q's precision, in binary numbers, so that no product is rounded
    kept = np.array([-4.0, -1.0, -(2.0**-30), 0.0, 2.0**-30, 0.5])
    n, var = kept.size, 0.5
    moments, y = ScalarMoments(np.full((n, C), 0.25), np.full((n, C), var)), np.zeros(n, dtype=np.int64)
    precision, shift = np.full((n, C), 0.25), np.full((n, C), 0.125)
    precision[:, k] = (1.0 - kept) / (alpha * var)
    result = PowerDatum(alpha, 0.1).visit(y, moments, np.full((n, C), 0.1), (precision, shift))
    none = kept <= 0.0
    stays = (result.target[0] == precision).all(axis=1) & (result.target[1] == shift).all(axis=1)
    assert stays.tolist() == none.tolist()
    assert result.n_improper == none.sum()
    assert np.isnan(result.value)
    assert all(np.isfinite(part).all() for part in result.target)
