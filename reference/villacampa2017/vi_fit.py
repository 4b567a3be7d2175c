"""Section 3, baseline VI: the bound (15) maximised over q, hyper-parameters and inducing inputs, by (mini-)batches."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._batches import ascending_batches
from reference.common._classes import Prior, checked_input, every_row, fields_to_learn, first_row, row_gradients, search
from reference.common._forms import chosen_form
from reference.common._learning import FIELDS, coordinates, log_slopes, moved
from reference.common._neighbours import Answer, moment_answers, pushed, rounding_doubt, slope_answers
from reference.common._options import shown
from reference.common.ledger import equation
from reference.common.options import checked_options
from reference.villacampa2017.gradients import AdamState, adam_step
from reference.villacampa2017.posterior import Gaussians
from reference.villacampa2017.vi_ascent import (
    Data,
    VIFit,
    VIState,
    ascend,
    gaussians_of,
    natural_step,
    naturals_of,
    result,
    step_size,
)
from reference.villacampa2017.vi_gradients import natural_target, vi_gradients

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]

# (16) and (17) take 0.1 ms a datum and class, and an ascent with its gradients some 70 of them
MARGINAL = 0.007
_AGAIN = 200  # steps of an ascent that starts beside the maximum


def _stochastic(
    data: Data,
    prior: Prior,
    plan: Sequence[Batch],
    rate: float,
    learn: tuple[str, ...],
    shared: bool,
    learning_rate: float,
    trace: bool,
    callback: Callable[[VIState], None] | None,
) -> VIFit:
    """A natural-gradient step of bounded length and, where asked for, a step of Adam on each mini-batch in turn.

    Far from the maximum (15) is convex in many means: whole steps, even steps halved until q exists, throw means far
    away, where the robust likelihood is flat and no slope leads back.
    """
    K = data.matrices(prior)
    q = Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ)
    theta = naturals_of(q)
    size = len(coordinates(cast(Any, first_row(prior, shared)), learn))
    adam = AdamState(np.zeros(size), np.zeros(size), 0)
    values: list[float] = []
    residual, iterations = np.inf, 0
    for rows in plan:
        target = natural_target(q, K, data.expected(q, K, rows), rows)
        residual, _ = step_size(theta, target, q)
        # q moves by half of its own scale at most: a precision never loses more than half, and stays one
        own = min(rate, 0.5 / residual) if residual > 0.0 else rate
        theta = natural_step(theta, target, own)
        q = gaussians_of(theta)
        iterations += 1
        if trace:
            values.append(data.bound(q, K, data.expected(q, K)))
        if learn:
            slopes = row_gradients(vi_gradients(*data[:2], prior, q, data.epsilon, rows, learn), shared)
            row = cast(Any, first_row(prior, shared))
            where, adam = adam_step(coordinates(row, learn), log_slopes(row, learn, slopes), adam, learning_rate)
            prior = every_row(cast(Prior, moved(row, learn, where)), prior)
            K = data.matrices(prior)
        if callback is not None:
            callback(VIState(iterations, residual, own))
    return result(data, K, prior, q)._replace(trace=np.array(values), residual=residual, iterations=iterations)


def _certain(data: Data, fit: VIFit, tolerance: float) -> VIFit:
    """The fit, no longer called converged where its distance from the maximum, or rounding, leaves the answer open.

    The ascent is made again from a q beside the maximum, at neighbouring hyper-parameters.
    """
    if not fit.converged:
        return fit
    prior = fit.prior
    sd = np.sqrt(np.max(prior.variance + prior.noise))

    def answers(there: Prior) -> dict[str, Answer]:
        value = fit
        if there is not prior:
            value = ascend(data, there, Gaussians(*pushed(*fit.posterior)), tolerance, _AGAIN, False, None)
            if not value.converged:
                raise ValueError(f"residual: found {value.residual:.1e} again, expected at most {tolerance:.1e}")
        answer = {"elbo": Answer(value.elbo, 1.0)} | moment_answers(
            sd,
            inducing_mean=value.posterior.mean,
            inducing_cov=value.posterior.cov,
            latent_mean=value.latent_mean,
            latent_cov=value.latent_var,
            probability=value.probability,
        )
        slopes = vi_gradients(*data[:2], there, value.posterior, data.epsilon, None, FIELDS)
        return answer | slope_answers(slopes, prior, fit.elbo)

    reason = rounding_doubt(answers, prior, list(data.matrices(prior).K_ZZ), beside=True, tolerance=tolerance)
    return fit._replace(converged=not reason, reason=reason)


@equation("villacampa2017", "u21-vi-baseline")
@checked_options("vi-robust", rate="nat_rate", learning_rate="rate", learning_tolerance="learn_tolerance")
def vi_baseline(
    X: Array,
    y: Labels,
    prior: Prior,
    epsilon: float = 1e-3,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Sequence[str] = (),
    shared: bool = False,
    optimizer: str | None = None,
    rate: float = 0.1,
    learning_rate: float = 0.001,
    learning_tolerance: float = 1e-5,
    seed: int = 0,
    trace: bool = False,
    callback: Callable[[VIState], None] | None = None,
    form: str | None = None,
) -> VIFit:
    """VI: the bound (15) maximised over a Gaussian q for each class, and over the prior: section 3 of villacampa2017.

    On all data by natural gradients that may not lower the bound, and L-BFGS over the prior with q at its maximum each
    time, which is the joint maximum; on mini-batches by a natural-gradient step and a step of Adam in turn.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs of all classes; the start where learned
    epsilon : float           ε in (0, 1), probability of a label drawn at random
    tolerance : float         residual at which the ascent ends
    max_iterations : int      natural-gradient steps on all data after which it gives up
    batches : index lists     one a step; steps are then of the size `rate` at most
    batch_size : int          or: so many data drawn without replacement in each step
    n_steps : int             number of steps (250, or as many as batches); with "lbfgs", iterations (200)
    learn : names             of "variance", "lengthscales", "noise", "Z"
    shared : bool             one vector of hyper-parameters for all classes
    optimizer : str           of what is learned, "lbfgs" or "adam", which without mini-batches takes all data in each
                              step; None: "adam" where batches, batch_size or n_steps is given
    rate : float              in (0, 1], of the natural-gradient steps on mini-batches; shortened where a step would
                              move q by more than half of its own scale, `step_size`
    learning_rate : float     Adam's
    learning_tolerance : float    largest projected slope of a search that has converged
    seed : int                of the drawn mini-batches
    trace : bool              whether the bound of all data is worked out after each step
    callback : callable       told a VIState after every step
    form : str                "printed": the bound by (15) to (17), datum by datum; "projected": those contracted; None:
                              "printed" for n C <= 60 marginals

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    if not 0.0 < _check.scalar(epsilon, "epsilon", zero_allowed=False) < 1.0:
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected a probability in (0, 1)")
    for name, value in (("tolerance", tolerance), ("learning_rate", learning_rate), ("rate", rate)):
        _check.scalar(value, name, zero_allowed=False)
    _check.scalar(learning_tolerance, "learning_tolerance", zero_allowed=False)
    if rate > 1.0:
        raise ValueError(f"rate: found {shown(rate)}, expected a number in (0, 1]")
    _check.count(max_iterations, "max_iterations")
    if optimizer not in (None, "lbfgs", "adam"):
        raise ValueError(f"optimizer: found {shown(optimizer)}, expected lbfgs or adam")
    in_parts = batches is not None or batch_size is not None
    if optimizer == "lbfgs" and in_parts:
        raise ValueError("optimizer: found 'lbfgs' with mini-batches, expected 'adam'")
    learned = fields_to_learn(learn, prior)
    if n_steps is not None and not learned and not in_parts:
        raise ValueError(f"n_steps: found {shown(n_steps)} without learn, expected mini-batches or fields to learn")
    data = Data(X, y, float(epsilon), chosen_form(form, seconds=MARGINAL * len(X) * len(prior.Z)))
    if in_parts or (learned and (optimizer == "adam" or (optimizer is None and n_steps is not None))):
        plan = ascending_batches(len(X), batches, batch_size, n_steps, seed)
        return _stochastic(data, prior, plan, rate, learned, shared, learning_rate, trace, callback)
    ascent = tolerance, max_iterations
    if not learned:
        return _certain(data, ascend(data, prior, None, *ascent, trace, callback), tolerance)
    last: list[Gaussians] = []  # where the search was before is near where it is now

    def fit_at(there: Prior) -> VIFit:
        fit = ascend(data, there, last[0] if last else None, *ascent, False, callback)
        last[:] = [fit.posterior]
        return fit

    def evidence(there: Prior) -> tuple[float, dict[str, Any]]:
        fit = fit_at(there)
        return fit.elbo, vi_gradients(X, y, there, fit.posterior, data.epsilon, None, learned)

    steps = 200 if n_steps is None else _check.count(n_steps, "n_steps")
    optimum = search(evidence, prior, learned, shared, steps, learning_tolerance)
    fit = _certain(data, fit_at(optimum.prior), tolerance)
    return fit._replace(
        trace=optimum.trace,
        residual=optimum.residual,
        converged=optimum.converged and fit.converged,
        iterations=optimum.iterations,
    )
