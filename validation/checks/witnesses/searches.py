"""Where searches end: the other witness's gradient there, and what a search does with a function that the judge made.

A search that stops early, or on the gradient of something else, reports an optimum that is none. At its end the other
witness is asked for the gradient, distributions of the parameters differentiated by the judge. Between start and end a
search keeps promises of its own: how far logarithms move, what becomes of parameters that are refused, that the best
point seen is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.witnesses.learning import DISTRIBUTIONS, PAPER, WITNESSES
from validation.door.problem import Problem

Array = NDArray[np.float64]
_LEARN = ("variance", "lengthscales")


@cache
def line(kind: str) -> Problem:
    """Twelve data on a line whose evidence has a maximum inside: one label on the wrong side.

    kind : str    the likelihood, then "full", "errors", "distributions" as in
    `validation.checks.witnesses.learning.tiny`
    """
    likelihood, *words = kind.split()
    X = np.linspace(-2.2, 2.2, 12)[:, None] + 0.05 * np.cos(np.arange(12.0))[:, None]
    binary = likelihood in ("logit", "probit")
    return Problem(
        name=f"line {kind}",
        X=X,
        y=np.array([0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1] if binary else [0, 0, 1, 0, 1, 1, 1, 2, 2, 1, 2, 2]),
        n_classes=2 if binary else 3,
        likelihood=likelihood,
        variance=1.2,
        lengthscales=0.9,
        noise=0.05,
        jitter=1e-3,
        Z=None if "full" in words else np.array([-1.8, -0.9, 0.0, 0.8, 1.7])[:, None],
        prior_model="full" if "full" in words else "fitc",
        shared=not binary,
        epsilon=0.05 if "errors" in words else 0.0,
        hyperprior={name: DISTRIBUTIONS[name] for name in _LEARN} if "distributions" in words else None,
    )


class Search(NamedTuple):
    """A search, and who else is asked for the derivative where it ends.

    derivative : float     entry of the gradient in logarithms up to which an end is one
    why : str         why not less
    witnesses         whose searches are asked; those of the other kind take too long
    full : bool       asked by a full run only: it takes long
    """

    method: str
    kind: str
    options: Mapping[str, Any] = MappingProxyType({})
    derivative: float = 1e-4
    why: str = (
        "a search ends at derivatives of 1e-5, or where its objective gains 1e-13 of itself: 1e-6 at curvatures near 1"
    )
    witnesses: tuple[str, ...] = WITNESSES
    full: bool = False


_FAST = ("fast",)
_BY_VALUE = "these searches end where their objective gains less than 1e-10 of itself, which leaves derivatives of 1e-4"
SEARCHES = (
    Search("x-gpc", "logit"),
    Search("x-gpc", "logit full"),
    Search("svgpc", "probit", witnesses=_FAST),
    Search("epgpc", "probit"),
    Search("epgpc", "probit full"),
    Search("svi", "logit", witnesses=_FAST),
    Search("vi-jj", "logit", derivative=1e-3, why=_BY_VALUE),
    Search("vi-jj-full", "logit full"),
    Search("vi-jj-hybrid", "logit", derivative=1e-3, why=_BY_VALUE),
    Search("vi-taylor", "logit full", derivative=1e-3, why=_BY_VALUE),
    Search("vi-taylor", "probit", derivative=1e-3, why=_BY_VALUE),
    Search("ep", "threshold", {"optimizer": "lbfgs"}, witnesses=_FAST),
    Search("gfitc", "threshold", witnesses=_FAST),
    Search("vi-robust", "threshold errors", {"optimizer": "lbfgs"}, witnesses=_FAST, full=True),
    Search("pep", "threshold errors", {"optimizer": "lbfgs", "alpha": 0.7}, witnesses=_FAST, full=True),
    Search("apep", "threshold errors", {"optimizer": "lbfgs", "alpha": 0.7}, witnesses=_FAST, full=True),
    Search("label-regression", "threshold errors"),
    Search("laplace-binary", "logit full"),
    Search("laplace-binary", "probit full"),
    Search("laplace", "softmax full"),
    Search("laplace", "softmax full distributions"),
    Search("laplace", "softmax full distributions", {"prior_on": "root", "map_density": "log"}),
    Search("nested-ep", "multinomial-probit full", witnesses=_FAST),
    Search("nested-iep", "multinomial-probit full distributions", witnesses=_FAST),
)


def distribution_derivative(problem: Problem, name: str, prior_on: str, map_density: str) -> Array:
    """d log p(parameter) / d log parameter of the problem's distributions, one entry for each; by their densities.

    half-student-t: p(x) ~ (1 + (x/scale)²/df)^(-(df + 1)/2); log-normal: log x ~ N(log scale, df²). Where a
    distribution sits on the root x = √θ, as it may of variance and noise, its density is that of the root; "log" takes
    the density of log x, which is x p(x).
    """
    distributions = problem.hyperprior or {}
    value = getattr(problem, name)[:1] if problem.shared else getattr(problem, name)
    if name not in distributions:
        return np.zeros(value.shape)
    family, df, scale = distributions[name]

    def log_density(theta: Array) -> Array:
        x = np.sqrt(theta) if prior_on == "root" and name != "lengthscales" else theta
        if family == "half-student-t":
            result = -0.5 * (df + 1.0) * np.log1p((x / scale) ** 2 / df)
        else:
            result = -np.log(x) - 0.5 * (np.log(x / scale) / df) ** 2
        return result + np.log(x) if map_density == "log" else result

    step = 1e-5
    return (log_density(value * np.exp(step)) - log_density(value * np.exp(-step))) / (2.0 * step)


def derivative_of(context: Context, witness: str, method: str, problem: Problem, options: Mapping[str, Any]) -> Array:
    """The gradient in the learned logarithms at the problem's own parameters, one row if they are shared."""
    held = {name: value for name, value in options.items() if name == "alpha"}
    result = context.solve(witness, method, problem, **held).gradients
    assert result is not None
    rows = slice(0, 1) if problem.shared else slice(None)
    parts = [np.asarray(result[name])[rows] * getattr(problem, name)[rows] for name in _LEARN]
    distributions = [
        distribution_derivative(problem, name, options.get("prior_on", "field"), options.get("map_density", "value"))
        for name in _LEARN
    ]
    return np.concatenate(
        [np.ravel(part + distribution) for part, distribution in zip(parts, distributions, strict=True)]
    )


