"""Peers on the same data: natural gradients of GPflow, Pólya-Gamma variables in GPyTorch. Optional.

Every program gets the same rows, inducing points, kernel at the start, batch size and step size for the kernel. What is
compared is seconds a step, and seconds until the held-out negative log-likelihood first reaches a common value. Cold
counts what a program does before its first step (graphs traced and compiled); warm is a second run in the same process.
Likelihoods differ (logit here and in GPyTorch, probit in GPflow): the held-out scores are of class probabilities.

`pip install .[peers]` brings what both need; GPflow's metadata ask for an older NumPy than it runs with, so it is added
by `pip install --no-deps gpflow`.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fast.core.values import Prior
from fast.methods import x_gpc_svi
from fast.one_latent.online import Online, OnlineOptions
from fast.solve.minibatch import Shuffled
from validation.bench.measure import Row

Array = NDArray[np.float64]
PEERS = ("gpflow", "gpytorch")
_JITTER = 1e-6
# Fixed rates of the peers' natural gradients (ours is adaptive). At 0.1 GPflow's probit leaves the finite numbers
# within fifty steps of this problem; in closed form 0.1 is safe.
_GPFLOW_RATE, _GPYTORCH_RATE = 0.03, 0.1


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
    return [name for name in PEERS if importlib.util.find_spec(name) is None]


def peers(*, n: int = 50_000, d: int = 8, m: int = 100, batch_size: int = 100, n_steps: int = 1500) -> Iterable[Row]:
    """Seconds a step and seconds to the same held-out score, for `fast` and the peers that are installed."""
    for name in missing():
        yield Row("peers", f"{name}: not installed, see the text of validation.bench.peers", float("nan"), "", "", None)
    data = make_data(n, d, m, batch_size)
    programs: dict[str, Program] = {"fast x-gpc-svi": _ours}
    if "gpflow" not in missing():
        programs["GPflow natural gradients"] = _gpflow
    if "gpytorch" not in missing():
        programs["GPyTorch Pólya-Gamma"] = _gpytorch
    for name, program in programs.items():
        for learn in (False, True):
            step, _ = program(data, learn)
            what = "kernel learned" if learn else "kernel fixed"
            yield Row("peers", f"{name}, {what}: a step", 1e3 * _seconds_a_step(step), "ms", "", None)
    cold, warm = {}, {}
    for name, program in programs.items():
        cold[name] = _run(program, data, n_steps)
        warm[name] = _run(program, data, n_steps)
    # what all of them reach
    target = max(min(curve.nll) for curve in warm.values()) + 1e-3
    yield Row("peers", f"held-out score that all reach in {n_steps} steps, kernels learned", target, "nat", "", None)
    ours = _time_to(warm["fast x-gpc-svi"], target)
    for name in programs:
        yield Row("peers", f"{name}: seconds to it, cold", _time_to(cold[name], target), "s", "", None)
        seconds = _time_to(warm[name], target)
        mine = name.startswith("fast")
        asked, met = ("", None) if mine else (f"> {ours:.3g}", seconds > ours)
        yield Row("peers", f"{name}: seconds to it, warm", seconds, "s", asked, met)
        yield Row("peers", f"{name}: best held-out score", min(warm[name].nll), "nat", "", None)


def _seconds_a_step(step: Callable[[], object], repeats: int = 5, steps: int = 40) -> float:
    for _ in range(5):
        step()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(steps):
            step()
        best = min(best, (time.perf_counter() - started) / steps)
    return best


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


def _ours(data: Data, learn: bool) -> tuple[Callable[[], object], Callable[[], Array]]:
    source = Shuffled(data.X, data.y, data.batch_size, 0)
    options = OnlineOptions(
        learn=("variance", "lengthscales") if learn else (), learning_rate=data.learning_rate, trace=False
    )
    prior = Prior(1.0, np.full(data.X.shape[1], data.lengthscale), 0.0, _JITTER, data.Z)
    run = Online(x_gpc_svi.PolyaGamma(), prior, options)

    def step() -> None:
        run.step(*source.draw(), source.n)

    return step, lambda: x_gpc_svi.predict(run.posterior, data.X_test).probabilities[:, 1]


def _gpflow(data: Data, learn: bool) -> tuple[Callable[[], object], Callable[[], Array]]:
    gpflow = importlib.import_module("gpflow")
    tf = importlib.import_module("tensorflow")
    d = data.X.shape[1]
    kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=np.full(d, data.lengthscale))
    model = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Bernoulli(), inducing_variable=data.Z.copy(), num_data=data.X.shape[0], whiten=True
    )
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    rows = tf.data.Dataset.from_tensor_slices((data.X, data.y[:, None].astype(np.float64)))
    batches = iter(rows.repeat().shuffle(8192, seed=0).batch(data.batch_size).prefetch(2))
    natural = gpflow.optimizers.NaturalGradient(gamma=_GPFLOW_RATE)
    loss = model.training_loss_closure(batches, compile=True)
    variational = [(model.q_mu, model.q_sqrt)]
    adam = tf.optimizers.Adam(data.learning_rate)
    trainable = model.trainable_variables

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def gradients() -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trainable)
            value = loss()
        return tape.gradient(value, trainable)

    def step() -> None:
        natural.minimize(loss, var_list=variational)
        if learn:
            adam.apply_gradients(zip(gradients(), trainable, strict=True))

    return step, lambda: np.asarray(model.predict_y(data.X_test)[0])[:, 0]


def _gpytorch(data: Data, learn: bool) -> tuple[Callable[[], object], Callable[[], Array]]:
    torch = importlib.import_module("torch")
    gpytorch = importlib.import_module("gpytorch")
    torch.manual_seed(0)
    d = data.X.shape[1]

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[name-defined]
        def __init__(self) -> None:
            q = gpytorch.variational.NaturalVariationalDistribution(data.Z.shape[0])
            Z = torch.tensor(data.Z)
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=False))
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
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=X.shape[0], lr=_GPYTORCH_RATE)
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
