"""Peers on the same data: natural gradients of GPflow, Pólya-Gamma variables in GPyTorch. Optional.

Every program gets the same rows, inducing points, kernel at the start, batch size and step size for kernel and inducing
points. What is compared is seconds a step, stretches of ours and of a peer taking turns, and seconds until the held-out
negative log-likelihood first reaches a common value. Cold counts what a program does before its first step (graphs
traced and compiled); warm is a second run in the same process, its start and first step counted as one step of the
others. GPflow's step is one compiled function, and nothing of the bench is inside its clock. Likelihoods
differ (logit here and in GPyTorch, probit in GPflow): the held-out scores are of class probabilities.

`pip install .[peers]` brings what both need; GPflow's metadata ask for an older NumPy than it runs with, so it is added
by `pip install --no-deps gpflow`.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.bench.gpflow_steps import RAMP, NaturalSteps, at_finite_rate
from validation.bench.measure import Row, best_of

Array = NDArray[np.float64]
_JITTER = 1e-6
_LEARN = ("variance", "lengthscales", "Z")
_OURS = "fast XGPClassifier"


class Data(NamedTuple):
    """What every program is given."""

    X: Array
    y: NDArray[np.int64]
    X_test: Array
    y_test: NDArray[np.int64]
    Z: Array
    lengthscale: float
    batch_size: int
    learning_rate: float  # of Adam


class Curve(NamedTuple):
    """Seconds of training and held-out scores along a run."""

    seconds: list[float]
    nll: list[float]


# starts a run: learn -> (step, held-out p(y = 1))
Program = Callable[[Data, bool], tuple[Callable[[], object], Callable[[], Array]]]


def make_data(n: int, d: int, m: int, batch_size: int, seed: int = 0) -> Data:
    """Rows whose class depends on a sine of the first two inputs; the other inputs say nothing."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + 2000, d))
    f = 3.0 * np.sin(1.5 * X[:, 0]) + 2.0 * X[:, 1]
    y = (rng.uniform(size=n + 2000) < 1.0 / (1.0 + np.exp(-f))).astype(np.int64)
    return Data(X[:n], y[:n], X[n:], y[n:], X[rng.permutation(n)[:m]].copy(), float(np.sqrt(d)), batch_size, 0.01)


def score(probability: Array, y: NDArray[np.int64]) -> float:
    """Mean of -log p(y*); probabilities are kept off 0 and 1 by 1e-12, for programs that round in single precision."""
    p = np.clip(np.where(y == 1, probability, 1.0 - probability), 1e-12, 1.0)
    return float(-np.log(p).mean())


def missing() -> list[str]:
    """Peers that are not installed."""
    return [peer.package for peer in PROGRAMS.values() if importlib.util.find_spec(peer.package) is None]


def peers(*, n: int = 50_000, d: int = 8, m: int = 100, batch_size: int = 100, n_steps: int = 1500) -> Iterable[Row]:
    """Seconds a step and seconds to the same held-out score, for `fast` and the peers that are installed."""
    for name in missing():
        yield Row("peers", f"{name}: not installed, see the text of validation.bench.peers", float("nan"), "", "", None)
    data = make_data(n, d, m, batch_size)
    curves: dict[str, tuple[Curve, Curve]] = {_OURS: _measured_ours(data, n_steps)}
    for name in PROGRAMS:
        if PROGRAMS[name].package in missing():
            continue
        try:
            measured, halved = at_finite_rate(partial(_in_a_process, name, data, n_steps), PROGRAMS[name].rate)
        except BrokenProcessPool:
            yield Row("peers", f"{name}: its process died without a word", float("nan"), "", "", None)
            continue
        yield Row("peers", f"{name}: natural rate halved", halved, "times", "", None)
        for learn, seconds in zip((False, True), measured.steps, strict=True):
            yield from step_rows(name, seconds, learn)
        curves[name] = measured.cold, measured.warm
    # what all of them reach
    target = max(min(warm.nll) for _, warm in curves.values()) + 1e-3
    yield Row("peers", f"held-out score that all reach in {n_steps} steps, all learned", target, "nat", "", None)
    ours = _time_to(curves[_OURS][1], target)
    for name, (cold, warm) in curves.items():
        yield Row("peers", f"{name}: seconds to it, cold", _time_to(cold, target), "s", "", None)
        seconds_warm = _time_to(warm, target)
        asked, met = ("", None) if name == _OURS else (f"> {ours:.3g}", seconds_warm > ours)
        yield Row("peers", f"{name}: seconds to it, warm", seconds_warm, "s", asked, met)
        yield Row("peers", f"{name}: best held-out score", min(warm.nll), "nat", "", None)


