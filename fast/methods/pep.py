"""pep: power expectation propagation with the robust likelihood and inducing points. villacampa2020, section 3.1.

One factor p(y_i | f_i)^alpha a datum, all classes refined together by moment matching
(`fast.sparse_classes.power_factors`); alpha = 1 is EP with factors="datum", alpha = 0 variational inference. All work
is in scalar projections.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core import inputs
from fast.core.checks import shown
from fast.core.inputs import one_of
from fast.core.options import checked_options
from fast.core.results import ClassPrediction
from fast.core.types import FloatArray
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.ep import empty_sites
from fast.sparse_classes.inference import inducing_classes, marked, predict_robust
from fast.sparse_classes.power_factors import RULES, PowerDatum, PowerRun
from fast.sparse_classes.projections import PointGradients
from fast.sparse_classes.training import Progress, Trained, settings_of, train

SCHEMES = {"outer": "outer", "inner": "inner-approximate"}


@dataclass(frozen=True, eq=False)
class PEPPosterior:
    """Sites and q where the run stopped."""

    run: PowerRun
    log_evidence: float | None  # log Z_q of all data; None: a cavity is improper, or not asked for
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


@checked_options("pep")
def fit(
    X: Any,
    y: Any,
    n_classes: int,
    variance: Any,
    lengthscales: Any,
    noise: Any,
    jitter: Any,
    Z: Any,
    epsilon: float,
    *,
    alpha: float = 0.5,
    shared: bool = False,
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
    gradient_rule: str = "28",
    seed: int = 0,
    trace: bool = False,
    block_size: int = 4096,
    memory_budget: int = 2**26,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    evaluate: bool = True,
    callback: Callable[[Progress], None] | None = None,
) -> PEPPosterior:
    """Power EP to its fixed point, on mini-batches, or with learned priors. Sites start at zero.

    Time a sweep C n (2 m^2 + nodes); a batch takes 3 C b m^2 + C m^3 / 3, and O(C n m^2) more if the priors move.
    Memory 16 n C bytes for the sites.

    Parameters
    ----------
    X : (n, d)                       real, finite; may be a numpy.memmap, read in blocks
    y : (n,)                         ints 0..C-1
    n_classes : int                  C >= 2
    variance, noise, jitter : (C,)   > 0, >= 0, >= 0; a number stands for all classes
    lengthscales : (C, d)            > 0; (d,) stands for all classes
    Z : (C, m, d)                    inducing points; (m, d) stands for all classes
    epsilon : float                  probability of a random label, in [0, 1); > 0 if alpha is 0
    alpha : float                    power, 0 or in [1e-8, 1]
    shared : bool                    one parameter vector and one Z: kernels are computed once, gradients summed
    damping : float                  in [1e-8, 1]; halved within a sweep until q is a distribution
    tolerance : float                largest standardised change of a site in an undamped sweep
    max_iterations : int             sweeps of one run of power EP
    batches, batch_size, n_steps, seed    see `fast.sparse_classes.training.settings_of`
    learn, optimizer, rate, learn_tolerance    see `fast.sparse_classes.training`
    scheme : str                     "outer": sweeps to the tolerance before a step; "inner": one sweep or batch
    gradient_rule : str              "28": villacampa2020 (A.28); "exact": sites held as numbers
    trace : bool                     log Z_q of all data after each sweep or step
    block_size : int                 data handled at a time
    memory_budget : int              bytes: projections are kept between sweeps if they fit
    checkpoint, checkpoint_every     of steps
    evaluate : bool                  log Z_q of all data at the end, one more pass
    callback : callable              called with a Progress after every sweep or step

    Raises
    ------
    ValueError                  bad input, by name
    NotPositiveDefiniteError    K_ZZ of a class is singular, or q stays indefinite
    """
    alpha, epsilon = checked_powers(alpha, epsilon)
    evaluate = inputs.flag("evaluate", evaluate)
    one_of("gradient_rule", gradient_rule, RULES)
    if scheme is not None:
        one_of("scheme", scheme, tuple(SCHEMES))
        scheme = SCHEMES[scheme]
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
    own = {"method": "pep", "alpha": alpha, "epsilon": epsilon, "damping": damping, "gradient_rule": gradient_rule}
    settings = marked(settings, data, points, own)
    factors = PowerDatum(alpha, epsilon)
    sites = empty_sites(factors, data.n, data.n_classes)
    run = PowerRun(data, points, factors, sites, damping=damping, gradient_rule=gradient_rule)
    trained = train(run, settings, callback)
    return PEPPosterior(run, run.log_evidence() if evaluate else None, trained)


def gradients(posterior: PEPPosterior) -> PointGradients:
    """Gradient of log Z_q over all data, by the rule of the run.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient(None, posterior.run.gradient_rule)


def log_norms(posterior: PEPPosterior) -> FloatArray:
    """F_i = log E[p(y_i | f_i)^alpha]/alpha under the cavity of each datum: (n,). One pass.

    Parameters
    ----------
    posterior    from `fit`
    """
    run = posterior.run
    found = []
    for block in run.data.blocks(run.points):
        moments = run.law.project(block.view)
        found.append(run.power.tilted(block.y, moments, block.view.cond_var, run.of(block.part)).found.value)
    return np.concatenate(found)


@checked_options("pep")
def predict(posterior: PEPPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2020 (A.31) to (A.34).

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    run = posterior.run
    return predict_robust(run.points, run.law, X_test, run.power.epsilon, block_size=block_size)
