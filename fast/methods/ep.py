"""ep: expectation propagation with a Gaussian site for every factor and inducing points. villacampa2017, section 2.2.

factors="pairwise": the model of the paper (7), Phi of a standardised difference for each datum and other class;
"datum": the threshold model itself, one factor a datum by one-dimensional quadrature. All work is in scalar projections
(`fast.sparse_classes.ep`), no cavity of size (m, m) is formed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.inputs import one_of
from fast.core.options import checked_options
from fast.core.results import ClassPrediction
from fast.core.types import FloatArray
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.datum_factors import Datum
from fast.sparse_classes.ep import Factors, SiteRun, empty_sites
from fast.sparse_classes.inference import inducing_classes, marked
from fast.sparse_classes.inference import predict as predict_classes
from fast.sparse_classes.pairwise_factors import Pairwise
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.training import Progress, Trained, settings_of, train

FACTORS: dict[str, type] = {"pairwise": Pairwise, "datum": Datum}


class Latents(NamedTuple):
    """Latent values at the data, and log Z of the factors."""

    mean: FloatArray  # (n, C)
    var: FloatArray  # (n, C)
    log_tilted_norm: FloatArray  # (n, C), or (n,) for factors="datum"


@dataclass(frozen=True, eq=False)
class EPPosterior:
    """Sites and q where the run stopped."""

    run: SiteRun
    log_evidence: float | None  # log Z_q of all data; None: a cavity is improper
    trained: Trained

    @property
    def sites(self) -> dict[str, FloatArray]:
        """Site arrays (n, C) by name."""
        return dict(zip(self.run.factors.names, self.run.sites, strict=True))

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.run.points.inducing_moments(self.run.law)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.run.points.inducing_moments(self.run.law)[1]


@checked_options("ep")
def fit(
    X: Any,
    y: Any,
    n_classes: int,
    variance: Any,
    lengthscales: Any,
    noise: Any,
    jitter: Any,
    Z: Any,
    *,
    shared: bool = False,
    factors: str = "pairwise",
    schedule: str = "parallel",
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Iterable[str] = (),
    scheme: str | None = None,
    optimizer: str | None = None,
    rate: float | None = None,
    learn_tolerance: float = 1e-5,
    seed: int = 0,
    trace: bool = False,
    site_file: str | os.PathLike[str] | None = None,
    block_size: int = 4096,
    memory_budget: int = 2**26,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    evaluate: bool = True,
    callback: Callable[[Progress], None] | None = None,
) -> EPPosterior:
    """EP to its fixed point, on mini-batches, or with learned priors. Sites start at zero.

    Time a sweep 2 C n m^2; a batch takes 3 C b m^2 + C m^3 / 3, and O(C n m^2) more if the priors move: sites are
    functions of upsilon_i'u, so q is summed anew. Memory 32 n C bytes for the sites (16 n C for "datum") or a file.

    Parameters
    ----------
    X : (n, d)                       real, finite; may be a numpy.memmap, read in blocks
    y : (n,)                         ints 0..C-1
    n_classes : int                  C >= 2
    variance, noise, jitter : (C,)   > 0, >= 0, >= 0; a number stands for all classes
    lengthscales : (C, d)            > 0; (d,) stands for all classes
    Z : (C, m, d)                    inducing points; (m, d) stands for all classes
    shared : bool                    one parameter vector and one Z: kernels are computed once, gradients summed
    factors : str                    "pairwise" or "datum"
    schedule : str                   "parallel": q refreshed after all sites; "sequential": after each
    damping : float                  in [1e-8, 1]
    tolerance : float                largest standardised change of a site in an undamped sweep
    max_iterations : int             sweeps of one run of EP
    batches, batch_size, n_steps, seed    see `fast.sparse_classes.training.settings_of`
    learn, scheme, optimizer, rate, learn_tolerance    see `fast.sparse_classes.training`
    trace : bool                     log Z_q of all data after each sweep or step
    site_file : path                 sites live in this file; None: in memory
    block_size : int                 data handled at a time
    memory_budget : int              bytes: projections are kept between sweeps if they fit
    checkpoint, checkpoint_every     of steps
    evaluate : bool                  log Z_q of all data at the end, one more pass
    callback : callable              called with a Progress after every sweep or step

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    one_of("factors", factors, tuple(FACTORS))
    one_of("schedule", schedule, ("parallel", "sequential"))
    evaluate, site_file = inputs.flag("evaluate", evaluate), inputs.file_to_write("site_file", site_file)
    data = ClassData(X, y, n_classes, block_size=block_size, memory_budget=memory_budget)
    settings = settings_of(
        data.n,
        tolerance=tolerance,
        max_iterations=max_iterations,
        batches=batches,
        batch_size=batch_size,
        n_steps=n_steps,
        learn=learn,
        scheme=scheme,
        optimizer=optimizer,
        rate=rate,
        learn_tolerance=learn_tolerance,
        seed=seed,
        trace=trace,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    points = inducing_classes(data, variance, lengthscales, noise, jitter, Z, shared)
    own = {"method": "ep", "factors": factors, "schedule": schedule, "damping": damping}
    settings = marked(settings, data, points, own)
    kind: Factors = FACTORS[factors]()
    sites = empty_sites(kind, data.n, data.n_classes, site_file)
    run = SiteRun(
        data, points, kind, sites, fresh=True, sequential=schedule == "sequential", damping=damping,
        gradient_rule=settings.gradient_rule,
    )  # fmt: skip
    trained = train(run, settings, callback)
    return EPPosterior(run, run.log_evidence() if evaluate else None, trained)


@checked_options("ep")
def gradients(posterior: EPPosterior, *, gradient_rule: str = "10") -> PointGradients:
    """Gradient of log Z_q over all data: exact at the fixed point by either rule, elsewhere by "exact".

    Parameters
    ----------
    posterior              from `fit`
    gradient_rule : str    "10": villacampa2017 (10); "exact": sites held, q and cavities move

    Raises
    ------
    ImproperCavityError    if a cavity is no distribution; log_evidence is None then
    """
    one_of("gradient_rule", gradient_rule, ("10", "exact"))
    return posterior.run.gradient(None, gradient_rule)


def latents(posterior: EPPosterior) -> Latents:
    """Latent values at the data and log Z of every factor. One pass, time 2 C n m^2.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    n, C = run.data.n, run.data.n_classes
    mean, var = np.empty((n, C)), np.empty((n, C))
    norm = []
    for block in run.data.blocks(run.points):
        moments, sites = run.law.project(block.view), run.of(block.part)
        mean[block.part], var[block.part] = run.factors.latents(block.y, moments, block.view.cond_var, sites)
        norm.append(run.factors.visit(block.y, moments, block.view.cond_var, sites).log_norm)
    return Latents(mean, var, np.concatenate(norm))


@checked_options("ep")
def predict(posterior: EPPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2017 (66) to (68).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_classes(posterior.run.points, posterior.run.law, X_test, block_size=block_size)
