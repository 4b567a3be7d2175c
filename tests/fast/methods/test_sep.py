"""sep against dense matrices from the definitions, finite differences, ep where both are one, and other routes."""

import numpy as np
import pytest
from scipy.stats import norm

from fast.methods import ep, sep
from fast.sparse_classes.sep import data_scale, factor_counts, tied_cavity, tied_update
from sparse_models import dense as _dense
from sparse_models import problem as sparse_problem
from sparse_models import with_every_class
from values_given import fitted

C, M, D, N = 3, 4, 2, 10


def _problem(seed=0, n=N, m=M, jitter=1e-4, **changed):
    bounds = {"variance": (1.0, 3.0), "lengthscales": (0.8, 1.6)}
    return with_every_class(sparse_problem(seed, n=n, m=m, jitter=jitter, **bounds, **changed))


def _g(precision, shift):
    """log normaliser of a Gaussian with natural parameters, less its constant."""
    return 0.5 * (shift @ np.linalg.solve(precision, shift) - np.linalg.slogdet(precision)[1])


def _counts(y, rows, count):
    chosen = y[rows]
    if count == "all":
        return [len(rows) * (C - 1)] * C
    return [int(((C - 1) * (chosen == j) + (chosen != j)).sum()) for j in range(C)]


def _dense_step(dense, y, T, t, rows, count, damping):
    """One step on the rows, factor by factor, and log Z_q of all data before it."""
    K, upsilon, s = dense
    counts = _counts(y, np.arange(y.size), count)
    K_inv = np.linalg.inv(K)
    left = [(1.0 - 1.0 / counts[j]) for j in range(C)]
    V = [np.linalg.inv(K_inv[j] + left[j] * T[j]) for j in range(C)]
    e = np.array([upsilon[j] @ V[j] @ t[j] * left[j] for j in range(C)])
    v = np.array([np.einsum("nm,mp,np->n", upsilon[j], V[j], upsilon[j]) for j in range(C)])
    log_evidence = sum(_g(K_inv[j] + T[j], t[j]) - _g(K_inv[j], np.zeros(M)) for j in range(C))
    for j in range(C):
        log_evidence += counts[j] * (_g(K_inv[j] + left[j] * T[j], left[j] * t[j]) - _g(K_inv[j] + T[j], t[j]))
    new_T, new_t = np.zeros_like(T), np.zeros_like(t)
    for i in range(y.size):
        for k in range(C):
            if k == y[i]:
                continue
            R = s[i, y[i]] + v[y[i], i] + s[i, k] + v[k, i]
            z = (e[y[i], i] - e[k, i]) / np.sqrt(R)
            log_evidence += norm.logcdf(z)
            if i not in rows:
                continue
            ratio = norm.pdf(z) / norm.cdf(z)
            for j, sign in ((y[i], 1.0), (k, -1.0)):
                # tilted moments of the projection, then the ratio of Gaussians
                mean = e[j, i] + sign * v[j, i] * ratio / np.sqrt(R)
                var = v[j, i] - v[j, i] ** 2 * ratio * (ratio + z) / R
                new_T[j] += (1.0 / var - 1.0 / v[j, i]) * np.outer(upsilon[j, i], upsilon[j, i])
                new_t[j] += (mean / var - e[j, i] / v[j, i]) * upsilon[j, i]
    observed = _counts(y, np.asarray(rows), count)
    r = np.array(observed) / np.array(counts)
    return (
        T + damping * (new_T - r[:, None, None] * T),
        t + damping * (new_t - r[:, None] * t),
        log_evidence,
    )


