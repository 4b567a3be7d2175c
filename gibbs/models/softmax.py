"""Chains for the softmax likelihood, full and FITC: riihimaki2013 section 4.2.1 (Neal 1998), and what mixes better.

The moves act on the differences between classes (gibbs.moves.softmax); the shift that all classes share is drawn
exactly after them. Steps, and the Gaussian around which `flow` turns, are adapted in the warm-up and fixed after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gibbs.chains.chain import (
    Measures,
    Plan,
    Record,
    Run,
    State,
    Storage,
    counts,
    run,
)
from gibbs.chains.diagnostics import Convergence, convergence, least_ess
from gibbs.chains.summary import Averages, _run_fields, _with_errors
from gibbs.core.declare import takes_values
from gibbs.core.errors import Array, _count
from gibbs.core.generators import Generators, spawn_generators
from gibbs.core.linalg import cholesky
from gibbs.core.options import SoftmaxOptions
from gibbs.core.values import Data, Prior
from gibbs.models.multilatent import Conditionals, check, conditionals, overdispersed
from gibbs.models.softmax_probability import QUADRATURE_ERROR, softmax_probability
from gibbs.moves.region import swap_to_label
from gibbs.moves.softmax import (
    Reference,
    ShiftDistribution,
    Target,
    draw_shift,
    ellipse_move,
    flow_move,
    laplace,
    make_reference,
    make_target,
    scaled_move,
    shift_distribution,
    shift_mean,
    to_white,
)

PURPOSES = ("start", "scaled", "ellipse", "flow", "shift")
MOVES = ("scaled", "ellipse", "flow")
# random walks in many dimensions mix best near 0.234 (Roberts & Rosenthal 2001), Hamiltonian paths near 0.65 to 0.9
TARGET_ACCEPTANCE = {"scaled": 0.25, "flow": 0.85}
SCALED_STEPS, ELLIPSE_STEPS = 10, 2  # steps of a move in one sweep
_TURN = 1.5  # angle of a whole path: nearly the quarter turn that forgets a Gaussian
_MOST_KICKS = 150
_LEAST_STEP = 1e-6
ADAPTATION = 400  # sweeps of n_warmup "auto" in which steps and reference are adapted; chains are compared after them
_REFITS = (0.1, 0.25, 0.5)  # shares of the warm-up after which the reference is fitted again to the draws since
_PROBABILITY_DRAWS = 8192  # draws, evenly spread, are enough for class probabilities, which cost as much as sweeps


class SoftmaxChains(NamedTuple):
    """Averages over all chains and draws, Rao-Blackwellised over the common shift; each `_se` is a Monte Carlo s.e."""

    latent_mean: Array  # (n, C) E[f_i | y], noise included in f
    latent_mean_se: Array
    latent_cov: Array  # (n, C, C)
    latent_cov_se: Array
    inducing_mean: Array | None  # (C, m), FITC only
    inducing_mean_se: Array | None
    inducing_cov: Array | None  # (C, m, m)
    inducing_cov_se: Array | None
    test_latent_mean: Array  # (t, C)
    test_latent_mean_se: Array
    test_latent_cov: Array  # (t, C, C)
    test_latent_cov_se: Array
    probabilities: Array  # (t, C) p(y* = c), over evenly spread draws, 8192 of those planned where these are more
    probabilities_se: Array
    probability_mass: Array  # (t,) sum over the classes before normalising
    quadrature_error: float  # absolute, of each probability given f
    convergence: dict[str, Convergence]  # "latent", its square, "contrast", "log_joint"; FITC: "inducing", its square
    movement: Array  # (r,) share of kept draws before which the differences between classes moved
    acceptance: dict[str, Array]  # (r,) per move after warm-up; of "ellipse" the mean |sin angle| of a step
    step_size: dict[str, float]  # adapted; `scaled` 1 is an independent prior draw
    collapsed: tuple[str, ...]  # moves whose step shrank to its least value, or that accepted less than a tenth of aim
    # >= 4 chains, all moving, none collapsed, >= 100 autocorrelation times, Convergence.gate of all; warm-up and target
    gate: bool
    settled: bool  # False: a chain stands still, or a step collapsed
    latent_draws: Array  # (r, s, n, C), every `keep_every`-th
    log_joint: Array  # (r, s) log p(y | f) + log p(differences between classes)
    n_kicks: int  # rotations of a path of `flow`, 0 without it
    n_sweeps: int  # per chain, warm-up included
    seconds: float
    sweeps_per_second: float  # of all chains together advancing one sweep
    n_draws: int  # per chain
    n_warmup: int
    keep_every: int  # draws per kept draw
    target_reached: bool  # False: max_draws was reached before target_ess
    warmed_up: bool  # False: n_warmup "auto" ended at max_warmup before the chains agreed


class _Softmax:
    """Start, step and record of a run. Everything adapted lives in the state, so that a resumed run is the same."""

    def __init__(
        self,
        given: Conditionals,
        target: Target,
        shift: ShiftDistribution,
        moves: tuple[str, ...],
        n_warmup: int,
        stride: int,
    ) -> None:
        self.given, self.target, self.shift, self.moves = given, target, shift, moves
        self.n_warmup, self.stride = n_warmup, stride
        self._built: tuple[Array, Array, Reference] | None = None

    def start(self, rng: np.random.Generator, n_chains: int) -> State:
        p = len(self.target.factor)
        latent = swap_to_label(overdispersed(rng, self.given.chol_cov, n_chains), self.target.y)
        white = to_white(latent, self.target)
        # exchanging values makes them rough, far out under a smooth prior; towards the origin all is near
        depth = 0.5 * np.square(white).sum(axis=1)
        white *= np.sqrt(np.minimum(1.0, 0.5 * p / np.maximum(depth, 1e-300)))[:, None]
        state: State = {
            "white": white,
            "latent": draw_shift(rng, self.target.latent(white), self.shift),
            "sweep": np.zeros(1),
            "tuned": np.zeros(1),  # sweeps since the steps were last set
            "moved": np.zeros(n_chains),
        }
        for move in self.moves:
            state[f"acceptance.{move}"] = np.zeros(n_chains)
            if move in TARGET_ACCEPTANCE:
                state[f"log_step.{move}"] = np.log(np.full(1, 0.2))
        if "flow" in self.moves:
            mean, root = laplace(self.target)
            state |= {"mean": mean, "root": root, "fit_count": np.zeros(1), "fit_sum": np.zeros(p)}
            state["fit_square"] = np.zeros((p, p) if self._refits() else (0, 0))
        return state

    def _refits(self) -> list[int]:
        results = [int(share * self.n_warmup) for share in _REFITS]
        return [sweep for sweep in results if sweep > 0]

    def reference(self, state: State) -> Reference:
        mean, root = state["mean"], state["root"]
        if self._built is None or self._built[0] is not mean or self._built[1] is not root:
            self._built = (mean, root, make_reference(mean, root, self.target))
        return self._built[2]

    def step(self, state: State, rngs: Generators) -> State:
        new = dict(state)
        white = state["white"]
        if "scaled" in self.moves:
            size = float(np.exp(state["log_step.scaled"][0]))
            white, new["acceptance.scaled"] = scaled_move(rngs["scaled"], white, self.target, size, SCALED_STEPS)
        if "ellipse" in self.moves:
            white, new["acceptance.ellipse"] = ellipse_move(rngs["ellipse"], white, self.target, ELLIPSE_STEPS)
        if "flow" in self.moves:
            size = float(np.exp(state["log_step.flow"][0]))
            white, new["acceptance.flow"] = flow_move(
                rngs["flow"], white, self.target, self.reference(state), size, n_kicks_of(size)
            )
        new["moved"] = np.any(white != state["white"], axis=1).astype(np.float64)
        new["white"] = white
        new["latent"] = draw_shift(rngs["shift"], self.target.latent(white), self.shift)
        new["sweep"] = state["sweep"] + 1.0
        if new["sweep"][0] <= self.n_warmup:
            self._adapt(new)
        return new

    def _adapt(self, new: State) -> None:
        """Steps by Robbins and Monro's rule on the acceptance of all chains; the reference at its sweeps."""
        new["tuned"] = new["tuned"] + 1.0
        for move, aim in TARGET_ACCEPTANCE.items():
            if move in self.moves:
                gain = 2.0 * new["tuned"] ** -0.6
                free = new[f"log_step.{move}"] + gain * (new[f"acceptance.{move}"].mean() - aim)
                largest = 0.0 if move == "scaled" else np.log(0.5 * _TURN)
                new[f"log_step.{move}"] = np.clip(free, np.log(_LEAST_STEP), largest)
        if "flow" not in self.moves or not self._refits() or new["sweep"][0] > self._refits()[-1]:
            return
        white = new["white"]
        new["fit_count"] = new["fit_count"] + 1.0
        new["fit_sum"] = new["fit_sum"] + white.sum(axis=0)
        new["fit_square"] = new["fit_square"] + white.T @ white
        if int(new["sweep"][0]) in self._refits():
            self._refit(new)

    def _refit(self, new: State) -> None:
        """The reference as the average of what the draws say and of the one before, which counts as 2 p draws.

        A path of nearly a quarter turn forgets most, but the first ones do not: four sweeps count as one draw.
        """
        p = new["fit_sum"].size
        count = new["fit_count"][0] * len(new["white"])
        worth = 0.25 * count / (0.25 * count + 2.0 * p)
        mean = new["fit_sum"] / count
        cov = worth * (new["fit_square"] / count - np.outer(mean, mean)) + (1.0 - worth) * (new["root"] @ new["root"].T)
        new["root"] = cholesky("covariance of the draws", 0.5 * (cov + cov.T), "lower variance or take more chains")
        new["mean"] = worth * mean + (1.0 - worth) * new["mean"]
        new["fit_count"], new["fit_sum"], new["fit_square"] = np.zeros(1), np.zeros(p), np.zeros((p, p))
        new["tuned"] = np.zeros(1)

    def monitor(self, state: State) -> State:
        """What the end of an automatic warm-up is judged by; while steps are adapted the chains never agree."""
        kept = self.record(state).kept
        sweep = state["sweep"][0]
        adapting = np.full(len(state["white"]), sweep if sweep <= self.n_warmup else 0.0)  # a trend, in every window
        return {"contrast": kept["contrast"], "log_joint": kept["log_joint"], "adapting": adapting}

    def record(self, state: State) -> Record:
        white, latent = state["white"], state["latent"]
        diagonal = np.log(np.diagonal(self.target.factor)).sum() + 0.5 * white.shape[1] * np.log(2.0 * np.pi)
        log_joint = self.target.log_likelihood(white) - 0.5 * np.square(white).sum(axis=1) - diagonal
        # the differences themselves: what is drawn for the shift cannot make a standing chain look alive
        kept: State = {"contrast": white @ self.target.factor.T, "latent": latent, "log_joint": log_joint}
        totals = {name: state[name] for name in state if name.startswith(("acceptance.", "log_step."))}
        return Record(kept, {**totals, "moved": state["moved"]}, {"latent": latent})

    def block_sums(self, terms: State) -> State:
        """Sums (r, ...) over a block of draws (k, r, C, n): E[f | differences], of f* and u, and probabilities."""
        draws, given = terms["latent"], self.given
        k, r, C = draws.shape[:3]
        centred = draws + shift_mean(draws, self.shift)[:, :, None, :]
        means = {"latent": np.moveaxis(centred, 2, 3)}
        means["test"] = np.moveaxis(np.matmul(given.test_gain, centred[..., None])[..., 0], 2, 3)
        if given.inducing_gain is not None:
            means["inducing"] = np.matmul(given.inducing_gain, centred[..., None])[..., 0]
        sums = {f"{name}_mean": value.sum(axis=0) for name, value in means.items()}
        for name, value in means.items():
            last = np.moveaxis(value, 0, -1)
            sums[f"{name}_second"] = np.matmul(last, np.swapaxes(last, -1, -2))
        some = draws[:: self.stride]
        test = np.matmul(given.test_gain, some[..., None])[..., 0]  # (k', r, C, t)
        raw = np.empty((len(some) * r, test.shape[3], C))
        for i in range(test.shape[3]):
            raw[:, i] = softmax_probability(test[..., i].reshape(-1, C), given.test_var[:, i])
        mass = raw.sum(axis=2)
        share = k / len(some)
        sums["probability"] = share * (raw / mass[..., None]).reshape(len(some), r, *raw.shape[1:]).sum(axis=0)
        sums["mass"] = share * mass.reshape(len(some), r, mass.shape[1]).sum(axis=0)
        return sums

    def columns(self, kept: State) -> State:
        """What effective sizes are asked of."""
        draws = kept["latent"]
        columns = {"latent": draws, "latent_square": np.square(draws)}
        columns |= {name: kept[name] for name in ("contrast", "log_joint")}
        if self.given.inducing_gain is not None:
            u = np.matmul(self.given.inducing_gain, draws[..., None])[..., 0]
            columns |= {"inducing": u, "inducing_square": np.square(u)}
        return columns


