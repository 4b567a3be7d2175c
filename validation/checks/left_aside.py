"""What runs leave aside: single steps, starts that are given, tiles, properties of answers, empty questions.

Public functions and turns that no method of a problem comes by. Each is held against dense algebra on eight data.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, kv

from validation.by_name import sampler_by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Skipped, Tested, check, flaws
from validation.checks.learning import tiny
from validation.checks.villacampa2020_dense import inverse
from validation.problem import Problem

Array = NDArray[np.float64]


def _apart(one: Iterable[Any], other: Iterable[Any]) -> float:
    """Largest difference over the largest entry, of all arrays; infinite where shapes differ."""
    gaps = []
    for a, b in zip(one, other, strict=True):
        left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        same = left.shape == right.shape
        gaps.append(float(np.abs(left - right).max() / max(1e-300, np.abs(right).max())) if same else np.inf)
    return float(np.max(gaps))


def _dense(problem: Problem) -> tuple[Array, Array]:
    """Of one latent function: the covariance of its values at the data, as Z leaves it, and K_XZ K_ZZ^-1."""
    assert problem.Z is not None

    def kernel(A: Array, B: Array) -> Array:
        apart = (A[:, None] - B[None]) / problem.lengthscales[0]
        return np.asarray(problem.variance[0] * np.exp(-0.5 * np.square(apart).sum(axis=2)))

    Z = problem.Z[0]
    K_ZZ = kernel(Z, Z) + problem.jitter[0] * np.eye(len(Z))
    kappa = np.linalg.solve(K_ZZ, kernel(Z, problem.X)).T
    return K_ZZ, kappa


def _cond_var(problem: Problem, K_ZZ: Array, kappa: Array) -> Array:
    return np.asarray(problem.variance[0] + problem.noise[0] - np.einsum("nm,mp,np->n", kappa, K_ZZ, kappa))


def _quadratic(problem: Problem, precision: Array) -> tuple[Array, Array, Array, Array]:
    """q(u), and mean and variance of f at the data, from sites y/2 of these precisions: (12), (13) of izmailov2016."""
    K_ZZ, kappa = _dense(problem)
    S = inverse(inverse(K_ZZ) + (kappa.T * precision) @ kappa)
    m = S @ kappa.T @ (problem.y - 0.5)
    return m, S, kappa @ m, _cond_var(problem, K_ZZ, kappa) + np.einsum("nm,mp,np->n", kappa, S, kappa)


def _pg(c: Array) -> Array:
    return np.asarray(np.tanh(0.5 * c) / (2.0 * c))


def _given(problem: Problem) -> tuple[Any, Any]:
    from fast.core.values import Data, Prior

    assert problem.Z is not None
    prior = Prior(
        problem.variance[0], problem.lengthscales[0], problem.noise[0], problem.jitter[0], problem.Z[0]
    )  # fmt: skip
    return Data(problem.X, problem.y), prior


@check(
    "identity/x-gpc/single_sweep",
    paper="wenzel2019",
    question="Are sweeps from given local parameters, and from given xi, what (11) to (15) say by dense algebra?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.methods import vi_jj, x_gpc

    asked = tiny("logit")
    data, prior = _given(asked)
    c = np.linspace(0.4, 2.1, asked.n)
    swept = x_gpc.sweep(x_gpc.prepare(data, prior, x_gpc.DEFAULTS), c)
    _, _, mean, var = _quadratic(asked, _pg(c))
    gap = _apart((swept.c, swept.evaluation.latent_mean, swept.evaluation.latent_var),
                 (np.sqrt(mean**2 + var), mean, var))  # fmt: skip
    yield Compared(gap, 1e-9, "inverses of matrices 4 x 4 whose condition is below 1e4", "fast", "definition")
    # xi of both signs, one of them zero
    xi = np.array([0.7, -1.2, 0.0, 2.0, 0.3, -0.1, 1.0, 0.5])
    heard: list[Any] = []
    options = vi_jj.JJOptions(initial_xi=xi, accelerate=False, max_iterations=2, callback=heard.append)
    done = vi_jj.fit(data, prior, options)
    local = np.where(xi == 0.0, 1.0, np.abs(xi))
    theta = np.where(xi == 0.0, 0.25, _pg(local))
    for _ in range(2):
        _, _, mean, var = _quadratic(asked, theta)
        local = np.sqrt(mean**2 + var)
        theta = _pg(local)
    gap = _apart((done.xi,), (local,))
    yield Compared(gap, 1e-9, "two updates of xi from |xi|, by the same algebra", "fast", "definition")
    yield flaws(len(heard) != 2 or not np.array_equal(heard, done.trace), "who listens hears the bound twice", "fast",
                 "calls")  # fmt: skip
    # a start does not decide where the search ends
    plain = vi_jj.fit(data, prior, vi_jj.JJOptions(tolerance=1e-11))
    other = vi_jj.fit(data, prior, vi_jj.JJOptions(initial_xi=xi, tolerance=1e-11))
    yield Compared(_apart((other.xi,), (plain.xi,)), 1e-8, "the same fixed point from xi with a zero", "fast", "fast")


@check(
    "identity/laplace/tiles",
    paper="riihimaki2013",
    question="Is a factor of a class the dense one, whatever the tiles, and is a K that is no covariance named?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.full_classes import couplings

    rng = np.random.default_rng(51)
    root = rng.standard_normal((7, 14))
    K, D = root @ root.T / 7.0, np.array([0.01, 3.0, 0.4, 12.0, 0.0, 0.05, 1.5])
    A = np.eye(7) + np.sqrt(D)[:, None] * K * np.sqrt(D)
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(D))
    for tile in (2, 3, 7, 100):
        with mock.patch.multiple(couplings, _TILE=tile, _MIRRORED=tile):
            factor = couplings.class_factor(K, D)
        inverse = np.linalg.inv(A)
        gap = _apart((factor.inverse, factor.cond_var), (inverse, S.diagonal()))
        gap = max(gap, abs(factor.log_det - np.linalg.slogdet(A)[1]))
        yield Compared(gap, 1e-10, f"tiles of {tile}: inverses of matrices 7 x 7, precisions from 0 to 12", "fast",
                       "definition")  # fmt: skip
    try:
        couplings.class_factor(K - 2.0 * np.eye(7), D)
    except NotPositiveDefiniteError as error:
        told = str(error)
    else:
        told = ""
    right = told.startswith("I + D^1/2 K D^1/2 (7, 7): found smallest eigenvalue -") and "raise jitter" in told
    yield flaws(not right, f"what is raised: {told}", "fast", "errors")


@check(
    "identity/laplace/first_order_mean",
    paper="riihimaki2013",
    question="Does LaplaceClassifier predict around f + Sigma d(-log|I + KW|/2)/df, dense and by differences?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import laplace

    asked = tiny("softmax full")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter)
    posterior = laplace.fit(Data(asked.X, asked.y, 3), prior)
    n, mode = len(asked.y), posterior.latent_mean
    K = np.zeros((3 * n, 3 * n))
    for k in range(3):
        K[k * n : (k + 1) * n, k * n : (k + 1) * n] = posterior.prior.K(k)

    def curvature(f: Array) -> Array:
        """I + K W, classes one after the other."""
        pi = np.exp(f - f.max(axis=1, keepdims=True))
        pi /= pi.sum(axis=1, keepdims=True)
        stacked = np.concatenate([np.diag(column) for column in pi.T])
        return np.eye(3 * n) + K @ (np.diag(pi.T.ravel()) - stacked @ stacked.T)

    derivative, step = np.zeros(3 * n), 1e-5
    for entry in range(3 * n):
        moved = np.zeros(3 * n)
        moved[entry] = step
        ahead, behind = (curvature(mode + sign * moved.reshape(3, n).T) for sign in (1.0, -1.0))
        derivative[entry] = -0.25 * (np.linalg.slogdet(ahead)[1] - np.linalg.slogdet(behind)[1]) / step
    mean = mode.T.ravel() + np.linalg.solve(curvature(mode), K @ derivative)
    got = laplace.mean_corrected(posterior).mean.T.ravel()
    # central differences at 1e-5: 1e-10 of their third derivative, and rounding over the step
    yield Compared(_apart((got,), (mean,)), 1e-8, "eight data of three classes", "fast", "definition")
    # at the data without their noise and jitter: covariances of a latent value with others', weights K^-1 mean
    plain = K - np.diag(np.repeat(asked.noise + asked.jitter, n))
    there = laplace.predict_mean_corrected(posterior, asked.X).latent_mean.T.ravel()
    why = "latent means of predictions at the data"
    yield Compared(_apart((there,), (plain @ np.linalg.solve(K, mean),)), 1e-8, why, "fast", "definition")


@check(
    "identity/nested-ep/single_step",
    paper="riihimaki2013",
    question="Is one outer step from given sites the inner sweeps of appendix A from the cavities of these sites?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.hyper import class_hyper
    from fast.full_classes.prior import MulticlassPrior
    from fast.methods import nested_ep
    from reference.riihimaki2013.inner_ep import inner_ep

    asked = tiny("multinomial-probit full")
    hyper = class_hyper(asked.variance, asked.lengthscales, asked.noise, asked.jitter, 3, 2)
    prior = MulticlassPrior(asked.X, asked.y, 3, hyper, False)
    rng = np.random.default_rng(52)
    for name, size in (("from nothing", 0.0), ("from some sites", 1.0)):
        alpha, beta = size * rng.uniform(0.1, 0.6, (8, 2)), size * rng.uniform(-0.3, 0.5, (8, 2))
        blocks = [_site(alpha[i], beta[i], int(asked.y[i])) for i in range(8)]
        for inner in ("incremental", "converged"):
            step = nested_ep.one_outer_step(prior, alpha, beta, inner=inner)
            wanted = np.empty((2, 8, 2))
            for i in range(8):
                mean, cov = _cavity(prior, blocks, i)
                one = inner_ep(mean, cov, int(asked.y[i]), alpha[i], beta[i], inner=inner)
                wanted[:, i] = one.alpha, one.beta
            yield Compared(_apart(step, wanted), 1e-8, f"{name}, {inner}: eight data of three classes, dense cavities",
                           "fast", "reference")  # fmt: skip


def _site(alpha: Array, beta: Array, label: int) -> tuple[Array, Array]:
    """Precision and location of f_i that the inner sites leave, b_j = e_label - e_j: v_j = b_j'f + u, u ~ N(0, 1)."""
    others = [k for k in range(3) if k != label]
    B = np.zeros((4, 2))
    for j, k in enumerate(others):
        B[label, j], B[k, j], B[3, j] = 1.0, -1.0, 1.0
    P = B @ np.diag(alpha) @ B.T
    P[3, 3] += 1.0
    nu = B @ beta
    # u integrated out
    return P[:3, :3] - np.outer(P[:3, 3], P[:3, 3]) / P[3, 3], nu[:3] - P[:3, 3] * nu[3] / P[3, 3]