@pytest.mark.verifies("villacampa2017", "u43-sep-log-evidence", route="definition by dense matrices")
@pytest.mark.parametrize("count", ["all", "per-class"])
def test_steps_on_listed_batches_are_those_of_dense_matrices(count):
    p = _problem(1)
    dense, y = _dense(p), p["y"]
    batches = [[0, 1, 5], list(range(N)), [2, 3, 3, 9], [4]]
    T, t = np.zeros((C, M, M)), np.zeros((C, M))
    values = []
    for rows in batches:
        T, t, _ = _dense_step(dense, y, T, t, np.unique(rows), count, 0.6)
        values.append(_dense_step(dense, y, T, t, np.arange(N), count, 0.6)[2])
    posterior = fitted(sep, **p, count=count, batches=batches, damping=0.6, trace=True)
    tied_precision, tied_shift = posterior.tied
    scale = np.abs(T).max()
    np.testing.assert_allclose(tied_precision, T, rtol=0.0, atol=1e-9 * scale)  # inverses of condition 1e4, squared
    np.testing.assert_allclose(tied_shift, t, rtol=0.0, atol=1e-9 * scale)
    np.testing.assert_allclose(posterior.trained.trace, values, rtol=1e-10)
    np.testing.assert_allclose(posterior.log_evidence, values[-1], rtol=1e-10)
    cov = np.linalg.inv(np.linalg.inv(dense[0]) + T)
    np.testing.assert_allclose(posterior.inducing_cov, cov, atol=1e-9)
    np.testing.assert_allclose(posterior.inducing_mean, np.einsum("cmp,cp->cm", cov, t), atol=1e-9)


@pytest.mark.verifies("villacampa2017", "u16-sep-cavity", route="definition with whitened sites as outer products")
@pytest.mark.verifies("villacampa2017", "u15-sep-tied-factor", route="definition with whitened sites as outer products")
@pytest.mark.verifies("villacampa2017", "u44-sep-batch-share", route="definition with whitened sites as outer products")
@pytest.mark.verifies("villacampa2017", "u18-minibatch-ratio", route="definition")
def test_cavity_and_update_of_tied_factors_are_those_of_their_definitions():
    rng = np.random.default_rng(2)
    root, shift = rng.standard_normal((C, M, M)), rng.standard_normal((C, M))
    T, counts, share = root @ root.transpose(0, 2, 1), np.array([7.0, 1.0, 20.0]), np.array([0.2, 1.0, 0.5])
    added, added_shift = np.tile(np.eye(M), (C, 1, 1)) * 3.0, rng.standard_normal((C, M))
    cavity = tied_cavity(np.eye(M) + T, shift, counts)
    moved = tied_update(np.eye(M) + T, shift, added, added_shift, share, 0.3)
    for j in range(C):
        left = 1.0 - 1.0 / counts[j]
        np.testing.assert_allclose(cavity.precision[j], np.eye(M) + left * T[j], atol=1e-13)  # sums of two terms
        np.testing.assert_allclose(cavity.shift[j], left * shift[j], atol=1e-13)
        new = T[j] + 0.3 * (added[j] - share[j] * T[j])
        np.testing.assert_allclose(moved.precision[j], np.eye(M) + new, atol=1e-13)
        np.testing.assert_allclose(moved.shift[j], shift[j] + 0.3 * (added_shift[j] - share[j] * shift[j]), atol=1e-13)
    assert data_scale(30, 4) == 7.5


@pytest.mark.verifies("villacampa2017", "u42-sep-factor-count", route="by hand")
def test_counts_say_how_many_factors_touch_a_class():
    np.testing.assert_array_equal(factor_counts(np.array([4, 1, 0]), 5, "all"), [10.0, 10.0, 10.0])
    np.testing.assert_array_equal(factor_counts(np.array([4, 1, 0]), 5, "per-class"), [9.0, 6.0, 5.0])


def test_with_one_factor_sep_is_ep():
    p = _problem(3, n=1, n_classes=2)
    p["y"] = np.array([1])
    tied, sites = fitted(sep, **p), fitted(ep, **p)
    assert tied.trained.converged
    np.testing.assert_allclose(tied.log_evidence, sites.log_evidence, atol=1e-9)  # two runs converged to 1e-10
    np.testing.assert_allclose(tied.inducing_mean, sites.inducing_mean, atol=1e-9)
    np.testing.assert_allclose(tied.inducing_cov, sites.inducing_cov, atol=1e-9)


