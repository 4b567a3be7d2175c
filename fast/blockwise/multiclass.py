"""Methods of several classes with sites or energies on data in parts: ep, pep, gfitc; apep, arpep, rpapep, bb-alpha,
vi-robust. Options are those of the method; the prior is held, and every sweep sees all data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from fast.blockwise.classes import COUNT, StandsFor, checked_points, look
from fast.blockwise.energies import EnergyInParts
from fast.blockwise.engines import Spread, spread, streamed
from fast.blockwise.kept import kept
from fast.blockwise.rows import Leaf, Rows
from fast.blockwise.sites import LatentsInParts, PowersInParts, SitesInParts
from fast.core import inputs
from fast.core.checks import shown
from fast.core.results import ClassPrediction
from fast.core.types import FloatArray
from fast.core.values import Prior
from fast.methods.apep import EnergyOptions
from fast.methods.bb_alpha import BBAlphaOptions
from fast.methods.ep import FACTORS, EPOptions
from fast.methods.gfitc import GFITCOptions
from fast.methods.pep import PEPOptions, checked_powers
from fast.methods.vi_robust import RobustOptions
from fast.sparse_classes.alpha_energies import Energy
from fast.sparse_classes.ep import Factors
from fast.sparse_classes.inference import predict, predict_robust
from fast.sparse_classes.power_factors import PowerDatum
from fast.sparse_classes.projections import ClassDistribution, InducingClasses
from fast.sparse_classes.training import Trained, converge, settings_of

MethodOptions = EPOptions | GFITCOptions | PEPOptions | EnergyOptions | BBAlphaOptions | RobustOptions


class Method(NamedTuple):
    """What a method adds to sums over leaves: its options, what it keeps of a datum, and how a run of it is made."""

    options: type[MethodOptions]
    n_sites: Callable[[Any], int]  # numbers that are kept for each datum and class
    run: Callable[[Spread, StandsFor, InducingClasses, Any], Any]
    robust: bool = False  # predictions know of labels that are wrong


def _factors(options: EPOptions) -> Factors:
    made: Factors = FACTORS[options.factors]()
    return made


def _ep(leaves: Spread, data: StandsFor, points: InducingClasses, options: EPOptions) -> SitesInParts:
    return SitesInParts(leaves, data, points, _factors(options), options.damping)


def _pep(leaves: Spread, data: StandsFor, points: InducingClasses, options: PEPOptions) -> PowersInParts:
    factors = PowerDatum(*checked_powers(options.alpha, options.epsilon))
    return PowersInParts(leaves, data, points, factors, options.damping)


def _gfitc(leaves: Spread, data: StandsFor, points: InducingClasses, options: GFITCOptions) -> LatentsInParts:
    return LatentsInParts(leaves, data, points, options.damping)


def _energy(kind: str, leaves: Spread, data: StandsFor, points: InducingClasses, options: Any) -> EnergyInParts:
    alpha, epsilon = checked_powers(options.alpha, options.epsilon)
    if kind == "apep" and data.n == 1 and alpha == 1.0:
        raise ValueError("alpha: found 1 with a single datum, expected less: the energy of apep does not depend on q")
    return EnergyInParts(leaves, data, points, Energy(kind, alpha, data.n), epsilon)


def _robust(leaves: Spread, data: StandsFor, points: InducingClasses, options: RobustOptions) -> EnergyInParts:
    return EnergyInParts(leaves, data, points, Energy("arpep", 0.0, data.n), options.epsilon)


def _none(options: object) -> int:
    return 0


METHODS: dict[str, Method] = {
    "ep": Method(EPOptions, lambda options: len(_factors(options).names), _ep),
    "gfitc": Method(GFITCOptions, lambda options: 4, _gfitc),
    "pep": Method(PEPOptions, lambda options: len(PowerDatum.names), _pep, robust=True),
    "apep": Method(EnergyOptions, _none, partial(_energy, "apep"), robust=True),
    "arpep": Method(EnergyOptions, _none, partial(_energy, "arpep"), robust=True),
    "rpapep": Method(EnergyOptions, _none, partial(_energy, "rpapep"), robust=True),
    "bb-alpha": Method(BBAlphaOptions, _none, partial(_energy, "apep"), robust=True),
    "vi-robust": Method(RobustOptions, _none, _robust, robust=True),
}

# what a run on data in parts is not asked for
_WHOLE = (
    "learn",
    "batches",
    "batch_size",
    "n_steps",
    "checkpoint",
    "site_file",
    "schedule",
    "hyperprior",
    "expectation",
)


@dataclass(frozen=True, eq=False)
class BlockwiseClasses:
    """q where the sweeps stopped; nothing of the size of the data."""

    points: InducingClasses
    q: ClassDistribution
    epsilon: float | None  # probability of a random label; None: labels are right
    log_evidence: float | None  # as the method says it: log Z, energy or bound. None: there is none
    trained: Trained

    @property
    def converged(self) -> bool:
        """Whether the tolerance was met."""
        return self.trained.converged

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.points.inducing_moments(self.q)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.points.inducing_moments(self.q)[1]


def fit(
    method: str,
    rows: Rows,
    n_classes: int,
    prior: Prior,
    options: Any = None,
    *,
    client: Any = None,
    checkpoint: str | PathLike[str] | None = None,
) -> BlockwiseClasses:
    """A method to its fixed point or optimum, on leaves here or on the workers of a Dask cluster.

    Sites at zero, q at the prior at first. Time a sweep as on an array, over the number of workers, and O(C m^3).

    Parameters
    ----------
    method : str       one of `METHODS`
    rows : Rows        from `fast.blockwise.rows.rows_of`, labels 0 .. C - 1
    n_classes : int    C >= 2
    prior : Prior      of C latent functions, with inducing points
    options            those of the method, such as `fast.methods.ep.EPOptions`; None: by default
    client             a dask.distributed.Client; None: this process. The digits are the same
    checkpoint : path  folder where sums of sweeps are kept, from which the same call goes on; None: nowhere

    Raises
    ------
    ValueError                  bad input, by name and row
    NotPositiveDefiniteError    K_ZZ of a class is singular
    ClusterLostError            the scheduler is lost
    OSError                     no room for a checkpoint
    """
    inputs.one_of("method", method, tuple(METHODS))
    kind = METHODS[method]
    options = kind.options() if options is None else options
    _check(kind, method, options)
    points = checked_points(n_classes, rows.d, prior)
    settings = settings_of(rows.n, options, scheme="outer", optimizer="lbfgs")
    with spread(rows, partial(look, points=points, n_sites=kind.n_sites(options)), client) as leaves:
        leaves = kept(leaves, checkpoint, f"{method}, {n_classes} classes", prior, options)
        stands_for = StandsFor(leaves.total(COUNT, None)[0].astype(np.int64), rows.n, rows.d)
        run = kind.run(leaves, stands_for, points, options)
        trained = converge(run, settings, options.callback)
        value = run.log_evidence() if getattr(options, "evaluate", True) else None
    return BlockwiseClasses(points, run.q, options.epsilon if kind.robust else None, value, trained)


def _check(kind: Method, method: str, options: Any) -> None:
    if not isinstance(options, kind.options):
        raise TypeError(f"options: found {type(options).__name__}, expected {kind.options.__name__}")
    usual = {field.name: field.default for field in fields(options)}
    for name in _WHOLE:
        if name in usual and getattr(options, name) != usual[name]:
            raise ValueError(
                f"{name}: found {shown(getattr(options, name))}, expected {shown(usual[name])}: on data in parts "
                "the prior is held, and every sweep sees all data"
            )
    asked = getattr(options, "energy", method)
    if asked not in (method, "apep"):
        raise ValueError(f"energy: found {shown(asked)}, expected {shown(method)}")


def predictions(
    posterior: BlockwiseClasses, rows: Rows, *, client: Any = None
) -> Iterator[tuple[int, ClassPrediction]]:
    """(first row, predictions) leaf by leaf, in order: villacampa2017 (66) to (68), villacampa2020 (A.31) to (A.34).

    Parameters
    ----------
    posterior        from `fit`
    rows : Rows      test inputs
    client           a dask.distributed.Client; None: this process
    """
    yield from streamed(rows, partial(_predict, posterior.points, posterior.q, posterior.epsilon), client)


def _predict(points: InducingClasses, q: ClassDistribution, epsilon: float | None, leaf: Leaf) -> ClassPrediction:
    X_test = inputs.finite_rows("X_test", leaf.inputs(), leaf.first)
    return predict(points, q, X_test) if epsilon is None else predict_robust(points, q, X_test, epsilon)
