"""villacampa2020, section 5.2, Fig. 2: where four methods put inducing points at several alphas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.priors import Prior
from validation import datasets
from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.door.quoting import shown
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option
from validation.reproduce.villacampa2017 import plane
from validation.reproduce.villacampa2017.fig3 import boundary_of, different, margin, overlapping
from validation.reproduce.villacampa2020 import setting
from validation.screen import figures

Array = NDArray[np.float64]
IN_BATCHES = ("arpep", "rpapep")
_HALF = 2.5  # the data fill [-2.5, 2.5]²


class Placed(NamedTuple):
    """Inducing points after training, and the run that put them there."""

    Z: Array  # (C, m, 2)
    steps: int
    trained: setting.Run


@equation("villacampa2020", "u39-inducing-toy")
def inducing_point_experiment(
    data: Dataset,
    Z: Array,
    method: str,
    alpha: float,
    *,
    variance: float = 1.0,
    lengthscales: float = 1.0,
    jitter: float = setting.JITTER,
    reduce: float = 1.0,
    batch_size: int = 100,
    rate: float | None = None,
    n_start: int = 60,
    budget: float = np.inf,
    seed: int = 0,
) -> Placed:
    """Inducing points learned from Z on, everything else held at its true value: villacampa2020, section 5.2, Fig. 2.

    pep and apep take 2000 iterations on all data; arpep and rpapep 2000 epochs of Adam on mini-batches of 100.

    Parameters
    ----------
    data : Dataset                    of `datasets.make_villacampa2017_toy`, with these hyper-parameters, without noise
    Z : (C, m, 2)                     the start, the same for all methods
    method : str                      pep, apep, arpep or rpapep
    alpha : float                     in [0, 1]
    variance, lengthscales : float    true values
    jitter : float                    on K of the inducing points
    reduce : float                    share of the paper's iterations and epochs, (0, 1]
    batch_size : int                  rows of a mini-batch
    rate : float                      first adaptive rate, or of Adam; None: 0.01, and Adam's default 0.001
    n_start : int                     sweeps, or steps of q, before the points move (batch)
    budget : float                    seconds of training
    seed : int                        of mini-batches
    """
    if not 0.0 < reduce <= 1.0:
        raise ValueError(f"reduce: found {shown(reduce)}, expected a share in (0, 1]")
    each = np.ones(data.n_classes)
    prior = Prior(variance * each, np.full((data.n_classes, 2), lengthscales), 0.0 * each, jitter * each, Z)
    steps = max(1, round(2000 * reduce))
    if method in IN_BATCHES:
        steps *= -(-data.n // batch_size)
        in_batches = setting.BatchTraining(
            batch_size=batch_size, n_steps=steps, learn=("Z",), seed=seed, rate=0.001 if rate is None else rate
        )
        run = setting.train_in_batches(method, alpha, data.X, data.y, prior, in_batches, setting.Watch(budget=budget))
    else:
        training = setting.Training(
            n_steps=steps, n_start=n_start, learn=("Z",), rate=0.01 if rate is None else rate
        )  # fmt: skip
        watch = setting.Watch(budget=budget, evaluate=False)
        run = setting.train(method, alpha, data.X, data.y, prior, training, watch)
    return Placed(np.array(run.run.points.Z), steps, run)


class Layout(NamedTuple):
    """Where the inducing points of one training are."""

    gap: float  # median distance to the nearest boundary
    overlapping: float  # share of points with a neighbour of their class closer than a tenth of a lengthscale


def layout(Z: Array, edge: Array, lengthscale: float = 1.0) -> Layout:
    """Of points Z (C, m, 2) and the grid points `edge` (b, 2) beside which the class changes; NaN without any."""
    gaps = np.linalg.norm(Z.reshape(-1, 1, 2) - edge, axis=-1).min(axis=1) if len(edge) else np.array([np.nan])
    return Layout(float(np.median(gaps)), overlapping(Z, lengthscale))


def decide(value: Mapping[tuple[str, float], Layout]) -> list[Decided]:
    """What section 5.2 says of the places, by method and alpha; needs all four methods and three alphas or more."""
    alphas = sorted({alpha for _, alpha in value})
    low, high = alphas[0], alphas[-1]
    middle = min(alphas, key=lambda alpha: abs(alpha - 0.5))

    def gap(method: str, alpha: float) -> float:
        return value[method, alpha].gap

    def moves(method: str) -> float:
        return max(abs(gap(method, alpha) / gap(method, middle) - 1.0) for alpha in alphas)

    listed = [
        *(below("fig2-free-gaussian", f"median distance from a boundary at alpha = {low:g}: {setting.NAMES[method]}'s "
                "below PEP's and APEP's", gap(method, low), min(gap("pep", low), gap("apep", low)))
          for method in IN_BATCHES),
        above("fig2-pep-overlap", f"PEP: share of overlapping points at alpha = {high:g}, above that at {low:g}",
              value["pep", high].overlapping, value["pep", low].overlapping),
        below("fig2-pep-overlap", "the others: largest share of overlapping points",
              max(value[method, alpha].overlapping for method in setting.METHODS[1:] for alpha in alphas), 0.05),
        below("fig2-rpapep-closer", f"RPAPEP: median distance from a boundary at alpha = {high:g}, below that at "
              f"{low:g}", gap("rpapep", high), gap("rpapep", low)),
        *(below("fig2-alpha-no-influence", f"{setting.NAMES[method]}: largest change of the median distance from that "
                f"at {middle:g}, relative", moves(method), 0.2) for method in ("apep", "arpep")),
    ]  # fmt: skip
    return [decisions.figure("fig2", listed), *listed]


@dataclass(frozen=True, kw_only=True)
class Fig2Options:
    """Options of `fig2`."""

    methods: Sequence[str] = setting.METHODS
    alphas: Sequence[float] = (0.0, 0.5, 1.0)
    n: int = option(300, 1000, "data")
    n_test: int = 1000
    m: int = option(24, 128, "inducing points per class")
    reduce: float = option(0.1, 1.0, "share of 2000 iterations or epochs")
    rate_adam: float = option(0.01, 0.001, "rates of Adam")
    budget: float = option(6.0, np.inf, setting.CUT)
    seed: int = 0


@experiment(
    "villacampa2020",
    "fig2",
    "where four methods put inducing points that they learn, at several alphas",
    "near alpha = 0 ARPEP and RPAPEP put inducing points near the decision boundaries, PEP and APEP do not; as alpha "
    "grows those of PEP overlap, RPAPEP's go nearer to the boundaries, APEP's and ARPEP's hardly change (section 5.2, "
    "Fig. 2)",
    cells=lambda asked: len(asked.methods) * len(asked.alphas),
)
def fig2(asked: Fig2Options, say: Say) -> Outcome:
    """The data are drawn from the prior; rates of Adam are higher than its default, for short runs."""
    for method in asked.methods:
        arguments.choice(method, setting.METHODS, "methods")
    arguments.integer(asked.n_test, "n_test", at_least=1)
    rng = np.random.default_rng(arguments.integer(asked.seed, "seed", at_least=0))
    drawn = datasets.make_villacampa2017_toy(rng, arguments.integer(asked.n, "n", at_least=10) + asked.n_test)
    data = drawn.rows(np.arange(asked.n))
    X_test, y_test = drawn.X[asked.n :], drawn.y[asked.n :]
    Z = setting.start(data.X, arguments.integer(asked.m, "m", at_least=1), data.n_classes, asked.seed).Z
    points = plane.grid(_HALF)
    rows: list[tuple[object, ...]] = []
    pictures: list[Picture] = []
    notes: list[str] = []
    layouts: dict[tuple[str, float], Layout] = {}
    for method in asked.methods:
        panels = []
        for alpha in asked.alphas:
            result = inducing_point_experiment(
                data, Z, method, alpha, reduce=asked.reduce, rate=asked.rate_adam if method in IN_BATCHES else None,
                budget=asked.budget, seed=asked.seed,
            )  # fmt: skip
            run = result.trained
            notes += run.notes
            head = (setting.NAMES[method], float(alpha))
            kept = sum(different(each) for each in result.Z)
            moved = float(np.linalg.norm(result.Z - Z, axis=-1).mean())
            if run.lost:
                rows.append((*head, setting.NONE, setting.NONE, setting.NONE, kept, moved, run.iterations, run.seconds))
                say(f"{head[0]}, alpha = {alpha:g}: {setting.NONE}")
                continue
            error, nll = run.scores(X_test, y_test)
            edge = boundary_of(run.probabilities(points), points)
            gap = margin(result.Z, edge) if len(edge) else None
            layouts[method, float(alpha)] = layout(result.Z, edge)
            rows.append((*head, error, nll, gap, kept, moved, run.iterations, run.seconds))
            with figures.style():
                panels.append(
                    plane.panel(
                        f"{head[0]}, alpha = {alpha:g}", data.X, data.y, run.probabilities, result.Z, _HALF,
                        f"v20-fig2-{method}-{alpha:g}",
                    )
                )  # fmt: skip
            say(f"{head[0]}, alpha = {alpha:g}: error {error:.3f}, nll {nll:.3f}, {run.seconds:.1f} s")
        if panels:
            labels = tuple(f"class {k + 1}" for k in range(data.n_classes))
            pictures.append(
                Picture(f"{setting.NAMES[method]}: data, boundaries, inducing points", labels, tuple(panels))
            )
    notes += [
        setting.LIMIT,
        "batch: q and inducing points take turns, by natural-gradient and adaptive-rate steps",
        "the paper does not print the true hyper-parameters: variance 1, lengthscales 1, no noise here",
        "distance from the boundary: mean over inducing points, to the nearest grid point where the predicted class "
        "changes; Fig. 2 prints no numbers",
    ]
    message: tuple[Table, ...] = ()
    if len(asked.alphas) > 2 and all(
        (method, float(alpha)) in layouts for method in setting.METHODS for alpha in asked.alphas
    ):
        message = (decisions.table(decide(layouts), "What section 5.2 says of the figure"),)
    return Outcome(
        {
            "data": f"three classes drawn from the prior on [-2.5, 2.5]², n = {data.n}, {asked.n_test} test rows",
            "inducing points": f"{asked.m} per class, {Z.shape[0] * asked.m} in all",
            "jitter": setting.JITTER,
            "label errors": setting.EPSILON,
            "seed": asked.seed,
        },
        (
            Table(
                "placed",
                ("method", "alpha", "error", "nll", "from the boundary", "different points", "moved by", "steps",
                 "seconds"),
                tuple(rows),
                "After training; points closer than 0.05 count once; before, the points are rows of the data",
            ),
            *message,
        ),
        tuple(pictures),
        tuple(dict.fromkeys(notes)),
    )  # fmt: skip
