"""What was asked for and what is told of it: options that reach a run, marks, refusals, ends; and guards of rounding.

Runs are caught where they begin; numbers that would overflow are the judge's own.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import platform
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from validation.by_name import by_name
from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, as_documented, check
from validation.checks.learning import tiny
from validation.problem import Problem
from validation.quoting import shown

Array = NDArray[np.float64]
_FIELDS = ("variance", "lengthscales", "noise", "jitter", "Z")


class _Caught(Exception):  # noqa: N818 - nothing is wrong
    """Carries what the judge wanted to see out of a fit."""


def _prior_of(asked: Problem) -> dict[str, Any]:
    """The arguments of a fit that say what the prior of all classes is."""
    return {name: getattr(asked, name) for name in _FIELDS}


def _binary(kind: str) -> dict[str, Any]:
    asked = tiny(kind)
    return {"X": asked.X, "y": asked.y} | {name: getattr(asked, name)[0] for name in _FIELDS}


@check(
    "identity/x-gpc-svi/stop_beside_a_holdout",
    paper="wenzel2019",
    question="Does a holdout end a run instead of the usual threshold, and beside one that is asked for?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import x_gpc_svi

    def ascent(source: Any, link: Any, hyper: Any, Z: Any, settings: Any, **more: Any) -> Any:
        raise _Caught(settings.stop, more["score"] is not None)

    given = _binary("logit")
    drawn = {"batch_size": 4, "seed": 1, "n_steps": 3}
    listed = {"batches": [np.arange(8)] * 3}
    holdout = {"holdout": (given["X"][:3], given["y"][:3])}
    rows: list[tuple[str, object, object]] = []
    for name, asked, wanted in (
        ("drawn batches", drawn, (1e-4, False)),
        ("drawn batches with a holdout", drawn | holdout, (None, True)),
        ("and a threshold", drawn | holdout | {"stop": 0.01}, (0.01, True)),
        ("drawn batches without a threshold", drawn | {"stop": None}, (None, False)),
        ("listed batches", listed, (None, False)),
        ("listed batches with a threshold", listed | {"stop": 0.02}, (0.02, False)),
    ):
        with mock.patch.object(x_gpc_svi, "stochastic_ascent", ascent):
            try:
                by_name(x_gpc_svi.fit, binary=True)(**given, **asked)
                came: tuple[Any, ...] = ()
            except _Caught as error:
                came = error.args
        rows.append((name, came, wanted))
    yield as_documented(rows, "fast", "runs")


@check(
    "identity/sep/marks_of_runs",
    paper="villacampa2017",
    question="Is a run's mark that of all that moves its numbers, and of nothing else?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import apep
    from fast.sparse_classes import inference

    asked = tiny("threshold errors")
    given = {"X": asked.X, "y": asked.y, "n_classes": 3} | _prior_of(asked)
    marked = inference.marked

    def mark(**changed: Any) -> str:
        def caught(*of_run: Any, **named: Any) -> Any:
            raise _Caught(marked(*of_run, **named).mark)

        with tempfile.TemporaryDirectory() as folder:
            usual = {"checkpoint": Path(folder) / "run.npz", "alpha": 0.5, "epsilon": 0.1, "n_steps": 2}
            with mock.patch.object(inference, "marked", caught):
                try:
                    by_name(apep.fit)(**(given | usual | {"batch_size": 4, "seed": 1} | changed))
                except _Caught as error:
                    return str(error.args[0])
        return "no run"

    first = mark()
    rows: list[tuple[str, object, object]] = [("a mark", len(first) > 20, True)]
    for name, value, same in (
        ("callback", print, True), ("evaluate", False, True), ("memory_budget", 10**6, True), ("n_steps", 3, True),
        ("checkpoint_every", 7, True),
        ("alpha", 0.6, False), ("epsilon", 0.2, False), ("seed", 2, False), ("batch_size", 3, False),
        ("variance", 2.0 * asked.variance, False), ("y", np.roll(asked.y, 1), False), ("X", asked.X + 1e-9, False),
        ("learn", ("variance",), False),
    ):  # fmt: skip
        rows.append((f"another {name}: the same run", mark(**{name: value}) == first, same))
    yield as_documented(rows, "fast", "marks")


@check(
    "identity/x-gpc-svi/marks_of_runs",
    paper="wenzel2019",
    question="Is a run's mark that of what moves its numbers, of lengths below ten steps, and of how blocks are cut?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.hyperprior import Hyperprior
    from fast.core.values import Hyper
    from fast.methods.x_gpc_svi import _marked
    from fast.one_latent.stochastic import Settings
    from fast.solve import minibatch
    from fast.solve.minibatch import Shuffled

    def mark(n_steps: int = 12, run: Any = None, arrays: Any = None, noise: float = 0.1, **changed: Any) -> str:
        hyper = Hyper(1.0, np.array([1.0, 2.0]), noise, 1e-6)
        given = {"X": np.eye(2)} if arrays is None else arrays
        return _marked(Settings(n_steps, **changed), hyper, {"seed": 1} if run is None else run, given).mark

    rows: list[tuple[str, object, object]] = [
        (f"another {what}: the same run", other == mark(), same)
        for what, other, same in (
            ("length", mark(30), True), ("length from ten", mark(10), True), ("length below ten", mark(9), False),
            ("callback", mark(callback=print), True), ("place", mark(checkpoint="a"), True),
            ("interval of saving", mark(checkpoint_every=3), True), ("interval of scores", mark(score_every=3), True),
            ("threshold", mark(stop=1e-3), False), ("window", mark(window=4), False), ("rate", mark(rate=0.5), False),
            ("trace", mark(trace=True), False), ("prior", mark(hyperprior=Hyperprior({})), False),
            ("seed", mark(run={"seed": 2}), False), ("X", mark(arrays={"X": np.ones((2, 2))}), False),
            ("noise", mark(noise=0.2), False),
        )
    ]  # fmt: skip
    rows.append(("lengths below ten", mark(3) == mark(4), False))
    rows.append(("priors of what is learned", '"hyperprior"' in mark(), False))
    rows.append(("one that is given", '"hyperprior"' in mark(hyperprior=Hyperprior({})), True))
    X, y = np.arange(16.0).reshape(8, 2), np.resize([0, 1], 8)
    cut = [Shuffled([(X[:k], y[:k]), (X[k:], y[k:])], None, 2, 1, n=8).digests() for k in (3, 5, 3)]
    rows += [("rows cut otherwise: blocks", (cut[0]["blocks"] == cut[1]["blocks"], cut[0] == cut[2]), (False, True)),
             ("their rows", (cut[0]["X"], cut[0]["y"]) == (cut[1]["X"], cut[1]["y"]), True),
             ("arrays have no cuts", "blocks" in Shuffled(X, y, 2, 1).digests(), False)]  # fmt: skip
    # lists that are given: all rows, whatever is read at a time, all labels, and the lists in their order
    lists = [np.array([0, 1]), np.array([7])]
    with mock.patch.object(minibatch, "_ROWS", 3):
        told = minibatch.Listed(X, y, lists).digests()
    rows.append(("all rows at once or three at a time", told == minibatch.Listed(X, y, lists).digests(), True))
    others = {"X": (X + (X == 15.0), y, lists), "y": (X, np.append(y[:-1], 0), lists), "batches": (X, y, lists[::-1])}
    for name, given in others.items():
        listed = minibatch.Listed(*given).digests()
        rows.append((f"lists, another {name}", [key for key in told if told[key] != listed[key]], [name]))
    yield as_documented(rows, "fast", "marks")


@check(
    "identity/x-gpc/refusals_of_parts",
    paper="wenzel2019",
    question="Are data in parts looked at when they are asked to be, and iterated to a positive tolerance only?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import engines, kept, places, quadratic, taylor
    from fast.blockwise.rows import rows_of
    from fast.methods import laplace

    rows: list[tuple[str, object, object]] = []
    for tolerance, most, wanted in (
        (0.0, 5, "tolerance: found 0.0"), (-1.0, 5, "tolerance: found -1.0"), (1e-300, 5, (1e-300, 5)),
        (1e-8, 1, (1e-8, 1)), (1e-8, 0, "max_iterations: found 0"),
    ):  # fmt: skip
        try:
            came: Any = quadratic.checked_options(quadratic.BlockwiseOptions(tolerance=tolerance, max_iterations=most))
        except ValueError as error:
            came = str(error).split(",")[0]
        rows.append((f"tolerance {tolerance:g}, at most {most}", came, wanted))

    looked: list[Any] = []
    leaves: Any = SimpleNamespace(check=lambda: looked.append("leaves"))
    kept.Kept.check(SimpleNamespace(_leaves=leaves))  # type: ignore[arg-type]
    workers: Any = SimpleNamespace(
        _held=["a", "b", "c"], _at=lambda k, done: (k, done), _again=lambda work: work(),
        _gathered=lambda parts: looked.extend(k for k, _ in parts),
    )  # fmt: skip
    engines.Workers.check(workers)
    rows.append(("leaves and parts that are looked at", looked, ["leaves", 0, 1, 2]))
    # a part of a list is named by its place
    for part, asked in (("X[1]", [np.zeros((2, 2)), np.zeros((2, 3))]), ("X", np.zeros((2, 0)))):
        told = _first_word(rows_of, {"X": asked})
        rows.append((f"columns of {part}", told.split(":")[0], part))
    # a link that does not exist is refused before anything is asked of rows and prior
    told = _first_word(taylor.fit, {"likelihood": "wibble"}, None, None)
    rows.append(("an unknown link", told, "likelihood: found 'wibble'"))
    own = places.here()
    versions = (platform.python_version(), np.__version__, scipy.__version__)
    rows.append(("versions of this place", (own.python, own.numpy, own.scipy), versions))
    # a function that checks its keywords says which they are
    door: Any = laplace.predict
    rows.append(("keywords that are checked", sorted(door.options), sorted(door.__wrapped__.__kwdefaults__)))
    yield as_documented(rows, "fast", "requests")


@check(
    "identity/vi-jj-full/ends",
    paper="izmailov2016",
    question="Is a joint search told as it ended, and are parameters the same but for a logarithm and back?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Hyper
    from fast.methods import vi_jj
    from fast.one_latent import quadratic_search

    given = _binary("logit")
    end = by_name(vi_jj.fit_full, binary=True)(**given, learn=("variance",))
    told = end.learning
    rows: list[tuple[str, object, object]] = [
        ("residual of a joint search", told.residual, 0.0),
        ("converged", told.converged, True),
        ("reason", told.reason, "joint search ended"),
        ("values", len(told.trace), 1),
    ]
    # an evidence that is searched to a tolerance may end when it gains too little; one stage of several may not
    for fit, learned, wanted in (("fit_full", ("variance",), True), ("fit_full", (), False),
                                 ("fit_hybrid", ("variance",), False)):  # fmt: skip
        gains: list[bool] = []

        def searched(_: Any, start: Any, limits: Any, *__: Any, gains: list[bool] = gains) -> None:
            gains.append(limits.gains)
            raise _Caught

        with mock.patch.object(quadratic_search.Search, "round", searched), suppress(_Caught):
            by_name(getattr(vi_jj, fit), binary=True)(**given, learn=learned)
        rows.append((f"{fit}, learning {learned}: ends by its gain", gains, [wanted]))
    rng = np.random.default_rng(0)
    there, back = [], []
    for _ in range(200):
        variance, noise, lengths = float(rng.gamma(1.0)), float(rng.gamma(1.0)), rng.gamma(1.0, size=3)
        one = Hyper(variance, lengths, noise, 1e-6)
        there.append(quadratic_search._same(one, replaced(one, np.exp(np.log(np.array([variance, noise, *lengths]))))))
        values = np.array([variance, noise, *lengths])
        values[rng.integers(5)] *= 1.0 + rng.choice([-1.0, 1.0]) * 1e-14
        back.append(quadratic_search._same(one, replaced(one, values)))
    rows += [("a logarithm and back: the same", all(there), True), ("1e-14 away: the same", any(back), False)]
    # eight units in the last place are forgiven, not one
    shifted = [replaced(one, np.array([one.variance, one.noise, *one.lengthscales]) * (1.0 + units * 2.0**-52))
               for units in (6, 12)]  # fmt: skip
    rows.append(("six and twelve units in the last place", [quadratic_search._same(each, one) for each in shifted],
                 [True, False]))  # fmt: skip
    yield as_documented(rows, "fast", "ends")


def replaced(hyper: Any, values: Array) -> Any:
    """The parameters with variance, noise and lengthscales from one vector."""
    return hyper._replace(variance=float(values[0]), noise=float(values[1]), lengthscales=values[2:])


@check(
    "limit/bb-alpha/overflow",
    paper="villacampa2020",
    question="Are averages of powers those of their logarithms where the powers themselves overflow?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.villacampa2020 import black_box

    rng = np.random.default_rng(7)
    C, m, n, draws = 2, 1, 3, 50
    y = np.array([0, 1, 1])
    K: Any = SimpleNamespace(
        K_ZZ=np.ones((C, m, m)), upsilon=rng.standard_normal((C, n, m)), cond_var=np.full((C, n), 0.4)
    )
    # in the last row two labels win in no draw, each of which is near the smallest number that there is
    for size, far, epsilon, alpha in ((1.0, 0.5, 0.1, 0.9), (2000.0, 0.5, 0.1, 0.9), (1e-3, 50.0, 1e-322, 1.0)):
        K.upsilon = np.abs(K.upsilon) if far > 1.0 else K.upsilon
        posterior: Any = SimpleNamespace(mean=np.array([[far], [-far]]), cov=np.full((C, m, m), 1.3))
        factor: Any = SimpleNamespace(shift=np.array([[size], [-size]]), precision=np.zeros((C, m, m)))
        with (
            mock.patch.object(black_box, "natural_parameters"),
            mock.patch.object(black_box, "natural_prior"),
            mock.patch.object(black_box, "tied_factor_parameters", return_value=factor),
        ):
            told = black_box.monte_carlo_log_norms(posterior, y, K, epsilon, alpha, draws, 3)
        # the same draws: first those of the inducing values, then those of the latent values given them
        own = np.random.default_rng(3)
        white, extra = own.standard_normal((draws, C, m)), own.standard_normal((draws, n, C))
        values = posterior.mean[:, 0] + math.sqrt(1.3) * white[..., 0]
        latent = values[:, None, :] * K.upsilon[:, :, 0].T + math.sqrt(0.4) * extra
        right = latent.argmax(axis=2) == y
        log_ratio = np.log(np.where(right, 1.0 - epsilon + epsilon / C, epsilon / C))
        log_ratio = log_ratio - (size * values[:, 0] - size * values[:, 1])[:, None]
        exact = (logsumexp(alpha * log_ratio, axis=0) - np.log(draws)) / alpha
        gap = float(np.abs(told.log_norm / exact - 1.0).max())
        yield Compared(
            gap, 1e-12, f"factors of e^{size:g}, labels wrong with {epsilon:g}", "reference", "definition", "relative"
        )


@check(
    "limit/ep/doubts_beyond_condition",
    paper="villacampa2017",
    question="Is less of a change left open by the root of how far a condition number is beyond what is claimed?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from reference.common import _neighbours
    from reference.villacampa2020 import fit_energies

    # 100 eps of the condition number are claimed, a thousandth at most; beyond, by the root of how much more
    eps = float(np.finfo(np.float64).eps)
    for number in (1e5, 1e9, 1e10, 1e12, 1e13, 1e14):
        cost = 100.0 * eps * number
        wanted = 0.5 * max(min(max(1e-8, cost), 1e-3), 1e-8) / math.sqrt(max(1.0, cost / 1e-3))
        came = _neighbours.left_open([np.diag([1.0, 1.0 / number])], 1e-10)
        yield Compared(
            abs(came / wanted - 1.0), 1e-3, f"a condition of {number:g}", "reference", "definition", "relative"
        )

    # what is compared between neighbours is everything that is told; a tied factor is of two of the methods only
    asked = tiny("threshold errors shared")
    rows: list[tuple[str, object, object]] = []
    for method, tied in (("apep", True), ("arpep", False)):

        def caught(answers: Any, prior: Any, *_: Any, **__: Any) -> str:
            raise _Caught(sorted(answers(prior)))

        with (
            mock.patch.object(fit_energies, "rounding_doubt", caught),
            mock.patch.object(fit_energies, "_another_optimum", return_value=""),
        ):
            try:
                _energy(asked, method)
                names: list[str] = []
            except _Caught as error:
                names = error.args[0]
        rows += [
            (f"{method}: the energy and moments are compared", {"energy", "inducing_mean"} <= set(names), True),
            (f"{method}: a tied factor", "tied_precision" in names and "tied_shift" in names, tied),
        ]
    yield as_documented(rows, "reference", "answers")


def _energy(asked: Problem, method: str) -> Any:
    from reference.common._classes import Prior
    from reference.villacampa2020 import fit_energies

    C = asked.n_classes
    prior = Prior(
        np.broadcast_to(asked.variance, (C,)), np.broadcast_to(asked.lengthscales, (C, 2)),
        np.broadcast_to(asked.noise, (C,)), np.broadcast_to(asked.jitter, (C,)), np.asarray(asked.Z),
    )  # fmt: skip
    return fit_energies.fit_energy(asked.X, asked.y, prior, method, 0.1, alpha=0.5)


@check(
    "identity/ep/ends_of_integrals",
    paper="villacampa2017",
    question="Do integrals of the largest value end where the integrand has fallen by what they say, near and far?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood import largest

    # a label far below two others, so that the mode is far from the mean; ends to a twentieth of their distance from it
    a = np.array([[-30.0, -5.0], [-8.0, 2.0], [-200.0, -150.0], [1.0, 2.0], [-0.5, -900.0]])
    b = np.array([[1.0, 0.5], [3.0, 1.0], [2.0, 0.1], [1.0, 1.0], [0.2, 4.0]])
    told = largest._prepared(a, b)
    t = np.linspace(-60.0, 320.0, 190_001)
    worst = 0.0
    for k in range(len(a)):
        height = log_ndtr(a[k, 0] + b[k, 0] * t) + log_ndtr(a[k, 1] + b[k, 1] * t) - 0.5 * t**2
        top = int(height.argmax())
        inside = np.flatnonzero(height > height[top] - 40.0)
        low, high = t[inside[0]], t[inside[-1]]
        for end, exact in ((float(told.left[k]), low), (float(told.right[k]), high)):
            worst = max(worst, abs(end - exact) / abs(exact - t[top]))
    yield Compared(worst, 0.1, "ends of five integrals", "fast", "definition", "of the distance from the mode")


# by kind of an option: what is none of its values
_BAD: dict[str, tuple[Any, ...]] = {
    "integer": (0.5, -1, "3", True), "number": (np.nan, -1.0, "0.5", True), "choice": ("", 3),
    "names": (3, ("variance", "variance")), "callable": (3,), "flag": ("no", 1),
}  # fmt: skip


@check(
    "identity/x-gpc/refused_keywords",
    paper="wenzel2019",
    question="Does every door refuse a keyword that is none of its values, by name and before any work?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    """A door that is called with a keyword alone has nothing to work on: only what is refused first is named."""
    from fast import methods
    from fast.core import declare

    rows: list[tuple[str, object, object]] = []
    n_doors = 0
    for found in pkgutil.iter_modules(methods.__path__, f"{methods.__name__}."):
        module = importlib.import_module(found.name)
        for name, door in vars(module).items():
            if not inspect.isfunction(door) or door.__module__ != found.name or name.startswith("_"):
                continue
            keywords = [one.name for one in inspect.signature(door).parameters.values() if one.kind is one.KEYWORD_ONLY]
            if not hasattr(door, "options"):
                rows.append((f"{found.name}.{name}: sizes that nobody checks", "block_size" in keywords, False))
                continue
            n_doors += 1
            rows.append((f"{found.name}.{name}: keywords", sorted(door.options), sorted(keywords)))
            defaults = inspect.signature(door).parameters
            for keyword, record in door.options.items():
                rows.append((f"{name}, {keyword}: default", record.default, defaults[keyword].default))
                rows += [
                    (f"{name}, {keyword} {shown(value)}", _first_word(door, {keyword: value}),
                     f"{keyword}: found {shown(value)}")
                    for value in _BAD[record.kind]
                ]  # fmt: skip
    rows.append(("doors are found", n_doors > 20, True))

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Asked(declare.Options):
        """Options of a door of the judge's."""

        block_size: int = declare.option("integer", "rows", "[1, inf)", default=7)
        tolerance: float = declare.option("number", "change", "(0, 1)", default=0.5)
        learn: Any = declare.option("names", "what moves", choices=("variance", "noise"), default=())
        other: int = declare.option("integer", "of no door", "[1, inf)", default=3)

    def own_door(first: Any, *, block_size: int = 11, tolerance: float = 0.25, learn: Any = ()) -> Any:
        return first, block_size, tolerance, learn

    opened: Any = Asked.checks(own_door)
    for asked, came in (
        ({}, (1, 11, 0.25, ())),
        ({"block_size": np.int64(3), "learn": "noise"}, (1, 3, 0.25, ("noise",))),
        ({"tolerance": np.float32(0.125), "block_size": np.array(5)}, (1, 5, 0.125, ())),
        ({"learn": ["noise", "variance"]}, (1, 11, 0.25, ("noise", "variance"))),
    ):
        told = opened(1, **asked)
        rows.append((f"{asked}: taken as", (told, [type(one) for one in told]), (came, [type(one) for one in came])))
    yield as_documented(rows, "fast", "doors")


