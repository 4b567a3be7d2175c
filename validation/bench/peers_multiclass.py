"""sep of `fast` against GPflow's SVGP with RobustMax: the same held-out score, how much sooner. Optional.

Both get the same rows, inducing points at the start, batches, kernels at the start, and Adam's rate; both learn
variance, lengthscales, noise and Z. GPflow moves q by natural gradients, then kernels and Z by Adam, both on one batch.
Noise is a white kernel there. What GPflow reaches is the target: the lowest mean of three consecutive held-out scores.
Scoring is not timed. A natural step that leaves the finite numbers ends GPflow's run: it starts again with half the
rate, its clock too, and this is counted.

Tracing and compiling GPflow's step takes longer than sep takes to the target. Both times are told, with it (cold) and
without it; the ratio is without. For one thread each: OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, TF_NUM_INTRAOP_THREADS
and TF_NUM_INTEROP_THREADS = 1.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fast.core.values import Data as Rows
from fast.core.values import Prior
from fast.methods import apep, sep, vi_robust
from validation import datasets
from validation.bench import class_steps, villacampa, villacampa2020
from validation.bench.gpflow_steps import NaturalSteps, at_finite_rate
from validation.bench.measure import Row, again
from validation.bench.measure import step_seconds as seconds_of_steps
from validation.datasets.folder import ENVIRONMENT
from validation.datasets.splits import standardise

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
_LEARN = ("variance", "lengthscales", "noise", "Z")
_JITTER, _NOISE, _RATE = 1e-6, 0.1, 0.01
_DAMPING = 0.5  # of sep
_NATURAL_RATE = 0.03  # of GPflow, once it has risen
_EPSILON = 0.02  # of RobustMax; GPflow's default of 0.001 gives worse scores on satellite
_SMOOTH = 3  # consecutive scores
_STEPS = 10**6  # the clock ends runs


class Data(NamedTuple):
    """What both programs are given."""

    name: str
    X: Array  # (n, d), standardised
    y: Labels  # (n,)
    X_test: Array
    y_test: Labels
    Z: Array  # (m, d), of every class at the start
    n_classes: int
    shared: bool  # one kernel and one Z for all classes
    batch_size: int
    seed: int = 0

    @property
    def lengthscales(self) -> Array:
        """(d,), at the start."""
        d = self.X.shape[1]
        return np.full(d, np.sqrt(d))


class Curve(NamedTuple):
    """Held-out scores along a run."""

    steps: list[int]
    seconds: list[float]  # of training until then
    nll: list[float]
    error: list[float]
    first: float  # seconds of the first step
    n_halved: int = 0  # runs that began again with half the natural rate


class Stopwatch:
    """Counts seconds of training between scores, at steps that grow geometrically, until a number of seconds is over.

    The first step has seconds of its own: they count, but not against the limit.
    """

    def __init__(
        self,
        score: Callable[[Array], tuple[float, float]],
        limit: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.score, self.limit, self.clock = score, limit, clock
        self.curve = Curve([], [], [], [], 0.0)
        self.step, self.next, self.trained = 0, 1, 0.0
        self.resumed = clock()

    def after(self, probabilities: Callable[[], Array]) -> bool:
        """A step is done; False when the run is over."""
        self.step += 1
        if self.step == 1:
            self.curve = self.curve._replace(first=self.clock() - self.resumed)
        if self.step < self.next:
            return True
        self.trained += self.clock() - self.resumed
        nll, error = self.score(probabilities())
        for values, value in zip(self.curve[:4], (self.step, self.trained, nll, error), strict=True):
            values.append(value)  # type: ignore[attr-defined]
        self.next = int(np.ceil(1.1 * self.step))
        self.resumed = self.clock()
        return self.trained - self.curve.first < self.limit


def load(dataset: str | None = None, *, m: int = 100, batch_size: int = 200, shared: bool = False) -> Data:
    """A set by its name; satellite if $TRIAD_DATA is set, else generated waveforms, 6000 rows to learn from.

    The official split, or 30 % of the rows to test on where there is none. Inducing points are rows.
    """
    if dataset is None and not os.environ.get(ENVIRONMENT):
        whole = datasets.make_waveform(np.random.default_rng(0), 8000)
        train, test = np.arange(6000), np.arange(6000, 8000)
    else:
        whole = datasets.load(dataset or "satellite")
        train, test = datasets.train_test_split(whole, 0, None if whole.n_train else 0.3)
    X, X_test = standardise(whole.X[train], whole.X[test])
    Z = X[np.random.default_rng(1).choice(len(X), m, replace=False)]
    y, y_test = whole.y[train], whole.y[test]
    return Data(whole.name, X, y, X_test, y_test, Z, whole.n_classes, shared, batch_size)


def score(probabilities: Array, y: Labels) -> tuple[float, float]:
    """Mean of -log p(y*), and share of errors; probabilities are kept off 0 by 1e-12."""
    p = np.clip(probabilities[np.arange(y.size), y], 1e-12, 1.0)
    return float(-np.log(p).mean()), float((probabilities.argmax(axis=1) != y).mean())


def smoothed(nll: list[float]) -> Array:
    """Means of three consecutive scores; ValueError where there are fewer."""
    if len(nll) < _SMOOTH:
        raise ValueError(f"seconds: found {len(nll)} scores of a run, expected at least {_SMOOTH}; allow it more time")
    return np.convolve(nll, np.full(_SMOOTH, 1.0 / _SMOOTH), mode="valid")


def time_to(curve: Curve, target: float, *, cold: bool) -> float:
    """Seconds until the mean of three consecutive scores is at the target: those of the last; NaN if it never is.

    Not cold: the first step counts as much as the mean of the others, up to the second score.
    """
    reached = np.flatnonzero(smoothed(curve.nll) <= target)
    if not reached.size:
        return float("nan")
    at = int(reached[0]) + _SMOOTH - 1
    return curve.seconds[at] if cold else warm_seconds(curve, at)


def warm_seconds(curve: Curve, at: int) -> float:
    """Seconds until a score, the first step counting as much as the mean of the others at most."""
    return curve.seconds[at] - curve.first + min(curve.first, step_seconds(curve))


def step_seconds(curve: Curve) -> float:
    """Seconds of a step on average, the first left out."""
    return (curve.seconds[-1] - curve.first) / max(1, curve.steps[-1] - 1)


def peers(
    *,
    dataset: str | None = None,
    kinds: tuple[bool, ...] = (False, True),
    m: int = 100,
    batch_size: int = 200,
    seconds: float = 60.0,
    epsilon: float = _EPSILON,
    natural_rate: float = _NATURAL_RATE,
    options: dict[str, Any] | None = None,
) -> Iterable[Row]:
    """Time to GPflow's best held-out score, and the scores, kernels learned: one for each class, and one for all.

    Parameters
    ----------
    dataset              name of a set; see `load`
    kinds                whether the classes share a kernel: each is measured
    m, batch_size        inducing points of a class, rows of a step
    seconds              of training, the first step not counted
    epsilon              of GPflow's likelihood, RobustMax
    natural_rate         of GPflow's natural gradients, once it has risen
    options              of sep.fit, in place of those that are measured

    Raises
    ------
    LookupError          GPflow is not installed
    """
    _require_gpflow()
    kinds_of_data = [load(dataset, m=m, batch_size=batch_size, shared=shared) for shared in kinds]
    return _rows(
        kinds_of_data,
        lambda data: _ours(data, seconds, options or {}),
        lambda data: _gpflow(data, seconds, epsilon, natural_rate),
    )


def _require_gpflow() -> None:
    if importlib.util.find_spec("gpflow") is None:
        raise LookupError(
            "gpflow: found no such package, expected it beside this one: pip install .[peers], "
            "then pip install --no-deps gpflow, in an environment of their own"
        )


def _rows(
    every: Iterable[Data], run_ours: Callable[[Data], Curve], run_theirs: Callable[[Data], Curve]
) -> Iterable[Row]:
    bench = "peers/multiclass"
    against = ", ".join(f"{name} {_version(name)}" for name in ("gpflow", "tensorflow"))
    for data in every:
        shared, (m, _), batch_size = data.shared, data.Z.shape, data.batch_size
        theirs, ours = run_theirs(data), run_ours(data)
        target = float(smoothed(theirs.nll).min())
        n, d = data.X.shape
        what = f"{data.name}, {'one kernel' if shared else 'a kernel for each class'}"
        shape = f"n = {n}, d = {d}, C = {data.n_classes}, m = {m}, batch {batch_size}"
        yield Row(bench, f"{what}, {shape}: target, best of {against}", target, "nat", "", None)
        for name, curve in (("sep", ours), ("GPflow", theirs)):
            yield Row(bench, f"{what}: {name}, seconds to it", time_to(curve, target, cold=False), "s", "", None)
            yield Row(bench, f"{what}: {name}, seconds to it, cold", time_to(curve, target, cold=True), "s", "", None)
        ratio = time_to(theirs, target, cold=False) / time_to(ours, target, cold=False)
        yield Row(bench, f"{what}: seconds of GPflow over those of sep", ratio, "", "> 1", ratio > 1.0)
        ends = [float(smoothed(curve.nll)[-1]) for curve in (ours, theirs)]
        met = ends[0] <= min(ends[1], target)
        asked = f"<= {min(ends[1], target):.4f}"
        yield Row(bench, f"{what}: sep, final held-out score", ends[0], "nat", asked, met)
        yield Row(bench, f"{what}: GPflow, final held-out score", ends[1], "nat", "", None)
        for name, curve in (("sep", ours), ("GPflow", theirs)):
            yield Row(bench, f"{what}: {name}, a step on average", 1e3 * step_seconds(curve), "ms", "", None)
            yield Row(bench, f"{what}: {name}, final share of errors", curve.error[-1], "", "", None)
        yield Row(bench, f"{what}: GPflow, natural rate halved", theirs.n_halved, "times", "", None)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


# -- programs --------------------------------------------------------------------------------------------------------


class _Held(NamedTuple):
    """What `predict` of a method reads: the state of a run along the way."""

    run: Any


def _predicted(module: Any, progress: Any, data: Data) -> Array:
    return np.asarray(module.predict(_Held(progress.run), data.X_test).probabilities)


class _OverError(Exception):
    """Time is up."""


def _ours(data: Data, seconds: float, options: dict[str, Any]) -> Curve:
    chosen: dict[str, Any] = {"damping": _DAMPING, "optimizer": "adam", "rate": _RATE, "seed": data.seed} | options
    prior = Prior(1.0, data.lengthscales, _NOISE, _JITTER, data.Z, shared=data.shared)
    watch = Stopwatch(lambda p: score(p, data.y_test), seconds)

    def look(progress: Any) -> None:
        if not watch.after(lambda: _predicted(sep, progress, data)):
            raise _OverError

    with suppress(_OverError):
        asked = sep.SEPOptions(
            batch_size=data.batch_size, n_steps=_STEPS, learn=_LEARN, evaluate=False, callback=look, **chosen
        )
        sep.fit(Rows(data.X, data.y, data.n_classes), prior, asked)
    return watch.curve


class _GPflow(NamedTuple):
    """GPflow's SVGP with RobustMax, its step compiled."""

    step: Callable[[Any, Any], None]  # natural gradients for q, if they are wanted, then Adam for the rest
    predict: Callable[[Array], Any]
    gamma: Any  # rate of natural gradients
    svgp: Any


