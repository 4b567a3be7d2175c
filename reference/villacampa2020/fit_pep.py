"""Sections 3.1, 3.5 and A.5: power expectation propagation, to its fixed point, over mini-batches, or learning."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._batches import ascending_batches
from reference.common._classes import checked_input, class_gradients
from reference.common._gaussians import Gaussians
from reference.common._iteration import Arrival
from reference.common._learning import FIELDS, Derivative
from reference.common._training import (
    Fit,
    Record,
    State,
    Step,
    Task,
    Value,
    begin,
    by_search,
    finish,
    first_rule,
    hyper_step,
    silent,
    with_defaults,
)  # fmt: skip
from reference.common.errors import NotPositiveDefiniteError
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.common.priors import Prior
from reference.villacampa2020.evidence import (
    pep_log_evidence_from_moments,
    pep_log_evidence_limit,
    site_log_normaliser_from_moments,
)
from reference.villacampa2020.gradients import (
    Direction,
    adaptive_learning_rate,
    held_numbers_pulls,
    kernel_derivative,
    pep_limit_gradient,
    pep_log_evidence_gradient,
)
from reference.villacampa2020.hyper import Batch, Matrices, prior_matrices
from reference.villacampa2020.pep import (
    parallel_pep_sweep,
    pep_limit_factors,
    pep_log_evidence,
    pep_refine_factors,
    tilted_distributions,
)
from reference.villacampa2020.posterior import Coefficients, posterior_moments
from reference.villacampa2020.power_likelihood import ExpectedPowers, check_power, scaled_log_expected_powers
from reference.villacampa2020.refinement import damped_update
from reference.villacampa2020.sparse import Marginal, latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class PEP:
    """Power EP of labels at α > 0: what the loops over it need, equation by equation."""

    def __init__(self, y: Labels, epsilon: float, alpha: float, damping: float) -> None:
        """Labels y (n,), epsilon in [0, 1), alpha in (0, 1], damping in (0, 1]."""
        self.y, self.epsilon, self.alpha, self.damping = y, epsilon, alpha, damping

    def matrices(self, X: Array, prior: Prior) -> Matrices:
        """What a prior says of the inputs X (n, d)."""
        return prior_matrices(X, prior)

    def start(self, K: Matrices) -> Coefficients:
        """Factors of one, in the sizes of K."""
        return Coefficients(*(np.zeros((len(self.y), len(K.K_ZZ))) for _ in range(2)))

    def posterior(self, sites: Coefficients, K: Matrices) -> Gaussians:
        """q(f̄) from sites and K."""
        return posterior_moments(*sites, K.upsilon, K.K_ZZ)  # (A.6)

    def sweep(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """The factors of a batch refined from one posterior, from sites and K, damped, q rebuilt: appendix A.5.

        C¹ may be negative when ε > 0: NotPositiveDefiniteError if factors and prior leave no distribution.
        """
        new = parallel_pep_sweep(sites, self.y, K, self.epsilon, self.alpha, self.damping, batch)  # (A.6) to (A.21)
        residual = pep_residual(new.coefficients, sites, posterior, K.upsilon) / self.damping
        return Step(new.coefficients, new.posterior, residual, new.n_improper)

    def value(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q from sites, posterior and K, and (1/α) log Z_i (n,); no log Z_q if a cavity is not a distribution."""
        whole = posterior, self.y, K, self.epsilon, self.alpha
        refined = pep_refine_factors(sites, *whole)  # (A.7) to (A.21)
        return Value(None if refined.n_improper else pep_log_evidence(sites, *whole), refined.log_norm)  # (8), (A.23)

    def traced(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> float | None:
        """log Z_q after a sweep, from sites, posterior and K, by the moments at hand."""
        # fmt: off
        try:
            distributions = tilted_distributions(sites, posterior, self.y, K, self.epsilon, self.alpha)
        except ValueError:  # a cavity is not a distribution
            return None
        each = [site_log_normaliser_from_moments(distribution.log_norm, distribution.cavity, posterior)      # (A.27)
                for distribution in distributions]
        return pep_log_evidence_from_moments(posterior, K.K_ZZ, np.array(each), self.alpha)                  # (A.26)
        # fmt: on

    def latents(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Marginal:
        """Moments of the latent values at the data, from posterior and K; sites are not looked at."""
        return latent_marginal(posterior, K.upsilon, K.cond_var)

    def gradients(
        self, X: Array, state: State, batch: Batch | None = None, exact: bool = False, learn: Sequence[str] = FIELDS
    ) -> dict[str, Array] | None:
        """The derivative of log Z_q in every hyper-parameter; of a mini-batch, its terms n/b times: villacampa2020.

        Parameters
        ----------
        X : (n, d)                    inputs
        state : State                 factors, q, prior and its matrices
        batch : (b,) or None          data whose terms stand for all
        exact : bool                  the numbers C¹ and C² held, of which the paper has no equation; else the factors'
                                      natural parameters, (A.28)
        learn : names                 fields wanted

        Returns
        -------
        dict or None                  fields with shapes as in the prior; None if a cavity is not a distribution
        """
        K, rows = state.K, np.arange(len(X)) if batch is None else batch
        try:
            if exact:
                weights = np.zeros(len(X))
                weights[rows] = len(X) / len(rows)
                powers = self.powers(state.sites, state.posterior, K)
                pulls = held_numbers_pulls(state.sites, state.posterior, powers, K, self.alpha, weights)
                by_K = [kernel_derivative(*each) for each in zip(pulls, K.upsilon, K.K_ZZ, strict=True)]
            else:
                by_K = self.held(state, rows)
        except NotPositiveDefiniteError:
            raise
        except ValueError:  # a cavity is not a distribution
            return None
        return class_gradients(by_K, X, state.prior, learn)

    def held(self, state: State, rows: Batch) -> list[Derivative]:
        """(A.28) of a state in each class, from the derivatives of the matrices of all data; rows stand for all."""
        n, q, at = len(self.y), state.posterior, state.K.of(rows)
        tilted = tilted_distributions(state.sites, q, self.y, state.K, self.epsilon, self.alpha, rows)

        def of_class(k: int) -> Derivative:
            return lambda dK_ZZ, dK_XZ, dk: pep_log_evidence_gradient(  # (A.28)
                k, q, tilted, at, self.alpha, Direction(dK_ZZ, dK_XZ[rows], dk[rows]), n / len(rows)
            )

        return [of_class(k) for k in range(len(at.K_ZZ))]

    def powers(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> tuple[Array, Array]:
        """Derivatives of (1/α) log Z_i by the moments of f_i under the cavities, (n, C), from sites, posterior, K."""
        tilted = tilted_distributions(sites, posterior, self.y, K, self.epsilon, self.alpha)
        return tuple(np.array([getattr(p, name) for p in tilted]) / self.alpha for name in ("d_mean", "d_var"))  # type: ignore[return-value]


class PEPLimit(PEP):
    """Power EP as α -> 0, where cavities are q and the fixed point maximises (5): section 2.3 of villacampa2020."""

    def sweep(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """The factors of a batch refined from one posterior, from sites and K, damped, q rebuilt."""
        # fmt: off
        wanted = pep_limit_factors(posterior, self.y[batch], K.of(batch), self.epsilon)            # limit of the steps
        new = Coefficients(*(part.copy() for part in sites))
        for part, after in zip(new, wanted, strict=True):
            part[batch] = damped_update(after, part[batch], self.damping)                          # A.5
        residual = pep_residual(new, sites, posterior, K.upsilon) / self.damping
        return Step(new, self.posterior(new, K), residual, 0)                                      # (A.6)
        # fmt: on

    def value(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Value:
        """The limit of log Z_q, the bound (5), from sites, posterior and K, and the expectations (n,) in it."""
        each = self._expected(posterior, K).log_expectation
        return Value(pep_log_evidence_limit(posterior, K.K_ZZ, each, sites, K.upsilon), each)  # below (8)

    def traced(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> float | None:
        """The limit of log Z_q, from sites, posterior and K."""
        return self.value(sites, posterior, K).log_evidence

    def held(self, state: State, rows: Batch) -> list[Derivative]:
        """(A.28) of a state as α -> 0."""
        n, q, at = len(self.y), state.posterior, state.K.of(rows)
        sites = Coefficients(*(part[rows] for part in state.sites))
        expected = self._expected(q, state.K)
        powers = expected.d_mean[rows], expected.d_var[rows]

        def of_class(k: int) -> Derivative:
            return lambda dK_ZZ, dK_XZ, dk: pep_limit_gradient(
                k, q, sites, powers, at, Direction(dK_ZZ, dK_XZ[rows], dk[rows]), n / len(rows)
            )

        return [of_class(k) for k in range(len(at.K_ZZ))]

    def powers(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> tuple[Array, Array]:
        """Derivatives of E[log p(y_i|f_i)] by the moments of f_i under the posterior, given K; sites aside."""
        expected = self._expected(posterior, K)
        return expected.d_mean, expected.d_var

    def _expected(self, posterior: Gaussians, K: Matrices) -> ExpectedPowers:
        at = latent_marginal(posterior, K.upsilon, K.cond_var)
        return scaled_log_expected_powers(*at, self.y, self.epsilon, 0.0)


def pep_residual(new: Coefficients, old: Coefficients, posterior: Gaussians, upsilon: Array) -> float:
    """Largest change of a factor, max(|ΔC¹| q, |ΔC² - ΔC¹ p| √q) with p, q the moments of υᵀf̄ under q: villacampa2020.

    Parameters
    ----------
    new : Coefficients        of all factors
    old : Coefficients        of all factors
    posterior : Gaussians     q(f̄) before the update
    upsilon : (C, n, m)       υ_i^k
    """
    p, q = latent_marginal(posterior, upsilon, np.zeros(upsilon.shape[:2]))
    c1, c2 = new.c1 - old.c1, new.c2 - old.c2
    return float(max(np.max(np.abs(c1) * q), np.max(np.abs(c2 - c1 * p) * np.sqrt(q))))


def to_fixed_point(task: Task, state: State, callback: Callable[[State], None] = silent) -> State:
    """Sweeps over all data until no factor of villacampa2020 moves: appendix A.5.

    It stops where the distance that sweeps would still go, the last residual times max(1, ρ/(1 - ρ)) with ρ the factor
    by which residuals fall, is below the tolerance and all cavities were distributions; unconverged where a sweep
    leaves no distribution, where rounding alone moves the factors, or after max_iterations.

    Parameters
    ----------
    task : Task               PEP, inputs, options
    state : State             where to start
    callback : callable       called with the state after every sweep
    """
    # fmt: off
    arrival, everything = Arrival(task.options.tolerance), np.arange(len(task.X))
    state = state._replace(converged=False, reason="")
    for _ in range(task.options.max_iterations):
        try:
            step = task.method.sweep(state.sites, state.posterior, state.K, everything)            # (A.6) to (A.21)
        except NotPositiveDefiniteError as error:
            return state._replace(reason=f"a sweep leaves no distribution: {error}")
        state = state.after(step)
        callback(state)
        arrival.see(step.residual)
        if arrival.converged and step.n_improper == 0:
            return state._replace(converged=True)
        if arrival.stalled:
            break
    improper = f"{step.n_improper} cavities are not distributions and keep their factors"
    return state._replace(reason=improper if step.n_improper else arrival.reason(len(arrival.changes)))
    # fmt: on


@equation("villacampa2020", "u20-joint-optimisation")
def training_step(task: Task, state: State, batch: Batch, callback: Callable[[State], None] = silent) -> State:
    """One sweep over a batch, then one step of the hyper-parameters, without waiting for convergence: 3.1, 3.5.

    The numbers C¹ and C² stay while υ, s, K and q are recomputed. Where a cavity is not a distribution there is no
    gradient, and the hyper-parameters wait.

    Parameters
    ----------
    task : Task               PEP of villacampa2020, inputs, and the hyper-parameters that move; none: factors alone
    state : State             before
    batch : (b,)              indices, each once; all data are a batch too
    callback : callable       called with the state before the hyper-parameters move

    Raises
    ------
    NotPositiveDefiniteError  if the sweep leaves no distribution, or the step leads where K_ZZ is singular
    ValueError                if it leads out of the range of numbers
    """
    # fmt: off
    state = state.after(task.method.sweep(state.sites, state.posterior, state.K, batch))           # (A.6) to (A.21)
    callback(state)
    return hyper_step(task, state, batch, task.exact) if task.options.learn else state             # (A.28)
    # fmt: on


@takes("pep")
def fit_pep(X: Array, y: Labels, prior: Prior, epsilon: float = 0.0, *, shared: bool = False, options: Options) -> Fit:
    """Power expectation propagation of villacampa2020 from factors of one.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs, where to start from
    epsilon : float           label-error probability in [0, 1), positive at alpha = 0
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         of "pep", or each by name; at alpha = 0 the limit of its equations runs, `PEPLimit`

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular, or a mini-batch leaves no distribution
    """
    # fmt: off
    X, y, prior = checked_input(X, y, prior)
    epsilon = _check.scalar(epsilon, "epsilon", True)
    check_power(options.alpha, epsilon)
    options, kind = with_defaults(options, prior, ("inner",)), PEPLimit if options.alpha == 0.0 else PEP
    task = Task(kind(y, epsilon, options.alpha, options.damping), X, options, shared)
    state, record = begin(task, prior), Record(task)                                               # φ̃ = 1, q = p(f̄)
    if not options.in_parts and not options.learn:
        state = to_fixed_point(task, state, record.tell)                                           # (A.6) to (A.21)
        return finish(task, state, record.trace, record.count)                                     # (8), (A.28)
    if options.learn and options.optimizer == "lbfgs":
        return by_search(task, state, to_fixed_point)                                              # (8), (A.28)
    state = state._replace(rule=first_rule(task, prior, adaptive_learning_rate))
    plan = ascending_batches(len(task.X), options.batches, options.batch_size, options.n_steps, options.seed)
    for batch in plan:
        if options.scheme == "outer":
            state = to_fixed_point(task, state)                                                    # (A.6) to (A.21)
            record.tell(state)
            state = hyper_step(task, state, batch, task.exact)                                     # (A.28)
        else:
            state = training_step(task, state, batch, record.tell)                                 # 3.1, 3.5
    return finish(task, state._replace(converged=False), record.trace, len(plan))                  # (8), (A.28)
    # fmt: on
