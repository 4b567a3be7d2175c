"""Pieces of `reference` by their own sentences: stages of algorithms, derivatives, sizes of changes, sums, settings.

A run repeats such a piece until it stands still, and hides what one call of it does. So the judge makes one call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit, log_expit, softmax

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


# -- stages of algorithm 1 ------------------------------------------------------------------------------------------


def one_latent(kind: str, scale: float = 1.0) -> tuple[Problem, Any, Any, Any]:
    """A problem of two classes with `scale` times its variance, signs of its labels, and izmailov2016's prior of it."""
    from reference.izmailov2016 import _prior

    asked = tiny(kind)
    Z = None if asked.Z is None else asked.Z[0]
    hyper = _prior.Prior(
        scale * float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]), float(asked.jitter[0]), Z
    )
    return asked, 2.0 * asked.y - 1.0, hyper, _prior.matrices(asked.X, hyper)


@check(
    "identity/vi-taylor/shortened_steps",
    paper="izmailov2016",
    question="Does a Newton step that would lower log p(u, y) end half-way, and again, at the first point that rises?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.algorithm1 import taylor_stage_one

    _, y, _, K = one_latent("logit", 300.0)
    inverse = np.linalg.inv(K.K_ZZ)
    kappa = K.K_XZ @ inverse

    def height(u: Array) -> float:
        return float(log_expit(y * (kappa @ u)).sum() - 0.5 * u @ inverse @ u)

    halvings = []
    for far in (0.5, 40.0, -60.0):
        u = far * np.array([1.0, -0.7, 0.4, 0.9])
        f = kappa @ u
        rate = expit(y * f) * expit(-y * f)
        cov = np.linalg.inv(inverse + (kappa.T * rate) @ kappa)
        whole = cov @ kappa.T @ (rate * f + y * expit(-y * f))
        count = next(k for k in range(21) if height(u + 0.5**k * (whole - u)) >= height(u))
        halvings.append(count)
        end = taylor_stage_one(u, K.K_ZZ, y, K.K_ZZ, K.K_XZ, K.k_xx, 1)
        for name, found, wanted in (
            ("mean", end.inducing_mean, u + 0.5**count * (whole - u)), ("covariance", end.inducing_cov, cov),
            ("xi", end.xi, f),
        ):  # fmt: skip
            gap = float(np.abs(found - wanted).max() / np.abs(wanted).max())
            yield Compared(gap, 1e-7, f"{name} after a step halved {count} times, by dense algebra", "reference",
                           "definition")  # fmt: skip
    wrong = halvings[0] != 0 or min(halvings[1:]) == 0
    yield flaws(wrong, f"starts near and far: halved {halvings} times", "reference", "starts")


@check(
    "identity/vi-jj-hybrid/second_stage",
    paper="izmailov2016",
    question="Are parameters and xi of a second stage those of the bound that it states, and is xi held where asked?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016 import _prior
    from reference.izmailov2016.algorithm1 import vi_jj_stage_two
    from reference.izmailov2016.jaakkola_jordan import jj_collapsed_bound

    asked, y, hyper, K = one_latent("logit")
    xi = np.linspace(0.3, 2.0, asked.n)
    start = jj_collapsed_bound(xi, y, *K)
    rows: list[tuple[str, object, object]] = []
    for joint in (False, True):
        for learn in ((), ("variance",), ("lengthscales", "noise")):
            for most in (1, 4):
                end = vi_jj_stage_two(asked.X, y, hyper, xi, learn, most, joint)
                there = jj_collapsed_bound(end.xi, y, *_prior.matrices(asked.X, end.hyper))
                searched = joint or bool(learn)
                moves = most > 1 and searched
                what = f"joint {joint}, {learn}, {most} evaluations: "
                rows += [
                    (what + "the bound is that there", abs(end.bound - there) <= 1e-12 * abs(there), True),
                    (what + "the bound has risen", bool(end.bound > start), moves),
                    (what + "xi has moved", not np.array_equal(end.xi, xi), joint and moves),
                    (what + "evaluations", end.evaluations, most if searched else 1),
                ]
                for name in ("variance", "lengthscales", "noise"):
                    moved = not np.array_equal(getattr(end.hyper, name), getattr(hyper, name))
                    rows.append((what + f"{name} has moved", moved, moves and name in learn))
    yield as_documented(rows, "reference", "statements")


# -- Newton's method from zero --------------------------------------------------------------------------------------


def _softmax_terms(f: Array, y: Array, n: int, C: int) -> tuple[float, Array, Array]:
    """log p(y|f), its derivative and -∂², class-major."""
    table = f.reshape(C, n)
    p = softmax(table, axis=0)
    own = np.arange(C)[:, None] == y
    W = np.zeros((C, n, C, n))
    for i in range(n):
        W[:, i, :, i] = np.diag(p[:, i]) - np.outer(p[:, i], p[:, i])
    return float(np.log(p[own]).sum()), (own - p).ravel(), W.reshape(C * n, C * n)


def _signed_terms(f: Array, y: Array) -> tuple[float, Array, Array]:
    """The same of log σ(yf)."""
    return float(log_expit(y * f).sum()), y * expit(-y * f), np.diag(expit(f) * expit(-f))


def _newton(terms: Callable[[Array], tuple[float, Array, Array]], K: Array, steps: int) -> tuple[Array, float]:
    """f after so many whole steps from zero, none of which lowers log p(y, f), and the next one's size; dense."""
    inverse, f = np.linalg.inv(K), np.zeros(len(K))
    heights = []
    for _ in range(steps + 1):
        value, slope, W = terms(f)
        heights.append(value - 0.5 * float(f @ inverse @ f))
        before, f = f, np.asarray(np.linalg.solve(inverse + W, W @ f + slope))
    if not (np.diff(heights) > 0.0).all():
        raise RuntimeError(f"heights: found {heights}, expected steps that rise")
    return before, float(np.abs(f - before).max())


def _seven(seed: int) -> tuple[Any, Any, Any, Any]:
    """Labels of three classes and of two for seven data, K of one function and that of three of other variances."""
    X = np.random.default_rng(seed).standard_normal((7, 1))
    K = np.exp(-0.5 * np.square(X - X.T)) + 0.1 * np.eye(7)
    y, signs = np.array([0, 1, 2, 2, 0, 1, 1]), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    return y, signs, K, np.kron(np.diag([1.0, 0.7, 1.6]), K)


@check(
    "identity/laplace/first_newton_steps",
    paper="riihimaki2013",
    question="Are the first steps of Newton's method those from zero, and is what is stated of them theirs?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.laplace_binary import laplace_mode as binary
    from reference.riihimaki2013.laplace import _laplace_mode
    from reference.villacampa2020.laplace_sparse import laplace_mode as sparse

    n, C = 7, 3
    y, signs, correlation, of_classes = _seven(17)
    for scale in (1.0, 30.0):
        K, blocks = scale * correlation, scale * of_classes
        for steps in (1, 2):
            several = _newton(lambda f: _softmax_terms(f, y, n, C), blocks, steps)
            two = _newton(lambda f: _signed_terms(f, signs), K, steps)
            stacked, table = _laplace_mode(blocks, y, 1e-14, steps), sparse(blocks, y, C, 1e-14, steps)
            single = binary(K, signs, "logit", 1e-14, steps)
            ends: tuple[tuple[str, Array, Any, tuple[Array, float]], ...] = (
                ("laplace", stacked.mode, stacked, several),
                ("laplace-sparse", table.latent_values.T.ravel(), table, several),
                ("laplace-binary", single.f, single, two),
            )
            for name, found, end, (f, size) in ends:
                gap = float(np.abs(found - f).max() / np.abs(f).max())
                why = f"{name}, variances times {scale:g}: after {steps} steps from zero, dense"
                yield Compared(gap, 1e-9, why, "reference", "definition")
                wrong = end.converged or end.iterations != steps
                if name == "laplace-binary":
                    wrong |= abs(end.residual - size / max(1.0, np.abs(f).max())) > 1e-6 * end.residual
                    wrong |= len(end.trace) != steps + 1
                yield flaws(wrong, f"{name}: what it states of {steps} steps", "reference", "statements")


@check(
    "identity/laplace/no_step_falls",
    paper="riihimaki2013",
    question="Is a step that is too long halved until log p(y, f) does not fall, by however little it would?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import laplace_binary as binary
    from reference.riihimaki2013 import laplace as several
    from reference.villacampa2020 import laplace_sparse as sparse

    n, C = 7, 3
    y, signs, K, blocks = _seven(19)
    newton, target, weight = several.laplace_newton_step, binary.laplace_newton, sparse.laplace_weight
    for length in (2.05, 2.3, 3.0):  # of a Newton step; twice the step of a parabola is where it has its height again

        def from_f(f: Array, K: Array, y: Any, length: float = length) -> Array:
            # a step is made in a = K⁻¹f, from W times its length in f
            _, slope, W = _softmax_terms(f, y, n, C)
            past = (length - 1.0) * (slope - np.linalg.solve(K, f))
            return np.asarray(f + length * (newton(f, K, y) - f) - np.linalg.pinv(W) @ past)

        def from_a(f: Array, K: Array, at: Any, length: float = length) -> Array:
            a = np.linalg.solve(K, f)
            return np.asarray(a + length * (target(f, K, at) - a))

        def weighted(f: Array, K: Array, length: float = length) -> Any:
            W, log_det = weight(f, K)
            return length * W - (length - 1.0) * np.linalg.inv(K), log_det

        with (
            mock.patch.object(several, "laplace_newton_step", from_f),
            mock.patch.object(binary, "laplace_newton", from_a),
            mock.patch.object(sparse, "laplace_weight", weighted),
        ):
            for name, prior, ends, terms in (
                ("laplace", blocks, [several._laplace_mode(blocks, y, 1e-14, k).mode for k in range(8)],
                 lambda f: _softmax_terms(f, y, n, C)[0]),
                ("laplace-sparse", blocks,
                 [sparse.laplace_mode(blocks, y, C, 1e-14, k).latent_values.T.ravel() for k in range(8)],
                 lambda f: _softmax_terms(f, y, n, C)[0]),
                ("laplace-binary", K, [binary.laplace_mode(K, signs, "logit", 1e-14, k).f for k in range(8)],
                 lambda f: _signed_terms(f, signs)[0]),
            ):  # fmt: skip
                heights = [float(terms(f) - 0.5 * f @ np.linalg.solve(prior, f)) for f in ends]
                fall = max(0.0, *(-np.diff(heights)))
                why = f"{name}, steps {length:g} times too long: {heights[0]:.4f} to {heights[-1]:.4f}"
                yield Compared(fall, 1e-9, why, "reference", "definition", "nat")
                yield flaws(not heights[1] > heights[0], f"{name}: the first step rises", "reference", "steps")


# -- derivatives ----------------------------------------------------------------------------------------------------


def kernel(A: Array, B: Array, variance: float, lengthscales: Array) -> Array:
    return variance * np.exp(-0.5 * np.square((A[:, None] - B[None]) / lengthscales).sum(axis=2))


@check(
    "derivative/x-gpc/each_parameter",
    paper="wenzel2019",
    question="Is what each parameter of the prior moves the difference of its matrices, a full one's noise with it?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._learning import FIELDS, Hyper, each_parameter

    asked = tiny("logit")
    assert asked.Z is not None
    step = 1e-5
    for Z in (asked.Z[0], None):
        hyper = Hyper(1.7, asked.lengthscales[0], 0.2, 2e-3, Z)
        support = asked.X if Z is None else Z
        told: list[tuple[Array, Array, Array]] = []

        def take(*given: Array, told: list[tuple[Array, Array, Array]] = told) -> float:
            told.append((given[0].copy(), given[1].copy(), given[2].copy()))
            return float(len(told) - 1)

        order = each_parameter(take, support, asked.X, hyper, FIELDS)
        worst, rows = 0.0, []
        for field in FIELDS if Z is not None else FIELDS[:3]:
            old = np.asarray(getattr(hyper, field), dtype=float)
            for at in np.ndindex(old.shape):
                ends = []
                for sign in (1.0, -1.0):
                    new = old.copy()
                    new[at] += sign * step
                    there = hyper._replace(**{field: new})  # type: ignore[arg-type]
                    points = asked.X if there.Z is None else there.Z
                    K, cross = (kernel(A, points, float(there.variance), there.lengthscales) for A in (points, asked.X))
                    if there.Z is None:
                        K = K + float(there.noise) * np.eye(asked.n)
                    ends.append((K, cross, np.full(asked.n, float(there.variance + there.noise))))
                found = told[int(np.asarray(order[field])[at])]
                for mine, high, low in zip(found, *ends, strict=True):
                    worst = max(worst, float(np.abs(mine - (high - low) / (2.0 * step)).max()))
                rows.append(f"{field}{list(at)}")
        why = f"{'full' if Z is None else 'sparse'}: {len(rows)} parameters, steps of {step:g} of matrices of size 1"
        yield Compared(worst, 1e-8, why, "reference", "differences", "largest difference")
        yield flaws(abs(len(told) - len(rows)) + ("Z" in order) * (Z is None), f"{why}: each once", "reference",
                    "derivatives")  # fmt: skip


@check(
    "derivative/vb-probit/held_factors",
    paper="riihimaki2013",
    question="Does a step of the parameters climb E[log p(f)] under held factors, by derivatives that are differences?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.riihimaki2013 import type2 as place
    from reference.riihimaki2013.fit import Prior

    rng = np.random.default_rng(53)
    X, n, C = rng.standard_normal((5, 2)), 5, 3
    root = rng.standard_normal((n * C, n * C)) / np.sqrt(n * C)
    factors: Any = SimpleNamespace(mean=rng.standard_normal((n, C)), cov=root @ root.T + 0.3 * np.eye(n * C))
    second = factors.cov + np.outer(factors.mean.T.ravel(), factors.mean.T.ravel())
    first = Prior(
        np.array([0.9, 1.4, 2.0]),
        rng.uniform(0.7, 1.6, (C, 2)),
        np.array([0.2, 0.3, 0.25]),
        np.array([1e-3, 0.0, 2e-3]),
    )
    learn, step = ("variance", "lengthscales", "noise"), 1e-5

    def value(prior: Any) -> float:
        """E[log N(f|0, K)] by dense algebra, the constant of 2π included."""
        total = 0.0
        for k in range(C):
            own = slice(k * n, (k + 1) * n)
            K = kernel(X, X, float(prior.variance[k]), prior.lengthscales[k])
            K += float(prior.noise[k] + prior.jitter[k]) * np.eye(n)
            trace = np.trace(np.linalg.solve(K, second[own, own]))
            total -= 0.5 * float(np.linalg.slogdet(2.0 * np.pi * K)[1] + trace)
        return total

    for shared in (False, True):
        with mock.patch.object(place, "_ascend") as climb:
            place.vb_update_hyperparameters(factors, X, first, learn, shared)
        objective = climb.call_args.args[0]
        where = place.pack(first, learn, shared)
        found = objective(place.unpack(where, first, learn, shared))
        wanted = [
            (value(place.unpack(where + step * e, first, learn, shared))
             - value(place.unpack(where - step * e, first, learn, shared))) / (2.0 * step)
            for e in np.eye(len(where))
        ]  # fmt: skip
        gap = abs(found[0] / value(place.unpack(where, first, learn, shared)) - 1.0)
        yield Compared(gap, 1e-10, f"shared {shared}: the value, dense", "reference", "definition")
        gap = float(np.abs(np.asarray(found[1]) - wanted).max() / np.abs(wanted).max())
        yield Compared(gap, 1e-7, f"shared {shared}: {len(where)} logarithms, steps of {step:g}", "reference",
                       "differences")  # fmt: skip


@check(
    "derivative/svi/batches_of_the_full_model",
    paper="izmailov2016",
    question="Is the gradient of a mini-batch the difference of its estimate of the bound, full and sparse?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.svi import Parameters, as_vector, batch_bound, batch_gradient, from_vector

    learn, step = ("variance", "lengthscales", "noise"), 1e-5
    rng = np.random.default_rng(29)
    for kind in ("logit full", "logit"):
        asked, y, hyper, K = one_latent(kind)
        m = len(K.K_ZZ)
        L = np.linalg.cholesky(0.5 * K.K_ZZ) + 0.05 * np.tril(rng.standard_normal((m, m)))
        first = Parameters(0.4 * rng.standard_normal(m), L, hyper)
        there = as_vector(first, learn)
        for listed in ((0, 3, 3, 5), (6,), tuple(range(asked.n))):
            batch = np.array(listed)
            found = batch_gradient(first, asked.X, y, batch, learn)
            wanted = np.empty_like(there)
            for j in range(len(there)):
                ends = []
                for sign in (1.0, -1.0):
                    moved = there.copy()
                    moved[j] += sign * step
                    ends.append(batch_bound(from_vector(moved, first, learn), asked.X, y, batch))
                wanted[j] = (ends[0] - ends[1]) / (2.0 * step)
            gap = float(np.abs(found - wanted).max() / np.abs(wanted).max())
            yield Compared(gap, 1e-6, f"{kind}, rows {listed}: {len(there)} numbers, steps of {step:g}", "reference",
                           "differences")  # fmt: skip


@check(
    "derivative/apep/gaussian_factors",
    paper="villacampa2020",
    question="Are derivatives in the coordinates of a Gaussian factor differences, and its end that of a search?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.common._search import Top
    from reference.villacampa2020 import fit_gaussian_factor as place
    from reference.villacampa2020.fit_energies import Data
    from reference.villacampa2020.hyper import prior_matrices

    asked = tiny("threshold errors")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    data = Data(asked.X, asked.y, "apep", asked.epsilon, 0.6)
    K = prior_matrices(asked.X, prior)
    inverses = np.linalg.inv(np.linalg.cholesky(K.K_ZZ))
    C, m, _ = inverses.shape
    size = m + m * (m + 1) // 2
    rng = np.random.default_rng(31)
    where = 0.4 * rng.standard_normal(C * size)

    def value(there: Array) -> float:
        return float(data.at(place._distribution(there, inverses)[0], K).value)

    q, roots, _ = place._distribution(where, inverses)
    found = place._derivatives(data.at(q, K), q, roots, inverses)
    step = 1e-5
    wanted = np.array([(value(where + step * e) - value(where - step * e)) / (2.0 * step) for e in np.eye(len(where))])
    gap = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    yield Compared(gap, 1e-7, f"{len(where)} coordinates of three classes, steps of {step:g}", "reference",
                   "differences")  # fmt: skip
    # q ∝ φ̃ p: the precision that the factor adds is that of R, and no direction is wider than the prior
    added = np.array([np.linalg.inv(V) - np.linalg.inv(k) for V, k in zip(q.cov, K.K_ZZ, strict=True)])
    outer = np.array([L.T @ R @ R.T @ L for L, R in zip(inverses, roots, strict=True)])
    yield Compared(float(np.abs(added - outer).max()), 1e-9 * float(np.abs(added).max()), "precisions that R adds",
                   "reference", "definition", "largest difference")  # fmt: skip
    for residual in (1e-8, 1e-3):
        top = Top(where, -1.0, residual, np.array([-3.0, -2.0]), 17, 23)
        with mock.patch.object(place, "maximise", return_value=top) as search:
            end = place.fit_gaussian_factor(data, prior, 40)
        told = end.iterations, end.residual, end.converged, end.optimum, end.trace.tolist()
        right = 17, residual, residual < 1e-6, "finite" if residual < 1e-6 else "not reached", [-3.0, -2.0]
        yield flaws(told != right or not np.array_equal(end.posterior.mean, q.mean), f"a search that left {residual:g}",
                    "reference", "statements")  # fmt: skip
        limits = search.call_args.args[2]
        yield flaws(limits.iterations != 40 or limits.evaluations < 40, "iterations that are allowed", "reference",
                    "limits")  # fmt: skip


@check(
    "identity/pep/without_gradient",
    paper="villacampa2020",
    question="Is there no gradient of log Z where one cavity of many is no distribution, by either rule and form?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.common._training import State
    from reference.villacampa2020.fit_pep import PEP
    from reference.villacampa2020.hyper import prior_matrices
    from reference.villacampa2020.posterior import Coefficients

    asked = tiny("threshold errors")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    K = prior_matrices(asked.X, prior)
    rows: list[tuple[str, object, object]] = []
    for form in ("printed", "projected"):
        pep = PEP(asked.y, asked.epsilon, 0.7, 0.5, form)
        q = pep.posterior(Coefficients(np.full((asked.n, 3), 0.1), np.full((asked.n, 3), 0.05)), K)
        for bad in (False, True):
            precision = np.full((asked.n, 3), 0.1)
            if bad:
                precision[3, 1] = 1e7  # more than q knows of that projection: without it none is left
            state = State(Coefficients(precision, np.full((asked.n, 3), 0.05)), q, prior, K)
            for exact in (False, True):
                found = pep.gradients(asked.X, state, None, exact, ("variance",))
                rows.append((f"{form}, exact {exact}, one of 24 improper {bad}: none", found is None, bad))
    yield as_documented(rows, "reference", "answers")


# -- sizes of changes -----------------------------------------------------------------------------------------------


_EPS = float(np.finfo(np.float64).eps)


@check(
    "identity/ep/largest_changes",
    paper="villacampa2017",
    question="Is the change from one answer to another the largest relative to the first, named, and none of a zero?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._neighbours import Answer, largest_change

    def answers(values: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
        return {name: Answer(np.asarray(value[0], dtype=float), *value[1:]) for name, value in values.items()}

    rows: list[tuple[str, object, object]] = []
    for what, here, there, wanted in (
        ("one that stays zero", {"zero": ([0.0, 0.0],), "b": ([4.0],)}, {"zero": ([0.0, 0.0],), "b": ([4.5],)},
         (0.125, "b")),
        ("one that leaves zero", {"zero": ([0.0],), "b": ([4.0],)}, {"zero": ([1e-9],), "b": ([8.0],)},
         (np.inf, "zero")),
        ("a move of one", {"a": ([8.0, 1.0],)}, {"a": ([7.0, 1.0],)}, (0.125, "a")),
        ("no move", {"a": ([8.0],), "b": (3.0,)}, {"a": ([8.0],), "b": (3.0,)}, (0.0, "")),
        ("twice and half", {"a": ([1.0],), "b": ([2.0],)}, {"a": ([2.0],), "b": ([1.0],)}, (1.0, "a")),
        ("a floor of sixteen", {"a": ([0.5, 0.0], 16.0)}, {"a": ([2.5, 0.0],)}, (0.125, "a")),
        ("a share of ten", {"a": ([2.0], 0.0, 10.0), "b": ([2.0],)}, {"a": ([4.0],), "b": ([2.5],)}, (0.25, "b")),
        ("the larger last", {"a": ([1.0],), "b": ([1.0],)}, {"a": ([1.25],), "b": ([1.5],)}, (0.5, "b")),
        ("no entries", {"a": (np.zeros(0),), "b": ([1.0],)}, {"a": (np.zeros(0),), "b": ([1.5],)}, (0.5, "b")),
    ):  # fmt: skip
        rows.append((what, largest_change(answers(here), answers(there)), wanted))
    lost = largest_change(answers({"a": ([1.0],), "b": ([1.0],)}), answers({"a": ([np.nan],), "b": ([1.0],)}))
    rows.append(("a number that is lost counts as the largest", (bool(np.isnan(lost[0])), lost[1]), (True, "a")))
    lost = largest_change(answers({"a": ([1.0],), "b": ([1.0],)}), answers({"a": ([np.nan],), "b": ([1.5],)}))
    rows.append(("also before one that moves", (bool(np.isnan(lost[0])), lost[1]), (True, "a")))
    yield as_documented(rows, "reference", "changes")


@check(
    "identity/label-regression/rounding_of_small_answers",
    paper="villacampa2020",
    question="Is what last digits change relative to each answer, small ones too, and that of the neighbours?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2020 import label_regression as place

    asked = tiny("threshold errors")
    assert asked.Z is not None
    prior = Prior(0.05 * asked.variance, asked.lengthscales, 0.05 * asked.noise, 0.05 * asked.jitter, asked.Z)

    def answers(there: Prior) -> list[Array]:
        fit = place.label_regression_baseline(asked.X, asked.y, there)
        return [np.array(fit.log_evidence), *fit.posterior, fit.latent_mean, fit.latent_var]

    here = answers(prior)
    sides = [
        prior._replace(variance=prior.variance * (1.0 + a * _EPS), lengthscales=prior.lengthscales * (1.0 + b * _EPS))
        for a, b in ((16, 4), (-16, 4), (8, -12), (-4, -16))
    ]
    far = [prior._replace(variance=scale * prior.variance) for scale in (1.1, 0.97)]
    for beside, why in ((far, "variances times 1.1 and 0.97"), (None, "up to 16 units in the last place")):
        changes = [
            (float(np.abs(a - b).max() / np.abs(b).max()), float(np.abs(b).max()))
            for there in (sides if beside is None else beside)
            for a, b in zip(answers(there), here, strict=True)
        ]
        largest, size = max(changes)
        with mock.patch.object(place, "CERTAIN", 0.0):
            if beside is None:
                found = float(place.regression_rounding(asked.X, asked.y, prior))
            else:
                with mock.patch.object(place, "neighbours", return_value=beside):
                    found = float(place.regression_rounding(asked.X, asked.y, prior))
        yield Compared(abs(found / largest - 1.0), 1e-9, f"{why}: an answer of {size:.2g}", "reference", "its answers")
        yield flaws(not 0.0 < size < 1.0, "it is a small one", "reference", "answers")
    # well conditioned: a bound says enough, a hundred units of rounding times what K⁻¹ and 1/s multiply
    largest = narrowest = 0.0
    for k in range(3):
        Z, v = asked.Z[k], float(asked.variance[k])
        K = kernel(Z, Z, v, asked.lengthscales[k]) + float(asked.jitter[k]) * np.eye(len(Z))
        cross = kernel(asked.X, Z, v, asked.lengthscales[k])
        left = v + float(asked.noise[k]) - np.einsum("im,mp,ip->i", cross, np.linalg.inv(K), cross)
        largest = max(largest, float(np.abs(K).sum(axis=0).max() * np.abs(np.linalg.inv(K)).sum(axis=0).max()))
        narrowest = max(narrowest, (v + float(asked.noise[k])) / float(left.min()))
    plain = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    found = float(place.regression_rounding(asked.X, asked.y, plain))
    gap = abs(found / (100.0 * _EPS * largest * narrowest) - 1.0)
    yield Compared(gap, 1e-6, f"conditions up to {largest:.2g}: the bound alone", "reference", "definition")


@check(
    "identity/nested-iep/changes_of_inner_sites",
    paper="riihimaki2013",
    question="Are changes of inner sites measured from the sites before a visit, by what it changes of them?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.options import options_of
    from reference.riihimaki2013 import nested_ep as place

    y = np.array([0, 2, 1])
    rows: list[tuple[str, object, object]] = []
    for kind, method, options in (
        (place.NestedEP, "nested-ep", {"damping": 1.0}),
        (place.NestedIEP, "nested-iep", {"damping": 1.0, "inner": "incremental"}),
    ):
        run = kind(y, 3, options_of(method)(**options))
        mean, cov = np.array([0.2, -0.4, 0.9]), np.diag([1.3, 0.8, 2.0])
        for visit in (1, 2):
            before = run.alpha[1].copy(), run.beta[1].copy()
            with mock.patch.object(place, "largest_change", return_value=123.0) as seen:
                step = run.visit(1, mean, cov)
            after = run.alpha[1] - before[0], run.beta[1] - before[1]
            given = seen.call_args.args[1:]
            same = all(np.allclose(a, b, rtol=0.0, atol=1e-12) for a, b in zip(given, (*before, *after), strict=True))
            rows += [
                (f"{method}, visit {visit}: sites before and their changes", same, True),
                (f"{method}, visit {visit}: the larger change", None if step is None else step.change, 123.0),
                (f"{method}, visit {visit}: sites move", bool(np.abs(after[0]).max() > 1e-3), True),
            ]
    yield as_documented(rows, "reference", "measures")


# -- probabilities and divergences ----------------------------------------------------------------------------------


# method, problem, options, and the function whose answers are made nine tenths of themselves
_MASSES: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    ("ep", "threshold", {}, "reference.villacampa2017.prediction", "predictive_class_probability"),
    ("vi-robust", "threshold errors", {}, "reference.villacampa2017.prediction", "predictive_class_probability"),
    ("arpep", "threshold errors", {}, "reference.villacampa2020.prediction", "predictive_class_probability_robust"),
    ("laplace-sparse", "softmax", {}, "reference.villacampa2020.laplace_sparse", "softmax_probabilities"),
    ("laplace", "softmax full", {}, "reference.riihimaki2013.laplace", "softmax_probabilities"),
    ("vb-probit", "multinomial-probit full", {}, "reference.riihimaki2013.variational",
     "independent_class_probabilities"),
    ("nested-iep", "multinomial-probit full", {}, "reference.riihimaki2013.fit", "predict_class_probabilities"),
    ("nested-iep", "multinomial-probit full", {"prediction": "quadrature"}, "reference.riihimaki2013.fit",
     "independent_class_probabilities"),
    ("laplace-binary", "probit full", {}, "reference.common.laplace_binary", "probit_probability"),
    ("svi", "probit", {}, "reference.izmailov2016.fit", "probit_probability"),
    ("svgpc", "probit", {}, "reference.wenzel2019.fit_svgpc", "probit_probability"),
)  # fmt: skip


@check(
    "identity/ep/sums_of_probabilities",
    paper="villacampa2017",
    question="Are probabilities divided by their sum, and is that told, in every method whose classes are apart?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from validation.solve import solve

    for method, kind, options, place, name in _MASSES:
        module = importlib.import_module(place)
        healthy = getattr(module, name)

        def less(*given: Any, healthy: Any = healthy) -> Any:
            return 0.9 * np.asarray(healthy(*given))

        given = {"tolerance": 0.1, **({} if method == "laplace-sparse" else {"gradients": False}), **options}
        whole = solve("reference", method, tiny(kind), **given)
        with mock.patch.object(module, name, less):
            part = solve("reference", method, tiny(kind), **given)
        assert part.probabilities is not None
        assert part.probability_mass is not None
        assert whole.probability_mass is not None
        share = 0.9
        if method == "vi-robust":  # labels drawn at random have their share whatever the rest is
            share = 0.95 * 0.9 + 0.05
        sums = float(np.abs(part.probabilities.sum(axis=1) - 1.0).max())
        told = float(np.abs(part.probability_mass / (share * whole.probability_mass) - 1.0).max())
        why = f"{method}: nine tenths of every class"
        yield Compared(max(sums, told), 1e-9, why, "reference", "definition", "difference of a sum")


@check(
    "identity/ep/ties_of_point_masses",
    paper="villacampa2017",
    question="Do equal values that are known share the top, and does one below it have no chance?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._largest import log_largest

    zero = np.zeros((1, 4))
    worst = 0.0
    for means, y, share in (
        ([1.0, 1.0, 0.0, -1.0], 0, 0.5), ([1.0, 1.0, 1.0, -1.0], 2, 1.0 / 3.0), ([0.5, 0.5, 0.5, 0.5], 1, 0.25),
        ([1.0, 0.0, 0.0, -1.0], 0, 1.0), ([1.0, 1.0, 0.0, -1.0], 2, 0.0),
    ):  # fmt: skip
        with np.errstate(divide="ignore"):
            found = float(np.exp(log_largest(np.array([means]), zero, np.array([y])))[0])
        worst = max(worst, abs(found - share))
    yield Compared(worst, 1e-12, "two, three and four equal ones, and one below", "reference", "definition",
                   "difference of a probability")  # fmt: skip


@check(
    "identity/ep/modes_of_products",
    paper="villacampa2017",
    question="Is the mode of a Gaussian times several normal distribution functions met to a tenth of its width?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._largest import _modes

    rng = np.random.default_rng(0)
    for count in (1, 2, 4):
        start = rng.normal(0.0, 10.0 ** rng.uniform(-1.0, 1.5, (120, count)))
        rate = rng.choice([-1.0, 1.0], (120, count)) * 10.0 ** rng.uniform(-2.0, 2.5, (120, count))
        found, worst = _modes(start, rate), 0.0
        for a, b, t in zip(start, rate, found, strict=True):

            def hazard(t: float, a: Array = a, b: Array = b) -> Array:
                return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(-(a + b * t) / np.sqrt(2.0)))

            def slope(t: float, b: Array = b, hazard: Any = hazard) -> float:
                return float((b * hazard(t)).sum() - t)

            low, high = min(slope(0.0), 0.0) - 1.0, max(slope(0.0), 0.0) + 1.0
            for _ in range(70):  # halved to rounding: the slope falls
                middle = 0.5 * (low + high)
                low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
            true = 0.5 * (low + high)
            r = hazard(float(t))
            curvature = 1.0 + float((b**2 * r * np.maximum(a + b * t + r, 0.0)).sum())
            worst = max(worst, abs(float(t) - true) * np.sqrt(curvature))
        # the derivative has changed its sign after two steps, each a tenth of the width at most
        yield Compared(worst, 0.2, f"{count} functions, 120 rows: zeros by bracketing", "reference", "definition",
                       "distance over the width")  # fmt: skip


@check(
    "identity/apep/narrow_divergences",
    paper="villacampa2020",
    question="Are divergences of a broad and a narrow density those of their closed forms, wherever the narrow one is?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2020.divergence import (
        alpha_divergence,
        alpha_divergence_limits,
        gaussian_log_density,
        hellinger_identity,
        vb_as_reversed_divergence,
    )

    low, high = -12.0, 12.0
    worst = {"alpha": 0.0, "limits": 0.0, "one half": 0.0}
    for mean, sd in ((0.371, 0.1), (1.2345, 0.03), (-0.777, 0.01), (0.48, 0.005), (0.38, 0.004)):
        p, q = (0.2, 1.3), (mean, sd**2)
        for first, second in ((p, q), (q, p)):
            f, g = gaussian_log_density(*first), gaussian_log_density(*second)
            (m, v), (a, b) = first, second
            for alpha in (0.3, 0.5, 0.8):
                mixed = alpha * b + (1.0 - alpha) * v
                log_overlap = 0.5 * ((1.0 - alpha) * np.log(v) + alpha * np.log(b) - np.log(mixed))
                log_overlap -= 0.5 * alpha * (1.0 - alpha) * (m - a) ** 2 / mixed
                wanted = -np.expm1(log_overlap) / (alpha * (1.0 - alpha))
                found = alpha_divergence(f, g, alpha, low, high)
                worst["alpha"] = max(worst["alpha"], abs(found / wanted - 1.0))
                if alpha == 0.5:
                    found = hellinger_identity(f, g, low, high)
                    worst["one half"] = max(worst["one half"], abs(found / wanted - 1.0))
            ends = alpha_divergence_limits(f, g, low, high)
            backward = 0.5 * (b / v + (m - a) ** 2 / v - 1.0 + np.log(v / b))
            forward = 0.5 * (v / b + (m - a) ** 2 / b - 1.0 + np.log(b / v))
            worst["limits"] = max(worst["limits"], abs(ends.at_zero / backward - 1.0), abs(ends.at_one / forward - 1.0))
    for name, gap in worst.items():
        yield Compared(gap, 1e-8, f"{name}: deviations of 1.1 and of 0.1 to 0.004", "reference", "definition")
    gap = 0.0
    for mean, var, centre, spread, slope in ((1.0, 0.8, 60.0, 1.3, 0.4), (55.0, 1.3, -4.0, 0.8, -0.3),
                                             (0.5, 2.0, 0.9, 0.7, 1.0)):  # fmt: skip

        def log_factor(x: float, slope: float = slope) -> float:
            return slope * x

        found = vb_as_reversed_divergence(mean, var, log_factor, centre, spread)
        tilted = centre + slope * spread  # exp(slope x) N(x|centre, spread), normalised
        wanted = 0.5 * (var / spread + (mean - tilted) ** 2 / spread - 1.0 + np.log(spread / var))
        gap = max(gap, abs(found / wanted - 1.0))
    yield Compared(gap, 1e-8, "factors exp(a x) under cavities far from q, and near", "reference", "definition")


# -- settings of experiments ----------------------------------------------------------------------------------------


@check(
    "identity/x-gpc/sweeps_of_centres",
    paper="wenzel2019",
    question="Do sweeps of Lloyd's algorithm end where no row changes its centre, and with as many as are allowed?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019 import experiments as place

    X = np.arange(30.0)[:, None] ** 1.5
    ends: list[Array] = []
    looks: list[int] = []
    for most in (0, 1, 2, 3, 200):
        with mock.patch.object(place, "_squared_distances", side_effect=place._squared_distances) as seen:
            ends.append(place.kmeanspp_inducing_points(np.random.default_rng(2), X, 4, most)[:, 0])
        looks.append(seen.call_count - 3)  # three of the seeding
    # by hand: rows go to the nearest centre, centres to the means of their rows
    Z, owner = ends[0], np.full(len(X), -1)
    wanted, count = [Z], 0
    while True:
        count += 1
        closest = np.abs(X - Z).argmin(axis=1)
        if np.array_equal(closest, owner):
            break
        owner = closest
        Z = np.array([X[owner == p].mean() if (owner == p).any() else Z[p] for p in range(4)])
        wanted.append(Z)
    rows: list[tuple[str, object, object]] = [
        (f"{most} sweeps: looked at distances", look, min(most, count))
        for most, look in zip((0, 1, 2, 3, 200), looks, strict=True)
    ]
    rows.append(("sweeps until none changes", count > 3, True))
    yield as_documented(rows, "reference", "sweeps")
    gap = max(
        float(np.abs(end - wanted[min(most, len(wanted) - 1)]).max())
        for most, end in zip((0, 1, 2, 3, 200), ends, strict=True)
    )
    yield Compared(gap, 1e-12, "centres are means of their rows after each sweep", "reference", "definition",
                   "largest difference")  # fmt: skip


@check(
    "print/svi/ends_of_experiments",
    paper="izmailov2016",
    question="Are rates judged by the best value on the way, and lost centres, last sweeps and still features as said?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016 import experiments as place

    runs = {0.1: [-5.0, -3.0, -1.0], 0.2: [-5.0, -0.2, -4.0], 0.3: [-2.0, -1.5, -1.2]}
    rows: list[tuple[str, object, object]] = [
        (f"within {near:g} of the best value of any run",
         round(place.select_learning_rate(lambda rate: np.array(runs[round(rate, 1)]), near, 0.1, 3), 9), wanted)
        for near, wanted in ((0.1, 0.2), (0.9, 0.2), (1.1, 0.2), (1.35, 0.2), (1.9, 0.3))
    ]  # fmt: skip
    # four of five centres on two rows that are one place to all: three lose theirs, and take the farthest, each another
    X = np.array([[0.0], [0.1], [0.2], [10.0], [30.0], [70.0]])
    start = np.array([[0.0], [50.0], [51.0], [52.0]])
    order = mock.Mock(permutation=lambda size: np.arange(size))
    with mock.patch.object(place.np, "unique", return_value=start):
        one = place.kmeans_inducing_points(order, X, 4, 1)
    # 0, .1, .2 and 10 are nearest to 0; 30 to 50; 70 to 52; 51 has none and takes 30, as far from 50 as anyone is
    rows.append(("one centre without rows", one[:, 0].tolist(), [2.575, 30.0, 30.0, 70.0]))
    start = np.array([[0.0], [90.0], [91.0], [92.0]])
    with mock.patch.object(place.np, "unique", return_value=start):
        one = place.kmeans_inducing_points(order, X, 4, 1)
    # 70 alone is nearer to 90; two centres have none, and take the farthest rows, one each
    rows.append(("two centres without rows", one[:, 0].tolist(), [8.06, 70.0, 30.0, 70.0]))
    with mock.patch.object(place.np, "argmin", side_effect=np.argmin) as looked:
        place.kmeans_inducing_points(np.random.default_rng(1), X, 2, 500)
    rows.append(("sweeps until no row changes its centre, well below 500", looked.call_count < 20, True))
    y, still = np.array([1.0, -1.0] * 10), np.column_stack([np.arange(20.0), np.full(20, 3.0)])
    parts = place.prepare_dataset(still, y, 1)
    rows.append(("a fifth of twenty", (len(parts.X), len(parts.X_test)), (16, 4)))
    parts = place.prepare_dataset(still, y, 1, still[:2] + 5.0, y[:2])
    rows.append(("a still feature is only centred", parts.X_test[:, 1].tolist(), [5.0, 5.0]))
    yield as_documented([(a, np.round(b, 9).tolist() if isinstance(b, list) else b, c) for a, b, c in rows],
                        "reference", "answers")  # fmt: skip