def ends(context: Context, searches: Iterable[Search]) -> Iterable[Outcome]:
    """The other witness's derivative at the end of a search, and at its start for comparison."""
    for search in searches:
        if search.full and context.quick:
            continue
        problem = line(search.kind)
        for witness in search.witnesses:
            other = WITNESSES[1 - WITNESSES.index(witness)]
            solution = context.solve(witness, search.method, problem, learn=_LEARN, **search.options)
            derivatives = derivative_of(context, other, search.method, solution.problem, search.options)
            yield Compared(
                float(np.abs(derivatives).max()) if solution.converged else np.inf,
                search.derivative,
                f"{search.kind}: {search.why}; converged {solution.converged}, variance "
                f"{solution.problem.variance[0]:.3g}, lengthscale {solution.problem.lengthscales[0, 0]:.3g}",
                witness,
                other,
                "largest entry of the gradient in a logarithm, nat",
            )


# -- a function of the judge's own -------------------------------------------------------------------------------


class _Hill:
    """A quadratic in the logarithms with a known top, which refuses what lies beyond a constraint."""

    def __init__(
        self, top: Array, constraint: float = np.inf, height: float = -3.0, curvature: Array | None = None
    ) -> None:
        self.top, self.constraint, self.height = top, constraint, height
        self.curvature = np.linspace(0.5, 2.0, top.size) if curvature is None else curvature
        self.seen: list[Array] = []
        self.values: list[float] = []
        self.refused = 0

    def __call__(self, where: Array) -> tuple[float, Array]:
        self.seen.append(where.copy())
        if where[0] > self.constraint:
            self.refused += 1
            raise _RefusedError
        apart = where - self.top
        value = self.height - 0.5 * float(self.curvature @ apart**2)
        self.values.append(value)
        return value, -self.curvature * apart


class _RefusedError(Exception):
    """Parameters beyond the constraint."""


class _Ended(NamedTuple):
    where: Array
    value: float
    trace: Array
    converged: bool
    hill: _Hill
    start: Array


