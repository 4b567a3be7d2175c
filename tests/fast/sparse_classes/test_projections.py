"""Projections of several classes against dense algebra, and their gradients against finite differences."""

import pickle

import numpy as np
import pytest

from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyper import class_hyper
from fast.sparse_classes.inference import predictive_moments
from fast.sparse_classes.projections import ClassDistribution, InducingClasses, VectorJacobianProduct, add_projected

C, M, D, B = 3, 4, 2, 6


def _points(shared=False, seed=0, jitter=1e-3, **changed):
    rng = np.random.default_rng(seed)
    values = {
        "variance": rng.uniform(1.0, 3.0, C),
        "lengthscales": rng.uniform(0.7, 1.5, (C, D)),
        "noise": rng.uniform(0.1, 0.3, C),
        "Z": rng.standard_normal((C, M, D)),
    }
    if shared:
        values = {name: np.repeat(value[:1], C, axis=0) for name, value in values.items()}
    for name, (place, step) in changed.items():
        values[name][(slice(None), *place) if shared else place] += step
    Z = values.pop("Z")
    return InducingClasses(class_hyper(*values.values(), np.full(C, jitter), C, D), Z, shared)


def _dense(points, X, k):
    """upsilon, s and K of a class by explicit inverses."""
    hyper, Z = points.hyper, points.Z[k]

    def kernel(a, b):
        scaled = (a[:, None] - b[None]) / hyper.lengthscales[k]
        return hyper.variance[k] * np.exp(-0.5 * (scaled**2).sum(axis=2))

    K = kernel(Z, Z) + hyper.jitter[k] * np.eye(M)
    cross = kernel(X, Z)
    upsilon = cross @ np.linalg.inv(K)
    return upsilon, hyper.variance[k] + hyper.noise[k] - (cross * upsilon).sum(axis=1), K


def _distribution(points, seed=3):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((C, M, M))
    return ClassDistribution.of(np.eye(M) + root @ root.transpose(0, 2, 1), rng.standard_normal((C, M)))


@pytest.mark.verifies("villacampa2017", "65", route="dense algebra")
@pytest.mark.verifies("villacampa2017", "66", route="dense algebra")
@pytest.mark.verifies("villacampa2017", "67", route="dense algebra")
@pytest.mark.parametrize("shared", [False, True])
def test_latent_moments_are_those_of_the_printed_formulas_with_inverses(shared):
    points = _points(shared)
    X = np.random.default_rng(1).standard_normal((B, D))
    distribution = _distribution(points)
    mean, cov = points.inducing_moments(distribution)
    prediction = predictive_moments(distribution, points.view(X))
    for k in range(C):
        upsilon, s, _ = _dense(points, X, k)
        # condition of K_ZZ about 1e4: twelve digits are left of sixteen
        np.testing.assert_allclose(prediction.mean[:, k], upsilon @ mean[k], rtol=1e-10, atol=1e-11)
        var = s + np.einsum("bm,mp,bp->b", upsilon, cov[k], upsilon)
        np.testing.assert_allclose(prediction.var[:, k], var, rtol=1e-10, atol=1e-11)