class Measured(NamedTuple):
    """A peer beside `fast` in one process."""

    steps: tuple[tuple[float, float], tuple[float, float]]  # seconds of a step, ours and its, held and learned
    cold: Curve
    warm: Curve


def _in_a_process(name: str, data: Data, n_steps: int, rate: float) -> Measured:
    """Measured in a new process: TensorFlow and PyTorch in one crash, and only its first run is cold."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, name, data, n_steps, rate).result()


def _measured(name: str, data: Data, n_steps: int, rate: float) -> Measured:
    program = partial(PROGRAMS[name].start, rate=rate)
    cold = _run(program, data, n_steps)
    steps = []
    for learn in (False, True):
        stretches = [_stretch(start(data, learn)[0]) for start in (_ours, program)]
        ours, theirs = best_of(stretches, _REPEATS)
        steps.append((ours / _STRETCH, theirs / _STRETCH))
    return Measured((steps[0], steps[1]), cold, without_start(_run(program, data, n_steps), n_steps))


def _measured_ours(data: Data, n_steps: int) -> tuple[Curve, Curve]:
    return _run(_ours, data, n_steps), without_start(_run(_ours, data, n_steps), n_steps)


def without_start(curve: Curve, n_steps: int) -> Curve:
    """The curve with its start and first step, in which graphs are compiled, counted as the average of later steps.

    Its first score is that after the first step.
    """
    first, step = curve.seconds[0], (curve.seconds[-1] - curve.seconds[0]) / (n_steps - 1)
    return curve._replace(seconds=[seconds - first + step for seconds in curve.seconds])


def step_rows(name: str, seconds: tuple[float, float], learn: bool) -> Iterable[Row]:
    """Milliseconds of a step of ours and of a peer's, measured in turn, and their ratio."""
    what = "kernel and Z learned" if learn else "kernel and Z held"
    ours, theirs = seconds
    yield Row("peers", f"{_OURS}, {what}: a step", 1e3 * ours, "ms", "", None)
    yield Row("peers", f"{name}, {what}: a step", 1e3 * theirs, "ms", "", None)
    ratio, asked = theirs / ours, PROGRAMS[name].asked[learn]
    target, met = ("", None) if asked is None else (f">= {asked:g}", ratio >= asked)
    yield Row("peers", f"{name}, {what}: its step over ours", ratio, "", target, met)


_STRETCH, _REPEATS = 40, 10  # steps between two looks at the clock, and how many looks


def _stretch(step: Callable[[], object]) -> Callable[[], object]:
    """A number of steps, after those in which graphs are compiled and rates rise."""
    for _ in range(RAMP):
        step()

    def several() -> None:
        for _ in range(_STRETCH):
            step()

    return several


def _run(program: Program, data: Data, n_steps: int) -> Curve:
    curve = Curve([], [])
    trained, resumed = 0.0, time.perf_counter()
    step, probability = program(data, True)
    next_score = 1
    for k in range(1, n_steps + 1):
        step()
        if k >= next_score or k == n_steps:
            trained += time.perf_counter() - resumed
            curve.seconds.append(trained)
            curve.nll.append(score(probability(), data.y_test))
            next_score = int(np.ceil(1.15 * k))
            resumed = time.perf_counter()
    return curve


def _time_to(curve: Curve, target: float) -> float:
    return next((t for t, nll in zip(curve.seconds, curve.nll, strict=True) if nll <= target), float("nan"))


# -- programs --------------------------------------------------------------------------------------------------------


def _batches(data: Data) -> Iterator[NDArray[np.int64]]:
    """Rows of mini-batches without end, each epoch in a new order."""
    rng, n = np.random.default_rng(0), len(data.X)
    while True:
        order = rng.permutation(n)
        for begin in range(0, n - data.batch_size + 1, data.batch_size):
            yield order[begin : begin + data.batch_size]


def _ours(data: Data, learn: bool) -> tuple[Callable[[], object], Callable[[], Array]]:
    from fast.estimators import XGPClassifier  # scikit-learn takes most of a second to load

    batches, n = _batches(data), len(data.X)
    classifier = XGPClassifier(
        inducing_points=data.Z, variance=1.0, lengthscales=np.full(data.X.shape[1], data.lengthscale), noise=0.0,
        jitter=_JITTER, learn=_LEARN if learn else (), prior=None, learning_rate=data.learning_rate,
    )  # fmt: skip

    def step() -> None:
        rows = next(batches)
        classifier.partial_fit(data.X[rows], data.y[rows], classes=(0, 1), total_samples=n)

    return step, lambda: np.asarray(classifier.predict_proba(data.X_test)[:, 1])


