"""gfitc: EP on the exact factors Theta(f_y - f_k) with the FITC prior of the latent values. villacampa2017, section 3.

All data in every sweep: log Z is no sum over the data. Time and memory grow with n m^2 and n m
(`fast.sparse_classes.fitc_latents`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core.declare import takes_values
from fast.core.options import Blocks, Damped, Iteration, Learning, Length, SearchEnd, Storage, Traced, Watched
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.sparse_classes.fitc_latents import LatentRun
from fast.sparse_classes.inference import ClassPosterior, Latents, start
from fast.sparse_classes.inference import predict as predict_classes
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.training import train

SITE_NAMES = ("site_precision_label", "site_shift_label", "site_precision_other", "site_shift_other")


@dataclass(frozen=True, kw_only=True, eq=False)
class GFITCOptions(Iteration, Damped, Length, Learning, SearchEnd, Traced, Watched, Storage):
    """Options of `fit`."""

    damping: float = 0.5
    max_iterations: int = 1000


DEFAULTS = GFITCOptions()


class GFITCPosterior(ClassPosterior[LatentRun]):
    """Sites and q where the run stopped; log_evidence is log Z."""

    @property
    def sites(self) -> dict[str, FloatArray]:
        """Site arrays (n, C) by name."""
        return dict(zip(SITE_NAMES, self.run.sites, strict=True))


@takes_values
def fit(data: Data, prior: Prior, options: GFITCOptions = DEFAULTS) -> GFITCPosterior:
    """EP to its fixed point, or L-BFGS-B on its log Z, EP converged at every evaluation. Sites start at zero.

    Time a sweep 2 C n m^2, memory 32 n C bytes for the sites and O(C m^2).

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks
    prior      of C classes, with inducing points
    options    tolerance on the largest standardised change of a site in an undamped sweep, max_iterations sweeps of one
               run of EP, n_steps iterations of L-BFGS-B (200 by default)

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    rows, points, settings = start("gfitc", data, prior, options, scheme="outer", optimizer="lbfgs")
    run = LatentRun(rows, points, damping=options.damping, mixed=settings.max_iterations > 50)
    trained = train(run, settings, options.callback)
    return GFITCPosterior(run, run.log_evidence(), trained)


@one_thread
def gradients(posterior: GFITCPosterior) -> PointGradients:
    """Gradient of log Z, sites held: exact at the fixed point.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient()


@one_thread
def latents(posterior: GFITCPosterior) -> Latents:
    """Marginals of the latent values at the data and log Z of every factor. One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    shape = (run.data.n, run.data.n_classes)
    result = Latents(*(np.empty(shape) for _ in range(3)))
    for block in run.data.blocks(run.points):
        visit, marginals, _ = run.visit(block)
        for table, part in zip(result, (*marginals, visit.log_norm), strict=True):
            table[block.part] = part
    return result


@Blocks.checks
def predict(posterior: GFITCPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2017 (66) to (68).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_classes(posterior.run.points, posterior.run.q, X_test, block_size=block_size)