@pytest.mark.parametrize("count", ["all", "per-class"])
def test_damping_leaves_the_fixed_point(count):
    p = _problem(4)
    posterior = fitted(sep, **p, count=count)
    assert posterior.trained.converged
    other = fitted(sep, **p, count=count, damping=0.9)
    # residual 1e-10 over one minus the contraction, which may be 0.97
    np.testing.assert_allclose(posterior.log_evidence, other.log_evidence, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("count", ["all", "per-class"])
def test_the_exact_gradient_is_the_derivative_with_tied_factors_held(count, shared):
    p = _problem(5, shared=shared)
    run = fitted(sep, **p, count=count, max_iterations=4).run
    batch = np.array([1, 4, 6])

    def objective(changed, rows):
        """log Z_q of all data, or its batch estimate, with T and t as they are in coordinates of u."""
        at = {**p, **changed}
        K, upsilon, s = _dense(at)
        y, counts = p["y"], run.counts
        T, t = held
        total, K_inv = 0.0, np.linalg.inv(K)
        means, variances = np.empty((N, C)), np.empty((N, C))
        for j in range(C):
            left = 1.0 - 1.0 / counts[j]
            P = K_inv[j] + left * T[j]
            total += _g(K_inv[j] + T[j], t[j]) - _g(K_inv[j], np.zeros(M))
            total += counts[j] * (_g(P, left * t[j]) - _g(K_inv[j] + T[j], t[j]))
            V = np.linalg.inv(P)
            means[:, j] = upsilon[j] @ V @ t[j] * left
            variances[:, j] = s[:, j] + np.einsum("nm,mp,np->n", upsilon[j], V, upsilon[j])
        for i in rows:
            for k in range(C):
                if k != y[i]:
                    width = np.sqrt(variances[i, y[i]] + variances[i, k])
                    total += N / len(rows) * norm.logcdf((means[i, y[i]] - means[i, k]) / width)
        return total

    held = run.tied()
    for rows in (None, batch):
        gradients = run.gradient(rows, "exact")
        listed = np.arange(N) if rows is None else rows
        for name in ("variance", "lengthscales", "noise", "Z"):
            gradient = getattr(gradients, name)
            rng = np.random.default_rng(6)
            direction = rng.standard_normal(gradient.shape[1:] if shared else gradient.shape) * np.ones(gradient.shape)
            up, down = (objective({name: p[name] + sign * 1e-5 * direction}, listed) for sign in (1, -1))
            along = (gradient[0] * direction[0]).sum() if shared else (gradient * direction).sum()
            # central differences: rounding of log Z, 1e-12, over the step; step^2 times third derivatives of 1e4
            np.testing.assert_allclose(along, (up - down) / 2e-5, rtol=2e-6, atol=2e-6)


def test_gradient_10_is_the_printed_sum_with_cavities_held():
    p = _problem(7)
    run = fitted(sep, **p, max_iterations=4).run
    T, t = run.tied()
    K, _, _ = _dense(p)
    K_inv = np.linalg.inv(K)
    rows = np.array([0, 3, 8])
    left = 1.0 - 1.0 / run.counts
    distributions = [(np.linalg.inv(K_inv[j] + left[j] * T[j]), left[j] * t[j]) for j in range(C)]
    M_k = []
    for j in range(C):
        V = np.linalg.inv(K_inv[j] + T[j])
        mean = V @ t[j]
        M_k.append(K_inv[j] - K_inv[j] @ (V + np.outer(mean, mean)) @ K_inv[j])

    def objective(changed):
        moved, upsilon, s = _dense({**p, **changed})
        total = sum(-0.5 * np.trace(M_k[j] @ moved[j]) for j in range(C))
        for i in rows:
            pairs = zip(upsilon[:, i], s[i], distributions, strict=True)
            moments = [(u @ V @ b, one + u @ V @ u) for u, one, (V, b) in pairs]
            for k in range(C):
                if k != p["y"][i]:
                    (m_y, v_y), (m_k, v_k) = moments[p["y"][i]], moments[k]
                    total += N / rows.size * norm.logcdf((m_y - m_k) / np.sqrt(v_y + v_k))
        return total

    gradients = run.gradient(rows, "10")
    for name in ("variance", "lengthscales", "noise", "Z"):
        gradient = getattr(gradients, name)
        direction = np.random.default_rng(8).standard_normal(gradient.shape)
        up, down = (objective({name: p[name] + sign * 1e-5 * direction}) for sign in (1, -1))
        # central differences: rounding of the trace, 1e-11, over the step
        np.testing.assert_allclose((gradient * direction).sum(), (up - down) / 2e-5, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("scheme", ["inner-approximate", "inner-exact"])
def test_a_learning_step_moves_priors_and_leaves_tied_factors_as_numbers(scheme):
    p = _problem(9)
    learn, rule = ("variance", "lengthscales", "noise", "Z"), "10" if scheme == "inner-approximate" else "exact"
    batch = [0, 2, 5, 7]
    before = fitted(sep, **p, batches=[batch])
    derivative = before.run.gradient(np.array(batch), rule)
    after = fitted(sep, **p, batches=[batch], learn=learn, scheme=scheme, optimizer="adaptive", rate=1e-3)
    hyper = after.run.points.hyper
    for name in ("variance", "lengthscales", "noise"):
        expected = p[name] * np.exp(1e-3 * getattr(derivative, name) * p[name])
        np.testing.assert_allclose(getattr(hyper, name), expected, rtol=1e-12)
    np.testing.assert_allclose(after.run.points.Z, p["Z"] + 1e-3 * derivative.Z, rtol=1e-12, atol=1e-13)
    for left, right in zip(after.tied, before.tied, strict=True):
        np.testing.assert_allclose(left, right, rtol=0.0, atol=1e-9 * np.abs(right).max())  # condition 1e4, squared


def test_training_on_batches_learns_and_a_batch_may_lack_a_class():
    rng = np.random.default_rng(10)
    X = rng.uniform(-2.0, 2.0, (300, 2))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 1.0)
    test = rng.uniform(-2.0, 2.0, (100, 2))
    truth = (test[:, 0] > 0).astype(int) + (test[:, 1] > 1.0)
    Z = X[rng.choice(300, 12, replace=False)]
    options = {"batch_size": 10, "n_steps": 150, "learn": ("variance", "lengthscales", "noise", "Z"), "rate": 0.02}
    posterior = fitted(sep, X, y, 3, 1.0, np.full(2, 3.0), 0.1, 1e-5, Z, shared=True, **options)
    assert not posterior.trained.diverged
    assert (sep.predict(posterior, test).probabilities.argmax(axis=1) == truth).mean() > 0.85
    alone = [np.flatnonzero(y == 0)[:5]]
    lonely = fitted(sep, X, y, 3, 1.0, np.full(2, 3.0), 0.1, 1e-5, Z, batches=alone, count="per-class")
    assert np.isfinite(lonely.log_evidence)


def test_block_size_memory_maps_and_seeds_change_nothing(tmp_path):
    p = _problem(11, n=200)
    np.save(tmp_path / "X.npy", p["X"])
    np.save(tmp_path / "y.npy", p["y"])
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "y")}
    options = {"batch_size": 20, "n_steps": 10, "learn": ("lengthscales", "Z"), "seed": 4}
    whole = fitted(sep, **p, **options)
    parts = fitted(sep, **{**p, **mapped}, **options, block_size=64, memory_budget=0)
    np.testing.assert_allclose(parts.run.q.precision, whole.run.q.precision, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)  # the stated invariance
    rng = np.random.default_rng(4)
    lists = [rng.choice(200, 20, replace=False) for _ in range(10)]
    listed = fitted(sep, **p, batches=lists, learn=("lengthscales", "Z"))
    np.testing.assert_array_equal(listed.run.q.precision, whole.run.q.precision)