def _gpflow_model(data: Data, epsilon: float, *, natural: bool = True) -> _GPflow:
    gpflow = importlib.import_module("gpflow")
    tf = importlib.import_module("tensorflow")
    C = data.n_classes

    def kernel() -> Any:
        smooth = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=data.lengthscales)
        return smooth + gpflow.kernels.White(_NOISE)

    kinds, inducing = gpflow.kernels, gpflow.inducing_variables
    if data.shared:
        prior = kinds.SharedIndependent(kernel(), output_dim=C)
        points = inducing.SharedIndependentInducingVariables(inducing.InducingPoints(data.Z.copy()))
    else:
        prior = kinds.SeparateIndependent([kernel() for _ in range(C)])
        points = inducing.SeparateIndependentInducingVariables(
            [inducing.InducingPoints(data.Z.copy()) for _ in range(C)]
        )
    likelihood = gpflow.likelihoods.MultiClass(C, invlink=gpflow.likelihoods.RobustMax(C, epsilon=epsilon))
    model = gpflow.models.SVGP(
        prior, likelihood, inducing_variable=points, num_latent_gps=C, num_data=data.X.shape[0], whiten=True
    )
    if natural:
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
    gamma = tf.Variable(0.0, dtype=tf.float64)
    by_nature, adam = gpflow.optimizers.NaturalGradient(gamma=gamma), tf.optimizers.Adam(_RATE)
    trainable = model.trainable_variables
    adam.build(trainable)
    q = (model.q_mu, model.q_sqrt)

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def step(X: Any, y: Any) -> None:
        if natural:
            by_nature.minimize(lambda: model.training_loss((X, y)), [q])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trainable)
            loss = model.training_loss((X, y))
        adam.apply_gradients(zip(tape.gradient(loss, trainable), trainable, strict=True))

    def made(X: Array, y: Labels) -> None:
        step(tf.constant(X), tf.constant(y[:, None]))

    return _GPflow(made, tf.function(lambda X: model.predict_y(X)[0]), gamma, model)


