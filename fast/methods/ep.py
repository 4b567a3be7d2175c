"""ep: expectation propagation with a Gaussian site for every factor and inducing points. villacampa2017, section 2.2.

factors="pairwise": the model of the paper (7), Phi of a standardised difference for each datum and other class;
"datum": the threshold model itself, one factor a datum by one-dimensional quadrature. All work is in scalar projections
(`fast.sparse_classes.ep`), no cavity of size (m, m) is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fast.core.declare import takes_values
from fast.core.options import Blocks, Damped, Evaluated, Factored, GradientRule, Scheduling, Sited, Storage
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.sparse_classes.datum_factors import Datum
from fast.sparse_classes.ep import Factors, SiteRun, empty_sites
from fast.sparse_classes.inference import ClassPosterior, Latents, start
from fast.sparse_classes.inference import predict as predict_classes
from fast.sparse_classes.pairwise_factors import Pairwise
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.training import ClassTraining, train

FACTORS: dict[str, type] = {"pairwise": Pairwise, "datum": Datum}


@dataclass(frozen=True, kw_only=True, eq=False)
class EPOptions(Factored, ClassTraining, Sited, Scheduling, Damped, Evaluated, Storage):
    """Options of `fit`."""

    damping: float = 0.5


DEFAULTS = EPOptions()


class EPPosterior(ClassPosterior[SiteRun]):
    """Sites and q where the run stopped; log_evidence is log Z_q."""

    @property
    def sites(self) -> dict[str, FloatArray]:
        """Site arrays (n, C) by name."""
        return dict(zip(self.run.factors.names, self.run.sites, strict=True))


@takes_values
def fit(data: Data, prior: Prior, options: EPOptions = DEFAULTS) -> EPPosterior:
    """EP to its fixed point, on mini-batches, or with learned priors. Sites start at zero.

    Time a sweep 2 C n m^2; a batch takes 3 C b m^2 + C m^3 / 3, and O(C n m^2) more if the priors move: sites are
    functions of upsilon_i'u, so q is summed again. Memory 32 n C bytes for the sites (16 n C for "datum") or a file.

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks
    prior      of C classes, with inducing points; shared: kernels are computed once, gradients summed
    options    tolerance on the largest standardised change of a site in an undamped sweep, max_iterations sweeps of one
               run of EP, projections are kept between sweeps if they fit memory_budget; see
               `fast.sparse_classes.training` for the schedules

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    rows, points, settings = start("ep", data, prior, options)
    factors: Factors = FACTORS[options.factors]()
    run = SiteRun(
        rows,
        points,
        factors,
        empty_sites(factors, rows.n, rows.n_classes, options.site_file),
        fresh=True,
        sequential=options.schedule == "sequential",
        damping=options.damping,
        gradient_rule=settings.gradient_rule,
    )
    trained = train(run, settings, options.callback)
    return EPPosterior(run, run.log_evidence() if options.evaluate else None, trained)


@GradientRule.checks
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
    return posterior.run.gradient(None, gradient_rule)


@one_thread
def latents(posterior: EPPosterior) -> Latents:
    """Latent values at the data and log Z of every factor. One pass, time 2 C n m^2.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    factors = cast("Pairwise | Datum", run.factors)
    n, C = run.data.n, run.data.n_classes
    mean, var = np.empty((n, C)), np.empty((n, C))
    norm = []
    for block in run.data.blocks(run.points):
        moments, sites = run.q.project(block.view), run.of(block.part)
        mean[block.part], var[block.part] = factors.latents(block.y, moments, block.view.cond_var, sites)
        norm.append(factors.visit(block.y, moments, block.view.cond_var, sites).log_norm)
    return Latents(mean, var, np.concatenate(norm))


@Blocks.checks
def predict(posterior: EPPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2017 (66) to (68).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    return predict_classes(posterior.run.points, posterior.run.q, X_test, block_size=block_size)