@pytest.mark.parametrize("learn", [(), ("variance", "Z")])
def test_the_change_of_a_step_is_there_for_who_asks_and_moves_nothing(learn):
    p, lists, visited = _problem(14), [[0, 2, 5], [1, 3]], []
    quiet = fitted(sep, **p, batches=lists, learn=learn)
    asked = fitted(sep, **p, batches=lists, learn=learn, callback=lambda progress: visited.append(progress.residual))
    assert len(visited) == 2
    assert visited[0] > 0.0
    assert quiet.trained.residual == asked.trained.residual == visited[-1]
    np.testing.assert_array_equal(quiet.run.q.precision, asked.run.q.precision)
    # by the definition: sqrt tr(V dT V dT) or sqrt(r'V r) of the first batch, from the prior, where V = I whitened
    first = fitted(sep, **p, batches=lists[:1], damping=1.0)
    change, shift = first.run.q.precision - np.eye(p["Z"].shape[1]), first.run.q.shift
    lengths = [np.linalg.norm(part) for part in (*change, *shift)]
    assert visited[0] == pytest.approx(max(lengths), rel=1e-12)


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path):
    p = _problem(12)
    options = {"batch_size": 4, "learn": ("variance", "lengthscales", "noise", "Z"), "rate": 0.01, "seed": 3}
    whole = fitted(sep, **p, **options, n_steps=12)

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.iteration == 8:
            raise KilledError

    files = {"checkpoint": tmp_path / "run.npz", "checkpoint_every": 5}
    with pytest.raises(KilledError):
        fitted(sep, **p, **options, n_steps=12, callback=kill, **files)
    resumed = fitted(sep, **p, **options, n_steps=12, **files)
    np.testing.assert_array_equal(resumed.run.q.precision, whole.run.q.precision)
    np.testing.assert_array_equal(resumed.run.points.Z, whole.run.points.Z)
    assert resumed.log_evidence == whole.log_evidence


