"""gfitc: EP on the exact factors Theta(f_y - f_k) with the FITC prior of the latent values. villacampa2017, section 3.

All data in every sweep: log Z is no sum over the data. Time and memory grow with n m^2 and n m
(`fast.sparse_classes.fitc_latents`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.options import checked_options
from fast.core.results import ClassPrediction
from fast.core.types import FloatArray
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.fitc_latents import LatentRun
from fast.sparse_classes.inference import inducing_classes
from fast.sparse_classes.inference import predict as predict_classes
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.training import Progress, Trained, settings_of, train

SITE_NAMES = ("site_precision_label", "site_shift_label", "site_precision_other", "site_shift_other")


class Latents(NamedTuple):
    """Latent values at the data, and log Z of the factors."""

    mean: FloatArray  # (n, C)
    var: FloatArray  # (n, C)
    log_tilted_norm: FloatArray  # (n, C)


@dataclass(frozen=True, eq=False)
class GFITCPosterior:
    """Sites and q where the run stopped."""

    run: LatentRun
    log_evidence: float | None  # None: a cavity is improper
    trained: Trained

    @property
    def sites(self) -> dict[str, FloatArray]:
        """Site arrays (n, C) by name."""
        return dict(zip(SITE_NAMES, self.run.sites, strict=True))

    @property
    def inducing_mean(self) -> FloatArray:
        """(C, m)."""
        return self.run.points.inducing_moments(self.run.law)[0]

    @property
    def inducing_cov(self) -> FloatArray:
        """(C, m, m)."""
        return self.run.points.inducing_moments(self.run.law)[1]


@checked_options("gfitc")
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
    damping: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 1000,
    learn: Iterable[str] = (),
    learn_tolerance: float = 1e-5,
    n_steps: int | None = None,
    trace: bool = False,
    block_size: int = 4096,
    memory_budget: int = 2**26,
    callback: Callable[[Progress], None] | None = None,
) -> GFITCPosterior:
    """EP to its fixed point, or L-BFGS-B on its log Z, EP converged at every evaluation. Sites start at zero.

    Time a sweep 2 C n m^2, memory 32 n C bytes for the sites and O(C m^2).

    Parameters
    ----------
    X : (n, d)                       real, finite; may be a numpy.memmap, read in blocks
    y : (n,)                         ints 0..C-1
    n_classes : int                  C >= 2
    variance, noise, jitter : (C,)   > 0, >= 0, >= 0; a number stands for all classes
    lengthscales : (C, d)            > 0; (d,) stands for all classes
    Z : (C, m, d)                    inducing points; (m, d) stands for all classes
    shared : bool                    one parameter vector and one Z
    damping : float                  in [1e-8, 1]
    tolerance : float                largest standardised change of a site in an undamped sweep
    max_iterations : int             sweeps of one run of EP
    learn                            names out of variance, lengthscales, noise, Z
    learn_tolerance : float          on the projected gradient of L-BFGS-B
    n_steps : int                    iterations of L-BFGS-B, 200 by default
    trace : bool                     log Z after each sweep
    block_size : int                 data handled at a time
    memory_budget : int              bytes: projections are kept between sweeps if they fit
    callback : callable              called with a Progress after every sweep or evaluation

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    data = ClassData(X, y, n_classes, block_size=block_size, memory_budget=memory_budget)
    learn = inputs.names("learn", learn)
    settings = settings_of(
        data.n,
        tolerance=tolerance,
        max_iterations=max_iterations,
        learn=learn,
        learn_tolerance=learn_tolerance,
        scheme="outer",
        optimizer="lbfgs",
        n_steps=n_steps,
        trace=trace,
    )
    points = inducing_classes(data, variance, lengthscales, noise, jitter, Z, shared)
    run = LatentRun(data, points, damping=damping, mixed=settings.max_iterations > 50)
    trained = train(run, settings, callback)
    return GFITCPosterior(run, run.log_evidence(), trained)


def gradients(posterior: GFITCPosterior) -> PointGradients:
    """Gradient of log Z, sites held: exact at the fixed point.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient()


def latents(posterior: GFITCPosterior) -> Latents:
    """Marginals of the latent values at the data and log Z of every factor. One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    shape = (run.data.n, run.data.n_classes)
    found = Latents(*(np.empty(shape) for _ in range(3)))
    for block in run.data.blocks(run.points):
        visit, marginals, _ = run.visit(block)
        for table, part in zip(found, (*marginals, visit.log_norm), strict=True):
            table[block.part] = part
    return found


@checked_options("gfitc")
def predict(posterior: GFITCPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2017 (66) to (68).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_classes(posterior.run.points, posterior.run.law, X_test, block_size=block_size)