def _cavity(prior: Any, blocks: list[tuple[Array, Array]], i: int) -> tuple[Array, Array]:
    """Mean and covariance of f_i given all sites but its own."""
    n = len(blocks)
    K = np.zeros((3 * n, 3 * n))
    for k in range(3):
        K[k * n : (k + 1) * n, k * n : (k + 1) * n] = prior.K(k)
    T, nu = np.zeros_like(K), np.zeros(3 * n)
    for j, (precision, location) in enumerate(blocks):
        if j != i:
            theirs: NDArray[np.intp] = j + n * np.arange(3)
            T[np.ix_(theirs, theirs)], nu[theirs] = precision, location
    S = inverse(inverse(K) + T)
    mine: NDArray[np.intp] = i + n * np.arange(3)
    return (S @ nu)[mine], S[np.ix_(mine, mine)]


@check(
    "identity/laplace-tkp/no_points",
    paper="riihimaki2013",
    question="Are predictions at no test point of the right shapes, and those at one point a ratio of evidences?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import laplace

    asked = tiny("softmax full")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, None)
    posterior = laplace.fit(Data(asked.X, asked.y, 3), prior, laplace.DEFAULTS)
    none = laplace.predict_tkp(posterior, np.zeros((0, 2)))
    shapes = [np.shape(part) for part in (*none.prediction, none.scores)]
    wanted = [(0, 3), (0, 3, 3), (0, 3), (0,), (0, 3)]
    yield flaws(shapes != wanted or not none.converged, f"shapes {shapes}", "fast", "shapes")
    # with one point more there is a mode for each of its labels
    real = laplace.find_mode
    for found in ((True, True, True), (False, True, True), (True, True, False)):
        ends = iter(found)

        def ended(*given: Any, ends: Any = ends, **asked: Any) -> Any:
            return real(*given, **asked)._replace(converged=next(ends))

        with mock.patch.object(laplace, "find_mode", ended):
            told = laplace.predict_tkp(posterior, asked.X[:1] + 0.3).converged
        yield flaws(told is not all(found), f"modes found {found}: {told}", "fast", "ends")


