"""`partial_fit` against listed batches: the stochastic methods on the same rows, and dense steps written anew.

Dense steps hold natural parameters at the inducing points: precision and shift of q, prior and data apart. A batch b
of n rows moves them at the rate b / N towards n / b times what its rows give, wenzel2019 (16), or refreshes tied
factors, villacampa2017, section 2.3.1. N counts rows: those of batches once, those of a fit ten times.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.checks.estimator_settings import ENTRIES, Data, Entry, data, difference
from validation.problem import Problem

Array = NDArray[Any]
PASSES = 10  # that the rows of a fit count for
EXPLAINED = 1e-3  # of the prior variance: a row with less left needs no inducing point of its own
DENSE = "inverses of matrices up to 40 x 40 of condition 1e4, ten steps: rounding stays below 1e-10"
LIMIT = 1e-9
# a rule of the judge's own: steps of 1/20 of a standard deviation are exact to rounding for what is this smooth
_NODES = np.linspace(-10.0, 10.0, 401)
_WEIGHTS = np.exp(-0.5 * _NODES**2)
_PRIOR: dict[str, Any] = {"variance": 2.0, "lengthscales": (0.9, 2.5), "noise": 0.1, "jitter": 1e-3}


def _compared(observed: float, why: str, limit: float, unit: str = "relative difference") -> Compared:
    return Compared(observed, limit, why, "fast", "judge", unit)


def _entry(method: str) -> Entry:
    return next(entry for entry in ENTRIES if entry.method == method)


def kernel(A: Array, B: Array, variance: float, lengthscales: Array) -> Array:
    """Squared exponential."""
    apart = (A[:, None] - B[None]) / lengthscales
    return variance * np.exp(-0.5 * (apart**2).sum(axis=2))


class Points:
    """One latent function at inducing points: prior precision, and natural parameters that the data add."""

    def __init__(self, Z: Array, variance: float, lengthscales: Any, noise: float, jitter: float) -> None:
        self.Z, self.prior = Z, (variance, np.asarray(lengthscales, dtype=float), noise, jitter)
        self.K_inv = np.linalg.inv(kernel(Z, Z, *self.prior[:2]) + jitter * np.eye(len(Z)))
        self.precision, self.shift = np.zeros_like(self.K_inv), np.zeros(len(Z))

    def rows(self, X: Array) -> tuple[Array, Array]:
        """K_ZZ^-1 k_Zx (b, m) and the variance that is left (b,), noise included."""
        K_XZ = kernel(X, self.Z, *self.prior[:2])
        upsilon = K_XZ @ self.K_inv
        return upsilon, self.prior[0] - (upsilon * K_XZ).sum(axis=1) + self.prior[2]

    def projected(self, X: Array, share: float = 1.0) -> tuple[Array, Array, Array, Array]:
        """Mean and variance of the projections with a share of the data, the rows, and the variance left."""
        upsilon, left = self.rows(X)
        cov = np.linalg.inv(self.K_inv + share * self.precision)
        mean = cov @ (share * self.shift)
        return upsilon @ mean, np.einsum("bm,mp,bp->b", upsilon, cov, upsilon), upsilon, left

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f."""
        mean, var, _, left = self.projected(X)
        return mean, var + left

    def left(self, X: Array, more: Array) -> Array:
        """Variance of f without noise, given the inducing points and these rows: (b,)."""
        at = np.concatenate([self.Z, more])
        K = kernel(at, at, *self.prior[:2])
        # where the jitter stands: on the inducing points there are, not on rows that only may become some
        K[np.diag_indices(len(self.Z))] += self.prior[3]
        K_X = kernel(X, at, *self.prior[:2])
        return self.prior[0] - np.einsum("bm,bm->b", K_X, np.linalg.lstsq(K, K_X.T, rcond=1e-13)[0].T)

    def grow(self, more: Array) -> None:
        """Inducing points to which the data so far have said nothing of their own."""
        m, precision, shift = len(self.Z), self.precision, self.shift
        grown = Points(np.concatenate([self.Z, more]), *self.prior)
        grown.precision[:m, :m], grown.shift[:m] = precision, shift
        self.__dict__ = grown.__dict__


def chosen(latents: list[Points], X: Array, room: int) -> Array:
    """Rows that the inducing points explain worst, one after the other."""
    values = np.empty((0, X.shape[1]))
    while len(values) < room:
        left = np.max([one.left(X, values) / one.prior[0] for one in latents], axis=0)
        if left.max() <= EXPLAINED:
            break
        values = np.concatenate([values, X[left.argmax()][None]])
    return values