def n_kicks_of(step_size: float) -> int:
    """Rotations of a path: enough steps of step_size for 1.5 radians, at most 150."""
    return int(min(np.ceil(_TURN / step_size), _MOST_KICKS))


@takes_values
def sample(data: Data, prior: Prior, options: SoftmaxOptions) -> SoftmaxChains:
    """Sample p(f | y) under p(y | f) = exp f_y / Σ_j exp f_j, riihimaki2013 (1).

    data, prior: see `gibbs.core.values`, L = n_classes. options: as in `gibbs.models.multinomial_probit.sample`, but
    that n_warmup "auto" has 400 sweeps of adaptation before the chains are compared, and that differences between
    classes count for target_ess too. moves, one or more of: "scaled" (Neal's Metropolis-Hastings, ten steps a sweep,
    adapted towards an acceptance of 0.25), "ellipse" (elliptical slice sampling, two steps a sweep) and "flow"
    (Hamiltonian paths around a Gaussian fitted in the warm-up, adapted towards 0.85). Time O(r p²) a step and O(p³) for
    each of four fits of the Gaussian, p = n (C - 1); memory O(p² + r s n C).

    Raises ValueError on bad input, NotPositiveDefiniteError if the covariance of f (of u) has no Cholesky factor.
    """
    _count("n_classes", data.n_classes, 2)
    plan, n_chains, n_warmup = Plan.of(options), options.n_chains, options.n_warmup
    if not options.moves:
        raise ValueError(f"moves: found (), expected at least one out of {MOVES}")
    setting = check(data, prior, data.n_classes)
    given = conditionals(setting.prior, 0.0)
    target, shift = make_target(setting.prior.K_XX, setting.y), shift_distribution(setting.prior.K_XX)
    stride = max(1, n_chains * options.n_draws // _PROBABILITY_DRAWS)
    adapted = ADAPTATION if isinstance(n_warmup, str) else n_warmup
    model = _Softmax(given, target, shift, tuple(options.moves), adapted, stride)
    settings = {
        "model": f"softmax {prior.prior_model}", "n_classes": int(data.n_classes), "moves": model.moves,
        **counts(options, plan),
    }  # fmt: skip
    rngs = spawn_generators(options.seed, PURPOSES)

    def effective(kept: State, keep_every: int) -> float:
        return least_ess({name: convergence(draws) for name, draws in model.columns(kept).items()})

    finished = run(
        model.start(rngs["start"], n_chains),
        model.step,
        model.record,
        rngs,
        plan,
        measures=Measures(model.block_sums, model.monitor, effective),
        callback=options.callback,
        storage=Storage.of(options, settings, setting.arrays),
    )
    return _summary(model, finished, n_chains, plan.thin)


def _summary(model: _Softmax, finished: Run, n_chains: int, thin: int) -> SoftmaxChains:
    kept, given, shift, n_draws = finished.kept, model.given, model.shift, finished.n_draws
    C = len(given.cov)
    trust = {name: convergence(values, thin * finished.keep_every) for name, values in model.columns(kept).items()}
    averages = Averages.of(finished, trust, n_chains, thin)
    mean, cov = averages.mean, averages.cov
    # what the shift adds given the differences: the same for all pairs of classes at the data
    latent_cov = cov("latent", np.broadcast_to(np.diagonal(shift.cov)[:, None, None], (len(shift.cov), C, C)))
    shift_cov = np.einsum("atn,nm,btm->tab", given.test_gain, shift.cov, given.test_gain, optimize=True)
    test_cov = cov("test", shift_cov + given.test_var.T[:, :, None] * np.eye(C))
    inducing = inducing_cov = None
    if given.inducing_gain is not None:
        assert given.inducing_cov is not None
        shift_cov = given.inducing_gain @ shift.cov @ np.swapaxes(given.inducing_gain, 1, 2)
        inducing, inducing_cov = mean("inducing_mean"), cov("inducing", given.inducing_cov + shift_cov)
    acceptance = {move: finished.totals[f"acceptance.{move}"] / n_draws for move in model.moves}
    steps = {
        move: float(np.exp(finished.totals[f"log_step.{move}"][0] / n_draws))
        for move in TARGET_ACCEPTANCE
        if move in model.moves
    }
    movement = finished.totals["moved"] / n_draws
    collapsed = tuple(
        move
        for move in steps
        if steps[move] <= 10.0 * _LEAST_STEP or acceptance[move].min() < 0.1 * TARGET_ACCEPTANCE[move]
    )
    return SoftmaxChains(
        **_with_errors(
            latent_mean=mean("latent_mean"),
            latent_cov=latent_cov,
            inducing_mean=inducing,
            inducing_cov=inducing_cov,
            test_latent_mean=mean("test_mean"),
            test_latent_cov=test_cov,
            probabilities=mean("probability"),
        ),
        **_run_fields(finished, trust, movement, n_chains, thin, sound=not collapsed),
        probability_mass=mean("mass").mean,
        quadrature_error=QUADRATURE_ERROR,
        acceptance=acceptance,
        step_size=steps,
        collapsed=collapsed,
        latent_draws=np.moveaxis(kept["latent"], 2, 3),
        log_joint=kept["log_joint"],
        n_kicks=n_kicks_of(steps["flow"]) if "flow" in model.moves else 0,
    )