def _gpflow(data: Data, seconds: float, epsilon: float, natural_rate: float) -> Curve:
    def run(rate: float) -> Curve:
        model = _gpflow_model(data, epsilon)
        rng, steps = np.random.default_rng(data.seed), NaturalSteps(model.gamma, rate)
        watch = Stopwatch(lambda p: score(p, data.y_test), seconds)
        going = True
        while going:
            rows = rng.choice(data.X.shape[0], data.batch_size, replace=False)
            steps.make(partial(model.step, data.X[rows], data.y[rows]))
            going = watch.after(lambda: np.asarray(model.predict(data.X_test)))
        return watch.curve

    curve, halved = at_finite_rate(run, natural_rate)
    return curve._replace(n_halved=halved)


# -- the robust likelihood, by both ----------------------------------------------------------------------------------

_DIGITS = (0.055, 0.052)  # held-out scores that are asked of digits, and how many times as soon as GPflow
_SOONER = {"wine": 5.0, "digits": 3.0}
_ERRORS = 1e-3  # probability of a labelling error, of both


def robust(*, sets: tuple[str, ...] = ("wine", "digits"), m: int = 100, seconds: float = 60.0) -> Iterable[Row]:
    """Seconds of vi-robust, apep and sep to the best held-out score of GPflow's RobustMax, a kernel for each class.

    GPflow goes by natural gradients and Adam on batches, and by L-BFGS on all rows with q among what it moves; the
    better of the two is its best. On digits seconds to two fixed scores are told too. 30 % of the rows are held out.

    Parameters
    ----------
    sets       names of data sets
    m          inducing points of a class, at most the rows
    seconds    of training that each run may take

    Raises LookupError where GPflow is not installed.
    """
    _require_gpflow()
    for name in sets:
        rows = load(name).X.shape[0]
        data = load(name, m=min(m, rows), batch_size=min(200, rows))
        theirs = {
            "GPflow, natural gradients and Adam": _gpflow(data, seconds, _ERRORS, _NATURAL_RATE),
            "GPflow, L-BFGS": _gpflow_lbfgs(data, seconds, _ERRORS),
        }
        ours = {f"{method}, {how}": _energies(method, how, data, seconds) for method, how in _ENERGY_RUNS}
        ours["sep, batches"] = _ours(data, seconds, {})
        yield from robust_rows(name, ours, theirs)