def test_a_run_that_leaves_the_numbers_says_so_and_keeps_the_last_good_state():
    p = _problem(13)
    posterior = fitted(sep, **p, learn=("variance",), optimizer="adaptive", rate=1e6, n_steps=5)
    assert posterior.trained.diverged
    assert "step" in posterior.trained.reason
    assert np.isfinite(posterior.log_evidence)


def test_predictions_are_integrals_over_the_winners_value():
    p = _problem(14)
    posterior = fitted(sep, **p)
    prediction = sep.predict(posterior, np.random.default_rng(0).standard_normal((4, D)))
    width = np.sqrt(np.einsum("tcc->tc", prediction.latent_cov))[..., None]
    x = np.linspace(-12.0, 12.0, 4001)  # equal steps over analytic integrands: rounding is what is left
    for k in range(C):
        f = prediction.latent_mean[:, k, None] + width[:, k] * x
        others = [norm.cdf((f - prediction.latent_mean[:, j, None]) / width[:, j]) for j in range(C) if j != k]
        raw = 0.006 * (norm.pdf(x) * np.prod(others, axis=0)).sum(axis=1)
        np.testing.assert_allclose(prediction.probabilities[:, k], raw, atol=1e-11)  # stated error of the rule
    np.testing.assert_allclose(prediction.probability_mass, 1.0, atol=1e-11)  # stated error of the rule


def test_lbfgs_and_unknown_counts_are_refused_by_name():
    p = _problem(15)
    with pytest.raises(ValueError, match="optimizer"):
        fitted(sep, **p, learn=("variance",), optimizer="lbfgs")
    with pytest.raises(ValueError, match="count"):
        fitted(sep, **p, count="most")
    with pytest.raises(ValueError, match="damping"):
        fitted(sep, **p, damping=2.0)