def _fast_search(hill: _Hill, max_iterations: int = 200, max_evaluations: int = 15_000) -> tuple[_Ended, Any]:
    from fast.core.errors import NotPositiveDefiniteError
    from fast.core.inputs import Hyper
    from fast.core.results import Gradients
    from fast.one_latent.learning import maximise
    from fast.solve.adam import Packing

    start = Hyper(1.3, np.array([0.7]), 0.2, 0.0)

    def evaluate(hyper: Hyper, Z: Any) -> tuple[float, Gradients]:
        values = np.array([hyper.variance, hyper.lengthscales[0], hyper.noise])
        try:
            value, derivative = hill(np.log(values))
        except _RefusedError:
            raise NotPositiveDefiniteError("K_ZZ: found nothing") from None
        by = derivative / values
        return value, Gradients(float(by[0]), by[1:2], float(by[2]), None)

    packing = Packing(("variance", "lengthscales", "noise"), start, None)
    optimum = maximise(
        evaluate, packing, max_iterations=max_iterations, tolerance=1e-6, max_evaluations=max_evaluations
    )
    end = np.log([optimum.hyper.variance, optimum.hyper.lengthscales[0], optimum.hyper.noise])
    value = max(hill.values)
    return _Ended(end, value, optimum.trace, optimum.converged, hill, np.log([1.3, 0.7, 0.2])), optimum


def _reference_search(hill: _Hill, max_iterations: int = 200) -> _Ended:
    from reference.common._learning import Hyper, maximise
    from reference.common.errors import NotPositiveDefiniteError

    start = Hyper(1.3, np.array([0.7]), 0.2, 0.0, None)

    def objective(hyper: Any) -> tuple[float, dict[str, Any]]:
        values = np.array([hyper.variance, hyper.lengthscales[0], hyper.noise])
        try:
            value, derivative = hill(np.log(values))
        except _RefusedError:
            raise NotPositiveDefiniteError("K_ZZ", 3, -1.0, "nothing") from None
        by = derivative / values
        return value, {"variance": by[0], "lengthscales": by[1:2], "noise": by[2]}

    optimum = maximise(objective, start, ("variance", "lengthscales", "noise"), max_iterations)
    end = np.log([optimum.hyper.variance, optimum.hyper.lengthscales[0], optimum.hyper.noise])
    return _Ended(end, max(hill.values), optimum.trace, optimum.converged, hill, np.log([1.3, 0.7, 0.2]))


def _staged_search(hill: _Hill, n_fun: int = 15_000, tolerance: float = 0.0) -> tuple[_Ended, Any]:
    from reference.common._search import REACH, Limits, maximise
    from reference.common.errors import NotPositiveDefiniteError

    start = np.log([1.3, 0.7, 0.2])

    def objective(where: Array) -> tuple[float, Array]:
        try:
            return hill(where)
        except _RefusedError:
            raise NotPositiveDefiniteError("K_ZZ", 3, -1.0, "nothing") from None

    outcome = maximise(objective, start, Limits(rise=tolerance, evaluations=n_fun), REACH)
    return _Ended(outcome.where, outcome.value, outcome.trace, outcome.residual < 1e-5, hill, start), outcome


def promises() -> Iterable[Outcome]:
    """Broken promises of each search, by name."""
    ours = (*_fast_promises(), *_restart_promises(), *_mixing_promises())
    for name, wrong in (("fast", ours), ("reference", tuple(_reference_promises()))):
        broken = [text for text in wrong if text]
        yield Compared(
            float(len(broken)), 0.0, f"a quadratic of three logarithms has one top; {broken or 'all kept'}", name,
            "the definition", "promises of a search that are broken",
        )  # fmt: skip


def _at_top(ended: _Ended, name: str, apart: float = 1e-4) -> Iterable[str]:
    hill = ended.hill
    reached = np.abs(ended.where - hill.top).max() < apart
    yield "" if reached and ended.converged else f"{name}: ends at {ended.where} of {hill.top}, {ended.converged}"
    # a power and a logarithm: two roundings
    best = hill.height - 0.5 * float(hill.curvature @ (ended.where - hill.top) ** 2)
    yield "" if abs(best - max(hill.values)) < 1e-12 else f"{name}: {best} is not the best seen, {max(hill.values)}"
    yield "" if (np.diff(ended.trace) >= 0.0).all() else f"{name}: the trace falls"
    yield (
        "" if ended.trace.size and abs(ended.trace[-1] - best) < 1e-12 else f"{name}: trace ends at {ended.trace[-1:]}"
    )