# -- one latent function ---------------------------------------------------------------------------------------------


def logit(y: Array, mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Shift, precision and bound of each row with c at its best: wenzel2019 (9), (11)."""
    c = np.sqrt(mean**2 + var)
    bound = 0.5 * y * mean - np.log(2.0) - np.log(np.cosh(0.5 * c))
    return 0.5 * y, np.tanh(0.5 * c) / (2.0 * c), bound


def probit(y: Array, mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """The same from derivatives of the expected log Phi by the trapezoidal rule."""
    f = mean[:, None] + np.sqrt(var)[:, None] * _NODES
    weights = _WEIGHTS / _WEIGHTS.sum()
    z = y[:, None] * f
    ratio = np.exp(-0.5 * z**2 - log_ndtr(z)) / np.sqrt(2.0 * np.pi)
    derivative = (y[:, None] * ratio) @ weights
    precision = (ratio * (ratio + z)) @ weights
    return derivative + precision * mean, precision, log_ndtr(z) @ weights


class Steps:
    """Natural-gradient steps on batches that are brought."""

    def __init__(self, at: Points, sites: Callable[..., Any], known: int = 0) -> None:
        self.at, self.sites, self.start, self.n = at, sites, known, known
        self.known = PASSES * known
        self.log_evidence = float("nan")

    def stand_for(self, n: int) -> None:
        """Sites so far to the power that n rows ask for."""
        if self.n:
            self.at.precision, self.at.shift = self.at.precision * n / self.n, self.at.shift * n / self.n
        self.n = n

    def target(self, X: Array, y: Array) -> tuple[Array, Array]:
        """What n / b times the batch gives."""
        mean, var, upsilon, left = self.at.projected(X)
        shift, precision, _ = self.sites(y, mean, var + left)
        scale = self.n / len(y)
        return scale * np.einsum("bm,b,bp->mp", upsilon, precision, upsilon), scale * upsilon.T @ shift

    def share(self, b: int) -> float:
        """Rate of a batch of b rows: one of N rows that q has seen, no more than two passes, or one after a fit."""
        self.known += b
        return b / min(self.known, (PASSES + 1 if self.start else 2) * max(self.n, b))

    def step(self, X: Array, y: Array, n: int, rate: float | None = None) -> None:
        """One batch that stands for n rows."""
        self.stand_for(n)
        share = self.share(len(y))
        rate = share if rate is None else rate
        precision, shift = self.target(X, y)
        at = self.at
        at.precision = at.precision + rate * (precision - at.precision)
        at.shift = at.shift + rate * (shift - at.shift)
        mean, var, _, left = at.projected(X)
        self.log_evidence = n / len(y) * float(self.sites(y, mean, var + left)[2].sum()) - self.divergence()

    def divergence(self) -> float:
        """KL of q from the prior at the inducing points."""
        at = self.at
        whole = at.K_inv + at.precision
        mean = np.linalg.solve(whole, at.shift)
        trace = np.trace(np.linalg.solve(whole, at.K_inv))
        logs = np.linalg.slogdet(whole)[1] - np.linalg.slogdet(at.K_inv)[1]
        return 0.5 * float(trace + mean @ at.K_inv @ mean - len(mean) + logs)

    def take(self, mean: Array, cov: Array) -> None:
        """Start from this q."""
        precision = np.linalg.inv(cov)
        self.at.precision, self.at.shift = precision - self.at.K_inv, precision @ mean


_SITES = {"x-gpc": logit, "svgpc": probit}


def _apart(model: Any, steps: Steps, problem: Data) -> float:
    mean, var = model.latent_mean_and_variance(problem.X_new)
    wanted = steps.at.latent(problem.X_new)
    return max(
        difference(mean, wanted[0]), difference(var, wanted[1]), difference(model.log_evidence_, steps.log_evidence),
        difference(model.inducing_points_, steps.at.Z),
    )  # fmt: skip


def _signs(problem: Data) -> Array:
    """+1 for the second label of the alphabet."""
    return np.array([1.0 if label == problem.alphabet[1] else -1.0 for label in problem.labels])


def brought(method: str) -> Iterable[Outcome]:
    """Batches from nothing: inducing points that come with them, rows that are counted, a total that is told."""
    problem, sites = data(2, n=40), _SITES[method]
    X, y, signs = problem.X.copy(), problem.labels, _signs(problem)
    X[9] = X[3] + 1e-3  # explained by its neighbour
    cuts = [slice(0, 4), slice(4, 12), slice(12, 17), slice(17, 40), slice(0, 12), slice(12, 40), slice(5, 25)]
    one = np.nonzero(signs == signs[0])[0][:4]  # the first batch misses a class
    taken = 0
    for few in (7, 3):  # fewer rows than the batch has, however many columns
        try:
            _entry(method).cls().partial_fit(X[:8], y[:8], classes=["pear", "fig"], total_samples=few)
            taken += 1
        except ValueError as error:
            taken += not str(error).startswith(f"total_samples: found {few}, expected at least 8")
    yield _compared(float(taken), "batches stand for their own rows at least", 0.0, "taken")
    for total, count in ((None, 7), (60, 7), (60, "given"), (90, 100)):
        given = dict(_PRIOR) | {"learn": (), "random_state": 3}
        given |= {"inducing_points": X[:6]} if count == "given" else {"n_inducing": count}
        model = _entry(method).cls(**given)
        steps, observed = None, 0.0
        batches: list[Any] = [one, *cuts]
        for number, rows in enumerate(batches):
            batch, labels = X[rows], y[rows]
            if number == 2:  # refused: the points that would have come with it do not
                with patch.object(model._online, "step", side_effect=ValueError), suppress(ValueError):
                    model.partial_fit(batch + 9.0, labels, total_samples=total)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # too few rows in a first batch are no news
                model.partial_fit(batch, labels, classes=["pear", "fig"], total_samples=total)
            if steps is None:
                Z = X[:6] if count == "given" else np.unique(batch, axis=0)
                steps = Steps(Points(Z, **_PRIOR), sites)
            elif count != "given":
                steps.at.grow(chosen([steps.at], batch, int(count) - len(steps.at.Z)))
            visited = sum(len(y[part]) for part in batches[: number + 1])
            steps.step(batch, signs[rows], visited if total is None else total)
            observed = max(observed, _apart(model, steps, problem))
        what = f"total_samples {total}, n_inducing {count}"
        yield _compared(observed, f"{DENSE}; {what}", LIMIT)
        message = model.stop_reason_ == "8 batches seen" and model.n_iter_ == 8 and not model.converged_
        message = message and model.jitter_spent_ == 0.0
        yield _compared(0.0 if message else 1.0, f"what is said of 8 batches; {what}", 0.0, "departures")


def after_fit(method: str) -> Iterable[Outcome]:
    """Batches after a fit: q of the fit counts for ten passes, and a pass and more follows."""
    problem, sites = data(2, n=30), _SITES[method]
    X, y, signs = problem.X, problem.labels, _signs(problem)
    for ways in ({}, {"training": "minibatch", "max_iter": 20, "batch_size": 10}):
        given = dict(_PRIOR) | {"inducing_points": X[::5], "learn": (), "random_state": 3} | ways
        model = _entry(method).cls(**given).fit(X, y)
        model.partial_fit(X[:3], y[:3]).fit(X, y)  # what came before a fit is forgotten by it
        value = model.posterior_
        steps = Steps(Points(X[::5], **_PRIOR), sites, known=30)
        steps.take(value.inducing_mean, value.inducing_cov)
        observed, count = 0.0, 0
        for rows in (slice(0, 12), slice(10, 30), slice(0, 8), slice(8, 28)):
            model.partial_fit(X[rows], y[rows])
            count += len(y[rows])
            steps.step(X[rows], signs[rows], max(30, count))
            observed = max(observed, _apart(model, steps, problem))
        model.partial_fit(X[:6], y[:6], total_samples=80)
        steps.step(X[:6], signs[:6], 80)
        observed = max(observed, _apart(model, steps, problem))
        yield _compared(observed, f"{DENSE}; after a fit, {'on mini-batches' if ways else 'on all rows'}", LIMIT)
    same = {"inducing_points": X[[0, 0]], "jitter": 0.0, "variance": 1.0}  # K_ZZ is singular: the jitter is raised
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spent = _entry(method).cls(**given | same).fit(X, y)
    spent.partial_fit(X[:6], y[:6])  # would raise with the jitter that was given
    yield _compared(abs(spent.jitter_spent_ - 1e-10), "1e-10 of the variance, kept by what follows", 1e-20, "jitter")
    learns = _entry(method).cls(**given | {"learn": ("variance",), "learning_rate": 0.02}).fit(X, y)
    before = np.log(learns.variance_)
    learns.partial_fit(X[:10], y[:10])
    moved = abs(float(np.log(learns.variance_) - before))
    yield _compared(
        abs(moved / (0.02 * 10 / 40) - 1.0),
        "Adam's first step is its rate but for 1e-8 over the gradient: b / (b + n)", 1e-5,
    )  # fmt: skip


def listed(method: str) -> Iterable[Outcome]:
    """The stochastic method on the same batches, with learning, at the rates of a running average: 1 / t."""
    from fast.core.values import Data, Prior
    from fast.methods import svgpc_svi, x_gpc_svi

    module: Any = {"x-gpc": x_gpc_svi, "svgpc": svgpc_svi}[method]
    problem = data(2, n=40)
    X, y = problem.X, problem.labels
    batches = [np.arange(k, 40, 5) for k in range(5)]
    for learn in (("variance", "lengthscales"), ("noise", "Z")):
        given = dict(_PRIOR) | {"inducing_points": X[::6], "learn": learn, "prior": None, "learning_rate": 0.05}
        model = _entry(method).cls(**given)
        for rows in batches:
            model.partial_fit(X[rows], y[rows], classes=["pear", "fig"], total_samples=40)
        options = type(module.DEFAULTS)(
            batches=batches, learn=learn, rate=("decay", 1.0, 0.0, 1.0), learning_rate=0.05, trace=True
        )
        prior = Prior(2.0, np.array([0.9, 2.5]), 0.1, 1e-3, X[::6])
        posterior = module.fit(Data(X, problem.codes), prior, options)
        wanted = module.predict(posterior, problem.X_new)
        pairs = (
            (model.predict_proba(problem.X_new), wanted.probabilities), (model.variance_, posterior.hyper.variance),
            (model.lengthscales_, posterior.hyper.lengthscales), (model.noise_, posterior.hyper.noise),
            (model.inducing_points_, posterior.Z), (model.log_evidence_, posterior.trace[-1]),
        )  # fmt: skip
        why = "one step with the same rate: 1 / t and b / (t b) differ by rounding"
        yield _compared(max(difference(a, b) for a, b in pairs), f"{why}; {', '.join(learn)} learned", 1e-9)


# -- the loop itself: other rates, and batches that are refused ------------------------------------------------------


def _online(known: Any = None, **more: Any) -> tuple[Any, Steps]:
    from fast.core.values import Prior
    from fast.methods.x_gpc_svi import PolyaGamma
    from fast.one_latent.online import Online, OnlineOptions

    problem = data(2, n=40)
    prior = Prior(**_PRIOR, Z=problem.X[::6].tolist())
    online = Online(PolyaGamma(), prior, OnlineOptions(**more), known)
    return online, Steps(Points(problem.X[::6], **_PRIOR), logit, 0 if known is None else known.rows)


def _off(online: Any, steps: Steps) -> float:
    value = online.posterior.state.moments
    cov = np.linalg.inv(steps.at.K_inv + steps.at.precision)
    return max(difference(value.inducing_cov, cov), difference(value.inducing_mean, cov @ steps.at.shift))


class _Adaptive:
    """Ranganath et al. (2013): |g|^2 of the mean gradient over the mean of |g|^2, gradients of (eta_1, eta_2)."""

    def __init__(self) -> None:
        self.mean, self.squares, self.length = np.zeros(0), 0.0, 0.0

    def average(self, steps: Steps, X: Array, y: Array) -> None:
        """Take in the gradient of a batch."""
        precision, shift = steps.target(X, y)
        gradient = np.concatenate([shift - steps.at.shift, -0.5 * (precision - steps.at.precision).ravel()])
        old = self.mean if self.mean.size else np.zeros(gradient.size)
        self.mean = old + (gradient - old) / self.length
        self.squares += (gradient @ gradient - self.squares) / self.length

    def rate(self, steps: Steps, X: Array, y: Array) -> float:
        """Of the next step."""
        self.average(steps, X, y)
        rate = float(self.mean @ self.mean) / self.squares
        self.length = (1.0 - rate) * self.length + 1.0
        return rate


def rates() -> Iterable[Outcome]:
    """A constant rate, and the adaptive one after ten steps at shares, from nothing and from a fit."""
    from fast.one_latent.online import Known

    problem = data(2, n=40)
    X, signs = problem.X, _signs(problem)
    order = np.random.default_rng(2).permutation(40)
    batches = [np.take(order, np.arange(5 * k, 5 * k + 5), mode="wrap") for k in range(14)]
    online, steps = _online(rate=0.3, trace=False)
    wrong = float(not np.isnan(online.estimate))
    for rows in batches[:4]:
        online.step(X[rows], signs[rows], 40)
        steps.step(X[rows], signs[rows], 40, 0.3)
    wrong += float(not np.isnan(online.estimate))
    yield _compared(_off(online, steps), f"{DENSE}; rate 0.3", LIMIT)
    yield _compared(wrong, "trace=False: nothing is estimated", 0.0, "departures")
    taken = 0
    for more in ({"learning_rate": 0.0}, {"rate": 0.0}, {"known": Known(np.eye(7), np.zeros(7), 0)}):
        with suppress(ValueError):
            _online(**more)
            taken += 1
    with suppress(ValueError):
        online.step(X[:, :1], signs, 40)
        taken += 1
    yield _compared(float(taken), "rates and rows of zero, inputs of one column: refused", 0.0, "taken")
    for known, grown in ((0, -1), (20, -1), (3, -1), (0, 2)):
        start = None
        if known:
            first, _ = _online(rate=0.5)
            first.step(X[:known], signs[:known], known)
            state = first.posterior.state
            start = Known(state.factor, state.weights, known)
        online, steps = _online(start, rate="adaptive")
        if known:
            value = first.posterior.state.moments
            steps.take(value.inducing_mean, value.inducing_cov)
        memory, observed = _Adaptive(), 0.0
        for number, rows in enumerate(batches):
            batch = X[rows], signs[rows]
            if number == grown:  # the averages are of so many inducing points: they begin anew
                online.grow(X[1:2])
                steps.at.grow(X[1:2])
                memory = _Adaptive()
            if number < 10 + max(grown, 0):
                steps.stand_for(40)
                if number == 0 and known:  # a fit is where gradients cancel: so many batches of mean zero
                    memory.length = 1.0
                    memory.average(steps, *batch)
                    memory.mean[:], memory.length = 0.0, max(1.0, known / 5)
                memory.length += 1.0
                memory.average(steps, *batch)
                steps.step(*batch, 40)
            else:
                steps.stand_for(40)
                steps.step(*batch, 40, memory.rate(steps, *batch))
            online.step(*batch, 40)
            observed = max(observed, _off(online, steps))
        yield _compared(observed, f"{DENSE}; the adaptive rate from {known} rows, points grown at {grown}", LIMIT)
    yield from _refused(X, signs)


def _refused(X: Array, signs: Array) -> Iterable[Outcome]:
    """A batch that is refused leaves no trace, whatever it had moved before."""
    online, _ = _online(learn=("variance",), rate="adaptive")
    twin, _ = _online(learn=("variance",), rate="adaptive")
    wrong = 0
    for number in range(13):
        rows = np.arange(3 * number, 3 * number + 7) % 40
        try:
            online.step(X[rows], signs[rows] * 1e308, 30 + number)  # q leaves the numbers
            wrong += 1
        except ValueError as error:
            wrong += "learning_rate" not in str(error)
        for one in (online, twin):
            one.step(X[rows], signs[rows], 40 + number)
    pairs = [
        (one.precision, one.shift, one.kernel.hyper.variance) for one in (online.posterior.state, twin.posterior.state)
    ]
    observed = max(difference(a, b) for a, b in zip(*pairs, strict=True))
    yield _compared(observed, "refused batches in between change no digit", 0.0)
    yield _compared(
        float(wrong), "a step that leaves the numbers is refused by the name of its rate", 0.0, "departures"
    )


# -- registration ----------------------------------------------------------------------------------------------------

_QUESTIONS = (
    ("brought_batches", brought, "Is `partial_fit` from nothing the dense step, whatever rows the batches stand for?"),
    ("brought_after_fit", after_fit, "Is `partial_fit` after a fit the dense step from the q of the fit?"),
    ("brought_listed", listed, "Does `partial_fit` answer as the stochastic method on the same listed batches?"),
)


def _register(classifier: str, method: str) -> None:
    for quantity, ask, question in _QUESTIONS:

        @check(f"identity/{method}/{quantity}", paper="wenzel2019", question=question, problems=(NO_PROBLEM,))
        def _(context: Context, problem: Problem, ask: Any = ask) -> Iterable[Outcome]:
            return list(ask(classifier))


for _classifier, _method in (("x-gpc", "x-gpc-svi"), ("svgpc", "svgpc")):
    _register(_classifier, _method)


@check(
    "identity/x-gpc-svi/brought_rates",
    paper="wenzel2019",
    question="Are constant and adaptive rates of brought batches those of dense steps, and refused batches forgotten?",
    problems=(NO_PROBLEM,),
)
def _(context: Context, problem: Problem) -> Iterable[Outcome]:
    return list(rates())