def robust_rows(name: str, ours: Mapping[str, Curve], theirs: Mapping[str, Curve]) -> Iterable[Row]:
    """Best scores of all runs, seconds to the best of theirs and to those asked, and the ratio of the soonest."""
    bench = "peers/robust"
    best = {run: min(curve.nll) for run, curve in (*ours.items(), *theirs.items())}
    for run, nll in best.items():
        yield Row(bench, f"{name}: {run}, best held-out score", nll, "nat", "", None)
    peer = min(theirs, key=lambda run: best[run])
    for target in (best[peer], *(_DIGITS if name == "digits" else ())):
        what = f"{name}: to {target:.4f}"
        for run, curve in (*ours.items(), *theirs.items()):
            yield Row(bench, f"{what}, {run}", first_at(curve, target), "s", "", None)
        soonest, peers_soonest = (
            float(np.fmin.reduce([first_at(curve, target) for curve in side.values()])) for side in (ours, theirs)
        )
        ratio = peers_soonest / soonest
        asked = _SOONER.get(name)
        yield Row(
            bench, f"{what}, GPflow's seconds over ours", ratio, "", "" if asked is None else f">= {asked:g}",
            None if asked is None else bool(ratio >= asked or (np.isnan(peers_soonest) and not np.isnan(soonest))),
        )  # fmt: skip