def _fast_promises() -> Iterable[str]:
    near, far = np.array([1.0, -1.0, 0.5]), np.array([9.0, -6.0, 1.0])
    for name, top in (("near", near), ("far", far)):
        ended, result = _fast_search(_Hill(top))
        yield from _at_top(ended, name)
        yield "" if result.n_evaluations == len(ended.hill.seen) else f"{name}: {result.n_evaluations} evaluations"
        yield "" if result.n_refused == 0 else f"{name}: {result.n_refused} refused"
        # twice what a quadratic of three logarithms takes: value and derivative belong to one function
        yield "" if result.n_evaluations <= 24 else f"{name}: {result.n_evaluations} evaluations"
        yield (
            ""
            if np.array_equal(ended.hill.seen[0], ended.start)
            or np.allclose(ended.hill.seen[0], ended.start, rtol=0, atol=1e-15)
            else f"{name}: does not begin at the start"
        )
    moves = np.abs(np.array(ended.hill.seen) - ended.start).max(axis=1)
    first = moves[: int(np.argmax(moves > 2.0 + 1e-9))]
    # of the first round, which ends at the constraint of its box
    yield "" if first.size > 1 and abs(first.max() - 2.0) < 1e-9 else f"first round goes {first.max()} far"
    ended, result = _fast_search(_Hill(np.array([30.0, 0.0, 0.0])))
    moved = ended.where - ended.start
    yield "" if abs(moved[0] - 20.0) < 1e-9 and result.converged else f"beyond the box: {moved}, {result.converged}"
    ended, result = _fast_search(_Hill(near, constraint=0.6))
    yield "" if result.n_refused == ended.hill.refused > 0 else f"{result.n_refused} of {ended.hill.refused} refused"
    yield "" if 0.5 < ended.where[0] <= 0.6 else f"beside a constraint: {ended.where}"
    best = max(ended.hill.values)
    here = -3.0 - 0.5 * float(ended.hill.curvature @ (ended.where - near) ** 2)
    yield "" if abs(here - best) < 1e-12 else "beside a constraint: not the best seen"
    yield "" if not result.converged else "beside a constraint: converged on a gradient"
    for limit in (1, 3):
        ended, result = _fast_search(_Hill(far), max_iterations=limit)
        yield "" if ended.trace.size == limit and not result.converged else f"{limit} iterations: {ended.trace.size}"
        ended, result = _fast_search(_Hill(far), max_evaluations=limit + 3)
        count = len(ended.hill.seen)
        yield "" if limit + 3 <= count <= limit + 24 and not result.converged else f"{limit + 3} evaluations: {count}"
    try:
        _fast_search(_Hill(near, constraint=-5.0))
    except np.linalg.LinAlgError:
        pass
    else:
        yield "a start that is refused raises nothing"
    ended, result = _fast_search(_Hill(near, height=-3e9))  # a large objective: relative criteria
    yield from _at_top(ended, "large", 0.3)


def _restart_promises() -> Iterable[str]:
    """Restarts of x-gpc: logarithms of the scales moved by standard normals, Z where it was, the best end."""
    from unittest import mock

    from fast.core.values import Data, Prior
    from fast.methods import x_gpc
    from fast.one_latent import learning
    from fast.one_latent.learning import Learned

    problem = line("logit")
    assert problem.Z is not None
    data, prior = Data(problem.X, problem.y), Prior(1.2, [0.9], 0.05, 1e-3, problem.Z[0])
    options = x_gpc.XGPCLearning(learn=("variance", "lengthscales", "Z"), restarts=3, seed=1)
    visited: list[Any] = []

    def stays(evaluate: Any, packing: Any, **options: Any) -> Learned:
        visited.append((packing.hyper, packing.Z))
        value, _ = evaluate(packing.hyper, packing.Z)
        return Learned(packing.hyper, packing.Z, np.array([value]), True, "stays", 1, 0)

    with mock.patch.object(learning, "maximise", stays):
        posterior, _ = x_gpc.fit_learning(data, prior, options)
    first = np.log([1.2, 0.9])
    wanted = np.exp(np.vstack([first, first + np.random.default_rng(1).standard_normal((3, 2))]))
    starts = np.array([[hyper.variance, hyper.lengthscales[0]] for hyper, _ in visited])
    yield "" if starts.shape == wanted.shape and np.allclose(starts, wanted, rtol=1e-12) else f"restarts at {starts}"
    yield "" if all(np.array_equal(Z, problem.Z[0]) for _, Z in visited) else "restarts move Z"
    bounds = [x_gpc.fit(data, replace(prior, variance=v, lengthscales=[length])).elbo for v, length in wanted]
    yield "" if abs(posterior.elbo - max(bounds)) < 1e-8 else f"the best end is {max(bounds)}, not {posterior.elbo}"