def _gpflow(data: Data, learn: bool, rate: float) -> tuple[Callable[[], object], Callable[[], Array]]:
    gpflow = importlib.import_module("gpflow")
    tf = importlib.import_module("tensorflow")
    d = data.X.shape[1]
    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=np.full(d, data.lengthscale))
    model = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Bernoulli(), inducing_variable=data.Z.copy(), num_data=data.X.shape[0], whiten=True
    )
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    gamma = tf.Variable(0.0, dtype=tf.float64)
    natural, adam = gpflow.optimizers.NaturalGradient(gamma=gamma), tf.optimizers.Adam(data.learning_rate)
    trainable, q = model.trainable_variables, (model.q_mu, model.q_sqrt)
    adam.build(trainable)

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def compiled(X: Any, y: Any) -> None:
        natural.minimize(lambda: model.training_loss((X, y)), [q])
        if learn:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(trainable)
                value = model.training_loss((X, y))
            adam.apply_gradients(zip(tape.gradient(value, trainable), trainable, strict=True))

    batches, steps = _batches(data), NaturalSteps(gamma, rate)

    def step() -> None:
        at = next(batches)
        rows = tf.constant(data.X[at]), tf.constant(data.y[at][:, None].astype(np.float64))
        steps.make(lambda: compiled(*rows))

    return step, lambda: np.asarray(model.predict_y(data.X_test)[0])[:, 0]


def _gpytorch(data: Data, learn: bool, rate: float) -> tuple[Callable[[], object], Callable[[], Array]]:
    torch = importlib.import_module("torch")
    gpytorch = importlib.import_module("gpytorch")
    torch.manual_seed(0)
    d = data.X.shape[1]

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[name-defined]
        def __init__(self) -> None:
            q = gpytorch.variational.NaturalVariationalDistribution(data.Z.shape[0])
            Z = torch.tensor(data.Z)
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=learn))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=d))
            self.covar_module.outputscale = 1.0
            self.covar_module.base_kernel.lengthscale = data.lengthscale

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    class PolyaGamma(gpytorch.likelihoods.BernoulliLikelihood):  # type: ignore[name-defined]
        """Expected log-likelihood of the augmented model at its best local parameters."""

        def expected_log_prob(self, target: Any, dist: Any, *_: Any, **__: Any) -> Any:
            mean, var = dist.mean, dist.variance
            c = (mean.detach() ** 2 + var.detach()).sqrt()
            theta = torch.tanh(0.5 * c) / (2.0 * c)
            return 0.5 * (target * mean - theta * (mean**2 + var))

    X, y = torch.tensor(data.X), torch.tensor(2.0 * data.y - 1.0)
    X_test = torch.tensor(data.X_test)
    model, likelihood = Model().double(), PolyaGamma().double()
    model.train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=X.shape[0])
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=X.shape[0], lr=rate)
    adam = torch.optim.Adam(model.hyperparameters(), lr=data.learning_rate)
    if not learn:
        for parameter in model.hyperparameters():
            parameter.requires_grad_(False)
    order = {"rows": torch.randperm(X.shape[0]), "at": 0}

    def step() -> None:
        if order["at"] + data.batch_size > X.shape[0]:
            order.update(rows=torch.randperm(X.shape[0]), at=0)
        batch = order["rows"][order["at"] : order["at"] + data.batch_size]
        order["at"] += data.batch_size
        natural.zero_grad()
        adam.zero_grad()
        (-objective(model(X[batch]), y[batch])).backward()
        natural.step()
        if learn:
            adam.step()

    def probability() -> Array:
        model.eval()
        with torch.no_grad():
            latent = model(X_test)
            mean, var = latent.mean.numpy(), latent.variance.numpy()
        model.train()
        nodes, weights = np.polynomial.hermite_e.hermegauss(50)
        values = 1.0 / (1.0 + np.exp(-(mean[:, None] + np.sqrt(var)[:, None] * nodes)))
        return values @ weights / weights.sum()

    return step, probability


class Peer(NamedTuple):
    """A program: the package that it needs, how a run starts, how many times ours its step is asked to take."""

    package: str
    start: Callable[..., tuple[Callable[[], object], Callable[[], Array]]]  # as a `Program`, and its rate
    rate: float  # of its natural gradients, halved until a run stays finite; ours is adaptive
    asked: tuple[float | None, float | None]  # kernel and Z held, learned


PROGRAMS: Mapping[str, Peer] = {
    "GPflow natural gradients": Peer("gpflow", _gpflow, 0.03, (6.0, 4.0)),
    "GPyTorch Pólya-Gamma": Peer("gpytorch", _gpytorch, 0.1, (None, 4.0)),
}