def first_at(curve: Curve, target: float) -> float:
    """Seconds until a score is at the target, the first step for as much as the others; NaN if none is."""
    reached = np.flatnonzero(np.asarray(curve.nll) <= target)
    return warm_seconds(curve, int(reached[0])) if reached.size else float("nan")


_ENERGY_RUNS = (("vi-robust", "L-BFGS"), ("vi-robust", "batches"), ("apep", "batches"))


def _energies(method: str, how: str, data: Data, seconds: float) -> Curve:
    prior = Prior(1.0, data.lengthscales, _NOISE, _JITTER, data.Z, shared=data.shared)
    watch = Stopwatch(lambda p: score(p, data.y_test), seconds)
    module, options = {
        "vi-robust": (vi_robust, vi_robust.RobustOptions), "apep": (apep, apep.EnergyOptions),
    }[method]  # fmt: skip

    def look(progress: Any) -> None:
        if not watch.after(lambda: _predicted(module, progress, data)):
            raise _OverError

    asked: dict[str, Any] = {
        "learn": _LEARN, "callback": look, "evaluate": False, "n_steps": _STEPS, "epsilon": _ERRORS,
    }  # fmt: skip
    asked |= {"optimizer": "lbfgs"} if how == "L-BFGS" else {"batch_size": data.batch_size, "rate": _RATE}
    with suppress(_OverError):
        module.fit(Rows(data.X, data.y, data.n_classes), prior, options(**asked))
    return watch.curve


def _gpflow_lbfgs(data: Data, seconds: float, epsilon: float) -> Curve:
    gpflow = importlib.import_module("gpflow")
    model = _gpflow_model(data, epsilon, natural=False)
    watch = Stopwatch(lambda p: score(p, data.y_test), seconds)

    def look(*_: Any) -> None:
        if not watch.after(lambda: np.asarray(model.predict(data.X_test))):
            raise _OverError

    loss = model.svgp.training_loss_closure((data.X, data.y[:, None]), compile=True)
    with suppress(_OverError):
        gpflow.optimizers.Scipy().minimize(
            loss, model.svgp.trainable_variables, step_callback=look, options={"maxiter": _STEPS}
        )
    return watch.curve


# -- one step at the shape of MNIST ----------------------------------------------------------------------------------

_STEP_PROGRAMS = ("sep", "apep", "GPflow, natural gradients and Adam", "GPflow, Adam")
_LEAST = {"sep": (4.0, 4.0), "apep": (4.0, 4.0)}  # how many times its step GPflow's two are asked to take
_MEMORY_SHARE = 0.25  # of GPflow's growth that a step of sep is asked to need
_STATUS = Path("/proc/self/status")


