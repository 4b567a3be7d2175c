"""Pieces of `reference` by their own sentences: stages of algorithms, sizes of changes, limits of searches, few steps.

A run repeats such a piece until it stands still, and hides what one call of it does. So the judge makes one call.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)


def _one_latent(kind: str, scale: float = 1.0) -> tuple[Problem, Array, Any, Any]:
    """A problem of two classes with `scale` times its variance, signs of its labels, and izmailov2016's prior of it."""
    from reference.izmailov2016 import _prior

    asked = tiny(kind)
    Z = None if asked.Z is None else asked.Z[0]
    hyper = _prior.Prior(
        scale * float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]), float(asked.jitter[0]), Z
    )
    return asked, 2.0 * asked.y - 1.0, hyper, _prior.matrices(asked.X, hyper)


# -- stages of algorithm 1 ----------------------------------------------------------------------------------------


@check(
    "identity/vi-taylor/shortened_steps",
    paper="izmailov2016",
    question="Does a Newton step that would lower log p(u, y) end half-way, and again, at the first point that rises?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.algorithm1 import taylor_stage_one

    _, y, _, K = _one_latent("logit", 300.0)
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
        end = taylor_stage_one(u, K.K_ZZ, y, *K, 1)
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

    asked, y, hyper, K = _one_latent("logit")
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


# -- derivatives of the kernel, one parameter at a time -----------------------------------------------------------


def _kernel(A: Array, B: Array, variance: float, lengthscales: Array) -> Array:
    return variance * np.exp(-0.5 * np.square((A[:, None] - B[None]) / lengthscales).sum(axis=2))


@check(
    "derivative/x-gpc/each_parameter",
    paper="wenzel2019",
    question="Is what each parameter of the prior moves the difference of its matrices, and zero in the full model?",
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
                    there = hyper._replace(**{field: new})
                    points = asked.X if there.Z is None else there.Z
                    K = _kernel(points, points, float(there.variance), there.lengthscales)
                    if there.Z is None:
                        # the noise stands on the diagonal of K_XX; what else is made of it is nobody's matter here
                        zero = np.zeros((asked.n, asked.n))
                        ends.append((K + float(there.noise) * np.eye(asked.n), zero, np.zeros(asked.n)))
                    else:
                        cross = _kernel(asked.X, points, float(there.variance), there.lengthscales)
                        ends.append((K, cross, np.full(asked.n, float(there.variance + there.noise))))
                found = told[int(np.asarray(order[field])[at])]
                for mine, high, low in zip(found, *ends, strict=True):
                    worst = max(worst, float(np.abs(mine - (high - low) / (2.0 * step)).max()))
                rows.append(f"{field}{list(at)}")
        why = f"{'full' if Z is None else 'sparse'}: {len(rows)} parameters, steps of {step:g} of matrices of size 1"
        yield Compared(worst, 1e-8, why, "reference", "differences", "largest difference")
        yield flaws(abs(len(told) - len(rows)) + ("Z" in order) * (Z is None), f"{why}: each once", "reference",
                    "derivatives")  # fmt: skip


# -- sizes of changes ---------------------------------------------------------------------------------------------


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
        rows.append((what, largest_change(answers(here), answers(there)), wanted))  # type: ignore[arg-type]
    lost = largest_change(answers({"a": ([1.0],), "b": ([1.0],)}), answers({"a": ([np.nan],), "b": ([1.0],)}))
    rows.append(("a number that is lost counts as the largest", (bool(np.isnan(lost[0])), lost[1]), (True, "a")))
    yield as_documented(rows, "reference", "changes")


@check(
    "identity/arpep/another_maximum",
    paper="villacampa2020",
    question="Is a second maximum told with both values and its change relative to the fit, and one that is none not?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._gaussians import Gaussians
    from reference.common._neighbours import Answer
    from reference.villacampa2020 import fit_energies

    K = np.array([np.diag([1.0, 2.0, 3.0]), np.diag([0.5, 1.0, 2.0])])
    fit: Any = SimpleNamespace(prior="the prior", posterior=Gaussians(np.ones((2, 3)), 1.5 * K), value=-7.25)
    data: Any = SimpleNamespace(X=None, form="printed")
    data._replace = lambda **changes: SimpleNamespace(**{**vars(data), **changes})
    asked: Any = SimpleNamespace(tolerance=1e-10)
    rows: list[tuple[str, object, object]] = []
    for size, converged in ((4.0, True), (0.25, True), (1.0 + 1e-12, True), (4.0, False)):
        starts: list[Any] = []
        forms: list[str] = []

        def search(objective: Any, K_ZZ: Any, start: Any, most: int, told: Any, starts: Any = starts) -> str:
            starts.append(start)
            return "the end of L-BFGS"

        def again(there: Any, prior: Any, start: Any, options: Any, size: float = size, converged: bool = converged,
                  forms: Any = forms) -> Any:  # fmt: skip
            forms.extend((there.form, prior, start, options is asked))
            return SimpleNamespace(converged=converged, value=-3.5, posterior=size)

        def answer(data: Any, there: Any, q: Any, units: Any) -> dict[str, Any]:
            return {"energy": Answer(np.array([2.0 * (q if isinstance(q, float) else 1.0)]))}

        with (
            mock.patch.object(fit_energies, "prior_matrices", return_value=SimpleNamespace(K_ZZ=K)),
            mock.patch.object(fit_energies, "quasi_newton", search),
            mock.patch.object(fit_energies, "_ascend", again),
            mock.patch.object(fit_energies, "_answer", answer),
        ):
            told = fit_energies._another_optimum(data, fit, asked)
        what = f"an answer {size:g} times as large, converged {converged}"
        if converged and abs(size - 1.0) > 1e-6:
            parts = ("-7.25 by natural", "-3.5 by L-BFGS", f"energy changes by {abs(size - 1.0):.1e}")
            rows += [(f"{what}: {part}", part in told, True) for part in parts]
        else:
            rows.append((what, told, ""))
        from_prior = all(np.array_equal(start.cov, K) and not start.mean.any() for start in starts)
        rows.append((f"{what}: from the prior", from_prior and len(starts) == 1, True))
        rows.append((f"{what}: then steps", forms, ["projected", "the prior", "the end of L-BFGS", True]))
    yield as_documented(rows, "reference", "statements")


# -- sweeps that do not fall --------------------------------------------------------------------------------------


@check(
    "identity/ep/sweeps_that_stood_still",
    paper="villacampa2017",
    question="Do sweeps whose residuals stood still state a distance again as soon as they fall?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._sweeps import Sweeps

    damping, factor = 0.5, 0.9
    for still in (60, 75):
        sweeps = Sweeps(damping, 1e-12)
        x, move = np.zeros(3), np.array([1.0, -0.5, 0.25])
        for residual in [1.0] * still + [0.9 * 0.5**k for k in range(8)]:
            x, move = x + move, factor * move
            back = sweeps.see((x,), residual, 0)
            x = x if back is None else back[0]
            sweeps.propose((x,))  # whatever it is, nobody follows it
        # halved eight times in a row, of moves that fall by a tenth
        wanted = residual * damping * factor / (1.0 - factor)
        yield Compared(abs(sweeps.distance / wanted - 1.0), 1e-6, f"{still} residuals of one size, then eight halved",
                       "reference", "definition")  # fmt: skip


# -- few steps, and limits of searches ----------------------------------------------------------------------------


@check(
    "identity/svi/one_step",
    paper="izmailov2016",
    question="Has a run of one step no change from an earlier one to state, and that of two that of its last step?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.fit import fit_svi_batches

    asked, y, hyper, _ = _one_latent("logit")
    ends = [fit_svi_batches(asked.X, y, hyper, batches=[[0, 3, 5], [1, 6], [2, 7]][:steps]) for steps in (1, 2, 3)]
    yield flaws(ends[0].residual != np.inf, "after one step: infinite", "reference", "statements")
    for old, new in itertools.pairwise(ends):
        wanted = max(
            float(np.abs(a - b).max() / np.abs(a).max())
            for a, b in ((new.inducing_mean, old.inducing_mean), (new.inducing_cov, old.inducing_cov))
        )
        yield Compared(abs(new.residual / wanted - 1.0), 1e-9, f"{new.iterations} steps, from a run of one less",
                       "reference", "a shorter run")  # fmt: skip


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


class _AskedError(Exception):
    """A search was asked for; nobody makes it."""


def _limits(method: str, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options that SciPy's search would be given."""
    from reference.common import _search
    from validation.solve import solve

    found: dict[str, Any] = {}

    def taken(*_: Any, options: dict[str, Any], **__: Any) -> None:
        found.update(options)
        raise _AskedError

    with mock.patch.object(_search, "minimize", taken), suppress(_AskedError):
        solve("reference", method, tiny(kind), **options)
    return found


# method, problem, what asks for a search, the option that says how long, iterations where it does not
_SEARCHES: tuple[tuple[str, str, dict[str, Any], str, int], ...] = (
    ("svgpc", "probit", {}, "", 200),
    ("epgpc", "probit", {}, "", 200),
    ("x-gpc", "logit", {}, "learning_iterations", 200),
    ("laplace-binary", "logit full", {}, "learning_iterations", 200),
    ("svi", "logit", {}, "max_iterations", 10_000),
    ("vi-jj-full", "logit", {}, "max_iterations", 10_000),
    ("ep", "threshold", {"optimizer": "lbfgs"}, "n_steps", 200),
    ("pep", "threshold errors", {"optimizer": "lbfgs"}, "n_steps", 200),
    ("gfitc", "threshold", {}, "n_steps", 200),
    ("arpep", "threshold errors", {"optimizer": "lbfgs", "tolerance": 0.1}, "n_steps", 200),
    ("bb-alpha", "threshold errors", {"tolerance": 0.1}, "n_steps", 200),
    ("vi-robust", "threshold errors", {"optimizer": "lbfgs"}, "n_steps", 200),
    ("label-regression", "threshold errors", {}, "n_steps", 200),
)


@check(
    "identity/ep/iterations_of_searches",
    paper="villacampa2017",
    question="Do searches of all methods end after the iterations that are asked for, and as many where nobody asks?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    rows: list[tuple[str, object, object]] = []
    for method, kind, more, name, default in _SEARCHES:
        given = {"learn": ("variance",), **more}
        found = [_limits(method, kind, given)]
        if name:
            found.append(_limits(method, kind, given | {name: 7}))
        rows.append((method, [each["maxiter"] for each in found], [default, 7][: len(found)]))
    yield as_documented(rows, "reference", "limits")


# -- what is left of an iteration ---------------------------------------------------------------------------------


@check(
    "identity/x-gpc/what_arrival_states",
    paper="wenzel2019",
    question="Is the distance to a fixed point that of the slowest of the last five ratios, held where rounding rules?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._iteration import Arrival

    def after(changes: Iterable[float]) -> float:
        arrival = Arrival(1e-10)
        for each in changes:
            arrival.see(each)
        return arrival.residual

    inf = np.inf
    half, tenth = [0.5**k for k in range(20)], [0.9**k for k in range(20)]
    slow = [1.0, 0.99, *(0.99 * 0.6**k for k in range(1, 8))]
    small = [1e-7 * 0.5**k for k in range(8)]  # the last is 8e-10: what comes after is held
    rows: list[tuple[str, float, float]] = [
        ("one change", after([1e-3]), inf),
        ("two", after([1e-3, 1e-4]), inf),
        ("a change of zero", after([1e-3, 0.0]), 0.0),
        ("halved", after(half), half[-1]),
        ("less by a tenth", after(tenth), 9.0 * tenth[-1]),
        ("equal", after([1e-3] * 9), inf),
        ("growing", after([1e-3, 2e-3, 3e-3]), inf),
        ("a slow ratio, five back", after(slow[:6]), 99.0 * slow[5]),
        ("a slow ratio, six back", after(slow[:7]), 1.5 * slow[6]),
        ("equal after it has fallen: the ratio is held", after([*slow[:8], slow[7]]), 1.5 * slow[7]),
        ("below 1e-9 the ratio is held", after([*small, 0.9 * small[-1]]), 0.9 * small[-1]),
        ("above 1e-9 it is not", after([*(10.0 * each for each in small), 9.0 * small[-1]]), 9.0 * 9.0 * small[-1]),
        ("there at once: three below 1e-14", after([5e-15, 9e-15, 5e-15]), 5e-15),
        ("two below 1e-14, one above", after([2e-14, 5e-15, 9e-15]), 9e-15),
        ("one far above, then two equal below 1e-14", after([1e-9, 5e-15, 5e-15]), inf),
        ("three equal below 1e-12, nothing known before", after([5e-13, 5e-13, 5e-13]), 5e-13),
        ("three about 1e-12", after([2e-12, 5e-13, 5e-13]), inf),
        ("three equal below 1e-12, a ratio known", after([*tenth[:6], *[5e-13] * 3]), 9.0 * 5e-13),
        ("falling after a zero", after([1e-3, 0.0, 1e-4, 5e-5]), 5e-5),
    ]
    wrong = [
        f"{what}: {found:.6g}, expected {wanted:.6g}"
        for what, found, wanted in rows
        if found != wanted and not (np.isfinite(wanted) and abs(found - wanted) <= 1e-9 * wanted)
    ]
    yield flaws(len(wrong), "; ".join(wrong) or f"{len(rows)} sequences of changes, by hand", "reference", "distances")


# -- Newton's method from zero ------------------------------------------------------------------------------------


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


@check(
    "identity/laplace/first_steps",
    paper="riihimaki2013",
    question="Are the first steps of Newton's method those from zero, and is what is stated of them theirs?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common.laplace_binary import laplace_mode as binary
    from reference.riihimaki2013.laplace import _laplace_mode
    from reference.villacampa2020.laplace_sparse import laplace_mode as sparse

    rng = np.random.default_rng(17)
    n, C = 7, 3
    y, signs = np.array([0, 1, 2, 2, 0, 1, 1]), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    X = rng.standard_normal((n, 1))
    correlation = np.exp(-0.5 * np.square(X - X.T)) + 0.1 * np.eye(n)
    for scale in (1.0, 30.0):
        K = scale * correlation
        blocks = np.kron(np.diag([1.0, 0.7, 1.6]), K)
        for steps in (1, 2):
            several = _newton(lambda f: _softmax_terms(f, y, n, C), blocks, steps)
            two = _newton(lambda f: _signed_terms(f, signs), K, steps)
            stacked, table = _laplace_mode(blocks, y, 1e-14, steps), sparse(blocks, y, C, 1e-14, steps)
            single = binary(K, signs, "logit", 1e-14, steps)
            for name, found, end, (f, size) in (
                ("laplace", stacked.mode, stacked, several),
                ("laplace-sparse", table.latent_values.T.ravel(), table, several),
                ("laplace-binary", single.f, single, two),
            ):
                gap = float(np.abs(found - f).max() / np.abs(f).max())
                why = f"{name}, variances times {scale:g}: after {steps} steps from zero, dense"
                yield Compared(gap, 1e-9, why, "reference", "definition")
                wrong = end.converged or end.iterations != steps
                if name == "laplace-binary":
                    wrong |= abs(end.residual - size / max(1.0, np.abs(f).max())) > 1e-6 * end.residual
                    wrong |= len(end.trace) != steps + 1
                yield flaws(wrong, f"{name}: what it states of {steps} steps", "reference", "statements")


# -- no gradient where there is no distribution -------------------------------------------------------------------


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


# -- mini-batches of the full model -------------------------------------------------------------------------------


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
        asked, y, hyper, K = _one_latent(kind)
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


# -- loops of two classes -----------------------------------------------------------------------------------------


def _binary(kind: str) -> Any:
    """What fits of wenzel2019 are given."""
    from reference.wenzel2019 import _prior

    asked = tiny(kind)
    return _prior.checked(
        asked.X, 2.0 * asked.y - 1.0, float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]),
        float(asked.jitter[0]), None if asked.Z is None else asked.Z[0],
    )  # fmt: skip


@check(
    "identity/svgpc/steps_that_do_not_rise",
    paper="wenzel2019",
    question="Is a step halved to a millionth while the bound falls, and a run that no length helps not converged?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019 import fit_svgpc

    given = _binary("probit")
    rows: list[tuple[str, object, object]] = []
    healthy = fit_svgpc.natural_gradient_step
    for falls, ended in ((0, False), (3, False), (19, False), (60, True)):
        values = [0.0, *[-1.0] * falls, *np.arange(1.0, 100.0)]
        rates: list[float] = []

        def step(*given: Any, rates: list[float] = rates) -> Any:
            rates.append(float(given[-1]))
            return healthy(*given)

        for moved, steps in ((0.0, 1), (1.0, 1 if ended else 4)):  # as if it had arrived, and as if it never would
            with (
                mock.patch.object(fit_svgpc, "svgpc_bound", mock.Mock(side_effect=values)),
                mock.patch.object(fit_svgpc, "natural_gradient_step", step),
                mock.patch.object(fit_svgpc, "change", return_value=moved),
            ):
                end = fit_svgpc._ascend(given, 1e-300, 4, None)
            what = f"a bound that falls {falls} times, moves of {moved:g}: "
            rows += [
                (what + "converged", end.converged, moved == 0.0 and not ended),
                (what + "steps", (end.iterations, len(end.trace)), (steps, steps)),
            ]
        tried = [0.5**k for k in range(min(falls, 20) + 1)]
        rows.append((f"rates until a bound rises that falls {falls} times", rates[: len(tried)], tried))
    yield as_documented(rows, "reference", "statements")


@check(
    "identity/epgpc/whole_steps",
    paper="wenzel2019",
    question="Is the distance of damped sweeps measured by whole ones, and does a run whose labels cancel arrive?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019 import fit_epgpc
    from reference.wenzel2019.fit_svgpc import fit_svgpc

    given = _binary("probit")
    for damping in (1.0, 0.4):
        seen: list[float] = []
        states: list[Any] = []

        class Told(fit_epgpc.Arrival):
            def see(self, moved: float, seen: list[float] = seen) -> None:
                seen.append(moved)
                super().see(moved)

        def tell(state: Any, states: list[Any] = states) -> None:
            states.append(state.sites)

        with mock.patch.object(fit_epgpc, "Arrival", Told):
            fit_epgpc._propagate(given, 1e-10, 4, damping, None, tell)
        wanted = [1.0 / damping]  # from zero
        wanted += [
            max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(new, old, strict=True)) / damping
            for old, new in itertools.pairwise(states)
        ]
        gap = float(np.abs(np.array(seen) / np.array(wanted) - 1.0).max())
        yield Compared(gap, 1e-12, f"damping {damping:g}: four sweeps", "reference", "definition")

    # each input twice, with either label: the mean of q is zero, and its digits are those of rounding
    X = np.array([0.3, -1.1, 0.9, 1.7, -0.4])[:, None]
    both, y = np.vstack([X, X[[2, 0, 4, 1, 3]]]), np.repeat([1.0, -1.0], 5)
    end = fit_svgpc(both, y, 1.7, [0.8], 0.2, 1e-3, np.array([[-1.0], [0.1], [1.3]]))
    largest = float(np.abs(end.inducing_mean).max())
    yield flaws(not end.converged or largest > 1e-12, f"labels that cancel: converged {end.converged}", "reference",
                "runs")  # fmt: skip


@check(
    "identity/x-gpc-svi/plans",
    paper="wenzel2019",
    question="Are batches drawn as many and as large as documented where nobody says, and at most all data?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._batches import ascending_batches
    from reference.common.options import options_of
    from reference.izmailov2016 import fit as izmailov
    from reference.wenzel2019 import _stochastic

    rows: list[tuple[str, object, object]] = []

    def told(what: str, plan: Any, steps: int, size: int, n: int) -> None:
        lists = [np.asarray(batch) for batch in plan]
        good = all(
            len(batch) == size == len(np.unique(batch)) and 0 <= batch.min() <= batch.max() < n for batch in lists
        )
        rows.append((f"{what}: steps, all of {size} different rows of {n}", (len(lists), good), (steps, True)))

    for method in ("x-gpc-svi", "svgpc", "epgpc"):
        for n in (40, 250):
            for given, steps, size in (({}, 1000, 100), ({"batch_size": 7}, 1000, 7), ({"n_steps": 12}, 12, 100)):
                plan, first = _stochastic.plan_batches(n, options_of(method)(**given))
                told(f"{method}, {given}", plan, steps, min(size, n), n)
                rows.append((f"{method}, {given}: the first ten", [list(each) for each in first],
                             [list(each) for each in plan[:10]]))  # fmt: skip
        if method != "epgpc":
            lists = ([0, 3], [1], [2, 2])
            plan, first = _stochastic.plan_batches(4, options_of(method)(batches=lists, init_batches=([1, 2],)))
            rows.append((f"{method}, given", [[list(each) for each in part] for part in (plan, first)],
                         [[list(each) for each in lists], [[1, 2]]]))  # fmt: skip
    for given, steps, size in (({}, 250, 8), ({"batch_size": 3}, 250, 3), ({"n_steps": 5}, 5, 8),
                               ({"batch_size": 20, "n_steps": 5}, 5, 8)):  # fmt: skip
        asked = {"batches": None, "batch_size": None, "n_steps": None, "seed": 0, **given}
        plan = ascending_batches(8, **asked)
        told(f"ep, {given}", plan, steps, size, 8)
        rows.append((f"ep, {given}: ascending", all((np.diff(each) > 0).all() for each in plan), True))
    taken: list[Any] = []

    def take(X: Any, y: Any, hyper: Any, plan: Any, *_: Any) -> None:
        taken.append(plan)
        raise _AskedError

    for n in (40, 250):
        asked, _, hyper, _ = _one_latent("logit")
        X = np.random.default_rng(4).standard_normal((n, 2))
        with mock.patch.object(izmailov, "svi_adadelta", take), suppress(_AskedError):
            izmailov.fit_svi_batches(X, np.resize([1.0, -1.0], n), hyper)
        told("svi", taken.pop(), 1000, min(100, n), n)
    for first_rate, accepted in ((0.6, True), (1.0, True), (1.001, False), (2.0, False)):
        options = options_of("x-gpc-svi")(rate=("decay", 2.0 * first_rate, 3.0, 0.5))  # over the root of four
        try:
            _stochastic.planned(_binary("logit"), options)
            came = True
        except ValueError as error:
            came = not str(error).startswith("rate: ")
        rows.append((f"a rate that starts at {first_rate:g} is accepted", came, accepted))
    for given, stop in (({}, 1e-4), ({"batches": ([0, 1],)}, None), ({"stop": 0.3}, 0.3), ({"stop": None}, None),
                        ({"batches": ([0, 1],), "stop": 0.3}, 0.3)):  # fmt: skip
        plan = _stochastic.planned(_binary("logit"), options_of("x-gpc-svi")(**given))
        rows.append((f"the stopping rule of {given}", plan.stop, stop))
    yield as_documented(rows, "reference", "plans")


# -- loops that stand still, searches around them -----------------------------------------------------------------


@check(
    "identity/x-gpc/stalled_loops",
    paper="wenzel2019",
    question="Does each loop end, unconverged, when 200 iterations have brought no smaller change, and no sooner?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._iteration import Arrival
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    for what, changes, wanted in (
        ("all equal", [1e-3] * 300, 201),
        ("falling for thirty", [0.5**k for k in range(30)] + [1.0] * 300, 230),
        ("a smaller one in between", [1e-3] * 150 + [9e-4] + [1e-3] * 300, 351),
    ):
        arrival, count = Arrival(1e-300), 0
        for each in changes:
            arrival.see(each)
            count += 1
            if arrival.stalled:
                break
        rows.append((f"{what}: given up after", count, wanted))
    for method, kind in (("x-gpc", "logit"), ("svgpc", "probit"), ("epgpc", "probit"), ("svi", "logit"),
                         ("qep", "multinomial-probit full"), ("qiep", "multinomial-probit full")):  # fmt: skip
        with mock.patch.object(Arrival, "stalled", property(lambda arrival: len(arrival.changes) >= 3)):
            end = solve("reference", method, tiny(kind), tolerance=1e-14, gradients=False)
        rows.append((f"{method} that is told after three: iterations, converged", (end.iterations, end.converged),
                     (3, False)))  # fmt: skip
    yield as_documented(rows, "reference", "ends")


def _undoubted(module: Any) -> Any:
    """Nobody looks for another answer beside one that has converged."""
    if hasattr(module, "_certain"):
        return mock.patch.object(module, "_certain", lambda data, fit, options: fit)
    return mock.patch.object(module, "_doubt", return_value="")


@check(
    "identity/ep/searches_around",
    paper="villacampa2017",
    question="Does a search start each run where the last ended, claim no more than its runs, and tell what is asked?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    short = {"learn": ("variance",), "n_steps": 1, "optimizer": "lbfgs", "learn_tolerance": 1e9, "gradients": False}
    for method, kind, place, name in (
        ("ep", "threshold", "reference.common._training", "settled"),
        ("vi-robust", "threshold errors", "reference.villacampa2017.vi_fit", "_ascend"),
        ("arpep", "threshold errors", "reference.villacampa2020.fit_energies", "_ascend"),
    ):
        module = importlib.import_module(place)
        healthy = getattr(module, name)
        starts: list[Any] = []
        ends: list[Any] = []

        def noted(*given: Any, healthy: Any = healthy, starts: Any = starts, ends: Any = ends, **more: Any) -> Any:
            result = healthy(*given, **more)
            # a run of sweeps is given a state, an ascent its start as the third of its arguments
            starts.append(given[1].sites if hasattr(given[1], "sites") else given[2])
            ends.append(result.sites if hasattr(result, "sites") else result.posterior)
            return result

        with mock.patch.object(module, name, noted), _undoubted(module):
            first = solve("reference", method, tiny(kind), tolerance=1e-2, **short)
        follow = [new is old for old, new in zip(ends, starts[1:], strict=False)]
        rows += [
            (f"{method}: each of {len(starts)} runs from the end of the last", len(follow) > 1 and all(follow), True),
            (f"{method}: converged, iterations", (first.converged, first.iterations), (True, 1)),
        ]
        cut = solve("reference", method, tiny(kind), tolerance=1e-12, max_iterations=1, **short)
        rows.append((f"{method}, of runs of one iteration: converged", cut.converged, False))
        if method == "ep":
            told = solve("reference", method, tiny(kind), tolerance=1e-2, trace=True, **short)
            lengths = [0 if each.trace is None else len(each.trace) for each in (first, told)]
            rows.append((f"{method}: lengths of traces, not asked for and asked for", lengths, [0, 1]))
    for method, kind in (("svgpc", "probit"), ("epgpc", "probit"), ("svi", "logit")):
        cut = solve("reference", method, tiny(kind), tolerance=1e-12, max_iterations=2, learn=("variance",))
        rows.append((f"{method}, of runs of two iterations: converged", cut.converged, False))
    yield as_documented(rows, "reference", "statements")


@check(
    "identity/ep/what_is_kept",
    paper="villacampa2017",
    question="Is log Z kept of the sweeps that have one, and is each told with its number and all improper cavities?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._sweeps import Step
    from reference.common._training import Record

    told: list[tuple[int, float, int]] = []
    values = iter([-5.0, None, -4.0])
    method = SimpleNamespace(posterior=lambda sites, K: (sites, K), traced=lambda sites, q, K: next(values))
    for trace in (True, False):
        options = SimpleNamespace(trace=trace, callback=lambda seen: told.append(tuple(seen)))
        record = Record(SimpleNamespace(method=method, options=options))  # type: ignore[arg-type]
        for count, improper in enumerate((2, 0, 3)):
            record.tell(Step("sites", 0.5**count, improper), "K")
        kept = [-5.0, -4.0] if trace else []
        yield flaws(record.trace != kept, f"trace {trace}: {record.trace}", "reference", "values")
    wanted = [(1, 1.0, 2), (2, 0.5, 2), (3, 0.25, 5)] * 2
    yield flaws(told != wanted, f"told {told[:3]}", "reference", "statements")


def _settled_by_sentences(asked: dict[str, Any], tied: bool, inner: tuple[str, ...]) -> dict[str, Any] | str:
    """Optimiser, scheme and rate by the sentences of `with_defaults`, or the option that is refused."""
    parts = "batches" in asked or "batch_size" in asked
    scheme, optimizer = asked.get("scheme"), asked.get("optimizer")
    if "batches" in asked and "batch_size" in asked:
        return "batch_size"
    if optimizer is None:
        optimizer = "lbfgs" if not (tied or parts or "n_steps" in asked or scheme in inner) else "adam"
    if optimizer == "lbfgs" and (tied or parts):
        return "optimizer"
    if optimizer == "lbfgs" and scheme not in (None, "outer"):
        return "scheme"
    if parts and scheme == "outer":
        return "scheme"
    if "n_steps" in asked and not parts and not asked["learn"]:
        return "n_steps"
    scheme = scheme or ("outer" if optimizer == "lbfgs" else inner[0])
    rate = asked.get("rate") or {"adaptive": 0.01}.get(optimizer, 0.001)
    return {"optimizer": optimizer, "scheme": scheme, "rate": rate}


@check(
    "identity/sep/settings_by_sentences",
    paper="villacampa2017",
    question="Are optimiser, scheme and rate that a run of `reference` leaves open those of its documentation?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.common._training import with_defaults
    from reference.common.options import options_of

    asked = tiny("threshold")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    parts: tuple[dict[str, Any], ...] = (
        {}, {"batches": ([0, 1], [2])}, {"batch_size": 3}, {"batches": ([0, 1], [2]), "batch_size": 3},
    )  # fmt: skip
    rows: list[tuple[str, object, object]] = []
    for method, inner in (("ep", ("inner-approximate", "inner-exact")), ("sep", ("inner-approximate", "inner-exact")),
                          ("pep", ("inner",))):  # fmt: skip
        tied = method == "sep"
        optimizers = (None, "adaptive", "adam") if tied else (None, "lbfgs", "adaptive", "adam")
        for part, learn, optimizer, scheme, steps, rate in itertools.product(
            parts, ((), ("noise", "variance")), optimizers, (None, "outer", *inner), (None, 2), (None, 0.3)
        ):
            given = {"learn": learn, "optimizer": optimizer, "scheme": scheme, "n_steps": steps, "rate": rate}
            given = {name: value for name, value in given.items() if value is not None} | part
            try:
                end = with_defaults(options_of(method)(**given), prior, inner, tied)
                found: Any = {name: getattr(end, name) for name in ("optimizer", "scheme", "rate")}
                if end.learn != tuple(name for name in ("variance", "noise") if name in learn):
                    found = "learn"
            except ValueError as error:
                found = str(error).partition(":")[0]
            rows.append((f"{method} {given}", found, _settled_by_sentences(given, tied, inner)))
    wrong = [f"{what}: {came}, expected {wanted}" for what, came, wanted in rows if came != wanted]
    yield flaws(len(wrong), "; ".join(wrong[:2]) or f"{len(rows)} combinations, each by the sentences", "reference",
                "settings")  # fmt: skip


# -- sums of probabilities ----------------------------------------------------------------------------------------

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


# -- one sweep ----------------------------------------------------------------------------------------------------


@check(
    "identity/ep/one_damped_sweep",
    paper="villacampa2017",
    question="Is what one damped sweep from factors of one leaves in q that share of what a whole sweep leaves?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from validation.solve import solve

    for method, kind, forms in (
        ("ep", "threshold", ("printed", "projected")),
        ("sep", "threshold", ("printed", "projected")), ("pep", "threshold errors", ("printed", "projected")),
        ("epgpc", "probit", ("",)),
    ):  # fmt: skip
        asked = tiny(kind)
        for form in forms:
            sites = []
            for damping in (1.0, 0.3):
                given = {
                    "damping": damping,
                    "max_iterations": 1,
                    "gradients": False,
                    **({"form": form} if form else {}),
                }
                end = solve("reference", method, asked, **given)
                assert end.inducing_mean is not None
                assert end.inducing_cov is not None
                assert asked.Z is not None
                parts = []
                for k, (m, V) in enumerate(zip(end.inducing_mean, end.inducing_cov, strict=True)):
                    Z = asked.Z[k]
                    K = _kernel(Z, Z, float(asked.variance[k]), asked.lengthscales[k])
                    K += float(asked.jitter[k]) * np.eye(len(Z))
                    inverse = np.linalg.inv(V)
                    parts += [(inverse - np.linalg.inv(K)).ravel(), inverse @ m]
                sites.append(np.concatenate(parts))
            gap = float(np.abs(sites[1] - 0.3 * sites[0]).max() / np.abs(sites[0]).max())
            yield Compared(gap, 1e-9, f"{method} {form}: damping of 0.3 and of 1", "reference", "a whole sweep")


@check(
    "identity/gfitc/damped_steps",
    paper="villacampa2017",
    question="Does a damped step take sites that share of the way from where they were to where a whole one leads?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2017 import gfitc
    from reference.villacampa2017.hyper import prior_matrices

    asked = tiny("threshold")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    K_XX = gfitc.fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ)
    rng = np.random.default_rng(23)
    other = np.arange(3) != asked.y[:, None]  # the label's own class has no factor
    low, high = np.array([0.05, -0.2, 0.05, -0.2]), np.array([0.3, 0.2, 0.3, 0.2])
    here = gfitc.Coefficients(*(other * rng.uniform(a, b, (8, 3)) for a, b in zip(low, high, strict=True)))
    for form in (gfitc._Printed, gfitc._Projected):
        sites = []
        for damping in (1.0, 0.3):
            run = form(K_XX, asked.y, damping)
            sites.append(np.array(run.step(here, run.posterior(here)).sites))
        gap = float(np.abs(sites[1] - (0.7 * np.array(here) + 0.3 * sites[0])).max() / np.abs(sites[0]).max())
        yield Compared(gap, 1e-9, f"{form.__name__[1:].lower()}: damping of 0.3 and of 1, from sites of their own",
                       "reference", "a whole step")  # fmt: skip


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


# -- ties, positions, derivatives at an end -----------------------------------------------------------------------


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
    "identity/svi/positions_and_ends",
    paper="izmailov2016",
    question="Are the places of a stochastic run those that it tells, and derivatives at an end those of the bound?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016.fit import fit_vi
    from reference.izmailov2016.svi import Parameters, as_vector, batch_bound, svi_adadelta

    asked, y, hyper, _ = _one_latent("logit")
    told: list[Array] = []
    learn = ("variance",)
    batches = [np.array([0, 3]), np.array([5]), np.array([1, 2])]
    run = svi_adadelta(
        asked.X, y, hyper, batches, learn=learn, callback=lambda state: told.append(as_vector(state.parameters, learn))
    )
    same = run.positions.shape == (3, len(told[0])) and np.array_equal(run.positions, np.array(told))
    yield flaws(not same or not np.array_equal(told[-1], as_vector(run.parameters, learn)), "after each of three steps",
                "reference", "places")  # fmt: skip

    everything, step = np.arange(asked.n), 1e-5
    for most in (1, 10_000):
        end = fit_vi("svi", asked.X, y, hyper, max_iterations=most)
        assert end.derivatives is not None
        L = np.linalg.cholesky(end.inducing_cov)
        worst = 0.0
        for p in range(len(L)):
            for q in (None, *range(p + 1)):
                ends = []
                for sign in (1.0, -1.0):
                    mean, root = end.inducing_mean.copy(), L.copy()
                    if q is None:
                        mean[p] += sign * step
                    else:
                        root[p, q] += sign * step
                    ends.append(batch_bound(Parameters(mean, root, hyper), asked.X, y, everything))
                found = end.derivatives.inducing_mean[p] if q is None else end.derivatives.inducing_chol[p, q]
                worst = max(worst, abs(float(found) - (ends[0] - ends[1]) / (2.0 * step)))
        yield Compared(worst, 1e-7, f"{end.iterations} steps: by means and factors", "reference", "differences",
                       "largest difference")  # fmt: skip


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


# -- divergences --------------------------------------------------------------------------------------------------


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
        found = vb_as_reversed_divergence(mean, var, lambda x, slope=slope: slope * x, centre, spread)
        tilted = centre + slope * spread  # exp(slope x) N(x|centre, spread), normalised
        wanted = 0.5 * (var / spread + (mean - tilted) ** 2 / spread - 1.0 + np.log(spread / var))
        gap = max(gap, abs(found / wanted - 1.0))
    yield Compared(gap, 1e-8, "factors exp(a x) under cavities far from q, and near", "reference", "definition")


# -- experiments, a search over factors, what is left where it is -------------------------------------------------


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
    "identity/gfitc/where_searches_start",
    paper="villacampa2017",
    question="Does a search start from sites that have converged, and is what does not converge no answer?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Found, Prior
    from reference.common.errors import NotPositiveDefiniteError
    from reference.villacampa2017 import gfitc as place
    from reference.villacampa2020 import fit_energies

    asked = tiny("threshold")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    starts: list[Any] = []
    script = iter([True, False, True, False])

    def run(X: Any, y: Any, there: Any, start: Any, options: Any) -> Any:
        starts.append(start)
        converged = next(script)
        return place.GFITCFit(
            place.Gaussians(np.zeros((3, 4)), K_ZZ), np.zeros((8, 3)), np.ones((8, 3)), f"end {len(starts)}",
            np.zeros((8, 3)), -4.0, np.zeros(0), 0.1, converged, 0, 5, there, "projected",
        )  # type: ignore[arg-type]  # fmt: skip

    K_ZZ, refused = np.tile(np.eye(4), (3, 1, 1)), []

    def search(evidence: Any, start: Any, *_: Any) -> Found:
        for _ in range(3):
            try:
                evidence(start)
                refused.append(False)
            except NotPositiveDefiniteError:
                refused.append(True)
        return Found(start, np.array([-5.0]), 0.25, True, 2)

    with (
        mock.patch.object(place, "_expectation_propagation", run),
        mock.patch.object(place, "search", search),
        mock.patch.object(place, "gfitc_gradients", return_value={}),
    ):
        end = place.gfitc_baseline(asked.X, asked.y, prior, learn=("variance",))
    # an energy that has no maximum at the start is told, and not searched
    none = SimpleNamespace(optimum="none: the variance of class 0 grows without bound", converged=False)
    with mock.patch.object(fit_energies, "_ascend", return_value=none), mock.patch.object(fit_energies, "search") as no:
        told = fit_energies.fit_energy(asked.X, asked.y, prior, "arpep", 0.05, learn=("variance",))
    rows: list[tuple[str, object, object]] = [
        ("an energy without a maximum", (told is none, no.call_count), (True, 0)),
        ("places without an answer", refused, [False, True, False]),
        ("starts after the first", starts[1:], ["end 1", "end 1", "end 3"]),
        ("the first start", [float(np.abs(part).max()) for part in starts[0]], [0.0] * 4),
        ("a last run that does not converge", end.converged, False),
        ("iterations, residual, trace", (end.iterations, end.residual, end.trace.tolist()), (2, 0.25, [-5.0])),
    ]
    yield as_documented(rows, "reference", "statements")


@check(
    "identity/ep/factors_left_alone",
    paper="villacampa2017",
    question="Are factors without a cavity left where they are and counted, by every schedule and form?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common._classes import Prior
    from reference.villacampa2017 import methods, printed
    from reference.villacampa2017.hyper import prior_matrices

    asked = tiny("threshold")
    assert asked.Z is not None
    K = prior_matrices(asked.X, Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z))
    everything = np.arange(asked.n)
    rows: list[tuple[str, object, object]] = []
    for form in (methods.PairwiseEP, methods.DatumEP, printed.PrintedEP):
        for schedule in ("parallel", "sequential"):
            run: Any = form(asked.y, 3, 0.5, schedule)
            sites = run.start(K)
            q = run.posterior(sites, K)
            bad = type(sites)(*(part.copy() for part in sites))
            # datum 0 has label 0, and comes first: what it claims to know of class 1 is more than q does
            at = 2 if len(sites) == 4 else 0
            bad[at][0, 1] = 1e7
            end = run.step(bad, q, K, everything)
            held = [bool(part[0, 1] == was[0, 1]) for part, was in zip(end.sites, bad, strict=True)]
            moved = [bool(part[4, 0] != was[4, 0]) for part, was in zip(end.sites, bad, strict=True)]
            sound = all(np.isfinite(part).all() for part in end.sites)
            what = f"{form.__name__}, {schedule}: "
            rows += [
                (what + "held, others moved, finite", (all(held), all(moved), sound), (True, True, True)),
                (what + "counted", end.n_improper, 1),
            ]
    yield as_documented(rows, "reference", "factors")


@check(
    "identity/x-gpc-svi/untraced_runs",
    paper="wenzel2019",
    question="Is a run on mini-batches the same whether its values are kept or not, and are its steps counted?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from validation.solve import solve

    rows: list[tuple[str, object, object]] = []
    for method, kind in (("x-gpc-svi", "logit"), ("svgpc", "probit"), ("epgpc", "probit"), ("svi", "logit"),
                         ("ep", "threshold"), ("sep", "threshold"), ("pep", "threshold errors"),
                         ("vi-robust", "threshold errors"), ("arpep", "threshold errors")):  # fmt: skip
        ends = []
        for trace in (False, True):
            seen: list[int] = []
            end = solve(
                "reference", method, tiny(kind), batches=((0, 3, 5), (1, 6)), trace=trace, gradients=False,
                callback=lambda state, seen=seen: seen.append(state.iteration),
            )  # fmt: skip
            length = 0 if end.trace is None else len(end.trace)
            ends.append(end)
            rows.append((f"{method}, values kept {trace}: iterations, values, what is told",
                         (end.iterations, length, seen), (2, 2 * trace, [1, 2])))  # fmt: skip
        same = all(
            np.array_equal(getattr(ends[0], name), getattr(ends[1], name))
            for name in ("inducing_mean", "inducing_cov", "latent_mean", "residual")
        )
        rows.append((f"{method}: the same answer", same, True))
    yield as_documented(rows, "reference", "runs")


@check(
    "identity/vi-robust/ascents_by_two_methods",
    paper="villacampa2017",
    question="Is each step of an ascent told, by either method, kept to its number, and a q that runs away no answer?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _ascent
    from reference.common._gaussians import Gaussians, Natural, natural_parameters

    rng = np.random.default_rng(41)
    roots = 0.6 * rng.standard_normal((2, 3, 3)) + np.eye(3)
    top = Gaussians(rng.standard_normal((2, 3)), roots @ roots.transpose(0, 2, 1))
    K = np.array([np.eye(3) + 0.3, 2.0 * np.eye(3) + 0.1])

    def objective(q: Any) -> Any:
        """Minus the divergence from a Gaussian: one whole natural-gradient step leads to its maximum, which is zero."""
        theta, there = natural_parameters(q), natural_parameters(top)
        value, by_mean, by_cov = 0.0, [], []
        for m, V, P, a in zip(*q, there.precision, top.mean, strict=True):
            value -= 0.5 * float(np.trace(P @ V) + (a - m) @ P @ (a - m) - 3.0 - np.linalg.slogdet(P @ V)[1])
            by_mean.append(P @ (a - m))
            by_cov.append(0.5 * (np.linalg.inv(V) - P))
        direction = Natural(there.precision - theta.precision, there.shift - theta.shift)
        return SimpleNamespace(value=value, direction=direction, by_mean=np.array(by_mean), by_cov=np.array(by_cov))

    rows: list[tuple[str, object, object]] = []
    for patience, most in ((40, 100), (0, 100), (0, 4), (1, 100)):
        told: list[tuple[float, float]] = []
        goal = _ascent.Goal(1e-5, most, patience)
        end = _ascent.ascend(objective, K, None, goal, lambda *state, told=told: told.append(state))
        by_search = sum(np.isnan(residual) for _, residual in told)
        what = f"{patience} steps, then L-BFGS, {most} at most: "
        rows += [
            (what + "told what is kept", [value for value, _ in told], end.values.tolist()),
            (what + "its number", len(told) <= most, True),
            (what + "steps of L-BFGS", by_search > 0, patience == 0),
            (what + "the end", (end.converged, end.optimum), (most > 4, "finite" if most > 4 else "not reached")),
            (what + "near the maximum", float(np.abs(end.q.mean - top.mean).max()) < 1e-4, most > 4),
        ]
        if most == 4:
            rows.append((what + "all of them made", len(told), 4))
    with mock.patch.object(_ascent, "maximise", return_value=SimpleNamespace(where=np.zeros(2 * (3 + 6)))) as search:
        _ascent.quasi_newton(objective, K, Gaussians(np.zeros((2, 3)), K), 17, lambda *_: None)
    rows.append(("iterations of L-BFGS", search.call_args.args[2].iterations, 17))
    # at a place where nothing pulls any more, and far from any prior
    still = SimpleNamespace(value=0.0, direction=Natural(np.zeros((2, 3, 3)), np.zeros((2, 3))))
    for size, shift, gone in ((1.0, 0.0, ""), (2e6, 0.0, "none: the variance of class 0"),
                              (1.0, 3e6, "none: the mean of class 0")):  # fmt: skip
        start = Gaussians(np.full((2, 3), shift), size * K)
        end = _ascent.ascend(lambda q: still, K, start, _ascent.Goal(1e-5, 50), lambda *_: None)
        rows.append((f"variances times {size:g}, means of {shift:g}", (end.converged, end.optimum.startswith(gone)),
                     (gone == "", True)))  # fmt: skip
    yield as_documented(rows, "reference", "ascents")
