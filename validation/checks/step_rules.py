"""How long the next step is: rates that grow back, ceilings that come down, against paths worked out by hand.

Where a step ends up does not depend on these rules, and near a fixed point they do not even show in the number of
steps. So the moves that the rules look at are handed to them, and each rate follows from the last.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import mock

import numpy as np

from validation.by_name import by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check
from validation.checks.learning import tiny
from validation.problem import Problem


def _path(
    gaps: Sequence[float], values: Sequence[float], improper: Sequence[int] = (), **rules: Any
) -> tuple[list[float], Any]:
    """Places of one site whose full steps are so long, at which the objective is so large; how the run ended."""
    from fast.solve.site_iteration import SiteSteps, Visit, iterate_sites

    places: list[float] = []

    def visit(precision: Any, shift: Any) -> Visit:
        k = len(places)
        places.append(float(shift[0]))
        bad = improper[k] if k < len(improper) else 0
        return Visit(precision, shift, precision, shift + gaps[k], np.ones(1), values[k % len(values)], bad, k)

    steps = SiteSteps(1e-300, len(gaps), accelerate=False, **rules)
    end = iterate_sites(visit, (np.ones(1), np.zeros(1)), steps)
    return places, end


def _near(found: Sequence[float], wanted: Sequence[float], why: str, left: str) -> Compared:
    a, b = np.asarray(found, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    gap = float(np.abs(a - b).max()) if a.shape == b.shape else np.inf
    return Compared(gap, 1e-9, f"{why}: {np.array2string(a, precision=4)}", left, "definition", "difference")


@check(
    "identity/epgpc/site_steps",
    paper="wenzel2019",
    question="Do steps on sites shorten by .7 where they grow, grow back by 1.1, and halve where they are taken back?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    # 3 is more than twice 1.2: taken back, and from there with half the rate; growth leaves a rate of a quarter
    gaps = (1.0, 1.5, 1.2, 3.0, 1.0, 1.9, 3.7, 7.0, 13.9, 1.0)
    rates = (0.9, 0.63, 0.693, 0.3465, 0.38115, 0.266805, 0.25, 0.25, 0.25)
    wanted = [0.0]
    for k, rate in enumerate(rates):
        start, gap = (wanted[k - 1], gaps[k - 1]) if k == 3 else (wanted[k], gaps[k])
        wanted.append(start + rate * gap)
    places, end = _path(gaps, [0.0], monotone=False, damping=0.9)
    yield _near(places, wanted, "growing, shrinking and one that is refused", "fast")
    yield _near([end.visit.payload, len(end.trace), end.n_improper, end.converged], [9, 10, 0, 0], "its end", "fast")

    # a point with more improper cavities than the one before is taken back, whatever its step
    places, end = _path(
        (1.0, 0.5, 0.5, 0.5, 0.5), [0.0, 1.0, 2.0, 3.0, 4.0], (1, 2, 1, 0, 0), monotone=False, damping=0.8
    )
    yield _near(places, [0.0, 0.8, 0.4, 0.4 + 0.44 * 0.5, 0.62 + 0.484 * 0.5], "two improper cavities for one", "fast")
    yield _near(end.trace, [0.0, 0.0, 2.0, 3.0, 4.0], "what is told is where it stands", "fast")
    yield _near([end.n_improper], [4], "improper cavities of all visits", "fast")

    # a bound: what lowers it is taken back until the rate is 2^-20, and then kept after all
    values = [0.0, 1.0, *[0.5] * 21, 2.0, 3.0]
    places, end = _path([1.0, 1.0, *[1.0] * 23], values, monotone=True, damping=1.0)
    wanted = [0.0, 1.0, 2.0, *(1.0 + 0.5**k for k in range(1, 21))]
    yield _near(places[: len(wanted)], wanted, "halved twenty times", "fast")
    yield _near([places[23] - places[22]], [1.1 * 2.0**-20], "then kept, and grown by a tenth", "fast")


class _Script:
    """Numbers handed out in turn, each so many times; the last one for ever."""

    def __init__(self, values: Sequence[Any], times: int = 1) -> None:
        self.values, self.times, self.calls = list(values), times, 0

    def __call__(self, *_: Any) -> Any:
        place = min(self.calls // self.times, len(self.values) - 1)
        self.calls += 1
        return self.values[place]


def _rates(function: Callable[..., Any], rates: list[float]) -> Callable[..., Any]:
    """The function, whose last argument is a rate that is written down."""

    def noted(*arguments: Any) -> Any:
        rates.append(float(arguments[-1]))
        return function(*arguments)

    return noted


@check(
    "identity/svi/ceilings",
    paper="izmailov2016",
    question="Is the longest step halved where a move grows that the bound no longer tells, and nowhere else?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.izmailov2016 import _prior, fit

    asked = tiny("logit")
    assert asked.Z is not None
    hyper = _prior.Prior(float(asked.variance[0]), asked.lengthscales[0], float(asked.noise[0]),
                         float(asked.jitter[0]), asked.Z[0])  # fmt: skip
    K = _prior.matrices(asked.X, hyper)
    q = fit.Variational(np.zeros(len(K.K_ZZ)), K.K_ZZ, np.zeros(len(asked.X)))

    def used(bound: Callable[..., float], moves: Sequence[float]) -> list[float]:
        with mock.patch.object(fit, "elbo", bound), mock.patch.object(fit, "change", _Script(moves)):
            update, _ = fit._svi_update(K, np.where(asked.y == 1, 1.0, -1.0), "logit")
            return [update(q)[1] for _ in moves]

    moves = [1.0, 2.0, 0.5, 0.8, 0.3, *(10.0**k for k in range(1, 8))]
    wanted = [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.01, 0.01]
    yield _near(used(lambda *_: -3.0, moves), wanted, "a bound that stands still, moves that grow", "reference")
    yield _near(used(_Script(list(range(200))), moves), [1.0] * len(moves), "a bound that rises", "reference")
    falling = _Script([0.0, -1.0, -1.0, 0.0])
    yield _near(used(falling, [1.0, 0.1, 0.01]), [0.25, 0.5, 1.0], "halved twice, and doubled again", "reference")
    # a move of half a step stands for twice itself: it has grown though less of it was taken
    rates = used(lambda *_: -3.0, [1.0, 2.0, 1.5, 0.5])
    yield _near(rates, [1.0, 1.0, 0.5, 0.25], "moves that grow as if they had been whole", "reference")
    # it is looked at once before a step and twice after; what counts is a millionth of 1 + its size
    for size, rate in ((1.6e-6, 1.0), (1.4e-6, 0.5)):
        looks = _Script([2.0 + size * k for k in range(20)])
        yield _near(
            used(looks, [1.0, 2.0, 1.0])[-1:], [rate], f"a bound of 2 that rises by {size:g} a look", "reference"
        )


@check(
    "identity/svgpc/ceilings",
    paper="wenzel2019",
    question="Is the longest step halved where a move near the fixed point grows, above rounding, and nowhere else?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.wenzel2019 import _prior, fit_svgpc

    asked = tiny("probit")
    assert asked.Z is not None
    given = _prior.checked(asked.X, 2.0 * asked.y - 1.0, float(asked.variance[0]), asked.lengthscales[0],
                           float(asked.noise[0]), float(asked.jitter[0]), asked.Z[0])  # fmt: skip
    moves = [1e-5, 2e-5, 1e-5, 3e-5, 1e-2, 2e-2, 1.2e-3, 1.8e-3, 1e-12, 2e-12, 5e-12, 1.5e-11, 3e-11, 2e-12]
    moves += [1e-4, 2e-4, 4e-4, 8e-4, 9e-4, 1e-4]
    wanted = [1.0, 1.0, 0.5, 0.5, *[0.25] * 9, *[0.125] * 3, 0.0625, 0.05, 0.05, 0.05]
    rates: list[float] = []
    with (
        mock.patch.object(fit_svgpc, "svgpc_bound", return_value=-3.0),
        mock.patch.object(fit_svgpc, "change", _Script(np.multiply(moves, wanted).tolist(), 2)),
        mock.patch.object(fit_svgpc, "natural_gradient_step", _rates(fit_svgpc.natural_gradient_step, rates)),
    ):
        fit_svgpc._ascend(given, 1e-300, len(moves), None)
    yield _near(rates, wanted, "moves that grow between 1e-11 and 1e-3", "reference")


@check(
    "identity/vi-robust/ceilings",
    paper="villacampa2017",
    question="Is the longest step halved where a move near the maximum is longer than the last, and nowhere else?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _ascent
    from reference.common._classes import Prior
    from reference.common._gaussians import Gaussians
    from reference.villacampa2017 import hyper, vi_fit

    asked = tiny("threshold errors")
    assert asked.Z is not None
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, asked.Z)
    K, bound = hyper.prior_matrices(asked.X, prior), vi_fit.Data(asked.X, asked.y, 0.05)
    sizes = [(0.5, 1.0), (0.5, 2.0), (1e-4, 1.0), (1e-4, 2.0), (1e-4, 1.0), *((1e-4, 3.0 + k) for k in range(8))]
    wanted = [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, *[0.0078125] * 3]
    rates: list[float] = []
    told: list[float] = []
    # the length is looked at once before all steps, before each whether it is the end, and after each
    looks = _Script([sizes[0], *(look for size in [*sizes[1:], sizes[-1]] for look in ((1.0, 0.0), size))])
    with (
        mock.patch.object(_ascent, "step_length", looks),
        mock.patch.object(_ascent.Mixing, "propose", return_value=None),
        mock.patch.object(_ascent, "along", _rates(_ascent.along, rates)),
    ):
        _ascent.mixed_steps(
            lambda q: bound.at(q, K)._replace(value=-3.0),  # a bound that does not tell
            K.K_ZZ,
            Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ),
            _ascent.Goal(1e-300, len(sizes)),
            lambda value, residual: told.append(residual),
        )
    yield _near(rates, wanted, "moves that grow from a residual of 1e-3 on", "reference")
    yield _near(told, [residual for residual, _ in [*sizes[1:], sizes[-1]]], "what is told", "reference")

    still = bound.at(Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ), K)

    def steps(residuals: Sequence[float]) -> int:
        """Steps of a run whose residuals are these."""
        looks = _Script([(1.0, 1.0), *(look for each in residuals for look in ((1.0, 0.0), (each, 1.0)))])
        told: list[float] = []
        with (
            mock.patch.object(_ascent, "step_length", looks),
            mock.patch.object(_ascent.Mixing, "propose", return_value=None),
            mock.patch.object(_ascent, "along", lambda theta, *_: theta),
        ):
            _ascent.mixed_steps(
                lambda _: still,
                K.K_ZZ,
                Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ),
                _ascent.Goal(1e-300, len(residuals)),
                lambda value, residual: told.append(residual),
            )
        return len(told)

    # the first step is the best so far; two hundred that are not half of it make an end, if it is below 1e-3
    lengths = [steps(each) for each in ([9e-4] * 300, [9e-4] * 50 + [4.4e-4] * 300, [9e-4] * 50 + [4.6e-4] * 300)]
    yield _near(lengths, [201, 251, 201], "a residual that does not halve any more", "reference")
    yield _near([steps([2e-3] * 300)], [300], "one that may yet fall", "reference")


# methods that learn a step at a time, and how one step is asked of each
_LEARNING = {
    **dict.fromkeys(("ep", "sep", "pep", "apep", "vi_robust", "label_regression", "gfitc"), "threshold"),
    "epgpc_svi": "probit",
    "svgpc_svi": "probit",
    "x_gpc_svi": "logit",
}  # fmt: skip


def _moved(method: str, kind: str, median: float) -> list[int]:
    """Signs of the first step of each variance under a narrow hyperprior about this one."""
    from fast.core.hyperprior import Hyperprior

    asked, module = tiny(kind), importlib.import_module(f"fast.methods.{method}")
    binary = asked.n_classes == 2
    fields = ("variance", "lengthscales", "noise", "jitter", "Z")
    given = {name: getattr(asked, name)[0] if binary else getattr(asked, name) for name in fields}
    given |= {} if binary else {"n_classes": asked.n_classes}
    given |= {"n_steps": 1} if method in ("label_regression", "gfitc") else {"batches": [np.arange(8)]}
    narrow = Hyperprior({"variance": ("log-normal", 1e-3, median)}, map_density="log")
    posterior = by_name(module.fit, binary=binary)(
        X=asked.X, y=asked.y, learn=("variance",), hyperprior=narrow, **given
    )
    hyper = posterior.run.points.hyper if hasattr(posterior, "run") else posterior.hyper
    return [int(sign) for sign in np.sign(np.atleast_1d(hyper.variance - given["variance"]))]


@check(
    "identity/epgpc-svi/towards_a_narrow_hyperprior",
    paper="wenzel2019",
    question="Does the first step go to where a hyperprior is that outweighs the data, from either side?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    rows: list[tuple[str, object, object]] = []
    for method, kind in _LEARNING.items():
        classes = 1 if kind in ("probit", "logit") else 3
        for median, sign in ((40.0, 1), (0.01, -1)):
            rows.append(
                (
                    f"{method} below {median:g}" if sign > 0 else f"{method} above {median:g}",
                    _moved(method, kind, median),
                    [sign] * classes,
                )
            )
    yield as_documented(rows, "fast", "steps")