def test_added_projections_are_the_sum_of_site_matrices_whatever_the_sign():
    points = _points()
    rng = np.random.default_rng(2)
    X, delta, mu = rng.standard_normal((B, D)), rng.standard_normal((B, C)), rng.standard_normal((B, C))
    precision, shift = np.zeros((C, M, M)), np.zeros((C, M))
    add_projected(precision, shift, points.view(X), delta, mu)
    for k in range(C):
        upsilon = _dense(points, X, k)[0]
        L = np.linalg.cholesky(_dense(points, X, k)[2])
        # condition of K_ZZ about 1e4, squared in upsilon upsilon'
        np.testing.assert_allclose(precision[k], L.T @ (upsilon.T * delta[:, k]) @ upsilon @ L, atol=1e-9)
        np.testing.assert_allclose(shift[k], L.T @ upsilon.T @ mu[:, k], atol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
def test_the_vjp_is_the_derivative_of_any_function_of_upsilon_s_and_k(shared):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((B, D))
    U, s_bar = rng.standard_normal((C, B, M)), rng.standard_normal((B, C))
    K_bar = rng.standard_normal((C, M, M))
    K_bar += K_bar.transpose(0, 2, 1)

    def objective(points):
        total = 0.0
        for k in range(C):
            upsilon, s, K = _dense(points, X, k)
            total += (U[k] * upsilon).sum() + s_bar[:, k] @ s + (K_bar[k] * K).sum()
        return total

    points = _points(shared)
    pull = VectorJacobianProduct(points)
    L = [points.chol_K[kind] for kind in points.kind]
    for part in (slice(0, 4), slice(4, B)):  # two blocks: they add up
        view = points.view(X[part], with_cross=True)
        pull.add(view, lambda k, part=part: np.linalg.solve(L[k], U[k][part].T).T.copy(), s_bar[part])
    result = pull.finish(lambda k: L[k].T @ K_bar[k] @ L[k])
    step = 1e-5
    for name in ("variance", "lengthscales", "noise", "Z"):
        gradient = getattr(result, name)
        for place in np.ndindex(gradient.shape):
            key = place[1:] if shared else place
            up, down = (objective(_points(shared, **{name: (key, sign * step)})) for sign in (1, -1))
            # central differences: step^2 times third derivatives of size 1e4, rounding 1e-16 times 1e4 / step
            np.testing.assert_allclose(gradient[place], (up - down) / (2 * step), rtol=2e-5, atol=2e-5)


def test_rows_do_not_depend_on_how_the_data_are_cut():
    points = _points()
    X = np.random.default_rng(5).standard_normal((150, D))
    whole = points.view(X, whole_tiles=True)
    parts = [points.view(X[a:b], whole_tiles=True) for a, b in ((0, 64), (64, 128), (128, 150))]
    for k in range(C):
        rows = np.concatenate([part.rows[k] for part in parts])
        np.testing.assert_allclose(rows, whole.rows[k], rtol=0.0, atol=1e-12)  # the stated invariance


def test_coinciding_inducing_points_need_jitter_and_the_error_says_so():
    hyper = class_hyper(1.0, np.ones(D), 0.1, 0.0, C, D)
    Z = np.zeros((C, M, D))
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ of class 0.*raise jitter"):
        InducingClasses(hyper, Z, False)
    points = InducingClasses(hyper._replace(jitter=np.full(C, 1e-6)), Z, False)
    view = points.view(np.ones((1, D)))
    k = np.exp(-1.0)  # m equal points with jitter act as one with jitter / m
    np.testing.assert_allclose(view.cond_var, 1.1 - k * k / (1.0 + 1e-6 / M), rtol=1e-9)  # cond 4e6: nine digits


def test_with_tiny_lengthscales_inducing_points_say_nothing():
    points = _points(lengthscales=((slice(None), slice(None)), 0.0))
    tiny = InducingClasses(points.hyper._replace(lengthscales=np.full((C, D), 1e-200)), points.Z, False)
    view = tiny.view(np.random.default_rng(6).standard_normal((B, D)))
    np.testing.assert_array_equal(view.cond_var, np.tile(points.prior_var, (B, 1)))
    assert all(not rows.any() for rows in view.rows)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("rows", [3, 40])
def test_rows_times_the_covariance_are_those_of_the_inverse(rng, rows, projected):
    points, root = _points(), rng.normal(size=(C, M, M))
    precision = np.eye(M) + root @ root.transpose(0, 2, 1)
    q, view = ClassDistribution.of(precision, rng.normal(size=(C, M))), points.view(rng.normal(size=(rows, D)))
    other = points.view(rng.normal(size=(rows, D)))
    if projected:  # solves that projections made already, and none of another batch
        q.project(view)
    for k in range(C):
        for part in (view, other, view):
            expected = part.rows[k] @ np.linalg.inv(precision[k])
            np.testing.assert_allclose(q.times_covariance(part, k), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(q.covariance(k), np.linalg.inv(precision[k]), rtol=0, atol=1e-13)
        np.testing.assert_allclose(q.times_covariance(view, k), view.rows[k] @ np.linalg.inv(precision[k]), atol=1e-13)


def test_a_gradient_of_near_and_far_blocks_is_the_sum_of_both(rng):
    points = _points()
    near, far = rng.normal(size=(5, D)), rng.normal(size=(2, D))
    far[0] += 40.0  # lengthscales: distances there come from differences
    cotangents = [(rng.normal(size=(len(X), M)), rng.normal(size=(len(X), C))) for X in (near, far)]

    def gradient(chosen):
        vjp = VectorJacobianProduct(points)
        for X, (by_upsilon, by_s) in chosen:
            vjp.add(points.view(X, with_cross=True), lambda k, W=by_upsilon: W.copy(), by_s)
        return vjp.finish(lambda k: np.zeros((M, M)))

    pairs = list(zip((near, far), cotangents, strict=True))
    together, apart = gradient(pairs), [gradient([pair]) for pair in pairs]
    for name in together._fields:
        expected = sum(getattr(part, name) for part in apart)
        np.testing.assert_allclose(getattr(together, name), expected, rtol=1e-10, atol=1e-10)


def test_what_was_projected_last_is_not_pickled(rng):
    points = _points()
    q = ClassDistribution.of(np.tile(2.0 * np.eye(M), (C, 1, 1)), rng.normal(size=(C, M)))
    before = pickle.dumps(q)
    view = points.view(rng.normal(size=(5, D)))
    q.project(view)
    q.covariance(0)
    assert pickle.dumps(q) == before
    np.testing.assert_array_equal(pickle.loads(before).project(view).var, q.project(view).var)