@check(
    "identity/x-gpc-svi/natural_parameters",
    paper="wenzel2019",
    question="Are the natural parameters of q(u) those of its mean and covariance?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.methods import x_gpc_svi

    asked = tiny("logit")
    data, prior = _given(asked)
    batches = (np.array([0, 3, 5]), np.array([1, 6]))
    run = x_gpc_svi.fit(data, prior, x_gpc_svi.XGPCSteps(batches=batches, rate=0.5))
    precision = np.linalg.inv(run.inducing_cov)
    gap = _apart(run.natural, (precision @ run.inducing_mean, -0.5 * precision))
    yield Compared(gap, 1e-8, "inverses of matrices 4 x 4 whose condition is below 1e4", "fast", "definition")


@check(
    "identity/gibbs-logit/given_point",
    paper="wenzel2019",
    question="Is Chib's estimate at a given point the ratio of its densities, each written out?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.evidence.chib import log_evidence_fitc, log_evidence_full

    rng = np.random.default_rng(53)
    n, m = 4, 3
    root = rng.standard_normal((n + m, 2 * (n + m)))
    joint = root @ root.T / (n + m)
    K, K_ZZ, K_XZ = joint[:n, :n], joint[n:, n:], joint[:n, n:]
    sign, omega = np.array([1.0, -1.0, -1.0, 1.0]), rng.uniform(0.05, 0.6, (2, 64, n))
    flat = omega.reshape(-1, n)
    f, u = rng.standard_normal(n), rng.standard_normal(m)

    def log_density(at: Array, mean: Array, precision: Array) -> float:
        apart = at - mean
        return float(0.5 * np.linalg.slogdet(precision / (2.0 * np.pi))[1] - 0.5 * apart @ precision @ apart)

    posterior = []
    for w in flat:
        P = inverse(K) + np.diag(w)
        posterior.append(log_density(f, inverse(P) @ (0.5 * sign), P))
    of_f = -np.logaddexp(0.0, -sign * f).sum() + log_density(f, np.zeros(n), inverse(K))
    wanted = of_f - np.log(np.mean(np.exp(posterior)))
    result = log_evidence_full(K, sign, omega, f)
    yield Compared(abs(result.value - wanted), 1e-9, "inverses of matrices 4 x 4", "gibbs", "definition", "nat")

    kappa = np.linalg.solve(K_ZZ, K_XZ.T).T
    rest = K.diagonal() - np.einsum("nm,nm->n", kappa, K_XZ)
    posterior = []
    for w in flat:
        # f_i given u has variance s_i: y_i/2 with precision ω_i is seen through it
        shrink = 1.0 / (1.0 + rest * w)
        P = inverse(K_ZZ) + (kappa.T * (w * shrink)) @ kappa
        posterior.append(log_density(u, inverse(P) @ (kappa.T @ (0.5 * sign * shrink)), P))
    t = np.linspace(-10.0, 10.0, 4001)
    weight = np.exp(-0.5 * t**2) * (t[1] - t[0]) / np.sqrt(2.0 * np.pi)
    at = sign[:, None] * ((kappa @ u)[:, None] + np.sqrt(rest)[:, None] * t)
    of_u = float(np.log(np.exp(-np.logaddexp(0.0, -at)) @ weight).sum())
    wanted = of_u + log_density(u, np.zeros(m), inverse(K_ZZ)) - np.log(np.mean(np.exp(posterior)))
    result = log_evidence_fitc(K_ZZ, K_XZ, K.diagonal(), sign, omega, u)
    yield Compared(abs(result.value - wanted), 1e-8, "inverses of matrices 3 x 3, sums over 4001 nodes", "gibbs",
                   "definition", "nat")  # fmt: skip


@check(
    "identity/exact-probit/nothing_drawn",
    paper="wenzel2019",
    question="Do sums over less than a batch, and weights that are all zero, say what they know?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.chains.moments import BatchSums
    from gibbs.draws.truncated_normal import _Weights

    first, more = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[0.5, 0.25], [0.0, 1.0]])
    none = BatchSums(2).batches({"f": more}, 7)
    gap = _apart((none.sums["f"], none.widths), (more[:, None], [7.0]))
    yield Compared(gap, 0.0, "nothing but what is pending: one batch of seven", "gibbs", "definition")
    sums = BatchSums(2)
    for _ in range(3):
        sums.add({"f": first}, 1)
    some = sums.batches({"f": more}, 2)
    gap = _apart((some.sums["f"].sum(axis=1), [some.widths.sum()]), (3.0 * first + more, [5.0]))
    yield Compared(gap, 1e-15, "three draws and two pending: all are counted", "gibbs", "definition")
    sums = BatchSums(2)
    sums.width = 4
    sums.add({"f": first}, 3)
    short = sums.batches({"f": more}, 2)
    gap = _apart((short.sums["f"], short.widths), ((first + more)[:, None], [5.0]))
    yield Compared(gap, 0.0, "a batch of four that holds three, and two pending", "gibbs", "definition")

    for size in (1, 3):
        weights = _Weights(cast(Any, SimpleNamespace(log_bound=-4.0, mean=np.zeros(size))))
        excess = weights.add(np.array([-np.inf, -np.inf]))
        nothing = weights.probability()
        wrong = nothing.value != -np.inf or nothing.standard_error != np.inf or nothing.acceptance != 0.0
        wrong |= nothing.n_proposals != 2 or not np.isneginf(excess).all() or nothing.log_bound != -4.0
        yield flaws(wrong, "no proposal has a weight: no probability, no end of its error", "gibbs", "answers")
        weights.add(np.log([0.5, 0.25]) - 4.0)
        known = weights.probability()
        w = np.array([0.0, 0.0, 0.5, 0.25])
        error = w.std(ddof=0) / np.sqrt(3.0) / w.mean()
        wanted = (-4.0 + np.log(w.mean()), np.hypot(error, 0.25) if size > 1 else error, w.mean(), 4)
        gap = _apart((known.value, known.standard_error, known.acceptance, known.n_proposals), wanted)
        yield Compared(gap, 1e-12, f"four weights in dimension {size}", "gibbs", "definition")


@check(
    "identity/gibbs-logit/noise_from_zero",
    paper="wenzel2019",
    question="Does a chain that learns a noise given as zero start about the scale of its prior?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from gibbs.models.hyper import make_model

    distributions = {"variance": ("half-student-t", 4.0, 2.0), "noise": ("log-normal", 1.0, 0.3)}
    X = np.array([[0.1], [0.9], [1.7], [-0.6]])
    for prior_on, wanted in (("field", 0.3), ("root", 0.09)):
        model, _ = sampler_by_name(make_model, n_warmup=0)(
            "logit", X, np.array([0, 1, 1, 0]), 2, 1.3, np.array([0.8]), 0.0, 1e-3, None, "full", X[:1], 0.0,
            hyperprior=distributions, learn=("variance", "noise"), shared=False, prior_on=prior_on,
        )  # fmt: skip
        quiet = mock.Mock(wraps=np.random.default_rng(54))
        quiet.standard_normal.side_effect = lambda shape: np.zeros(shape)
        hyper = model.start(quiet, 3, 1)["hyper"]
        gap = _apart((hyper[..., -1], hyper[..., 0]), (np.full(hyper.shape[:2], wanted), np.full(hyper.shape[:2], 1.3)))
        yield Compared(gap, 1e-12, f"a prior on the {prior_on}: noise {wanted:g}, the rest as given", "gibbs",
                       "definition")  # fmt: skip


@check(
    "invariance/x-gpc-svi/orphans",
    paper="wenzel2019",
    question="Are temporary files of writers that died removed, those of the living and of others left alone?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    try:
        import fcntl
    except ImportError:
        yield Skipped("this system has no locks, without which nobody knows who writes a file")
        return
    from fast.core import checkpoint as of_fast
    from gibbs.chains import checkpoint as of_gibbs

    def write_fast(path: Path) -> None:
        of_fast._replace(path, lambda file: file.write(b"whole"))

    def write_gibbs(path: Path) -> None:
        of_gibbs.sweep_out(path)
        of_gibbs.write(path, "{}", {"a": np.zeros(2)})

    for left, module, write in (("fast", of_fast, write_fast), ("gibbs", of_gibbs, write_gibbs)):
        with tempfile.TemporaryDirectory(prefix="triad-orphans-") as name:
            folder = Path(name)
            path = folder / "run.npz"
            dead, living = folder / ".run.npz.ab3_z9qx.part", folder / ".run.npz.cd4_y8pw.part"
            others = [folder / each for each in (".other.npz.ab3_z9qx.part", ".run.npz.ab3_z9q.part", "run.npz.part",
                                                 ".run.npz.AB3_Z9QX.part", ".run.npz.ab3_z9qx.part.npz")]  # fmt: skip
            for each in (dead, living, *others):
                each.write_bytes(b"half")
            (folder / ".run.npz.ef5_x7ov.part").mkdir()
            (folder / ".run.npz.gh6_w6nu.part").symlink_to(others[0])
            with living.open("r+b") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                write(path)
                kept = living.exists() and all(each.exists() for each in others)
                kept &= (folder / ".run.npz.ef5_x7ov.part").is_dir() and (folder / ".run.npz.gh6_w6nu.part").exists()
            yield flaws(not kept or dead.exists() or not path.exists(),
                         "a dead writer's file goes; one that is locked, and seven of other names or kinds, stay",
                         left, "files")  # fmt: skip
            count = len(list(folder.iterdir()))

            # a writer whose new file was taken for an orphan before it had the lock makes another
            lock, made = fcntl.flock, list[Path]()

            def robbed(handle: int, how: int, lock: Any = lock, made: list[Path] = made, path: Path = path) -> None:
                if how == fcntl.LOCK_EX and not made:
                    (mine,) = [each for each in path.parent.glob(".run.npz.????????.part")
                               if each.is_file() and os.path.samestat(os.fstat(handle), each.stat())]  # fmt: skip
                    mine.unlink()
                    made.append(mine)
                lock(handle, how)

            open_before = _open_files()
            with mock.patch.object(module.fcntl, "flock", robbed):
                write(path)
            wrong = len(made) != 1 or made[0].exists() or len(list(folder.iterdir())) != count - 1
            yield flaws(wrong, "a file that was taken away meanwhile is given up, and no other is left behind", left,
                         "files")  # fmt: skip
            yield flaws(_open_files() - open_before, "it is closed", left, "files open")

            # a writer that fails leaves what was there, and nothing else
            content, count = path.read_bytes(), len(list(folder.iterdir()))
            with mock.patch.object(os, "fsync", side_effect=OSError(28, "No space left on device")):
                try:
                    write(path)
                except OSError as error:
                    told = str(error)
                else:
                    told = ""
            wrong = "No space left on device" not in told or path.read_bytes() != content
            yield flaws(wrong or len(list(folder.iterdir())) != count, f"no room: {told or 'nothing raised'}", left,
                         "files")  # fmt: skip


def _open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@check(
    "identity/ep/inputs_of_a_step",
    paper="villacampa2017",
    question="Are kernels of a step those of its inputs, and is one block enough where the rows are known?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from fast.core.hyper import class_hyper
    from fast.kernel.kernels import PreparedKernel
    from fast.solve.minibatch import _count_blocks
    from fast.sparse_classes.projections import InducingClasses, _StepKernel

    rng = np.random.default_rng(55)
    X, Z, lengthscales = rng.standard_normal((6, 3)), rng.standard_normal((4, 3)), np.array([0.7, 1.3, 2.0])
    wanted = 1.7 * np.exp(-0.5 * np.square((X[:, None] - Z) / lengthscales).sum(axis=2))
    for kind in (PreparedKernel, _StepKernel):
        kernel = kind(Z, 1.7, lengthscales)
        # asked twice, and of other inputs between: what was kept of one serves no other
        outcome = [kernel.cross(X), kernel.cross_by_product(X), kernel.cross(X[::-1]), kernel.cross_by_product(X[::-1]),
                 kernel.cross(X)]  # fmt: skip
        gap = _apart(outcome, (wanted, wanted, wanted[::-1], wanted[::-1], wanted))
        yield Compared(gap, 1e-12, f"{kind.__name__}: six inputs and four inducing points", "fast", "definition")

    asked = tiny("threshold")
    assert asked.Z is not None
    hyper = class_hyper(asked.variance, asked.lengthscales, asked.noise, asked.jitter, 3, 2)
    points = InducingClasses(hyper, asked.Z, False)
    gap = _apart((points.prior_var,), (asked.variance + asked.noise,))
    yield Compared(gap, 1e-15, "prior variances of three classes, noise included: one sum", "fast", "definition")

    read: list[int] = []

    class Blocks:
        """Three blocks that count how often they are read."""

        def __iter__(self) -> Any:
            for size in (3, 1, 2):
                read.append(size)
                yield X[:size], np.zeros(size)

    for n, rows, most in ((None, 6, 3), (6, 6, 1), (17, 17, 1)):
        read.clear()
        wrong = _count_blocks(Blocks(), n) != (rows, 3) or len(read) != most
        yield flaws(wrong, f"rows given as {n}: {most} blocks are read", "fast", "answers")


@check(
    "identity/bb-alpha/few_draws",
    paper="villacampa2020",
    question="Are averages over draws those of the ratios at each, and is there no value where all draws miss a label?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2020.black_box import monte_carlo_log_norms
    from reference.villacampa2020.hyper import prior_matrices
    from reference.villacampa2020.posterior import Gaussians

    asked = tiny("threshold")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    q = Gaussians(0.3 * np.ones((3, 4)) * np.arange(3)[:, None], 0.7 * K.K_ZZ)
    n, draws = asked.n, 40
    for epsilon, alpha, count in ((0.1, 0.7, draws), (0.1, 0.0, draws), (0.0, 0.7, 2)):
        averages = monte_carlo_log_norms(q, asked.y, K, epsilon=epsilon, alpha=alpha, n_draws=count, seed=3)
        rng = np.random.default_rng(3)
        white, extra = rng.standard_normal((count, 3, 4)), rng.standard_normal((count, n, 3))
        ratios = np.empty((count, n))
        for r in range(count):
            v = np.array([q.mean[k] + np.linalg.cholesky(q.cov[k]) @ white[r, k] for k in range(3)])
            tied = 0.0
            for k in range(3):
                P, P_prior = np.linalg.inv(q.cov[k]), np.linalg.inv(K.K_ZZ[k])
                tied += (P @ q.mean[k]) @ v[k] - 0.5 * v[k] @ (P - P_prior) @ v[k]
            for i in range(n):
                f = [K.upsilon[k, i] @ v[k] + np.sqrt(K.cond_var[k, i]) * extra[r, i, k] for k in range(3)]
                likely = (1.0 - epsilon) * (int(np.argmax(f)) == asked.y[i]) + epsilon / 3.0  # (2)
                ratios[r, i] = (np.log(likely) if likely > 0.0 else -np.inf) - tied / n
        with np.errstate(divide="ignore"):
            scaled = np.exp(alpha * ratios)
            wanted = ratios.mean(axis=0) if alpha == 0.0 else np.log(scaled.mean(axis=0)) / alpha
        of = ratios if alpha == 0.0 else scaled / np.where(scaled.any(axis=0), scaled.mean(axis=0), 1.0) / alpha
        error = np.sqrt(np.square(of.std(axis=0, ddof=1)).sum() / count) if np.isfinite(wanted).all() else np.inf
        finite = np.isfinite(wanted)
        same = np.array_equal(np.isneginf(averages.log_norm), ~finite) and finite.any()
        gap = _apart((averages.log_norm[finite],), (wanted[finite],)) if same else np.inf
        why = f"{count} draws at power {alpha:g}, labels wrong with {epsilon:g}: loops over draws and data"
        yield Compared(gap, 1e-10, why, "reference", "definition")
        right = averages.standard_error == error or abs(averages.standard_error / error - 1.0) < 1e-9
        yield flaws(
            not right, f"its standard error {averages.standard_error:.3g}, found {error:.3g}", "reference", "errors"
        )
    missed = context.solve("fast", "bb-alpha", tiny("threshold many"), alpha=0.7, expectation="monte-carlo", n_draws=2,
                           max_iterations=2)  # fmt: skip
    holes = missed.settings["zero_expectations"]
    yield flaws(missed.log_evidence is not None or not 0 < holes < 150, f"no draw has {holes} of 150 labels", "fast",
                 "energies")  # fmt: skip


@check(
    "exactness/exact-probit/matern",
    paper="riihimaki2013",
    question="Is log p(y) of two data under Matérn kernels, each class with its own order, the angle of its quadrant?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    def matern(r: float, order: float) -> float:
        s = np.sqrt(2.0 * order) * r
        return float(2.0 ** (1.0 - order) / gamma(order) * s**order * kv(order, s))

    z: list[float] = []
    ses: list[float] = []
    X = np.array([[0.1, -0.4], [0.7, 0.5]])
    for likelihood, y, width in (("probit", [0, 1], 1.0), ("probit", [1, 0], 1.0), ("multinomial-probit", [1, 0], 2.0),
                                 ("multinomial-probit", [0, 1], 2.0)):  # fmt: skip
        L = 1 if likelihood == "probit" else 2
        order, variance = np.array([0.8, 2.3])[:L], np.array([1.7, 0.6])[:L]
        lengthscales, noise = np.array([[0.9, 1.4], [1.2, 0.5]])[:L], np.array([0.2, 0.1])[:L]
        asked = Problem(
            name=f"quadrant {likelihood} {y}", X=X, y=np.array(y), n_classes=2, likelihood=likelihood,
            variance=variance, lengthscales=lengthscales, noise=noise, jitter=1e-3 * np.ones(L), kernel="matern",
            smoothness=order, prior_model="full",
        )  # fmt: skip
        apart = np.sqrt(np.square((X[0] - X[1]) / lengthscales).sum(axis=1))
        joint = sum(v * matern(r, o) for v, r, o in zip(variance, apart, order, strict=True))
        alone = float((variance + noise + 1e-3).sum()) + width
        sign = 1.0 if y[0] == y[1] else -1.0
        wanted = np.log(0.25 + np.arcsin(sign * joint / alone) / (2.0 * np.pi))
        answer = context.solve("gibbs", "exact-probit", asked)
        assert answer.log_evidence is not None
        ses.append(answer.log_evidence_se or 0.0)
        z.append((answer.log_evidence - wanted) / max(answer.log_evidence_se or 0.0, 1e-12))
    yield Tested(np.array(z), "minimax tilting states its error", "gibbs", "definition",
                 f"standard errors of at most {max(ses):.1g} nat")  # fmt: skip


@check(
    "identity/ep/known_values",
    paper="villacampa2017",
    question="Are tilted derivatives differences of the tilted mass, also where values of some classes are known?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    from reference.villacampa2017.datum import datum_tilted

    mean = np.array([0.3, -0.2, 0.5, 0.1])
    for var in ([0.7, 1.3, 0.4, 2.0], [0.7, 0.0, 0.4, 2.0], [0.7, 0.0, 0.0, 2.0], [1.6, 0.0, 0.0, 0.0],
                [0.05, 1.3, 0.0, 0.4]):  # fmt: skip
        at = datum_tilted(mean, np.array(var), 0)
        step, derivatives, bends = 1e-5, np.empty(4), np.empty(4)
        for k in range(4):
            move = step * np.eye(4)[k]
            up, down = (datum_tilted(mean + sign * move, np.array(var), 0) for sign in (1.0, -1.0))
            derivatives[k] = (up.log_norm - down.log_norm) / (2.0 * step)
            bends[k] = -(up.derivative[k] - down.derivative[k]) / (2.0 * step)
        known = sum(v == 0.0 for v in var)
        gap = _apart((at.derivative, at.curvature), (derivatives, bends))
        yield Compared(gap, 1e-6, f"{known} of four values known: differences over 1e-5 leave 1e-9 and 1e-15 / 1e-5",
                       "reference", "finite differences")  # fmt: skip