def _mixing_promises() -> Iterable[str]:
    """Anderson mixing of a linear iteration in four dimensions: its fixed point after five differences."""
    from fast.solve.mixing import Mixing

    A, top = np.diag([0.2, 0.5, 0.9, 1.3]), np.array([1.0, -2.0, 3.0, 0.5])
    A[0, 1] = A[1, 0] = 0.1
    for memory, steps, apart in ((8, 7, 1e-8), (2, 40, 1e-6)):
        mixing, x = Mixing(memory), np.zeros(4)
        gap = A @ (top - x)
        for _ in range(steps):
            step = mixing.step(gap, lambda part: part, 0.8)
            new = x + (0.8 * gap if step is None else step)
            new_gap = A @ (top - new)
            mixing.learn(new - x, new_gap - gap)
            x, gap = new, new_gap
        yield "" if np.abs(x - top).max() < apart else f"mixing of {memory} ends {np.abs(x - top).max():.2g} away"


def _reference_promises() -> Iterable[str]:
    near, far = np.array([1.0, -1.0, 0.5]), np.array([9.0, -6.0, 1.0])
    for name, top in (("near", near), ("far", far)):
        yield from _at_top(_reference_search(_Hill(top)), name)
        yield from _at_top(_staged_search(_Hill(top))[0], f"{name}, staged")
    reach = float(np.log(1e4))
    for ended in (
        _reference_search(_Hill(np.array([30.0, 0.0, 0.0]))),
        _staged_search(_Hill(np.array([30.0, 0, 0])))[0],
    ):
        moved = ended.where - ended.start
        yield "" if abs(moved[0] - reach) < 1e-9 and ended.converged else f"beyond the box: {moved}"
    ended = _reference_search(_Hill(far), max_iterations=3)
    yield "" if ended.trace.size == 3 and not ended.converged else f"3 iterations: {ended.trace.size}"
    for ended in (_reference_search(_Hill(near, constraint=0.6)), _staged_search(_Hill(near, constraint=0.6))[0]):
        yield "" if ended.hill.refused and 0.4 < ended.where[0] <= 0.6 else f"beside a constraint: {ended.where}"
    for limit in (1, 2, 6):
        ended, result = _staged_search(_Hill(far), n_fun=limit)
        count = len(ended.hill.seen)
        yield "" if count == limit == result.evaluations else f"{limit} evaluations: {count}, {result.evaluations}"
        yield "" if result.value == max(ended.hill.values) else "not the best seen"
        yield "" if result.iterations == result.trace.size else "iterations miscounted"
        apart = np.abs(np.clip(result.where - ended.hill.curvature * (result.where - far), ended.start - reach,
                               ended.start + reach) - result.where).max()  # fmt: skip
        yield "" if abs(apart - result.residual) < 1e-12 else f"derivative {result.residual}, not {apart}"
    loose = _staged_search(_Hill(far), tolerance=0.5)[1]
    yield "" if loose.evaluations < _staged_search(_Hill(far))[1].evaluations else "a tolerance changes nothing"


def _register(method: str, searches: tuple[Search, ...]) -> None:
    late = all(search.full for search in searches)

    @check(
        f"limit/{method}/search_end",
        paper=PAPER[method],
        question="Has the other witness zero gradient where a search ends?",
        problems=() if late else (NO_PROBLEM,),
        full=(NO_PROBLEM,) if late else (),
    )
    def search_end(context: Context, problem: Problem) -> list[Outcome]:
        return list(ends(context, searches))


def _by_method() -> dict[str, tuple[Search, ...]]:
    return {
        method: tuple(search for search in SEARCHES if search.method == method)
        for method in dict.fromkeys(search.method for search in SEARCHES)
    }


for _method, _searches in _by_method().items():
    _register(_method, _searches)
_promises: Callable[[], Iterable[Outcome]] = promises


@check(
    "limit/x-gpc/search_promises",
    paper="wenzel2019",
    question="Do searches keep to their boxes and counts, and return the best that they saw?",
    problems=(NO_PROBLEM,),
)
def x_gpc_search_promises(context: Context, problem: Problem) -> list[Outcome]:
    return list(_promises())
