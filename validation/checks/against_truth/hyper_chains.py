"""Chains over kernel parameters and latent values: one datum, two data against quadrature, and the joint distribution.

One datum with the same prior for all classes: by symmetry p(y | θ) is the same for every θ, so the posterior of θ is
the hyperprior, whose moments are known. Two data, two classes: p(y | θ) is a product rule over f, and θ one more rule
around it. Joint distribution: (θ, f, y) is drawn from the model, then θ and f are moved given y, by a whole sweep and
by each part of one, which must leave the joint distribution as it was (Geweke 2004; Cook, Gelman & Rubin 2006): starts
are independent and exact, so there is no warm-up and no autocorrelation to allow for, and all labels occur.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, Tested, check
from validation.checks.definitions import hyper_model as own
from validation.door.problem import Problem
from validation.implementations.by_name import sampler_by_name

Array = NDArray[np.float64]
PAPER = "riihimaki2013"
SEED = 20130101

# short tails, so that a rule of 25 nodes an axis holds the posterior to four digits, which no chain here resolves
DISTRIBUTIONS: Mapping[str, own.Distribution] = MappingProxyType(
    {
        "variance": ("log-normal", 0.9, 1.5),
        "lengthscales": ("log-normal", 0.7, 0.8),
        "noise": ("log-normal", 0.6, 0.4),
    }
)
HEAVY: Mapping[str, own.Distribution] = MappingProxyType({**DISTRIBUTIONS, "variance": ("half-student-t", 4.0, 3.0)})
X2 = np.array([[-0.6], [0.5]])
X_TEST = np.array([[0.2]])
Z1 = np.array([[-0.3]])
NOISE, JITTER = 0.3, 1e-3


class Model(NamedTuple):
    """A method, its likelihood and how many classes it is asked about."""

    method: str
    likelihood: str
    n_classes: int
    epsilon: float = 0.0
    fitc: bool = False
    shared: bool = True
    learn: tuple[str, ...] = own.FIELDS

    @property
    def n_latents(self) -> int:
        """L."""
        return 1 if self.likelihood in own.BINARY else self.n_classes

    @property
    def name(self) -> str:
        """For a report."""
        parts = (self.likelihood, f"{self.n_classes} classes", "FITC" if self.fitc else "full")
        errors = (f"label errors {self.epsilon:g}",) if self.epsilon else ()
        return ", ".join((*parts, "shared" if self.shared else "a vector for each class", *errors))


def _tested(z: Array, why: str, right: str, power: str) -> Tested:
    return Tested(np.asarray(z), f"{why}; two-sided z, Holm over the run at 1e-4", "gibbs", right, power)


# -- one datum: the hyperprior -----------------------------------------------------------------------------------------

ONE_DATUM = (
    Model("gibbs-logit", "logit", 2),
    Model("gibbs-probit", "probit", 2),
    Model("gibbs-probit", "multinomial-probit", 3),
    Model("gibbs-threshold", "threshold", 3, 0.2),
    Model("mh-softmax", "softmax", 3),
)


def chains(
    model: Model, X: Array, y: NDArray[np.int64], distributions: Mapping[str, own.Distribution], n_draws: int
) -> Any:
    """What `gibbs.models.hyper` says of a data set of this model."""
    from gibbs.models.hyper import sample

    return sampler_by_name(sample)(
        model.likelihood, X, y, model.n_classes, 1.0, [1.0], NOISE, JITTER, Z1 if model.fitc else None,
        "fitc" if model.fitc else "full", X_TEST, model.epsilon, hyperprior=dict(distributions), learn=model.learn,
        shared=model.shared, n_chains=32, n_draws=n_draws, n_warmup=40, n_steps=4, seed=SEED,
    )  # fmt: skip


def log_pairs(value: Any, name: str, truth: tuple[float, float]) -> list[tuple[Any, Any, Any]]:
    """(found, error, truth) of mean and variance of the logarithm."""
    return [
        (value.log_hyper_mean[name].ravel()[0], value.log_hyper_mean_se[name].ravel()[0], truth[0]),
        (value.log_hyper_var[name].ravel()[0], value.log_hyper_var_se[name].ravel()[0], truth[1]),
    ]


def z_of_pairs(pairs: list[tuple[Any, Any, Any]]) -> Array:
    """(found - truth)/error, all in one; found and truth of one shape.

    Errors from about a thousand effective draws are known to a tenth only: tails of a t, which 1.2 allows for.
    """
    z = []
    for value, error, truth in pairs:
        if np.shape(value) != np.shape(truth):
            raise ValueError(f"truth: found shape {np.shape(truth)}, expected {np.shape(value)}")
        z.append(np.ravel((np.asarray(value) - truth) / error) / 1.2)
    return np.concatenate(z)


def _prior_only(context: Context, model: Model) -> Iterable[Outcome]:
    # one chain forgets its start in some ten sweeps here; 32 chains of 60 draws are about a thousand effective ones
    result = chains(model, X2[:1], np.array([1]), HEAVY, 60 if context.quick else 2000)
    pairs = [pair for name in model.learn for pair in log_pairs(result, name, own.log_moments(HEAVY[name]))]
    yield _tested(
        z_of_pairs(pairs),
        f"{model.name}: one datum, classes that are exchanged freely, p(y | θ) the same for every θ",
        "hyperprior",
        "a shift of log θ by a fifth of its deviation would show",
    )
    normal = float(np.abs(result.probabilities.sum(axis=1) - 1.0).max())
    yield Compared(normal, 1e-12, "class probabilities are normalised", "gibbs", "definition")
    # here nearly every path is accepted, oftener than the 0.8 that is wanted: 30 sweeps make the step twice as long
    grown = float(np.log(result.step_size / 0.1).mean())
    yield Compared(
        abs(grown - 0.8), 0.35, "paths that are accepted too often are made longer", "gibbs", "definition", "logarithm"
    )
    refused = sum(result.refused.values()) + float(not result.settled)
    yield Compared(refused, 0.0, "nothing here is near singular, and no chain stands still", "gibbs", "itself", "count")


# -- two data: quadrature over parameters and latent values ------------------------------------------------------------


class Posterior(NamedTuple):
    """Moments of log parameters (p,), and of f, f*, with p(y* = 1)."""

    log_mean: Array
    log_var: Array
    latent_mean: Array
    latent_var: Array
    test_mean: Array
    test_var: Array
    inducing_mean: Array
    inducing_cov: Array
    probability: Array


_WIDE = 3.0 * 1.5  # deviations of the hyperprior on either side


def binary_posterior(model: Model, learn: tuple[str, ...], y: Array, nodes: int) -> Posterior:
    """Trapezoidal rules over two log parameters, and in white coordinates over f at two data.

    With learnt priors that are normal in the logarithms, 4.5 deviations and 19 nodes (half a deviation each) leave
    1e-5; f in white coordinates, nine deviations and `nodes` of them. The probit's noise is integrated out: Φ(f).
    """
    from scipy.special import log_ndtr, ndtr

    axes = [
        np.log(DISTRIBUTIONS[name][2]) + DISTRIBUTIONS[name][1] * np.linspace(-_WIDE, _WIDE, 19)
        for name in own.FIELDS
        if name in learn
    ]
    white = np.linspace(-6.5, 6.5, nodes)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(white, white, indexing="ij")])
    log_white = -0.5 * (grid**2).sum(axis=0)
    sign = np.where(y == 1, 1.0, -1.0)[:, None]
    given = own.Given(X2, X_TEST, Z1 if model.fitc else None, JITTER)
    log_weight, rows = [], []
    for at in itertools.product(*axes):
        theta = np.array([1.0, 1.0, NOISE])
        theta[own.positions(learn, 1)] = np.exp(at)
        result = own.blocks(theta, given)
        f = np.linalg.cholesky(result.data) @ grid
        terms = log_expit(sign * f) if model.likelihood == "logit" else log_ndtr(sign * f)
        log_p = log_white + terms.sum(axis=0)
        top = log_p.max()
        weight = np.exp(log_p - top)
        prior = sum(float(own.log_density(w, DISTRIBUTIONS[name])) for w, name in zip(at, learn, strict=True))
        log_weight.append(prior + top + np.log(weight.sum()))
        weight /= weight.sum()
        gain = np.linalg.solve(result.data, result.test.T).T
        at_test, rest = (gain @ f)[0], result.test_var[0] - float((gain @ result.test.T)[0, 0])
        drawn = at_test[:, None] + np.sqrt(rest) * np.linspace(-6.0, 6.0, 25)
        inner = np.exp(-0.5 * np.linspace(-6.0, 6.0, 25) ** 2)
        if model.likelihood == "logit":
            p = float(weight @ (expit(drawn) @ inner) / inner.sum())
        else:
            p = float(weight @ ndtr(at_test / np.sqrt(1.0 + rest)))
        u, u2 = 0.0, 0.0
        if result.cross is not None and result.inducing is not None:
            gain = np.linalg.solve(result.data, result.cross.T).T
            at_u = (gain @ f)[0]
            u = float(weight @ at_u)
            u2 = float(weight @ at_u**2) + float((result.inducing - gain @ result.cross.T)[0, 0])
        rows.append(
            np.concatenate(
                [at, np.square(at), f @ weight, np.square(f) @ weight, [weight @ at_test],
                 [weight @ at_test**2 + rest], [u, u2, p]]
            )
        )  # fmt: skip
    weights = np.exp(np.array(log_weight) - max(log_weight))
    mean = weights @ np.array(rows) / weights.sum()
    w, w2, m, m2, t, t2, u_at, uu, p_at = np.split(mean, [2, 4, 6, 8, 9, 10, 11, 12])
    return Posterior(w, w2 - w**2, m, m2 - m**2, t, t2 - t**2, u_at, uu - u_at**2, p_at)


TWO_DATA = (
    Model("gibbs-logit", "logit", 2, learn=("variance", "lengthscales")),
    Model("gibbs-probit", "probit", 2, fitc=True, learn=("variance", "lengthscales")),
    Model("gibbs-logit", "logit", 2, fitc=True, learn=("variance", "noise")),
    Model("gibbs-probit", "probit", 2, learn=("variance", "noise")),
)


def _two_data(context: Context, model: Model) -> Iterable[Outcome]:
    y = np.array([0, 1])
    result = chains(model, X2, y, DISTRIBUTIONS, 80 if context.quick else 2000)
    truth = binary_posterior(model, model.learn, y, 27 if context.quick else 61)
    pairs = [
        pair
        for k, name in enumerate(model.learn)
        for pair in log_pairs(result, name, (truth.log_mean[k], truth.log_var[k]))
    ]
    pairs += [
        (result.latent_mean, result.latent_mean_se, truth.latent_mean[:, None]),
        (result.latent_cov, result.latent_cov_se, truth.latent_var[:, None, None]),
        (result.test_latent_mean, result.test_latent_mean_se, truth.test_mean[:, None]),
        (result.test_latent_cov, result.test_latent_cov_se, truth.test_var[:, None, None]),
        (result.probabilities[:, 1], result.probabilities_se[:, 1], truth.probability),
    ]
    if model.fitc:
        pairs.append((result.inducing_mean, result.inducing_mean_se, truth.inducing_mean[:, None]))
        # no error is stated for it: that of the test variance beside it, which is of the same kind, is taken
        pairs.append((result.inducing_cov, result.test_latent_cov_se, truth.inducing_cov[:, None, None]))
    yield _tested(z_of_pairs(pairs), model.name, "quadrature", "a shift by a fifth of a deviation would show")


# -- the joint distribution --------------------------------------------------------------------------------------------

JOINT = (
    Model("gibbs-logit", "logit", 2),
    Model("gibbs-logit", "logit", 2, fitc=True, learn=("variance", "lengthscales")),
    Model("gibbs-probit", "probit", 2),
    Model("gibbs-probit", "probit", 2, fitc=True),
    Model("gibbs-probit", "multinomial-probit", 3, shared=False, learn=("variance", "noise")),
    Model("gibbs-probit", "multinomial-probit", 3, fitc=True),
    Model("gibbs-threshold", "threshold", 3),
    Model("gibbs-threshold", "threshold", 3, 0.3, shared=False, fitc=True, learn=("variance", "noise")),
    Model("mh-softmax", "softmax", 3),
    Model("mh-softmax", "softmax", 3, shared=False, fitc=True, learn=("variance", "lengthscales")),
)


# of a quick run: every likelihood, and each of full and FITC, shared or not, with one of them
SHORT = (JOINT[1], JOINT[2], JOINT[4], JOINT[7], JOINT[9])


def joint_draws(rng: np.random.Generator, model: Model, size: int) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    """θ (size, B, 3), v (size, L, n), chol of its covariance (size, L, n, n) and y (size, n) of the model itself."""
    L, n = model.n_latents, len(X2)
    B = 1 if model.shared else L
    theta = np.tile([1.2, 0.9, NOISE], (size, B, 1))
    for name in model.learn:
        theta[..., own.positions((name,), 1)[0]] = own.draw(rng, DISTRIBUTIONS[name], size * B).reshape(size, B)
    chol = _roots(model, theta)
    v = np.einsum("rlij,rlj->rli", chol, rng.standard_normal((size, L, n)))
    if model.likelihood == "logit":
        y = (rng.random((size, n)) < expit(v[:, 0])).astype(np.int64)
    elif model.likelihood == "probit":
        y = (v[:, 0] > 0.0).astype(np.int64)
    else:
        at = v + rng.gumbel(size=v.shape) if model.likelihood == "softmax" else v
        y = at.argmax(axis=1)
        wrong = rng.random((size, n)) < model.epsilon
        y = np.where(wrong, rng.integers(0, L, (size, n)), y)
    return theta, v, chol, y


def _roots(model: Model, theta: Array) -> Array:
    """Cholesky factors (r, L, n, n) of the prior covariance of f, of h for the probits."""
    unit = own.unit_noise(model.likelihood) * np.eye(len(X2))
    v, length, noise = theta[..., 0, None, None], theta[..., 1, None, None], theta[..., 2, None, None]
    eye = np.eye(len(X2))

    def k(A: Array, B: Array) -> Array:
        return np.asarray(v * np.exp(-0.5 * ((A - B.T) / length) ** 2))

    if model.fitc:
        cross = k(X2, Z1)
        Q = cross * np.swapaxes(cross, -1, -2) / (k(Z1, Z1) + JITTER)  # one inducing input
        cov = Q * (1.0 - eye) + (v + noise) * eye
    else:
        cov = k(X2, X2) + (noise + JITTER) * eye
    root = np.linalg.cholesky(cov + unit)
    return np.asarray(np.repeat(root, model.n_latents // theta.shape[1], axis=1))


def statistics(model: Model, theta: Array, v: Array, y: NDArray[np.int64]) -> tuple[Array, Array]:
    """(size, .) functions of (θ, v) with mean zero under the model, and functions that bring in the labels."""
    size, white_v = len(theta), np.linalg.solve(_roots(model, theta), v[..., None])[..., 0]
    columns = own.positions(model.learn, 1)
    distribution = [DISTRIBUTIONS[name] for name in own.FIELDS if name in model.learn]
    w = (np.log(theta[..., columns]) - np.log([entry[2] for entry in distribution])) / [
        entry[1] for entry in distribution
    ]
    flat, e = w.reshape(size, -1), white_v.reshape(size, -1)
    every = np.repeat(w, model.n_latents // w.shape[1], axis=1)  # (size, L, p)
    products = [flat[:, i] * flat[:, j] for i, j in itertools.combinations(range(flat.shape[1]), 2)]
    products += [e[:, i] * e[:, j] for i, j in itertools.combinations(range(e.shape[1]), 2)]
    known = [
        flat, flat**2 - 1.0, e, e**2 - 1.0, np.stack(products, axis=1),
        (every[:, :, None, :] * (white_v[..., None] ** 2 - 1.0)).sum(axis=2).reshape(size, -1),
    ]  # fmt: skip
    mark = np.eye(model.n_classes)[y] - 1.0 / model.n_classes  # (size, n, C)
    if model.n_latents == 1:
        mark = mark[..., 1:]
    latent = np.moveaxis(v, 1, 2)  # (size, n, L)
    told = (mark * np.tanh(latent)).reshape(size, -1)
    agree = (y[:, :1] == y[:, 1:]).astype(np.float64)
    linked = [
        told,
        mark.reshape(size, -1) * np.abs(latent).reshape(size, -1),
        agree * flat,
        agree * e[:, :1] * e[:, 1:2],
    ]
    return np.concatenate(known, axis=1), np.concatenate(linked, axis=1)


def _held(model: Model) -> Any:
    from gibbs.models.hyper import make_model

    held, _ = sampler_by_name(make_model, n_warmup=0)(
        model.likelihood, X2, np.array([0, 1]), model.n_classes, 1.2, [0.9], NOISE, JITTER, Z1 if model.fitc else None,
        "fitc" if model.fitc else "full", epsilon=model.epsilon, hyperprior=dict(DISTRIBUTIONS), learn=model.learn,
        shared=model.shared, n_steps=3,
    )  # fmt: skip
    return held


def sweep(held: Any, rng: np.random.Generator, theta: Array, v: Array) -> tuple[Array, Array, int]:
    """θ and v after one whole sweep, and how many steps it has changed, though there is no warm-up."""
    rngs = dict.fromkeys(("start", "auxiliary", "latent", "gradient", "white", "bounce", "predict"), rng)
    state = {
        "hyper": theta, "latent": v, "sweep": np.ones(len(v)), "log_turn": np.full(len(v), np.log(0.12)),
        "log_step": np.full(theta.shape[:2], np.log(0.4)), "normals": np.zeros((len(v), 1, v.shape[1], 0)),
    }  # fmt: skip
    result = held.step(state, rngs)
    adapted = sum(not np.array_equal(result.get(name, state[name]), state[name]) for name in ("log_step", "log_turn"))
    return result["hyper"], result["latent"], adapted


def slices(held: Any, rng: np.random.Generator, theta: Array, v: Array) -> tuple[Array, Array, int]:
    """Parameters by slices, and the latent values that follow them."""
    if held.likelihood in own.SMOOTH:
        white, u = _white(held, theta, v), np.zeros((len(v), len(X2)))
        result = held.ancillary_move(rng, theta, white, u)
        return result[0], result[1], 0
    white, u = held.draw_white(rng, theta, v)
    hyper, smooth, sd, _ = held.ancillary_move(rng, theta, white, u)
    return hyper, held.draw_auxiliary(rng, smooth, sd, u), 0


def refreshed(held: Any, rng: np.random.Generator, theta: Array, v: Array) -> tuple[Array, Array, int]:
    """Latent values alone: truncated ones through their smooth part, others by rotations, a softmax class by class."""
    if held.likelihood in own.SMOOTH:
        chol = np.linalg.cholesky(_covariances(held, theta))
        white, _ = held.rotation_move(rng, _white(held, theta, v), chol, np.full(len(v), 0.12))
        v = np.matmul(white, np.swapaxes(chol, -1, -2)).reshape(v.shape)
        if held.likelihood == "softmax":
            v = held._softmax_latent(dict.fromkeys(("auxiliary", "latent"), rng), theta, chol, v)
        return theta, v, 0
    white, u = held.draw_white(rng, theta, v)
    chol, sd, _ = held.smooth_part(held.design, theta)
    smooth = np.matmul(white, np.swapaxes(chol, -1, -2)).reshape(v.shape)
    return theta, held.draw_auxiliary(rng, smooth, held.per_latent(sd), u), 0


def paths(held: Any, rng: np.random.Generator, theta: Array, v: Array) -> tuple[Array, Array, int]:
    """Parameters along their gradient given v; the latent values of constraints by a path between them before that."""
    if held.likelihood not in own.SMOOTH:
        v = held.bounce(rng, theta, v)
    if held.likelihood == "logit":
        return theta, v, 0
    step = np.full(theta.shape[:2], 0.4)
    return held.sufficient_move(rng, theta, held.grouped(v), held.auxiliary_noise, step)[0], v, 0


def _covariances(held: Any, theta: Array) -> Array:
    given = own.Given(X2, X_TEST, Z1 if held.design.cross is not None else None, JITTER)
    flat = theta.reshape(-1, theta.shape[-1])
    return np.array([own.blocks(row, given).data for row in flat]).reshape(*theta.shape[:2], len(X2), len(X2))


def _white(held: Any, theta: Array, v: Array) -> Array:
    chol = np.linalg.cholesky(_covariances(held, theta))
    return np.asarray(np.swapaxes(np.linalg.solve(chol, np.swapaxes(held.grouped(v), -1, -2)), -1, -2))


PARTS = {"a sweep": sweep, "slices": slices, "latent values": refreshed, "paths": paths}


def moved(rng: np.random.Generator, model: Model, part: str, theta: Array, v: Array, y: NDArray[np.int64]) -> Any:
    """θ and v after a part of a sweep given y, where (θ, v, y) is a draw of the model, and how many steps changed."""
    held, theta, v, adapted = _held(model), theta.copy(), v.copy(), 0
    for pattern in np.unique(y, axis=0):
        rows = np.flatnonzero(np.all(y == pattern, axis=1))
        theta[rows], v[rows], count = PARTS[part](held._replace(y=pattern), rng, theta[rows], v[rows])
        adapted += count
    return theta, v, adapted


def z_of(after: Array, before: Array, known: bool) -> Array:
    """z of means: of `after`, whose mean is zero, with `before` as control variate; else of the differences."""
    if known:
        share = (after * before).mean(axis=0) / np.maximum((before**2).mean(axis=0), 1e-300)
        terms = after - share * before
    else:
        terms = after - before
    mean, spread = terms.mean(axis=0), terms.std(axis=0, ddof=1)
    # what never moves is as it was, to rounding, which has a mean of its own
    rounding = 1e-10 * np.maximum(before.std(axis=0, ddof=1), 1e-300)
    z = mean / np.maximum(spread, rounding) * np.sqrt(len(terms))
    return np.asarray(np.where((spread > rounding) | (np.abs(mean) > rounding), z, 0.0))


def joint(model: Model, sizes: Mapping[str, int], seed: int = SEED) -> Iterable[Outcome]:
    """The joint distribution after each part of a sweep alone, and how much of it a whole sweep has moved."""
    rng = np.random.default_rng(seed)
    for part, size in sizes.items():
        if (model.likelihood, part) == ("logit", "paths"):  # given ω they have no v to keep; a whole sweep has them
            continue
        theta, v, _, y = joint_draws(rng, model, size)
        after_theta, after_v, adapted = moved(rng, model, part, theta, v, y)
        before, after = statistics(model, theta, v, y), statistics(model, after_theta, after_v, y)
        z = np.concatenate([z_of(after[0], before[0], True), z_of(after[1], before[1], False)])
        yield _tested(
            z,
            f"{model.name}: {part} from exact draws leaves the joint distribution alone",
            "the model",
            f"a shift by {5.0 / np.sqrt(size):.2g} deviations would show",
        )
        if part == "a sweep":
            yield Compared(float(adapted), 0.0, "steps are adapted in the warm-up only", "gibbs", "itself", "steps")
            columns = own.positions(model.learn, 1)
            still = float(np.mean(after_theta[..., columns] == theta[..., columns])) + float(np.mean(after_v == v))
            yield Compared(still, 0.02, "every parameter and latent value is new, but where both of its moves are "
                           "refused", "gibbs", "itself", "share")  # fmt: skip


# sizes of a quick run: where a move is cheap, more draws
_QUICK = {"a sweep": 800, "slices": 800, "latent values": 2500, "paths": 1500}


# -- registration ------------------------------------------------------------------------------------------------------


def _register(method: str) -> None:
    @check(
        f"exactness/{method}/hyper_prior_only",
        paper=PAPER,
        question="With a datum that says nothing of the kernel parameters, are they drawn from their hyperprior?",
        # sweeps are judged in every run by `hyper_joint`, averages by `hyper_moments`: one sampler stands for all
        problems=(NO_PROBLEM,) if method == "gibbs-logit" else (),
        full=() if method == "gibbs-logit" else (NO_PROBLEM,),
    )
    def hyper_prior_only(context: Context, problem: Problem) -> Iterable[Outcome]:
        for model in ONE_DATUM:
            if model.method == method:
                yield from _prior_only(context, model)

    @check(
        f"exactness/{method}/hyper_joint",
        paper=PAPER,
        question="Do sweeps over parameters and latent values leave the joint distribution of a model as it is?",
        problems=(NO_PROBLEM,),
    )
    def hyper_joint(context: Context, problem: Problem) -> Iterable[Outcome]:
        for model in JOINT if not context.quick else SHORT:
            if model.method == method:
                short = _QUICK | ({"latent values": 1000} if method == "mh-softmax" else {})  # chain by chain
                yield from joint(model, short if context.quick else dict.fromkeys(PARTS, 20_000))


def _register_two_data(method: str) -> None:
    @check(
        f"exactness/{method}/hyper_two_data",
        paper=PAPER,
        question="Do chains over parameters and latent values meet quadrature over both?",
        problems=(),
        full=(NO_PROBLEM,),
    )
    def hyper_two_data(context: Context, problem: Problem) -> Iterable[Outcome]:
        for model in TWO_DATA:
            if model.method == method:
                yield from _two_data(context, model)


for _method in dict.fromkeys(model.method for model in JOINT):
    _register(_method)
for _method in dict.fromkeys(model.method for model in TWO_DATA):
    _register_two_data(_method)
