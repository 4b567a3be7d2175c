"""Sections 3.2 to 3.5: APEP, ARPEP and RPAPEP, energies maximised over q and the prior, on all data or mini-batches."""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._ascent import NOT_REACHED, Goal, ascend, step_length
from reference.common._batches import ascending_batches
from reference.common._classes import checked_input, class_gradients, fields_to_learn, search
from reference.common._gaussians import Gaussians, pack, packed_gradient, unpack
from reference.common._learning import FIELDS, Derivative
from reference.common._options import shown
from reference.common._steps import Learned, Rule
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.common.options import Options, options_of, takes
from reference.common.priors import Prior
from reference.villacampa2020.energies import Energy, energy
from reference.villacampa2020.gradients import prior_term_gradient, prior_term_matrix
from reference.villacampa2020.hyper import Batch, Matrices, prior_matrices
from reference.villacampa2020.posterior import REMEDY
from reference.villacampa2020.power_likelihood import check_power
from reference.villacampa2020.tied import METHODS

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_ASKED = frozenset(options_of("apep").declared())


class EnergyState(NamedTuple):
    """What a callback is told after a step."""

    iteration: int
    value: float
    residual: float


class EnergyFit(NamedTuple):
    """Where the ascent, and the search for hyper-parameters around it, ended."""

    posterior: Gaussians  # (C, m) and (C, m, m)
    value: float  # of all data, every constant included
    log_norm: Array  # (n,) (1/α) log E[p(y_i|f_i)^α] under the cavity
    optimum: str  # "finite", "not reached", or "none: ..." with what grows without bound
    trace: Array  # objective of all data after each step; with learn on all data, of the search
    residual: float  # natural gradient in the metric of q; of a search, gradient left
    converged: bool
    iterations: int
    prior: Prior  # as learned
    reason: str = ""  # why steps ended before they were all made


class Data(NamedTuple):
    """What does not change."""

    X: Array
    y: Labels
    method: str
    epsilon: float
    alpha: float

    def at(self, q: Gaussians, K: Matrices, rows: Batch | None = None) -> Energy:
        """The energy of all data, or of a mini-batch that stands for all."""
        y = self.y
        if rows is not None:
            y, K = y[rows], K.of(rows)
        return energy(self.method, q, y, K, self.epsilon, self.alpha, len(self.y))


