"""villacampa2017, section 4.2, Fig. 3: where the methods put inducing points that they learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.priors import Prior
from reference.villacampa2017.protocol import toy_training_settings
from validation import datasets
from validation.datasets.dataset import Dataset
from validation.door import arguments
from validation.door.quoting import shown
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, surely
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.printed import option
from validation.reproduce.protocols import scores
from validation.reproduce.villacampa2017 import plane, setting
from validation.screen import figures

Array = NDArray[np.float64]
_HALF = 2.5  # the data fill [-2.5, 2.5]²
_NEAR = 0.05  # of a lengthscale of 1: two inducing points this near say the same


class Placed(NamedTuple):
    """Inducing points after training, and what the classifier with them is worth."""

    Z: Array  # (C, m, 2)
    log_evidence: float | None
    seconds: float
    trained: setting.Run


@equation("villacampa2017", "u36-inducing-toy")
def inducing_point_experiment(
    data: Dataset,
    Z: Array,
    method: str,
    *,
    variance: float = 1.0,
    lengthscales: float = 1.0,
    jitter: float = setting.JITTER,
    reduce: float = 1.0,
    rate: float | None = None,
    tolerance: float = 1e-3,
    max_iterations: int = 500,
    damping: float = 0.5,
    nat_rate: float = 0.1,
    seed: int = 0,
) -> Placed:
    """Inducing points learned from Z on, everything else held at its true value: villacampa2017, section 4.2, Fig. 3.

    The data have no noise. gfitc, ep and sep take 2000 batch iterations; vi-robust 2000 epochs of Adam with
    mini-batches of 100.

    Parameters
    ----------
    data : Dataset                    of `datasets.make_villacampa2017_toy`, with these hyper-parameters
    Z : (C, m, 2)                     the start, the same for all methods
    method : str                      gfitc, ep, sep or vi-robust
    variance, lengthscales : float    true values
    jitter : float                    on K of the inducing points
    reduce : float                    share of the paper's iterations, (0, 1]
    rate : float                      of the first step of adaptive rates, or of Adam; None: their own
    tolerance, max_iterations, damping    of EP where it is run to convergence
    nat_rate : float                  size of the natural-gradient steps of vi-robust
    seed : int                        of mini-batches
    """
    if not 0.0 < reduce <= 1.0:
        raise ValueError(f"reduce: found {shown(reduce)}, expected a share in (0, 1]")
    plan = toy_training_settings(method, data.n)
    steps = max(1, round(reduce * plan.n_steps))
    each = np.ones(data.n_classes)
    prior = Prior(variance * each, np.full((data.n_classes, 2), lengthscales), 0.0 * each, jitter * each, Z)
    training = setting.Training(
        n_steps=steps, learn=plan.learn, optimizer=plan.optimizer, rate=rate,
        batches=setting.minibatches(data.n, plan.batch_size, steps, seed) if plan.batch_size < data.n else None,
        tolerance=tolerance, max_iterations=max_iterations, damping=damping, nat_rate=nat_rate,
    )  # fmt: skip
    result = setting.train(method, data.X, data.y, prior, training)
    return Placed(np.array(result.run.points.Z), result.log_evidence, result.seconds, result)


def different(Z: Array, near: float = _NEAR) -> int:
    """How many of m points (m, 2) are left when each one nearer than `near` to an earlier one is dropped."""
    kept: list[Array] = []
    for point in Z:
        if all(np.linalg.norm(point - other) > near for other in kept):
            kept.append(point)
    return len(kept)


def margin(Z: Array, boundary: Array) -> float:
    """Mean distance of the points Z (C, m, 2) from the nearest of the places `boundary` (b, 2)."""
    gaps = np.linalg.norm(Z.reshape(-1, 1, 2) - boundary, axis=-1)
    return float(gaps.min(axis=1).mean())


def boundary_of(probabilities: Array, points: Array) -> Array:
    """The grid points beside which the predicted class changes."""
    side = int(np.sqrt(len(points)))
    label = probabilities.argmax(axis=1).reshape(side, side)
    edge = np.zeros_like(label, dtype=bool)
    edge[:, :-1] |= label[:, :-1] != label[:, 1:]
    edge[:-1] |= label[:-1] != label[1:]
    return points[edge.ravel()]


def overlapping(Z: Array, lengthscale: float = 1.0) -> float:
    """Share of the points Z (C, m, 2) with another of their class closer than a tenth of a lengthscale."""
    apart = np.linalg.norm(Z[:, :, None] - Z[:, None], axis=-1) + np.where(np.eye(Z.shape[1], dtype=bool), np.inf, 0.0)
    return float(np.mean(apart.min(axis=2) < 0.1 * lengthscale))


class Learned(NamedTuple):
    """One method with so many points after training."""

    error: float
    overlap: float  # share of points on top of others
    gap: float  # mean distance of the points from the nearest boundary
    gap_of_data: float  # the same of the training inputs


def decide(value: Sequence[Mapping[tuple[int, str], Learned]]) -> list[Decided]:
    """What section 4.2 says, at 95 % over repetitions, by number of points and method; needs two, and m = 1 and 4."""
    sizes = sorted({m for m, _ in value[0]})
    most, few = sizes[-1], [m for m in sizes if m in (4, 8)]
    quick = [method for method in setting.METHODS if method != "vi-robust"]

    def of(field: str, m: int, method: str) -> list[float]:
        return [float(getattr(one[m, method], field)) for one in value]

    listed = []
    for method in quick:
        name = setting.NAMES[method]
        listed += [
            surely("fig3-more-better", f"{name}: test error at m = {more} less that at {less}",
                   of("error", more, method), of("error", less, method)) for less, more in ((1, 4), (4, most))
        ]  # fmt: skip
        listed += [
            surely("fig3-fewer-suffice", f"test error at m = {m}, {name} less VI", of("error", m, method),
                   of("error", m, "vi-robust")) for m in few
        ]  # fmt: skip
        listed.append(
            surely("fig3-overlap", f"share of overlapping points at m = {most}, VI less {name}",
                   of("overlap", most, "vi-robust"), of("overlap", most, method))
        )  # fmt: skip
    listed.append(
        surely("fig3-vi-boundaries", f"VI, m = {most}: distance of its points from a boundary less that of the data",
               of("gap", most, "vi-robust"), of("gap_of_data", most, "vi-robust"))
    )  # fmt: skip
    return listed


@dataclass(frozen=True, kw_only=True)
class Fig3Options:
    """Options of `fig3`."""

    m: Sequence[int] = option((1, 4, 16, 32), (1, 2, 4, 8, 16, 32, 64, 128, 256), "inducing points per class")
    n_run: int = 1
    n: int = option(500, 1000, "data")
    n_test: int = 2000
    reduce: float = option(0.1, 1.0, "share of 2000 iterations or epochs")
    reduce_lbfgs: float = option(0.02, 1.0, "share of those of L-BFGS")
    jitter: float = setting.JITTER
    tolerance: float = 1e-3
    max_iterations: int = 200
    damping: float = 0.5
    nat_rate: float = 0.1
    seed: int = 0


@experiment(
    "villacampa2017",
    "fig3",
    "where the methods put inducing points that they learn",
    "GFITC, EP and SEP lay inducing points on top of each other and find better boundaries with few of them; VI puts "
    "them near the decision boundaries and needs more (section 4.2, Fig. 3)",
    cells=lambda asked: asked.n_run * len(asked.m) * len(setting.METHODS),
)
def fig3(asked: Fig3Options, say: Say) -> Outcome:
    """The data are drawn from the prior, n_run times."""
    arguments.integer(asked.n_test, "n_test", at_least=1)
    rows: list[tuple[object, ...]] = []
    pictures = []
    notes: list[str] = []
    points = plane.grid(_HALF)
    learned: list[dict[tuple[int, str], Learned]] = []
    for k in range(arguments.integer(asked.n_run, "n_run", at_least=1)):
        rng = np.random.default_rng(arguments.integer(asked.seed, "seed", at_least=0) + k)
        drawn = datasets.make_villacampa2017_toy(rng, arguments.integer(asked.n, "n", at_least=10) + asked.n_test)
        data = drawn.rows(np.arange(asked.n))
        X_test, y_test = drawn.X[asked.n :], drawn.y[asked.n :]
        learned.append({})
        for size in asked.m:
            Z = setting.start(data.X, int(size), data.n_classes, asked.seed + k).Z
            panels = []
            for method in setting.METHODS:
                share = asked.reduce_lbfgs if method == "gfitc" else asked.reduce
                result = inducing_point_experiment(
                    data, Z, method, jitter=asked.jitter, reduce=share, tolerance=asked.tolerance,
                    max_iterations=asked.max_iterations, damping=asked.damping, nat_rate=asked.nat_rate,
                    seed=asked.seed + k,
                )  # fmt: skip
                error, nll = scores(result.trained.probabilities(X_test), y_test)
                edge = boundary_of(result.trained.probabilities(points), points)
                gap = margin(result.Z, edge) if len(edge) else None
                learned[k][int(size), method] = Learned(
                    error, overlapping(result.Z), np.nan if gap is None else gap,
                    margin(data.X[None], edge) if len(edge) else np.nan,
                )  # fmt: skip
                say(f"m = {size}, {setting.NAMES[method]}: error {error:.3f}, nll {nll:.3f}, {result.seconds:.1f} s")
                notes += [f"m = {size}: {note}" for note in result.trained.notes]
                if k:
                    continue  # the first repetition is shown
                rows.append(
                    (int(size), setting.NAMES[method], error, nll, result.log_evidence,
                     sum(different(each) for each in result.Z), Z.shape[0] * Z.shape[1], gap,
                     float(np.mean(np.abs(result.Z).max(axis=-1) > _HALF)), result.trained.iterations, result.seconds)
                )  # fmt: skip
                with figures.style():
                    panels.append(
                        plane.panel(
                            f"{setting.NAMES[method]}, m = {size}", data.X, data.y, result.trained.probabilities,
                            result.Z, _HALF, f"fig3-{method}-{size}",
                        )
                    )  # fmt: skip
            if panels:
                labels = tuple(f"class {c + 1}" for c in range(data.n_classes))
                pictures.append(Picture(f"{size} inducing points per class", labels, tuple(panels)))
    message: tuple[Table, ...] = ()
    if asked.n_run > 1 and {1, 4} <= set(asked.m):
        notes.append(f"rows and pictures are of the first of {asked.n_run} repetitions")
        message = (decisions.table(decide(learned), "What section 4.2 says of the figure"),)
    notes.append(setting.VI_STEPS)
    notes.append("the paper does not print the true hyper-parameters: variance 1, lengthscales 1, no noise here")
    notes.append(
        "distance from the boundary: mean over inducing points, to the nearest grid point where the predicted class "
        "changes; Fig. 3 prints no numbers"
    )
    columns = ("m", "method", "error", "nll", "log Z", "different points", "of", "from the boundary",
               "outside the square", "iterations", "seconds")  # fmt: skip
    return Outcome(
        {
            "data": f"three classes drawn from the prior on [-2.5, 2.5]², n = {data.n}, {len(y_test)} test rows",
            "jitter": asked.jitter,
            "seed": asked.seed,
        },
        (Table("placed", columns, tuple(rows), f"After training; points closer than {_NEAR:g} count once"), *message),
        tuple(pictures),
        tuple(dict.fromkeys(notes)),
    )