@check(
    "identity/x-gpc/refused_values",
    paper="wenzel2019",
    question="Does every fit refuse what is no data, no prior or not its options, by name and before any work?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast import methods
    from fast.core.declare import Options
    from fast.core.values import Data, Prior

    data, prior = Data(np.eye(2), np.array([0, 1])), Prior(1.0, np.ones(2), 0.1, 0.0, np.eye(2))
    rows: list[tuple[str, object, object]] = []
    n_doors = 0
    for found in pkgutil.iter_modules(methods.__path__, f"{methods.__name__}."):
        module = importlib.import_module(found.name)
        doors = {name: value for name, value in vars(module).items() if name.startswith("fit")}
        for name, door in doors.items():
            if not inspect.isfunction(door) or door.__module__ != found.name:
                continue
            n_doors += 1
            kind = str(inspect.signature(door).parameters["options"].annotation)
            own = getattr(module, kind)
            label = f"{found.name}.{name}"
            wrong: dict[str, tuple[Any, ...]] = {
                "data": (None, prior, {"X": 1}), "prior": (None, data),
                "options": (None, {"tolerance": 0.1}, own, Options()),
            }  # fmt: skip
            rows += [
                (f"{label}, {asked} {value!r:.9}", _first_word(door, {asked: value}).split("found")[0], f"{asked}: ")
                for asked, values in wrong.items()
                for value in values
            ]
            # in their places as well as by name, and of another class that declares all of it
            rows.append((f"{label}, data in its place", _first_word(door, {}, None)[:12], "data: found "))
            more = own.joined(type("More", (Options,), {}))
            rows.append((f"{label}, options that declare all", _first_word(door, {"options": more()}), "not refused"))
    rows.append(("fits are found", n_doors > 20, True))
    yield as_documented(rows, "fast", "fits")


def _first_word(door: Any, asked: dict[str, Any], *in_place: Any) -> str:
    """What a door says first."""
    try:
        door(*in_place, **asked)
    except ValueError as error:
        return str(error).split(", expected")[0]
    except TypeError:
        return "not refused"
    return "no word"


@check(
    "identity/x-gpc-svi/marks_of_data",
    paper="wenzel2019",
    question="Do a hold-out, when it is scored, first looks and blocks tell runs apart?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import x_gpc_svi

    given = _binary("logit")
    X, y = given["X"], given["y"]

    def ascent(source: Any, link: Any, hyper: Any, Z: Any, settings: Any, **more: Any) -> Any:
        raise _Caught(settings.mark)

    def mark(**changed: Any) -> str:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(x_gpc_svi, "stochastic_ascent", ascent):
            usual = {"checkpoint": Path(folder) / "run.npz", "batch_size": 4, "seed": 1, "n_steps": 20}
            try:
                by_name(x_gpc_svi.fit, binary=True)(**(given | usual | changed))
            except _Caught as error:
                return str(error.args[0])
        return "no run"

    kept, first = {"holdout": (X[:3], y[:3])}, {"init_batches": ((0, 1), (2, 3))}
    rows: list[tuple[str, object, object]] = []
    for what, one, other in (
        ("a hold-out", {}, kept),
        ("its inputs", kept, {"holdout": (X[:3] + 1e-9, y[:3])}),
        ("its labels", kept, {"holdout": (X[:3], 1 - y[:3])}),
        ("when it is scored", kept | {"holdout_every": 2}, kept | {"holdout_every": 3}),
        ("first looks", {}, first),
        ("other first looks", first, {"init_batches": ((0, 1), (3, 2))}),
        ("rows in memory", {"pool_size": 4, "block_size": 2}, {"pool_size": 6, "block_size": 2}),
        ("rows read at a time", {"pool_size": 4, "block_size": 2}, {"pool_size": 4, "block_size": 4}),
        ("rows of a batch", {}, {"batch_size": 3}),
    ):
        marks = [mark(**asked) for asked in (one, one, other)]
        rows.append((what, (len(marks[0]) > 20, marks[0] == marks[1], marks[0] == marks[2]), (True, True, False)))
    yield as_documented(rows, "fast", "marks")


@check(
    "identity/epgpc-svi/ended_by_changes",
    paper="wenzel2019",
    question="Is a run that its changes end called converged, not diverged, after as many steps as the window has?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import epgpc_svi, x_gpc_svi

    rows: list[tuple[str, object, object]] = []
    # epgpc-svi compares the first step with none before it
    for name, module, link, more, before in (
        ("epgpc-svi", epgpc_svi, "probit", {}, 1),
        ("x-gpc-svi", x_gpc_svi, "logit", {"check_every": 1}, 0),
    ):
        for stop, window in ((1e9, 3), (1e9, 5), (1e-300, 3)):
            asked = {"stop": stop, "window": window, "batch_size": 4, "n_steps": 9, "seed": 1} | more
            came = by_name(module.fit, binary=True)(**(_binary(link) | asked))
            early = stop > 1.0
            told = f"over {window} steps below" in came.reason, came.reason == "9 steps made"
            made = (came.converged, came.diverged, came.iterations, *told)
            wanted = (early, False, window + before if early else 9, early, not early)
            rows.append((f"{name}, {window} changes below {stop:g}", made, wanted))
    yield as_documented(rows, "fast", "ends")


def _bound_told(bounds: list[float], at: Any) -> None:
    bounds.append(float(at.elbo))


@check(
    "identity/vb-probit/rounds_told",
    paper="riihimaki2013",
    question="Are rounds, bounds and the end of an alternation told under their own names?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.full_classes.prior import prepare
    from fast.methods import vb_probit

    asked = tiny("multinomial-probit full")
    prior = prepare(
        Data(asked.X, asked.y, 3), Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, None)
    )
    rows: list[tuple[str, object, object]] = []
    for most, slack, reason in ((1, 1e-9, "iteration limit reached"), (3, 1e-9, "iteration limit reached"),
                                (9, 10.0, "logarithms at rest")):  # fmt: skip
        bounds: list[float] = []
        came = vb_probit.alternate(
            prior, learn=("variance",), max_iterations=most, learning_tolerance=slack,
            callback=partial(_bound_told, bounds),
        )  # fmt: skip
        rounds = 1 if slack > 1.0 else most
        rows += [
            (f"{most} rounds at most: evaluations, refused", (came.n_evaluations, came.n_refused), (rounds, 0)),
            (f"{most} rounds at most: bounds", came.trace.tolist(), bounds),
            (f"{most} rounds at most: how many", len(bounds), rounds),
            (f"{most} rounds at most: end", (came.converged, came.reason), (slack > 1.0, reason)),
            (f"{most} rounds at most: bound", came.objective, came.posterior.elbo),
            (f"{most} rounds at most: parameters", came.hyper is came.posterior.prior.hyper, True),
        ]
    yield as_documented(rows, "fast", "runs")


@check(
    "identity/nested-ep/sites_of_a_part",
    paper="riihimaki2013",
    question="Does a run on all rows start from the sites of a part, each at its row, and from none at the others?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.estimators.multiclass import NestedEPClassifier, NestedIEPClassifier
    from fast.methods import nested_iep

    places, n = np.array([4, 0, 3]), 6
    parts = {name: k + np.arange(1.0, 7.0).reshape(3, 2) for k, name in enumerate(("alpha", "beta", "first", "second"))}
    wanted = {}
    for name, sites in parts.items():
        wanted[name] = np.zeros((n, 2))
        for row, place in enumerate(places):
            wanted[name][place] = sites[row]
    part: Any = SimpleNamespace(alpha_tilde=parts["alpha"], beta_tilde=parts["beta"])
    warm = nested_iep.Warm((parts["first"], parts["second"]), parts["alpha"], parts["beta"])
    alone = NestedEPClassifier()._widened(part, places, n)
    with mock.patch.object(nested_iep, "warm", return_value=warm):
        all_of_it = NestedIEPClassifier()._widened(part, places, n)
    came = [*alone, *all_of_it.pair, all_of_it.alpha_tilde, all_of_it.beta_tilde]
    names = ("alpha", "beta", "first", "second", "alpha", "beta")
    rows = [(name, sites.tolist(), wanted[name].tolist()) for name, sites in zip(names, came, strict=True)]
    yield as_documented(rows, "fast", "sites")


@check(
    "identity/x-gpc/rows_in_tiles",
    paper="wenzel2019",
    question="Is every row of a leaf looked at where it has several tiles, and named by its number among all?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.blockwise import classes, quadratic

    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((12, 2)), np.arange(12) % 2
    rows: list[tuple[str, object, object]] = []
    for module in (quadratic, classes):
        for bad in (None, 0, 3, 4, 7, 8, 11):
            asked = X.copy()
            if bad is not None:
                asked[bad, 1] = np.nan
            # one that is read when it is looked at, as those of files are
            leaf: Any = SimpleNamespace(first=12, size=12, inputs=lambda asked=asked: asked, labels=lambda: y)
            with mock.patch.object(module, "_TILE", 4):
                try:
                    if module is quadratic:
                        quadratic.look(leaf, points=cast("Any", None), method="x-gpc")
                    else:
                        classes.checked_leaf(leaf, 2)
                    told = "taken"
                except ValueError as error:
                    told = str(error).partition(", expected")[0]
            wanted = "taken" if bad is None else f"X: found a value that is not finite in row {12 + bad}"
            rows.append((f"{module.__name__}, {wanted}", told, wanted))
    yield as_documented(rows, "fast", "rows")


@check(
    "identity/apep/coordinates_of_steps",
    paper="villacampa2020",
    question="Do coordinates of a step of q lead back to it, and are they those of the documented matrices?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import apep
    from fast.sparse_classes.alpha_runs import _Frame

    asked = tiny("threshold errors")
    given = _prior_of(asked)
    q = by_name(apep.fit)(X=asked.X, y=asked.y, n_classes=3, **given, alpha=0.5, epsilon=0.1, max_iterations=3).run.q
    frame, rng = _Frame(q), np.random.default_rng(6)
    C, m = q.shift.shape
    dP = rng.standard_normal((C, m, m))
    dP += dP.transpose(0, 2, 1)
    dw = rng.standard_normal((C, m))
    flat = np.concatenate([dP.ravel(), dw.ravel()])
    x = frame.into(flat)
    root = np.linalg.cholesky(q.precision)
    mean = np.linalg.solve(q.precision, q.shift[:, :, None])[:, :, 0]
    inverse = np.linalg.inv(root)
    wanted = np.concatenate([
        (inverse @ dP @ inverse.transpose(0, 2, 1)).ravel(),
        np.einsum("kij,kj->ki", inverse, dw - np.einsum("kij,kj->ki", dP, mean)).ravel(),
    ])  # fmt: skip
    for name, came, expected in (("there", x, wanted), ("and back", frame.back(x), flat)):
        gap = float(np.abs(came - expected).max() / np.abs(expected).max())
        yield Compared(gap, 1e-9, f"{name}: inverses of matrices {m} x {m}", "fast", "definition")


@check(
    "identity/vb-probit/standing_still",
    paper="riihimaki2013",
    question="Does a run end where rounding lets its residual fall no more, and not before?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.core.values import Data, Prior
    from fast.methods import vb_probit

    asked = tiny("multinomial-probit full")
    prior = Prior(asked.variance, asked.lengthscales, asked.noise, asked.jitter, None)
    came = vb_probit.fit(
        Data(asked.X, asked.y, 3), prior, replace(vb_probit.DEFAULTS, tolerance=1e-300, max_iterations=400)
    )
    rows: list[tuple[str, object, object]] = [
        ("iterations below 100", came.iterations < 100, True),
        ("a residual at rounding", came.residual < 1e-10, True),
        ("converged", came.converged, False),
    ]
    yield as_documented(rows, "fast", "runs")


@check(
    "identity/sep/search_of_no_name",
    paper="villacampa2017",
    question="Is a prior learned by L-BFGS where an objective has the gradient, and by Adam along the way elsewhere?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import ep, sep

    asked = tiny("threshold")
    given = _prior_of(asked)
    given |= {"X": asked.X, "y": asked.y, "n_classes": 3, "learn": ("variance",)}

    def caught(_run: Any, settings: Any, _callback: Any) -> Any:
        raise _Caught(settings.optimizer, settings.scheme, settings.n_steps)

    rows: list[tuple[str, object, object]] = []
    inside = ("adam", "inner-approximate", 250)
    for module, options, wanted in (
        (ep, {}, ("lbfgs", "outer", 200)), (ep, {"batch_size": 4}, inside), (sep, {}, inside),
        (sep, {"batch_size": 4}, inside), (ep, {"n_steps": 9}, (*inside[:2], 9)),
    ):  # fmt: skip
        told: object = None
        with mock.patch.object(module, "train", caught):
            try:
                by_name(module.fit)(**given, **options)
            except _Caught as error:
                told = error.args
        rows.append((f"{module.__name__} with {options}: search, scheme and steps", told, wanted))
    yield as_documented(rows, "fast", "settings")


@check(
    "identity/ep/improper_of_all_blocks",
    paper="villacampa2017",
    question="Are cavities that are no distribution counted over all blocks, and the fewest so far kept in mind?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.methods import ep
    from fast.sparse_classes import mixing

    asked = tiny("threshold")
    given = _prior_of(asked)
    options = {"max_iterations": 2, "damping": 0.7}
    run = by_name(ep.fit)(X=np.tile(asked.X, (600, 1)), y=np.tile(asked.y, 600), n_classes=3, **given, **options).run
    blocks = [block.part for block in run.data.blocks(run.points)]
    real, counts = run.factors.visit, iter([1, 4, 0, 2, 3, 3])

    def visit_of(_self: Any, *arguments: Any) -> Any:
        return real(*arguments)._replace(n_improper=next(counts))

    def caught(visit: Any, start: Any, _steps: Any) -> Any:
        raise _Caught([visit(*start).n_improper for _ in range(6 // len(blocks))])

    told: list[int] = []
    with mock.patch.object(mixing, "iterate_sites", caught), mock.patch.object(type(run.factors), "visit", visit_of):
        try:
            mixing.mix(run, tolerance=1e-9, max_iterations=10)
        except _Caught as error:
            told = error.args[0]
    yield as_documented([(f"{len(blocks)} blocks", told, [5, 2, 6])], "fast", "cavities")

    # of two steps the shorter, by the longer, tells how fast sweeps contract
    for residual, rate in ((0.5, 0.6), (4.0, 0.95), (0.1, 0.0), (0.0, 0.0), (np.inf, 0.0)):

        def ended(visit: Any, start: Any, _steps: Any, residual: float = residual) -> Any:
            return SimpleNamespace(visit=visit(*start), residual=residual, trace=np.zeros(3), n_improper=2)

        with mock.patch.multiple(mixing, iterate_sites=ended, site_gap=lambda *_: 0.2):
            mixed = mixing.mix(run, tolerance=1e-9, max_iterations=10)
        said = [mixed.n_improper, round(mixed.rate, 12)]
        yield as_documented([(f"residual {residual:g}: improper cavities and rate", said, [2, rate])], "fast", "rates")


@check(
    "limit/x-gpc/eigenvalues_told",
    paper="wenzel2019",
    question="Do all witnesses tell the smallest eigenvalue of what has no factor, near the ends of float64 too?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    fast_linalg, gibbs_linalg, errors = (
        importlib.import_module(name) for name in ("fast.core.linalg", "gibbs.core.linalg", "reference.common.errors")
    )
    doors = {
        "fast": lambda M: fast_linalg.cholesky(M, "K", "none"),
        "gibbs": lambda M: gibbs_linalg.cholesky("K", M, "none"),
        "reference": lambda M: errors.factorise(M, "K", "none"),
    }
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    for witness, door in doors.items():
        rows: list[tuple[str, object, object]] = []
        for largest, smallest in ((1.0, -0.25), (1.7e308, -1.5e308), (3e-300, -2e-300), (0.0, -1e5), (2.0, -1e-3)):
            for name, matrix in (
                ("diagonal", np.diag([largest, smallest])),
                ("turned", turn @ np.diag([largest / 4.0, smallest / 4.0]) @ turn.T),
            ):
                matrix = 0.5 * matrix + 0.5 * matrix.T
                told = smallest if name == "diagonal" else smallest / 4.0
                with np.errstate(over="ignore"):
                    came = _first_word(door, {}, np.asfortranarray(matrix))
                rows.append((f"{name} {largest:g}", came.rpartition("eigenvalue ")[2].split(";")[0], f"{told:.3g}"))
        yield as_documented(rows, witness, "messages")