def mnist_shape(n: int = 2000, *, C: int = 10, d: int = 784, m: int = 200, batch_size: int = 200) -> Data:
    """Random rows in the shape of MNIST, a kernel and inducing points for each class: what a step costs is all here."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0.0, 1.0, (n, d)), rng.integers(0, C, n)
    return Data("shape of MNIST", X, y, X[:10], y[:10], X[:m].copy(), C, False, batch_size)


def _stepping(name: str, data: Data) -> Callable[[int], object]:
    """A program that makes as many steps as it is told, on batches of its own."""
    if name.startswith("GPflow"):
        rng, n = np.random.default_rng(data.seed), data.X.shape[0]
        model = _gpflow_model(data, _EPSILON, natural="natural" in name)
        model.gamma.assign(1e-4)

        def theirs() -> None:
            rows = rng.choice(n, data.batch_size, replace=False)
            model.step(data.X[rows], data.y[rows])

        return again(theirs)
    given = class_steps.start(data.X, data.y, data.n_classes, len(data.Z), data.shared)
    steps = {"sep": villacampa.steps, "apep": villacampa2020.steps}[name]
    return partial(steps, *given, batch_size=data.batch_size)


def classes_step(*, repeats: int = 6, data: Data | None = None) -> Iterable[Row]:
    """A step of sep and apep beside GPflow's, everything learned, and how much memory steps need.

    Times are taken in turn in one process, memory in one for each program: the highest resident size over five steps
    less that before anything but rows was there.

    Raises LookupError where GPflow is not installed.
    """
    _require_gpflow()
    bench, data = "peers/classes-step", data or mnist_shape()
    d, m = data.X.shape[1], len(data.Z)
    shape = f"C = {data.n_classes}, d = {d}, m = {m}, batch {data.batch_size}, a kernel for each class"
    programs = [_stepping(name, data) for name in _STEP_PROGRAMS]
    times = seconds_of_steps(programs, class_steps.FEW, class_steps.MANY, repeats)
    seconds = dict(zip(_STEP_PROGRAMS, times, strict=True))
    yield from step_rows(bench, shape, seconds)
    if _STATUS.exists():
        grown = {name: _in_a_process(name, data) for name in _STEP_PROGRAMS}
        yield from memory_rows(bench, grown)


def step_rows(bench: str, shape: str, seconds: Mapping[str, float]) -> Iterable[Row]:
    """Milliseconds of each program's step, and GPflow's over ours."""
    for name in _STEP_PROGRAMS:
        yield Row(bench, f"{name}: a step, {shape}", 1e3 * seconds[name], "ms", "", None)
    for mine, least in _LEAST.items():
        for theirs, asked in zip(_STEP_PROGRAMS[2:], least, strict=True):
            ratio = seconds[theirs] / seconds[mine]
            yield Row(bench, f"{theirs}: its step over that of {mine}", ratio, "", f">= {asked:g}", ratio >= asked)


def memory_rows(bench: str, grown: Mapping[str, float]) -> Iterable[Row]:
    """Megabytes that steps need, and those of sep over GPflow's least."""
    for name in _STEP_PROGRAMS:
        yield Row(bench, f"{name}: memory beyond the rows", grown[name], "MB", "", None)
    share = grown["sep"] / min(grown[name] for name in _STEP_PROGRAMS[2:])
    met = share <= _MEMORY_SHARE
    yield Row(bench, "sep: its memory over GPflow's", share, "", f"<= {_MEMORY_SHARE:g}", met)


def _in_a_process(name: str, data: Data) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_growth, name, data).result()


def _growth(name: str, data: Data) -> float:
    """Megabytes: the highest resident size over five steps less that before, packages loaded. Linux."""
    if name.startswith("GPflow"):
        importlib.import_module("gpflow")
    _stepping(name, mnist_shape(40, C=3, d=4, m=5, batch_size=8))(1)  # libraries and their threads are there
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest size is counted from here
    before, step = _resident("VmRSS"), _stepping(name, data)
    step(5)
    return _resident("VmHWM") - before


def _resident(field: str) -> float:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024.0
