"""Section 3, baseline VI: the bound (15) maximised over q, hyper-parameters and inducing inputs, by (mini-)batches."""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._ascent import Goal, ascend, step_length, unbounded
from reference.common._batches import ascending_batches
from reference.common._classes import checked_input, fields_to_learn, search
from reference.common._gaussians import Gaussians, along, moments_of, natural_parameters
from reference.common._options import shown
from reference.common._steps import Learned
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.common.priors import Prior
from reference.villacampa2017.hyper import Matrices, prior_matrices
from reference.villacampa2017.vi import kl_to_prior, variational_elbo, vi_latent_marginal
from reference.villacampa2017.vi_gradients import Bound, bound_of, expected_terms, vi_gradients

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


class VIState(NamedTuple):
    """What a callback is told after a step."""

    iteration: int
    residual: float


class VIFit(NamedTuple):
    """Where the ascent, and the search for hyper-parameters around it, ended."""

    posterior: Gaussians  # (C, m) and (C, m, m)
    latent_mean: Array  # (n, C)
    latent_var: Array  # (n, C)
    probability: Array  # (n,) P_i of the labels
    elbo: float  # of all data, every constant included
    trace: Array  # bound of all data after each step where asked for; with learn in batch mode, of the search
    residual: float  # whole natural-gradient step from q in its metric, on batches the last; of a search, gradient left
    converged: bool
    iterations: int
    prior: Prior  # as learned


class Data(NamedTuple):
    """What does not change."""

    X: Array
    y: Labels
    epsilon: float

    def at(self, q: Gaussians, K: Matrices, rows: Batch | None = None) -> Bound:
        """The bound of all data at q, or of a mini-batch that stands for all, given K of all data."""
        expected = expected_terms(q, K, self.y, self.epsilon, np.arange(len(self.y)) if rows is None else rows)
        if rows is None:
            value = variational_elbo(q, self.y, K.k_xx, K.K_XZ, K.K_ZZ, self.epsilon)  # (15) to (17)
        else:
            value = expected.value - kl_to_prior(q, K.K_ZZ)
        return bound_of(value, expected, q, K, rows)


def _result(prior: Prior, K: Matrices, q: Gaussians, at: Bound) -> VIFit:
    """What there is to say of q and the bound of all data there, before the way to it is known."""
    marginal = vi_latent_marginal(q, K.k_xx, K.K_XZ, K.K_ZZ)  # (16), (17)
    return VIFit(q, *marginal, at.probability, at.value, np.zeros(0), np.inf, False, 0, prior)


def _ascend(data: Data, prior: Prior, start: Gaussians | None, options: Options) -> VIFit:
    """The maximum of (15) over q at a held prior, from a start or from the prior."""
    K, steps = prior_matrices(data.X, prior), count(1)

    def told(value: float, residual: float) -> None:
        step = next(steps)
        if options.callback is not None:
            options.callback(VIState(step, residual))

    if start is not None and unbounded(start, K.K_ZZ) is not None:
        start = None  # near where a search was before, which says nothing in the units of this prior
    # the bound has more than one maximum: plain steps stay at the one that is uphill of the start
    goal = Goal(options.tolerance, options.max_iterations, patience=options.max_iterations)
    top = ascend(lambda q: data.at(q, K), K.K_ZZ, start, goal, told)
    return _result(prior, K, top.q, top.at)._replace(
        trace=top.values, residual=top.residual, converged=top.converged, iterations=len(top.values)
    )


def _stochastic(data: Data, prior: Prior, plan: Sequence[Batch], learned: Learned, options: Options) -> VIFit:
    """A natural-gradient step of bounded length and, where asked for, a step of Adam on each mini-batch in turn.

    Far from the maximum (15) is convex in many means: whole steps, even steps halved until q exists, throw means far
    away, where the robust likelihood is flat and no gradient leads back.
    """
    K = prior_matrices(data.X, prior)
    q = Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ)
    theta, rule = natural_parameters(q), learned.rule(prior, options.rate)
    values: list[float] = []
    for t, rows in enumerate(plan):
        direction = data.at(q, K, rows).direction
        residual, _ = step_length(direction, q)
        # q moves by half of its own scale at most: a precision never loses more than half, and stays one
        theta = along(theta, direction, min(options.nat_rate, 0.5 / residual) if residual > 0.0 else options.nat_rate)
        q = moments_of(theta, "precision of q")
        if options.trace:
            values.append(data.at(q, K).value)
        if learned.fields:
            gradients = vi_gradients(data.X, data.y, prior, q, data.epsilon, rows, learned.fields)
            prior, rule = learned.uphill(prior, gradients, rule)
            K = prior_matrices(data.X, prior)
        if options.callback is not None:
            options.callback(VIState(t + 1, residual))
    fit = _result(prior, K, q, data.at(q, K))
    return fit._replace(trace=np.array(values), residual=residual, iterations=len(plan))


@equation("villacampa2017", "u21-vi-baseline")
@takes("vi-robust")
def vi_baseline(
    X: Array, y: Labels, prior: Prior, epsilon: float = 1e-3, *, shared: bool = False, options: Options
) -> VIFit:
    """VI: the bound (15) maximised over a Gaussian q for each class, and over the prior: section 3 of villacampa2017.

    On all data by natural gradients that may not lower the bound, and L-BFGS over the prior with q at its maximum each
    time, which is the joint maximum; on mini-batches by a natural-gradient step, shortened where it would move q by
    more than half of its own scale, and a step of Adam in turn.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs of all classes; the start where learned
    epsilon : float           ε in (0, 1), probability of a label drawn at random
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         of "vi-robust", or each by name; n_steps None: 250, or as many as batches, with "lbfgs"
                              iterations, 200; optimizer None: "adam" where batches, batch_size or n_steps is given

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    if not 0.0 < _check.scalar(epsilon, "epsilon", zero_allowed=False) < 1.0:
        raise ValueError(f"epsilon: found {shown(epsilon)}, expected a probability in (0, 1)")
    if options.optimizer == "lbfgs" and options.in_parts:
        raise ValueError("optimizer: found 'lbfgs' with mini-batches, expected 'adam'")
    learned = fields_to_learn(options.learn, prior)
    if options.n_steps is not None and not learned and not options.in_parts:
        raise ValueError(f"n_steps: found {options.n_steps} without learn, expected mini-batches or fields to learn")
    data = Data(X, y, float(epsilon))
    steps = options.optimizer == "adam" or (options.optimizer is None and options.n_steps is not None)
    if options.in_parts or (learned and steps):
        plan = ascending_batches(len(X), options.batches, options.batch_size, options.n_steps, options.seed)
        return _stochastic(data, prior, plan, Learned(learned, shared), options)
    if not learned:
        fit = _ascend(data, prior, None, options)
        return fit if options.trace else fit._replace(trace=np.zeros(0))
    last: list[Gaussians] = []  # where the search was before is near where it is now

    def fit_at(there: Prior) -> VIFit:
        fit = _ascend(data, there, last[0] if last else None, options)
        last[:] = [fit.posterior]
        return fit

    def evidence(there: Prior) -> tuple[float, dict[str, Any]]:
        fit = fit_at(there)
        return fit.elbo, vi_gradients(X, y, there, fit.posterior, data.epsilon, None, learned)

    most = 200 if options.n_steps is None else options.n_steps
    top = search(evidence, prior, learned, shared, most, options.learn_tolerance)
    fit = fit_at(top.prior)
    return fit._replace(
        trace=top.trace, residual=top.residual, converged=top.converged and fit.converged, iterations=top.iterations
    )
