"""riihimaki2013, section 5.2, Fig. 2 to 4: fifteen points on a line, three classes; EP, IEP and MCMC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from validation import datasets
from validation.door import arguments
from validation.door.problem import Problem
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.published import published
from validation.reproduce.riihimaki2013 import setting
from validation.screen import figures

Array = NDArray[np.float64]
TRUTH = "gibbs-probit"
METHODS = (TRUTH, "nested-ep", "nested-iep")


class Toy(NamedTuple):
    """What each method says along the line; keys are method ids."""

    X: Array  # (15, 1)
    y: NDArray[np.int64]
    x: Array  # (t,)
    probabilities: dict[str, Array]  # (t, 3), Fig. 2(a)
    latent_mean: dict[str, Array]  # (t, 3), Fig. 2(b)
    latent_cov: dict[str, Array]  # (t, 3, 3), Fig. 3 and 4


@equation("riihimaki2013", "u5.2-toy")
def synthetic_three_class(
    seed: int,
    x: ArrayLike,
    *,
    methods: Sequence[str] = METHODS,
    log_variance: float = 4.62,
    log_lengthscale: float = 0.26,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Toy:
    """Predictive curves and marginals for 15 inputs from N(-1, 1), N(2, 0.25), N(3, 0.25): section 5.2.

    Parameters
    ----------
    seed : int             of the inputs, five of each class
    x : (t,)               where to predict
    methods : method ids
    log_variance, log_lengthscale : float    held; by default the paper's MCMC means for its own 15 inputs
    options : method id -> options           of single methods, such as the lengths of chains
    """
    toy = datasets.make_riihimaki2013_toy(np.random.default_rng(arguments.integer(seed, "seed", at_least=0)))
    line = arguments.finite(arguments.float_array(x, "x"), "x")
    problem = Problem(
        name="riihimaki2013-toy",
        X=toy.X,
        y=toy.y,
        n_classes=3,
        likelihood="multinomial-probit",
        variance=float(np.exp(log_variance)),
        lengthscales=float(np.exp(log_lengthscale)),
        jitter=setting.JITTER,
        X_test=line[:, None],
    )
    results = {method: setting.answer(method, problem, **(options or {}).get(method, {})) for method in methods}
    fields = ("probabilities", "test_latent_mean", "test_latent_cov")
    parts = [{method: np.asarray(getattr(s, name)) for method, s in results.items()} for name in fields]
    return Toy(toy.X, toy.y, line, *parts)


def _nearest(values: Array, target: float, where: NDArray[np.bool_]) -> int:
    return int(np.argmin(np.where(where, np.abs(values - target), np.inf)))


class Gap(NamedTuple):
    """What one set of fifteen inputs says of the claims; keys are method ids."""

    largest: dict[str, float]  # mean over the line of the largest class probability
    mean: dict[str, float]  # largest distance of a latent mean from the chains, in deviations of the prior
    misfit: dict[str, float]  # at x_i, cross-entropy of (f1, f2) under the chains against the method's Gaussian
    left: dict[str, float]  # at x_i, probability of class 1
    correlation: dict[str, float]  # at x_j, of f2 and f3
    right: dict[str, float]  # at x_j, probability of class 2


def gap(toy: Toy, t_i: int, t_j: int, deviation: float) -> Gap:
    """The numbers that section 5.2 compares, x_i and x_j by their places on the line."""
    truth = toy.latent_mean[TRUTH]

    def misfit(method: str) -> float:
        # the expectation of a Gaussian's log density needs the first two moments of the chains only
        cov = toy.latent_cov[method][t_i][:2, :2]
        off = toy.latent_mean[method][t_i, :2] - truth[t_i, :2]
        second = toy.latent_cov[TRUTH][t_i][:2, :2] + np.outer(off, off)
        return 0.5 * float(np.linalg.slogdet(2.0 * np.pi * cov)[1] + np.trace(np.linalg.solve(cov, second)))

    def correlation(cov: Array) -> float:
        return float(cov[1, 2] / np.sqrt(cov[1, 1] * cov[2, 2]))

    p = toy.probabilities
    return Gap(
        {method: float(p[method].max(axis=1).mean()) for method in METHODS},
        {method: float(np.abs(toy.latent_mean[method] - truth).max()) / deviation for method in METHODS[1:]},
        {method: misfit(method) for method in METHODS[1:]},
        {method: float(p[method][t_i, 0]) for method in METHODS},
        {method: correlation(toy.latent_cov[method][t_j]) for method in METHODS},
        {method: float(p[method][t_j, 1]) for method in METHODS},
    )


def decide(gaps: Sequence[Gap]) -> list[Decided]:
    """What section 5.2 says, from the means over sets of inputs."""

    def mean(name: str, method: str) -> float:
        return float(np.mean([getattr(one, name)[method] for one in gaps]))

    ep, iep = METHODS[1:]
    correlations = [abs(one.correlation[TRUTH] - one.correlation[ep]) for one in gaps]
    apart = [max(one.right.values()) - min(one.right.values()) for one in gaps]
    curves = [
        above("fig2-confidence", "mean largest probability along the line: MCMC above EP", mean("largest", TRUTH),
              mean("largest", ep)),
        above("fig2-confidence", "mean largest probability along the line: EP above IEP", mean("largest", ep),
              mean("largest", iep)),
        *(below("fig2-means", f"largest distance of {setting.NAMES[method]}'s latent means from the chains' in prior "
                "deviations", max(one.mean[method] for one in gaps), 0.1) for method in (ep, iep)),
    ]  # fmt: skip
    skewed = [
        above("fig3-underestimates", "probability of class 1 at x_i: MCMC above EP", mean("left", TRUTH),
              mean("left", ep)),
        above("fig3-underestimates", "probability of class 1 at x_i: EP above IEP", mean("left", ep),
              mean("left", iep)),
    ]  # fmt: skip
    fits = below("fig3", "cross-entropy of the chains' (f1, f2) at x_i and EP's Gaussian, below that of IEP's",
                 mean("misfit", ep), mean("misfit", iep))  # fmt: skip
    coupled = [
        below("fig4", "correlation of f2 and f3 at x_j: EP's from the chains', mean distance",
              float(np.mean(correlations)), 0.05),
        below("fig4", "correlation of f2 and f3 at x_j: largest of IEP's",
              max(abs(one.correlation[iep]) for one in gaps), 1e-12),
    ]  # fmt: skip
    same = below("fig4-same-probability", "range over methods of the probability of class 2 at x_j, mean",
                 float(np.mean(apart)), 0.01)  # fmt: skip
    return [decisions.figure("fig2", curves), *curves, fits, *skewed, *coupled, same]


@dataclass(frozen=True, kw_only=True)
class Fig2Options:
    """Options of `fig2`."""

    log_variance: float = 4.62
    log_lengthscale: float = 0.26
    n_chains: int = 16
    n_draws: int = 1000
    seeds: Sequence[int] = (0, 1, 2)


@experiment(
    "riihimaki2013",
    "fig2",
    "EP, IEP and MCMC on fifteen points of three classes on a line",
    "away from the class boundaries MCMC is the most confident and IEP the most conservative, EP between them; at a "
    "boundary all agree, though IEP has a wrong shape of the marginal (section 5.2, Fig. 2 to 4)",
    cells=lambda asked: len(asked.seeds),
    ahead=True,
)
def fig2(asked: Fig2Options, say: Say) -> Outcome:
    """Each seed draws fifteen inputs; the paper's own are not printed. The first one's curves are drawn."""
    if not len(asked.seeds):
        raise ValueError("seeds: found none, expected at least one")
    printed = published("riihimaki2013", "text")["toy"]
    x = np.linspace(-4.0, 6.0, 101)
    rows: list[tuple[object, ...]] = []
    orders: list[tuple[object, ...]] = []
    pictures: list[Picture] = []
    gaps: list[Gap] = []
    for seed in asked.seeds:
        say(f"inputs of seed {seed}: {asked.n_chains} chains of {asked.n_draws} draws, EP, IEP")
        chains = {"n_chains": asked.n_chains, "n_draws": asked.n_draws, "n_warmup": 200, "seed": int(seed)}
        toy = synthetic_three_class(
            int(seed),
            x,
            log_variance=asked.log_variance,
            log_lengthscale=asked.log_lengthscale,
            options={TRUTH: chains},
        )
        p = toy.probabilities
        places = {  # as in the paper: x_i on the side of class 1, x_j between classes 2 and 3
            "x_i": (0, _nearest(p[TRUTH][:, 0], printed["x_i"][TRUTH], x < toy.X[toy.y == 0].mean())),
            "x_j": (1, _nearest(p[TRUTH][:, 1], printed["x_j"][TRUTH], (x > 1.5) & (x < 4.0))),
        }
        gaps.append(gap(toy, places["x_i"][1], places["x_j"][1], float(np.exp(0.5 * asked.log_variance))))
        for place, (k, t) in places.items():
            other = (1, 2)[k]
            for method in METHODS:
                cov = toy.latent_cov[method][t]
                rows.append(
                    (seed, place, float(x[t]), setting.NAMES[method], f"class {k + 1}", float(p[method][t, k]),
                     printed[place][method], float(np.sqrt(cov[k, k])), float(np.sqrt(cov[other, other])),
                     float(cov[k, other] / np.sqrt(cov[k, k] * cov[other, other])))
                )  # fmt: skip
        # inside a class: where the chains are more than nine tenths sure, all along the line
        sure = p[TRUTH].max(axis=1) > 0.9
        best = {method: p[method][np.arange(x.size), p[TRUTH].argmax(axis=1)] for method in METHODS}
        ordered = (best[TRUTH] > best["nested-ep"]) & (best["nested-ep"] > best["nested-iep"])
        orders.append(
            (seed, int(sure.sum()), *(float(best[m][sure].mean()) if sure.any() else None for m in METHODS),
             float(ordered[sure].mean()) if sure.any() else None)
        )  # fmt: skip
        if not pictures:
            pictures.append(_picture(toy))
    names = tuple(setting.NAMES[m] for m in METHODS)
    return Outcome(
        {
            "data": "five inputs each from N(-1, 1), N(2, 0.25) and N(3, 0.25)",
            "hyper-parameters": f"log variance {asked.log_variance:g}, log lengthscale {asked.log_lengthscale:g}",
            "chains": f"{asked.n_chains} of {asked.n_draws} draws",
            "seeds": ", ".join(map(str, asked.seeds)),
        },
        (
            Table(
                "marginals",
                (
                    "seed",
                    "place",
                    "x",
                    "method",
                    "class",
                    "probability",
                    "paper",
                    "sd of its latent",
                    "sd of the other",
                    "their correlation",
                ),
                tuple(rows),
                "Class probabilities at two places, and the marginals of Fig. 3 (f1, f2) and Fig. 4 (f2, f3)",
            ),
            Table(
                "confidence",
                ("seed", "points", *names, "share MCMC > EP > IEP"),
                tuple(orders),
                "Mean probability of the likeliest class where MCMC puts more than 0.9 on it",
            ),
            decisions.table(decide(gaps), "What section 5.2 says of the figures, from means over the seeds"),
        ),
        tuple(pictures),
        (
            "the paper's fifteen inputs, x_i and x_j are not printed: inputs are drawn, x_i and x_j are where MCMC has "
            "the probability that the paper gives",
            "the paper's hyper-parameters are the MCMC means for its own inputs, and are held for these",
        ),
    )


def _picture(toy: Toy) -> Picture:
    shifted = toy.x - toy.x[0] + 1.0  # the axis is logarithmic and starts above 0
    with figures.style():
        panels = tuple(
            figures.curves(
                f"p(class {k + 1})",
                [figures.Curve(setting.NAMES[m], shifted, toy.probabilities[m][:, k]) for m in METHODS],
                f"x + {1.0 - toy.x[0]:g}",
                f"fig2-class{k + 1}",
            )
            for k in range(3)
        )
    return Picture("class probabilities along the line", tuple(setting.NAMES[m] for m in METHODS), panels)