def energy_gradients(
    X: Array,
    prior: Prior,
    objective: Energy,
    posterior: Gaussians,
    rows: Batch | None = None,
    learn: Sequence[str] = FIELDS,
) -> dict[str, Array]:
    r"""The derivative of an energy of villacampa2020 in the prior, m and V held, shapes as in the prior; jitter held.

        -½ tr(K⁻¹ dK) + ½ tr(K⁻¹ dK K⁻¹ M₂) + Σ_i [F_m m\ᵀdυ + F_v (ds + 2 υᵀV\dυ)]
        dυ = K⁻¹(dk_xZ - dK υ),   ds = dκ - 2 υᵀdk_xZ + υᵀdK υ

    with m\ and V\ of the distribution of the data term, and M₂ the second moment that K⁻¹ meets: of q in ARPEP, of the
    prior's tilted distribution in RPAPEP, of the mean tilted distribution in APEP.

    Parameters
    ----------
    X : (n, d)                inputs
    prior : Prior             hyper-parameters of all classes
    objective : Energy        of the rows, at m and V
    posterior : Gaussians     m and V
    rows : (b,) or None       indices of a mini-batch; None: all data
    learn : names             the fields
    """
    rows = np.arange(len(X)) if rows is None else rows
    K = prior_matrices(X[rows], prior)

    def derivative_of(k: int) -> Derivative:
        inverse = factorise(K.K_ZZ[k], "K_ZZ", REMEDY).inverse
        upsilon, m, V = K.upsilon[k], objective.cavity.mean[k], objective.cavity.cov[k]
        M = prior_term_matrix(np.zeros(len(inverse)), objective.second[k], K.K_ZZ[k])  # (A.30), of the moment M₂

        def derivative(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
            d_upsilon = (dK_XZ - upsilon @ dK_ZZ) @ inverse
            d_cond_var = dk - 2.0 * np.sum(upsilon * dK_XZ, axis=1) + np.sum((upsilon @ dK_ZZ) * upsilon, axis=1)
            d_var = d_cond_var + 2.0 * np.sum((upsilon @ V) * d_upsilon, axis=1)
            data = objective.data.d_mean[:, k] @ (d_upsilon @ m) + objective.data.d_var[:, k] @ d_var
            return prior_term_gradient(M, dK_ZZ) + float(data)  # (A.29) first

        return derivative

    return class_gradients([derivative_of(k) for k in range(len(K.K_ZZ))], X[rows], prior, learn)


def _result(data: Data, prior: Prior, q: Gaussians) -> EnergyFit:
    at = data.at(q, prior_matrices(data.X, prior))
    residual, _ = step_length(at.direction, q)
    return EnergyFit(q, at.value, at.data.log_norm, NOT_REACHED, np.zeros(0), residual, False, 0, prior)


def _ascend(data: Data, prior: Prior, start: Gaussians | None, options: Options) -> EnergyFit:
    """The maximum of the energy over q at a held prior, from a start or from the prior."""
    K, steps = prior_matrices(data.X, prior), count(1)

    def told(value: float, residual: float) -> None:
        step = next(steps)
        if options.callback is not None:
            options.callback(EnergyState(step, value, residual))

    goal = Goal(options.tolerance, options.max_iterations)
    given = data.y, K, data.epsilon, data.alpha
    top = ascend(lambda q: energy(data.method, q, *given), K.K_ZZ, start, goal, told)  # (9), (10), (11), 3.2
    return EnergyFit(
        top.q, top.at.value, top.at.data.log_norm, top.optimum, top.values, top.residual, top.converged,
        len(top.values), prior,
    )  # fmt: skip


def _stochastic(data: Data, prior: Prior, plan: Sequence[Batch], learned: Learned, options: Options) -> EnergyFit:
    """Adam's steps over q and what is learned of the prior, together, one a mini-batch.

    A step to where the energy is no number ends the run at one of the last places before it, with the reason.
    """
    K = prior_matrices(data.X, prior)
    C, m = K.K_ZZ.shape[:2]
    of_q = pack(Gaussians(np.zeros((C, m)), K.K_ZZ))
    rule = Rule.start(len(of_q) + len(learned.vector(prior)), options.rate)
    values: list[float] = []
    places, reason = [(of_q, prior)], ""  # before the last steps, of a run that still has an energy there
    for t, rows in enumerate(plan):
        try:
            q, roots = unpack(of_q, C, m)
            if options.trace:
                values.append(data.at(q, K).value)
            at = data.at(q, K, rows)
            derivative, where = packed_gradient(at.by_mean, at.by_cov, roots), of_q
            if learned.fields:
                gradients = energy_gradients(data.X, prior, at, q, rows, learned.fields)
                derivative = np.concatenate([derivative, learned.gradient(prior, gradients)])
                where = np.concatenate([where, learned.vector(prior)])
            places = [*places[-1:], (of_q, prior)]
            new, rule = rule.step(where, derivative)
            of_q = new[: len(of_q)]
            if learned.fields:
                prior = learned.prior(prior, new[len(of_q) :])
                K = prior_matrices(data.X, prior)
        except (ValueError, NotPositiveDefiniteError) as error:
            reason, steps = f"diverged at step {t + 1}: {error}", t
            break
        if options.callback is not None:
            options.callback(EnergyState(t + 1, at.value, step_length(at.direction, q)[0]))
    else:
        places, steps = [*places, (of_q, prior)], len(plan)
    while True:
        of_q, prior = places.pop()
        try:
            fit = _result(data, prior, unpack(of_q, C, m)[0])
            return fit._replace(trace=np.array(values), iterations=steps, reason=reason)
        except (ValueError, NotPositiveDefiniteError) as error:  # a batch may have an energy where all data have none
            if not places:
                raise
            reason = reason or f"diverged at step {steps}: {error}"


@takes("apep")
def fit_energy(
    X: Array, y: Labels, prior: Prior, method: str, epsilon: float = 0.0, *, shared: bool = False, options: Options
) -> EnergyFit:
    """APEP, ARPEP or RPAPEP of villacampa2020: q, and the prior where asked for, at the maximum of its energy.

    On all data by natural gradients that do not lower the energy, and L-BFGS over the prior with q at its maximum each
    time; on mini-batches by Adam over means, Cholesky factors (logarithms of the diagonals) and the prior together.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters and inducing inputs of all classes; the start where learned
    method : str              "apep", "arpep", "rpapep" or "bb-alpha", minus the energy of apep
    epsilon : float           ε in [0, 1), positive at α = 0
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         of the method, or those of "apep" by name; n_steps None: 250 of Adam, or as many as
                              batches, with "lbfgs" iterations, 200; optimizer None: "adam" where batches or batch_size
                              is given

    Returns
    -------
    EnergyFit                 optimum begins with "none" where the energy rises without bound of q

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    if not isinstance(method, str) or method not in (*METHODS, "bb-alpha"):
        raise ValueError(f"method: found {shown(method)}, expected one of {', '.join((*METHODS, 'bb-alpha'))}")
    alpha = options.alpha
    check_power(alpha, epsilon)
    if method in ("apep", "bb-alpha") and alpha == len(y):
        raise ValueError("alpha: found 1 with one datum, where the energy of apep does not depend on q; expected < 1")
    if method == "bb-alpha":  # which has neither mini-batches nor Adam
        options = options_of("apep")(**{name: getattr(options, name) for name in options.declared() if name in _ASKED})
    if options.optimizer == "lbfgs" and options.in_parts:
        raise ValueError("optimizer: found 'lbfgs' with mini-batches, expected 'adam'")
    learned = fields_to_learn(options.learn, prior)
    steps = options.optimizer == "adam" or (options.optimizer is None and options.in_parts)
    if options.n_steps is not None and not steps and not learned:
        raise ValueError(
            f"n_steps: found {options.n_steps}, expected None without learn or mini-batches; see max_iterations"
        )
    data = Data(X, y, method, float(epsilon), alpha)
    if steps:
        plan = ascending_batches(len(X), options.batches, options.batch_size, options.n_steps, options.seed)
        return _stochastic(data, prior, plan, Learned(learned, shared), options)
    fit = _ascend(data, prior, None, options)
    if not learned or fit.optimum.startswith("none"):
        return fit
    last = [fit.posterior]  # where the search was before is near where it is now

    def fit_at(there: Prior) -> EnergyFit:
        optimum = _ascend(data, there, last[0], options)
        if optimum.optimum.startswith("none"):  # for the search: a place where there is no answer
            raise NotPositiveDefiniteError(f"inducing_cov: found {optimum.optimum}, expected alpha lower")
        last[:] = [optimum.posterior]
        return optimum

    def evidence(there: Prior) -> tuple[float, dict[str, Any]]:
        optimum = fit_at(there)
        at = data.at(optimum.posterior, prior_matrices(X, there))
        return optimum.value, energy_gradients(X, there, at, optimum.posterior, None, learned)

    most = 200 if options.n_steps is None else options.n_steps
    top = search(evidence, prior, learned, shared, most, options.learn_tolerance)
    fit = fit_at(top.prior)
    return fit._replace(
        trace=top.trace, residual=top.residual, converged=top.converged and fit.converged, iterations=top.iterations
    )
