"""villacampa2017, section 4.4, Fig. 5: mini-batches on MNIST and on the flight delays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from validation import datasets
from validation.datasets.splits import standardise, train_test_split
from validation.door import arguments
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, below
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option
from validation.reproduce.protocols import Score, scores
from validation.reproduce.published import published
from validation.reproduce.villacampa2017 import flights, setting
from validation.reproduce.villacampa2017.fig4 import reached
from validation.reproduce.villacampa2017.flights import NAME, SYNTHETIC
from validation.screen import figures

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
METHODS = ("ep", "sep", "vi-robust")


class Parts(NamedTuple):
    """Training and test rows."""

    X: Array
    y: Labels
    X_test: Array
    y_test: Labels


class Ended(NamedTuple):
    """A run on digits, with the standard errors that its scores at the end have over the test rows."""

    course: setting.Course
    error_error: float
    nll_error: float


class Flights(NamedTuple):
    """Courses of the methods, and the linear model."""

    courses: dict[str, setting.Course]
    linear: Score


def _trained(parts: Parts, method: str, prior: Any, training: setting.Training, watch: setting.Watch) -> setting.Run:
    """Adam on mini-batches: factors of a batch, then a step of everything that is learned."""
    arguments.choice(method, METHODS, "method")
    return setting.train(method, parts.X, parts.y, prior, training, watch)


def _course(run: setting.Run) -> setting.Course:
    assert run.course is not None  # test rows were given
    return run.course


@equation("villacampa2017", "u39-mnist")
def mnist_experiment(
    parts: Parts,
    method: str,
    *,
    n_inducing: int = 200,
    batch_size: int = 200,
    n_steps: int = 300,
    rate: float = 0.001,
    nat_rate: float = 0.1,
    growth: float = 1.3,
    budget: float = np.inf,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> setting.Course:
    """Test error and negative log-likelihood along a run on mini-batches of digits: villacampa2017, 4.4, Fig. 5.

    Adam with its default settings learns kernels, noise and inducing points of all classes, one step after the factors
    of each mini-batch. Pixels start with one lengthscale.

    Parameters
    ----------
    parts : Parts         rows
    method : str           ep, sep or vi-robust
    n_inducing : int       per class
    batch_size : int       rows of a mini-batch
    n_steps : int          mini-batches
    rate : float           of Adam
    nat_rate : float       size of the natural-gradient steps of vi-robust
    growth : float         > 1: scores after the first step, whenever training time has grown by this factor, at the end
    budget : float         seconds of training
    seed : int             of inducing points and mini-batches
    clock : callable       seconds
    """
    training = _adam(len(parts.y), batch_size, n_steps, rate, nat_rate, seed)
    watch = setting.Watch((parts.X_test, parts.y_test), growth, budget, evaluate=False, clock=clock)
    return _course(_digits(parts, method, n_inducing, training, watch, seed))


def _adam(n: int, batch_size: int, n_steps: int, rate: float, nat_rate: float, seed: int) -> setting.Training:
    batches = setting.minibatches(n, batch_size, n_steps, seed)
    return setting.Training(n_steps, batches=batches, optimizer="adam", rate=rate, nat_rate=nat_rate)


def _digits(
    parts: Parts, method: str, n_inducing: int, training: setting.Training, watch: setting.Watch, seed: int
) -> setting.Run:
    n_classes = int(max(parts.y.max(), parts.y_test.max())) + 1
    prior = setting.start(parts.X, n_inducing, n_classes, seed, alike=True)
    return _trained(parts, method, prior, training, watch)


def _ended(run: setting.Run, parts: Parts) -> Ended:
    p = run.probabilities(parts.X_test)
    wrong = p.argmax(axis=1) != parts.y_test
    surprise = -np.log(p[np.arange(parts.y_test.size), parts.y_test])
    root = np.sqrt(parts.y_test.size)
    return Ended(_course(run), float(wrong.std() / root), float(surprise.std() / root))


def _time_to_end(course: setting.Course) -> float:
    """Seconds until the negative log-likelihood is first within .01 of where it ends."""
    return float(course.seconds[reached(course, course.nll[-1] + 0.01)])


def decide(runs: Mapping[str, Ended], printed: Mapping[str, Mapping[str, float]]) -> list[Decided]:
    """What section 4.4 says of the digits and its Fig. 5 (top), from one run of each method.

    The paper prints one run and no error. |z| has the error of the test rows alone, which are the same in both: the
    difference of two runs has a smaller one, so that agreement within it is too easy, and the spread of runs is in
    neither. One run decides nothing. `printed` is empty where the run is smaller than the paper's.
    """
    listed: list[Decided] = []
    for method, name in (("sep", "sep"), ("vi-robust", "vi")):
        if method not in runs or method not in printed:
            continue
        run, theirs = runs[method], printed[method]
        for field, error in (("error", run.error_error), ("nll", run.nll_error)):
            ours = float(getattr(run.course, field)[-1])
            text = f"{setting.NAMES[method]}: {field} {ours:.4f} ± {error:.4f}, printed {theirs[field]:g}: |z|"
            listed.append(below(f"mnist-{name}-{field}", text, abs(ours - theirs[field]) / error, 3.0))
    if set(runs) == set(METHODS):
        for field, limit in (("error", 0.002), ("nll", 0.01)):
            ends = [float(getattr(run.course, field)[-1]) for run in runs.values()]
            listed.append(
                below("fig5-mnist-alike", f"range of the methods' final {field}", max(ends) - min(ends), limit)
            )
        slow = _time_to_end(runs["vi-robust"].course)
        listed += [
            below("fig5-mnist-faster", f"seconds to the final nll + .01, {setting.NAMES[method]} and VI",
                  _time_to_end(runs[method].course), slow)
            for method in ("ep", "sep")
        ]  # fmt: skip
    return listed


@equation("villacampa2017", "u40-airline")
def airline_experiment(
    parts: Parts,
    methods: Sequence[str] = METHODS[1:],
    *,
    n_inducing: int = 200,
    batch_size: int = 200,
    n_steps: int = 300,
    rate: float = 0.001,
    nat_rate: float = 0.1,
    growth: float = 1.3,
    budget: float = np.inf,
    seed: int = 0,
    say: Callable[[str], object] = lambda text: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Flights:
    """The digits' protocol on flight delays of three classes, beside logistic regression: villacampa2017, section 4.4.

    Parameters
    ----------
    parts : Parts         rows; eight standardised attributes
    methods : names        ep, sep, vi-robust; ep keeps factors of all data, and a step of the kernels visits them all
    n_inducing, batch_size, n_steps, rate, nat_rate, growth, budget, seed, clock    as for digits
    """
    courses = {}
    for method in methods:
        prior = setting.start(parts.X, n_inducing, 3, seed)
        training = _adam(len(parts.y), batch_size, n_steps, rate, nat_rate, seed)
        watch = setting.Watch((parts.X_test, parts.y_test), growth, budget, evaluate=False, clock=clock)
        courses[method] = _course(_trained(parts, method, prior, training, watch))
        _tell(say, method, courses[method])
    started = clock()
    linear = LogisticRegression(max_iter=1000).fit(parts.X, parts.y)
    seconds = clock() - started
    given = np.zeros((len(parts.y_test), 3))
    given[:, linear.classes_] = linear.predict_proba(parts.X_test)
    return Flights(courses, Score(*scores(given, parts.y_test), seconds))


@dataclass(frozen=True, kw_only=True)
class Fig5MnistOptions:
    """Options of `fig5_mnist`."""

    dataset: str = "mnist"
    methods: Sequence[str] = METHODS
    n: int = 3000
    n_test: int = 1000
    m: int = option(50, 200, "inducing points per class")
    batch_size: int = 200
    n_steps: int = 200
    rate: float = 0.001
    nat_rate: float = 0.1
    budget: float = 60.0
    seed: int = 0


@experiment(
    "villacampa2017",
    "fig5-mnist",
    "mini-batches on MNIST: test error and log-likelihood against training time",
    "all methods end alike (SEP: error 2.08 %, nll 0.0725; VI: 2.02 %, 0.0686); EP and SEP take less time than VI "
    "(section 4.4, Fig. 5 top)",
    cells=lambda asked: len(asked.methods),
)
def fig5_mnist(asked: Fig5MnistOptions, say: Say) -> Outcome:
    """As many steps as it takes are the paper's."""
    for method in asked.methods:
        arguments.choice(method, METHODS, "methods")
    full = datasets.load(arguments.string(asked.dataset, "dataset"))
    split = train_test_split(full, asked.seed, keep_leaks=True)
    train, test = split.train[: max(asked.n, 2)], split.test[: max(asked.n_test, 1)]
    scale = float(np.abs(full.X[train]).max()) or 1.0  # pixels from 0 to 1
    parts = Parts(full.X[train] / scale, full.y[train], full.X[test] / scale, full.y[test])
    training = _adam(parts.y.size, asked.batch_size, asked.n_steps, asked.rate, asked.nat_rate, asked.seed)
    watch = setting.Watch((parts.X_test, parts.y_test), budget=asked.budget, evaluate=False)
    runs = {}
    for method in asked.methods:
        runs[method] = _ended(_digits(parts, method, asked.m, training, watch, asked.seed), parts)
        _tell(say, method, runs[method].course)
    courses = {method: run.course for method, run in runs.items()}
    printed = published("villacampa2017", "text")["mnist"]
    whole = train.size == split.train.size and test.size == split.test.size and asked.m >= 200
    message = decisions.table(decide(runs, printed if whole else {}), "What section 4.4 says of the digits")
    notes = _notes(asked, split.train.size, split.test.size, parts)
    notes += [setting.VI_STEPS] if "vi-robust" in asked.methods else []
    notes.append("start: variance 1, the median distance of two digits as lengthscale of every pixel, noise 0.01")
    return _outcome(
        "mnist", f"{asked.dataset}: n = {parts.y.size}, {parts.y_test.size} test rows", courses, None,
        printed, notes, _settings(asked), (message,),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fig5AirlineOptions(Fig5MnistOptions):
    """Options of `fig5_airline`."""

    dataset: str = NAME
    methods: Sequence[str] = METHODS[1:]
    n: int = 20_000
    n_test: int = 2000
    n_steps: int = 1000


@experiment(
    "villacampa2017",
    "fig5-airline",
    "mini-batches on flight delays: test error and log-likelihood against training time, with a linear model",
    "all methods end with similar errors; EP and SEP converge faster and soon pass logistic regression; the negative "
    "log-likelihood of VI goes up again at some point (section 4.4, Fig. 5 bottom)",
    cells=lambda asked: len(asked.methods),
)
def fig5_airline(asked: Fig5AirlineOptions, say: Say) -> Outcome:
    """The paper has EP too; the data are the user's own file."""
    for method in asked.methods:
        arguments.choice(method, METHODS, "methods")
    arguments.integer(asked.n_test, "n_test", at_least=1)
    data = flights.load(asked.dataset, arguments.integer(asked.n, "n", at_least=2) + asked.n_test, asked.seed)
    order = np.random.default_rng(arguments.integer(asked.seed, "seed", at_least=0)).permutation(data.n)
    if data.n <= asked.n_test:
        raise ValueError(f"n_test: found {asked.n_test}, expected fewer than the {data.n} rows of {asked.dataset}")
    test, train = order[: asked.n_test], order[asked.n_test : asked.n_test + asked.n]
    X, X_test = standardise(data.X[train], data.X[test])
    parts = Parts(X, data.y[train], X_test, data.y[test])
    result = airline_experiment(parts, asked.methods, **_sizes(asked), say=say)
    printed = published("villacampa2017", "text")["airline"]
    notes = _notes(asked, printed["n"] - printed["n_test"], printed["n_test"], parts)
    if asked.dataset == SYNTHETIC:
        notes.insert(0, "MADE-UP DATA in the form of the flight delays: nothing here can be set beside Fig. 5")
    notes += [setting.VI_STEPS] if "vi-robust" in asked.methods else []
    notes.append(f"start: {setting.START}")
    notes.append("Fig. 5 and 7 print no numbers for the flight delays")
    told = f"{asked.dataset}: n = {parts.y.size}, {parts.y_test.size} test rows"
    return _outcome("airline", told, result.courses, result.linear, {}, notes, _settings(asked))


def _sizes(asked: Fig5MnistOptions) -> dict[str, Any]:
    names = ("batch_size", "n_steps", "rate", "nat_rate", "budget", "seed")
    return {"n_inducing": asked.m, **{name: getattr(asked, name) for name in names}}


def _settings(asked: Fig5MnistOptions) -> dict[str, object]:
    return {
        "inducing points": asked.m,
        "mini-batch": asked.batch_size,
        "Adam": f"rate {asked.rate:g}",
        "VI": f"natural-gradient steps of {asked.nat_rate:g}",
        "seed": asked.seed,
    }


def _tell(say: Callable[[str], object], method: str, course: setting.Course) -> None:
    say(
        f"{setting.NAMES[method]}: error {course.error[-1]:.4f}, nll {course.nll[-1]:.4f} after {course.iteration[-1]} "
        f"mini-batches, {course.seconds[-1]:.0f} s"
    )


def _notes(asked: Fig5MnistOptions, n: int, n_test: int, parts: Parts) -> list[str]:
    n_steps, budget = asked.n_steps, asked.budget
    notes = []
    if parts.y.size < n or parts.y_test.size < n_test:
        notes.append(
            f"{parts.y.size} of {n} training and {parts.y_test.size} of {n_test} test rows, fewer than the paper's: "
            f"-o n={n} -o n_test={n_test}"
        )
    length = f"{n_steps} mini-batches" + (f" or {budget:g} s of training" if np.isfinite(budget) else "")
    notes.append(f"runs end after {length}; those of the paper go on until nothing changes: -o n_steps, -o budget")
    return notes


def _outcome(
    name: str,
    data: str,
    courses: dict[str, setting.Course],
    linear: Score | None,
    printed: dict[str, Any],
    notes: list[str],
    settings: dict[str, object],
    message: tuple[Table, ...] = (),
) -> Outcome:
    ends: list[tuple[object, ...]] = []
    along: list[tuple[object, ...]] = []
    for method, course in courses.items():
        label, theirs = setting.NAMES[method], printed.get(method, {})
        ends.append(
            (label, int(course.iteration[-1]), float(course.seconds[-1]), float(course.error[-1]), theirs.get("error"),
             float(course.nll[-1]), theirs.get("nll"), float(course.nll.min()))
        )  # fmt: skip
        along += [
            (label, int(k), float(t), float(e), float(v))
            for k, t, e, v in zip(course.iteration, course.seconds, course.error, course.nll, strict=True)
        ]
    if linear is not None:
        row = ("logistic regression", None, linear.seconds, linear.error, None, linear.nll, None, linear.nll)
        ends.append(row)
    pictures: tuple[Picture, ...] = ()
    if courses:
        with figures.style():
            panels = tuple(
                figures.curves(
                    title,
                    [figures.Curve(setting.NAMES[k], c.seconds, getattr(c, field)) for k, c in courses.items()],
                    "seconds of training",
                    f"fig5-{name}-{field}",
                )
                for field, title in (("error", "test error"), ("nll", "negative log-likelihood"))
            )
        pictures = (Picture(f"scores on {data}", tuple(setting.NAMES[k] for k in courses), panels),)
    return Outcome(
        {"data": data, **settings},
        (
            Table(
                "ends",
                ("method", "mini-batches", "seconds", "error", "error (paper)", "nll", "nll (paper)", "lowest nll"),
                tuple(ends),
                "At the end of the runs; the paper's numbers are those of section 4.4",
            ),
            Table("curves", ("method", "mini-batches", "seconds", "error", "nll"), tuple(along), "Along the runs"),
            *message,
        ),
        pictures,
        tuple(notes),
    )
