"""pep: power expectation propagation with the robust likelihood and inducing points. villacampa2020, section 3.1.

One factor p(y_i | f_i)^alpha a datum, all classes refined together by moment matching
(`fast.sparse_classes.power_factors`); alpha = 1 is EP with factors="datum", alpha = 0 variational inference. All work
is in scalar projections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.declare import option, takes_values
from fast.core.options import Blocks, Damped, Evaluated, Mislabelled, Powered, Storage
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray
from fast.core.values import Data, Prior
from fast.sparse_classes.ep import empty_sites
from fast.sparse_classes.inference import ClassPosterior, predict_robust, start
from fast.sparse_classes.power_factors import RULES, PowerDatum, PowerRun
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.training import ClassTraining, train

SCHEMES = {None: None, "outer": "outer", "inner": "inner-approximate"}


@dataclass(frozen=True, kw_only=True, eq=False)
class PEPOptions(ClassTraining, Powered, Mislabelled, Damped, Evaluated, Storage):
    """Options of `fit`."""

    damping: float = 0.5
    scheme: str | None = option(
        "choice", "how sweeps and steps on the prior alternate", choices=("outer", "inner"), default=None
    )
    gradient_rule: str = option("choice", "equation of the gradient", choices=RULES, default="28")


DEFAULTS = PEPOptions()


class PEPPosterior(ClassPosterior[PowerRun]):
    """Sites and q where the run stopped; log_evidence is log Z_q."""

    @property
    def sites(self) -> dict[str, FloatArray]:
        """Site arrays (n, C) by name."""
        return dict(zip(self.run.factors.names, self.run.sites, strict=True))


def checked_powers(alpha: Any, epsilon: Any) -> tuple[float, float]:
    """alpha in [0, 1] and epsilon in [0, 1), not both 0.

    Parameters
    ----------
    alpha : float      power
    epsilon : float    probability of a random label
    """
    alpha = inputs.share("alpha", alpha)
    epsilon = inputs.scalar("epsilon", epsilon, positive=False)
    if not 0.0 <= epsilon < 1.0:
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected a number in [0, 1)")
    if alpha == 0.0 and epsilon == 0.0:
        raise ValueError("epsilon: found 0, expected > 0 at alpha = 0")
    return alpha, epsilon


@takes_values
def fit(data: Data, prior: Prior, options: PEPOptions = DEFAULTS) -> PEPPosterior:
    """Power EP to its fixed point, on mini-batches, or with learned priors. Sites start at zero.

    Time a sweep C n (2 m^2 + nodes); a batch takes 3 C b m^2 + C m^3 / 3, and O(C n m^2) more if the priors move.
    Memory 16 n C bytes for the sites.

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks
    prior      of C classes, with inducing points; shared: kernels are computed once, gradients summed
    options    epsilon > 0 if alpha is 0; damping is halved within a sweep until q is a distribution; tolerance on the
               largest standardised change of a site in an undamped sweep; scheme "outer": sweeps to the tolerance
               before a step, "inner": one sweep or batch; gradient_rule "28": villacampa2020 (A.28), "exact": sites
               held as numbers

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular, or q stays indefinite
    """
    alpha, epsilon = checked_powers(options.alpha, options.epsilon)
    rows, points, settings = start("pep", data, prior, options, scheme=SCHEMES[options.scheme])
    factors = PowerDatum(alpha, epsilon)
    sites = empty_sites(factors, rows.n, rows.n_classes)
    run = PowerRun(rows, points, factors, sites, damping=options.damping, gradient_rule=options.gradient_rule)
    trained = train(run, settings, options.callback)
    return PEPPosterior(run, run.log_evidence() if options.evaluate else None, trained)


@one_thread
def gradients(posterior: PEPPosterior) -> PointGradients:
    """Gradient of log Z_q over all data, by the rule of the run.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient(None, posterior.run.gradient_rule)


@one_thread
def log_norms(posterior: PEPPosterior) -> FloatArray:
    """F_i = log E[p(y_i | f_i)^alpha]/alpha under the cavity of each datum: (n,). One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    results = []
    for block in run.data.blocks(run.points):
        moments = run.q.project(block.view)
        results.append(run.power.tilted(block.y, moments, block.view.cond_var, run.of(block.part)).powers.value)
    return np.concatenate(results)


@Blocks.checks
def predict(posterior: PEPPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2020 (A.31) to (A.34).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    run = posterior.run
    return predict_robust(run.points, run.q, X_test, run.power.epsilon, block_size=block_size)
