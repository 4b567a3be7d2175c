"""ep against dense Gaussians of size (m, m) built from the definitions, finite differences, and other routes."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from fast.core.errors import NotPositiveDefiniteError
from fast.methods import ep
from fast.sparse_classes.ep import ImproperCavityError, damped, ep_log_evidence, prior_cotangent
from fast.sparse_classes.projections import ClassDistribution
from sparse_models import dense as _dense
from sparse_models import problem as sparse_problem
from sparse_models import with_every_class
from values_given import fitted

C, M, D, N = 3, 4, 2, 9


def _problem(seed=0, n=N, noise=0.15, jitter=1e-4, **changed):
    bounds = {"variance": (1.0, 3.0), "lengthscales": (0.8, 1.6), "noise": (0.8 * noise, 1.2 * noise)}
    return with_every_class(sparse_problem(seed, n=n, m=M, jitter=jitter, **bounds, **changed))


def _posterior(K, upsilon, y, sites):
    """q of every class as the product of prior and all sites."""
    precision, shift = np.linalg.inv(K), np.zeros(K.shape[:2])
    for i in range(y.size):
        for k in range(K.shape[0]):
            if k != y[i]:
                for j, c1, c2 in ((y[i], sites[0], sites[1]), (k, sites[2], sites[3])):
                    precision[j] += c1[i, k] * np.outer(upsilon[j, i], upsilon[j, i])
                    shift[j] += c2[i, k] * upsilon[j, i]
    return precision, shift


def _log_normaliser(precision, shift):
    """g of natural parameters: a dense Gaussian integral."""
    halved = np.linalg.slogdet(2.0 * np.pi * np.linalg.inv(precision))[1]
    return 0.5 * halved + 0.5 * shift @ np.linalg.solve(precision, shift)


def _tilted_site(e, v, sign, other, noise):
    """Site of one projection from quadrature moments; the other one has mean `other`, its variance is in noise."""
    # equal steps over an analytic integrand that is negligible at both ends: rounding is what is left
    x = np.linspace(-10.0, 10.0, 1001)
    w = e + np.sqrt(v) * x
    weights = 0.02 * norm.pdf(x) * ndtr(sign * (w - other) / np.sqrt(noise))
    sums = [weights.sum(), weights @ w, weights @ w**2]
    mean = sums[1] / sums[0]
    var = sums[2] / sums[0] - mean**2
    return 1.0 / var - 1.0 / v, mean / var - e / v, np.log(sums[0])


def _dense_sweep(K, upsilon, s, y, sites):
    """Undamped proposals of all factors by (m, m) cavities and quadrature, and log Z_q by (9) at the sites given."""
    precision, shift = _posterior(K, upsilon, y, sites)
    target = np.zeros_like(sites)
    g = [_log_normaliser(P, b) for P, b in zip(precision, shift, strict=True)]
    log_evidence = sum(g) - sum(_log_normaliser(np.linalg.inv(one), np.zeros(one.shape[0])) for one in K)
    for i in range(y.size):
        for k in range(K.shape[0]):
            if k == y[i]:
                continue
            moments = {}
            for j, c1, c2 in ((y[i], sites[0], sites[1]), (k, sites[2], sites[3])):
                u = upsilon[j, i]
                P, b = precision[j] - c1[i, k] * np.outer(u, u), shift[j] - c2[i, k] * u
                V = np.linalg.inv(P)
                moments[j] = u @ V @ b, u @ V @ u
                log_evidence += _log_normaliser(P, b) - g[j]
            (e_y, v_y), (e_k, v_k) = moments[y[i]], moments[k]
            both = s[i, y[i]] + s[i, k]
            *label, log_norm = _tilted_site(e_y, v_y, 1.0, e_k, both + v_k)
            *other, _ = _tilted_site(e_k, v_k, -1.0, e_y, both + v_y)
            target[:, i, k] = *label, *other
            log_evidence += log_norm
    return target, log_evidence


def _stacked(posterior):
    return np.array(list(posterior.sites.values()))


@pytest.mark.verifies("villacampa2017", "29", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "30", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "31", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "32", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "35", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "36", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "37", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "38", route="sweep by (m, m) cavities and quadrature")
@pytest.mark.verifies("villacampa2017", "60", route="(9) with dense Gaussian integrals")
@pytest.mark.verifies("villacampa2017", "u12-damping", route="sweep by (m, m) cavities and quadrature")
def test_two_sweeps_are_those_of_dense_cavities_and_quadrature():
    p = _problem(n=4)
    K, upsilon, s = _dense(p)
    posterior = fitted(ep, **p, damping=0.7, max_iterations=2)
    one = fitted(ep, **p, damping=0.7, max_iterations=1)
    target, _ = _dense_sweep(K, upsilon, s, p["y"], np.zeros((4, 4, C)))
    # rounding of the sums; a difference of inverse variances loses five digits
    np.testing.assert_allclose(_stacked(one), 0.7 * target, rtol=1e-6, atol=1e-7)
    target, log_evidence = _dense_sweep(K, upsilon, s, p["y"], _stacked(one))
    np.testing.assert_allclose(_stacked(posterior), 0.3 * _stacked(one) + 0.7 * target, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(one.log_evidence, log_evidence, rtol=1e-9)  # inverses of condition 1e4
    precision, shift = _posterior(K, upsilon, p["y"], _stacked(posterior))
    np.testing.assert_allclose(posterior.inducing_cov, np.linalg.inv(precision), atol=1e-9)  # condition 1e4
    np.testing.assert_allclose(posterior.inducing_mean, np.linalg.solve(precision, shift[..., None])[..., 0], atol=1e-9)
    assert not posterior.trained.converged
    assert posterior.trained.iterations == 2


@pytest.mark.verifies("villacampa2017", "60", route="log Z of a Gaussian with known factors")
@pytest.mark.verifies("villacampa2017", "u12-damping", route="definition")
def test_log_evidence_and_damping_of_plain_numbers():
    distribution = ClassDistribution.of(np.array([[[4.0]], [[9.0]]]), np.array([[2.0], [3.0]]))
    expected = 0.5 * (4.0 / 4.0 + 9.0 / 9.0) - 0.5 * np.log(36.0) + 1.25
    np.testing.assert_allclose(ep_log_evidence(distribution, 1.25), expected, rtol=1e-14)
    np.testing.assert_allclose(damped(np.array([1.0, 2.0]), np.array([3.0, -2.0]), 0.25), [1.5, 1.0], rtol=1e-15)


@pytest.mark.verifies("villacampa2017", "64", route="dense inverses")
def test_the_prior_term_is_the_printed_matrix_in_whitened_coordinates():
    rng = np.random.default_rng(1)
    L = np.tril(rng.standard_normal((M, M))) + 3.0 * np.eye(M)
    root = rng.standard_normal((M, M))
    S, p = np.linalg.inv(np.eye(M) + root @ root.T), rng.standard_normal(M)
    K_inv, V, mean = np.linalg.inv(L @ L.T), L @ S @ L.T, L @ p
    printed = K_inv - K_inv @ V @ K_inv - K_inv @ np.outer(mean, mean) @ K_inv
    np.testing.assert_allclose(prior_cotangent(S, p), -0.5 * L.T @ printed @ L, atol=1e-13)


@pytest.mark.parametrize(
    "options",
    [{}, {"factors": "datum"}, {"damping": 1.0}, {"schedule": "sequential"}],
    ids=["pairwise", "datum", "undamped", "sequential"],
)
def test_the_fixed_point_is_one_whatever_the_road(options):
    p = _problem(1)
    posterior = fitted(ep, **p, **options)
    assert posterior.trained.converged
    assert posterior.trained.residual <= 1e-10
    kind = {"factors": options.get("factors", "pairwise")}
    again = fitted(ep, **p, **kind, trace=True, damping=0.6)  # a trace wants plain sweeps
    assert again.trained.converged
    # residual 1e-10 over one minus the contraction, which may be 0.97
    np.testing.assert_allclose(posterior.log_evidence, again.log_evidence, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(_stacked(posterior), _stacked(again), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(again.trained.trace[-1], again.log_evidence, rtol=0.0, atol=1e-11)


def test_a_sequential_sweep_visits_factors_one_by_one_with_the_posterior_of_the_moment():
    p = _problem(2, n=3)
    K, upsilon, s = _dense(p)
    sites, y = np.zeros((4, 3, C)), p["y"]
    for i in range(3):
        for k in range(C):
            if k != y[i]:
                target, _ = _dense_sweep(K, upsilon, s, y, sites)
                sites[:, i, k] = 0.4 * sites[:, i, k] + 0.6 * target[:, i, k]
    posterior = fitted(ep, **p, schedule="sequential", damping=0.6, max_iterations=1)
    np.testing.assert_allclose(_stacked(posterior), sites, rtol=1e-6, atol=1e-7)  # sums less five digits


@pytest.mark.verifies("villacampa2017", "10", route="central differences of log Z_q, iterated anew")
@pytest.mark.verifies("villacampa2017", "62", route="central differences of log Z_q, iterated anew")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("factors", ["pairwise", "datum"])
def test_gradient_10_is_the_derivative_of_the_converged_log_evidence(factors, shared):
    p = _problem(3, shared=shared)
    gradients = ep.gradients(fitted(ep, **p, factors=factors, tolerance=1e-11))
    exact = ep.gradients(fitted(ep, **p, factors=factors, tolerance=1e-11), gradient_rule="exact")
    rng, step = np.random.default_rng(4), 1e-4
    for name in ("variance", "lengthscales", "noise", "Z"):
        gradient = getattr(gradients, name)
        np.testing.assert_allclose(gradient, getattr(exact, name), atol=1e-8)  # equal where EP has converged
        direction = rng.standard_normal(gradient.shape[1:] if shared else gradient.shape) * np.ones(gradient.shape)
        up, down = (
            fitted(ep, **{**p, name: p[name] + sign * step * direction}, factors=factors, tolerance=1e-11).log_evidence
            for sign in (1, -1)
        )
        along = (gradient[0] * direction[0]).sum() if shared else (gradient * direction).sum()
        # central differences: step^2 = 1e-8 times third derivatives of size 100
        np.testing.assert_allclose(along, (up - down) / (2 * step), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("factors", ["pairwise", "datum"])
def test_the_exact_gradient_is_the_derivative_with_sites_held_on_a_batch_too(factors):
    p = _problem(5)
    run = fitted(ep, **p, factors=factors, max_iterations=2).run
    batch = np.array([0, 2, 3, 7])
    held = run.sites.copy()

    def objective(changed, rows):
        """P of all data plus n / b times the data terms of the batch, by the same sites at other priors."""
        other = fitted(ep, **{**p, **changed}, factors=factors, max_iterations=1).run
        other.sites[...] = held
        other.rebuild()
        whole = other.log_evidence()
        prior = ep_log_evidence(other.q, 0.0)
        if rows is None:
            return whole
        view = other.data.take(other.points, rows)
        moments = other.q.project(view)
        value = other.factors.visit(other.data.labels(rows), moments, view.cond_var, other.of(rows)).value
        return prior + N / rows.size * value

    for rows in (None, batch):
        gradients = run.gradient(rows, "exact")
        for name in ("variance", "lengthscales", "noise", "Z"):
            gradient = getattr(gradients, name)
            direction = np.random.default_rng(6).standard_normal(gradient.shape)
            up, down = (objective({name: p[name] + sign * 1e-4 * direction}, rows) for sign in (1, -1))
            # central differences: step^2 = 1e-8 times third derivatives of size 100
            np.testing.assert_allclose((gradient * direction).sum(), (up - down) / 2e-4, rtol=1e-5, atol=1e-5)


def test_batches_refresh_their_own_sites_and_what_is_listed_twice_counts_once():
    p = _problem(7)
    K, upsilon, s = _dense(p)
    lists = [[0, 3, 3], [1, 2, 4, 5, 6, 7, 8], [3, 0]]
    posterior = fitted(ep, **p, batches=lists, damping=0.5)
    sites = np.zeros((4, N, C))
    for batch in lists:
        target, _ = _dense_sweep(K, upsilon, s, p["y"], sites)
        rows = np.unique(batch)
        sites[:, rows] = 0.5 * sites[:, rows] + 0.5 * target[:, rows]
    np.testing.assert_allclose(_stacked(posterior), sites, rtol=1e-6, atol=1e-7)  # sums less five digits
    assert posterior.trained.iterations == 3
    assert not posterior.trained.converged
    whole = fitted(ep, **p, batches=[np.arange(N)] * 2)
    np.testing.assert_allclose(_stacked(whole), _stacked(fitted(ep, **p, max_iterations=2)), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("optimizer", ["adaptive", "adam"])
@pytest.mark.parametrize("scheme", ["outer", "inner-approximate", "inner-exact"])
def test_every_scheme_climbs(scheme, optimizer):
    p = _problem(8)
    learn = ("variance", "lengthscales", "noise", "Z")
    rate = 0.05 if optimizer == "adam" else 0.02
    posterior = fitted(ep, **p, learn=learn, scheme=scheme, optimizer=optimizer, rate=rate, n_steps=25, trace=True)
    assert posterior.trained.iterations == 25
    assert not posterior.trained.diverged
    start = fitted(ep, **p).log_evidence
    assert posterior.log_evidence > start + 0.5
    assert posterior.trained.trace.size == 25


def test_lbfgs_ends_where_the_gradient_vanishes_and_sharing_keeps_rows_equal():
    p = _problem(9, shared=True)
    posterior = fitted(ep, **p, learn=("lengthscales", "noise"), learn_tolerance=1e-4)
    assert posterior.trained.converged
    assert posterior.trained.residual <= 1e-4
    hyper = posterior.run.points.hyper
    assert np.ptp(hyper.lengthscales, axis=0).max() == 0.0
    again = fitted(ep, **{**p, "lengthscales": hyper.lengthscales, "noise": hyper.noise})
    np.testing.assert_allclose(again.log_evidence, posterior.log_evidence, rtol=0.0, atol=1e-7)  # two converged runs
    moved = {"lengthscales": hyper.lengthscales * 1.02, "noise": hyper.noise}
    assert fitted(ep, **{**p, **moved}).log_evidence < posterior.log_evidence


def test_block_size_memory_and_files_change_nothing(tmp_path):
    p = _problem(10, n=200)
    whole = fitted(ep, **p, max_iterations=5)
    np.save(tmp_path / "X.npy", p["X"])
    np.save(tmp_path / "y.npy", p["y"])
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "y")}
    parts = fitted(
        ep, **{**p, **mapped}, max_iterations=5, block_size=64, memory_budget=0, site_file=tmp_path / "sites"
    )
    assert isinstance(parts.run.sites, np.memmap)
    np.testing.assert_allclose(_stacked(parts), _stacked(whole), rtol=1e-12, atol=1e-12)  # the stated invariance
    np.testing.assert_allclose(parts.log_evidence, whole.log_evidence, rtol=1e-12)


@pytest.mark.parametrize("learn", [(), ("lengthscales", "Z")])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, learn):
    p = _problem(11)
    options = {"batch_size": 4, "learn": learn, "rate": 0.01, "seed": 3, "trace": True} | (
        {"optimizer": "adaptive"} if learn else {}
    )
    whole = fitted(ep, **p, **options, n_steps=12)

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.iteration == 8:
            raise KilledError

    files = {"checkpoint": tmp_path / "run.npz", "checkpoint_every": 5}
    with pytest.raises(KilledError):
        fitted(ep, **p, **options, n_steps=12, callback=kill, **files)
    resumed = fitted(ep, **p, **options, n_steps=12, **files)
    np.testing.assert_array_equal(_stacked(resumed), _stacked(whole))
    np.testing.assert_array_equal(resumed.run.points.Z, whole.run.points.Z)
    np.testing.assert_array_equal(resumed.trained.trace, whole.trained.trace)
    with pytest.raises(ValueError, match="checkpoint"):
        fitted(ep, **{**p, "variance": p["variance"] * 2.0}, **options, n_steps=12, **files)


def test_permuting_data_or_classes_permutes_the_answer():
    p = _problem(12)
    posterior = fitted(ep, **p)
    order, swap = np.random.default_rng(0).permutation(N), np.array([2, 0, 1])  # new class k is old swap[k]
    turned = {**p, "X": p["X"][order], "y": np.argsort(swap)[p["y"][order]]}
    turned |= {name: p[name][swap] for name in ("variance", "lengthscales", "noise", "Z", "jitter")}
    other = fitted(ep, **turned)
    np.testing.assert_allclose(other.log_evidence, posterior.log_evidence, rtol=0.0, atol=1e-8)  # two converged runs
    test = np.random.default_rng(1).standard_normal((5, D))
    left, right = ep.predict(posterior, test), ep.predict(other, test)
    np.testing.assert_allclose(right.probabilities, left.probabilities[:, swap], atol=1e-8)
    np.testing.assert_allclose(left.probability_mass, 1.0, atol=1e-11)  # stated error of the rule


def test_with_two_classes_both_kinds_of_factors_have_one_probit_each():
    p = _problem(13, n_classes=2)
    pairwise, datum = fitted(ep, **p), fitted(ep, **p, factors="datum")
    np.testing.assert_allclose(datum.log_evidence, pairwise.log_evidence, rtol=0.0, atol=1e-8)  # two converged runs
    np.testing.assert_allclose(datum.inducing_mean, pairwise.inducing_mean, atol=1e-7)


def test_latents_of_the_datum_factors_are_the_tilted_moments():
    p = _problem(14, n_classes=2)
    posterior = fitted(ep, **p, factors="datum")
    latent = ep.latents(posterior)
    assert (latent.var > 0.0).all()
    assert latent.log_tilted_norm.shape == (N,)
    plain = ep.latents(fitted(ep, **p))
    assert plain.log_tilted_norm.shape == (N, 2)
    np.testing.assert_allclose(plain.log_tilted_norm.sum(axis=1), latent.log_tilted_norm, atol=1e-7)
    # a datum's own site cannot take the label's latent value away from the others'
    rows = np.arange(N)
    assert (latent.mean[rows, p["y"]] > plain.mean[rows, p["y"]] - 1e-8).all()


def test_an_improper_cavity_leaves_no_evidence_and_no_gradient():
    p = _problem(15)
    run = fitted(ep, **p, max_iterations=1).run
    label = p["y"][0]
    first, second = [k for k in range(C) if k != label]
    run.sites[...] = 0.0
    run.rebuild()
    view = run.data.take(run.points, np.array([0]))
    q = run.q.project(view).var[0, label]
    # V stays positive definite, but 1 - c1 q is -1/9 for the first of the two sites
    run.sites[0, 0, first], run.sites[0, 0, second] = 10.0 / q, -2.0 / q
    run.rebuild()
    assert run.log_evidence() is None
    for gradient_rule in ("10", "exact"):
        with pytest.raises(ImproperCavityError):
            run.gradient(None, gradient_rule)
    before = run.sites.copy()
    swept = run.sweep(1.0)
    assert swept.n_improper == 1
    assert np.isfinite(swept.residual)
    np.testing.assert_array_equal(run.sites[:, 0, first], before[:, 0, first])
    assert np.isfinite(run.sites).all()


def test_many_classes_tiny_lengthscales_and_equal_points_stay_finite():
    rng = np.random.default_rng(16)
    n_classes = 100
    X, y = rng.standard_normal((120, D)), np.r_[np.arange(n_classes), np.zeros(20, dtype=int)]
    posterior = fitted(ep, X, y, n_classes, 2.0, np.ones(D), 0.1, 1e-6, np.zeros((1, D)), max_iterations=3, damping=0.5)
    assert np.isfinite(posterior.log_evidence)
    assert np.isfinite(ep.predict(posterior, X[:3]).probabilities).all()
    p = _problem(17)
    tiny = fitted(ep, **{**p, "lengthscales": np.full((C, D), 1e-12)})
    # no datum sees an inducing point: every factor is Phi(0)
    np.testing.assert_allclose(tiny.log_evidence, N * (C - 1) * np.log(0.5), rtol=1e-12)
    assert all(np.isfinite(part).all() for part in ep.gradients(tiny, gradient_rule="exact"))
    equal = {**p, "Z": np.zeros((C, M, D))}
    assert np.isfinite(fitted(ep, **equal).log_evidence)
    with pytest.raises(NotPositiveDefiniteError, match="raise jitter"):
        fitted(ep, **{**equal, "jitter": np.zeros(C)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("factors", "triple"),
        ("schedule", "random"),
        ("damping", 1.5),
        ("damping", 0.0),
        ("tolerance", -1.0),
        ("max_iterations", 0),
        ("scheme", "outest"),
        ("optimizer", "sgd"),
        ("rate", -1.0),
        ("Z", None),
        ("batches", [[]]),
        ("batches", [[99]]),
        ("learn", ("colour",)),
    ],
)
def test_bad_arguments_are_refused_by_name(name, value):
    p = {**_problem(18), name: value}
    if name in ("rate", "scheme", "optimizer"):
        p["learn"] = ("variance",)
    with pytest.raises(ValueError, match=name):
        fitted(ep, **p)


def test_combinations_that_make_no_sense_are_refused():
    p = _problem(19)
    for options, match in (
        ({"learn": "variance", "optimizer": "lbfgs", "batch_size": 3}, "optimizer"),
        ({"learn": "variance", "scheme": "outer", "batch_size": 3}, "scheme"),
        ({"learn": "variance", "optimizer": "lbfgs", "scheme": "inner-exact"}, "scheme"),
        ({"n_steps": 3}, "n_steps"),
        ({"batches": [[0]], "n_steps": 3}, "n_steps"),
        ({"batches": [[0]], "batch_size": 3}, "batch_size"),
    ):
        with pytest.raises(ValueError, match=match):
            fitted(ep, **p, **options)
    with pytest.raises(ValueError, match="noise"):
        fitted(ep, **{**p, "noise": np.zeros(C)}, learn="noise")
