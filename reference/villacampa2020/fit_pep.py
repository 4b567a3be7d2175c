"""Sections 3.1, 3.5 and A.5: power expectation propagation, to its fixed point, over mini-batches, or learning."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._batches import ascending_batches
from reference.common._classes import Prior, checked_input, class_gradients
from reference.common._gaussians import Gaussians
from reference.common._learning import FIELDS, Derivative
from reference.common._sweeps import Step
from reference.common._training import (
    Fit,
    Record,
    State,
    Task,
    Value,
    begin,
    by_search,
    finish,
    hyper_step,
    settled,
    with_defaults,
)  # fmt: skip
from reference.common.errors import NotPositiveDefiniteError
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.villacampa2020.evidence import (
    pep_log_evidence_from_moments,
    pep_log_evidence_limit,
    site_log_normaliser_from_moments,
    site_log_normaliser_rank_one,
)
from reference.villacampa2020.forms import check_printed, form_of
from reference.villacampa2020.gradients import (
    Direction,
    adaptive_learning_rate,
    held_matrices_pulls,
    held_numbers_pulls,
    kernel_derivative,
    pep_log_evidence_gradient,
)
from reference.villacampa2020.hyper import Batch, Matrices, inducing_covariances, prior_matrices
from reference.villacampa2020.pep import (
    TiltedDistribution,
    parallel_pep_sweep,
    pep_log_evidence,
    pep_refine_factors,
    tilted_distributions,
)
from reference.villacampa2020.posterior import Coefficients, posterior_moments
from reference.villacampa2020.power_likelihood import check_power
from reference.villacampa2020.projected import project, proposals
from reference.villacampa2020.refinement import damped_update
from reference.villacampa2020.sparse import Marginal, latent_marginal

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_HALVINGS = 60


class PEP(NamedTuple):
    """Power EP of labels: what the loops over it need, in the form "printed" or "projected"."""

    y: Labels
    epsilon: float
    alpha: float
    damping: float
    form: str = "projected"

    def matrices(self, X: Array, prior: Prior) -> Matrices:
        """What a prior says of the inputs X (n, d)."""
        return prior_matrices(X, prior)

    def start(self, K: Matrices) -> Coefficients:
        """Factors of one, in the sizes of K."""
        return Coefficients(*(np.zeros((len(self.y), len(K.K_ZZ))) for _ in range(2)))

    def posterior(self, sites: Coefficients, K: Matrices) -> Gaussians:
        """q(f̄) from sites and K."""
        return posterior_moments(*sites, K.upsilon, K.K_ZZ)  # (A.6)

    def step(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch | None = None) -> Step:
        """Refine the factors of a batch from one q, move them by the damping, rebuild q: appendix A.5.

        C¹ may be negative when ε > 0. If the new q is no distribution the damping is halved until it is.

        Parameters
        ----------
        sites : Coefficients          of all factors, each (n, C)
        posterior : Gaussians         q(f̄)
        K : Matrices                  of the prior of villacampa2020
        batch : (b,) or None          indices, each once; None: all data

        Raises
        ------
        NotPositiveDefiniteError      if no step leaves a distribution
        """
        sweep = _printed_sweep if self.form == "printed" else _projected_sweep
        halvings = 0
        while True:
            try:
                swept = sweep(sites, posterior, K, self, self.damping * 0.5**halvings, batch)
                return swept._replace(n_improper=swept.n_improper + halvings)
            except NotPositiveDefiniteError:
                if halvings == _HALVINGS:
                    raise
            halvings += 1

    def value(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q from sites, q and K, and (1/α) log Z_i (n,): (8) as printed, or (A.26) with (A.27) contracted.

        At α = 0 the contracted form has its limit, a lower bound. No log Z_q if a cavity is no distribution.
        """
        if self.form == "printed":
            whole = posterior, self.y, K, self.epsilon, self.alpha
            refined = pep_refine_factors(sites, *whole)
            return Value(None if refined.n_improper else pep_log_evidence(sites, *whole), refined.log_norm)
        at = project(sites, posterior, self.y, K.upsilon, K.cond_var, self.epsilon, self.alpha)
        log_norm = at.likelihood.log_expectation
        if not np.all(at.proper):
            return Value(None, log_norm)
        if self.alpha > 0.0:
            each = site_log_normaliser_rank_one(
                self.alpha * log_norm, sites, posterior, K.upsilon, self.alpha
            )  # below (A.27)
            return Value(pep_log_evidence_from_moments(posterior, K.K_ZZ, each, self.alpha), log_norm)  # (A.26)
        return Value(pep_log_evidence_limit(posterior, K.K_ZZ, log_norm, sites, K.upsilon), log_norm)

    def traced(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> float | None:
        """log Z_q after a sweep, from sites, q and K; as printed by (A.26) and (A.27), from the moments at hand."""
        if self.form != "printed":
            return self.value(sites, posterior, K).log_evidence
        try:
            distributions = tilted_distributions(sites, posterior, self.y, K, self.epsilon, self.alpha)
        except ValueError:  # a cavity is no distribution
            return None
        each = [
            site_log_normaliser_from_moments(distribution.log_norm, distribution.cavity, posterior)
            for distribution in distributions
        ]  # (A.27)
        return pep_log_evidence_from_moments(posterior, K.K_ZZ, np.array(each), self.alpha)  # (A.26)

    def latents(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Marginal:
        """Moments of the latent values at the data, from q and K; sites are not looked at."""
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
        exact : bool                  the numbers C¹ and C² held; else the factors' natural parameters, (A.28)
        learn : names                 fields wanted

        Returns
        -------
        dict or None                  fields with shapes as in the prior; None if a cavity is no distribution

        Notes
        -----
        As printed, (A.28) is evaluated for one hyper-parameter after the other; contracted, once for all of a class
        (`held_matrices_pulls`). The exact rule, which no equation of the paper is, has the second way only.
        """
        sites, q, prior, K = state[:4]
        rows = np.arange(len(X)) if batch is None else batch
        if self.form == "printed" and not exact:
            try:
                distributions = tilted_distributions(sites, q, self.y, K, self.epsilon, self.alpha, batch)
            except ValueError:  # a cavity is no distribution
                return None
            derivatives = [
                _printed_derivative(k, q, distributions, K.of(rows), self.alpha, rows, len(X))
                for k in range(len(K.K_ZZ))
            ]
            return class_gradients(derivatives, X, prior, learn)
        pulls_of = held_numbers_pulls if exact else held_matrices_pulls
        weights = np.zeros(len(X))
        weights[rows] = len(X) / len(rows)
        pulls = pulls_of(sites, q, self.y, K, self.epsilon, self.alpha, weights)
        if pulls is None:
            return None
        return class_gradients(
            [kernel_derivative(*each) for each in zip(pulls, K.upsilon, K.K_ZZ, strict=True)], X, prior, learn
        )


def pep_residual(new: Coefficients, old: Coefficients, latent_mean: Array, latent_var: Array) -> float:
    """Largest change of a factor, max(|ΔC¹| q, |ΔC² - ΔC¹ p| √q) with p, q the moments of υᵀf̄ under q: villacampa2020.

    Parameters
    ----------
    new : Coefficients        of all factors, undamped
    old : Coefficients        of all factors
    latent_mean : (n, C)      p, before the update
    latent_var : (n, C)       q, of υᵀf̄ alone
    """
    c1, c2 = new.c1 - old.c1, new.c2 - old.c2
    by_precision, by_shift = np.abs(c1) * latent_var, np.abs(c2 - c1 * latent_mean) * np.sqrt(latent_var)
    return float(max(np.max(by_precision), np.max(by_shift)))


def _printed_sweep(
    coefficients: Coefficients, posterior: Gaussians, K: Matrices, task: PEP, damping: float, batch: Batch | None
) -> Step:
    """The paper's sweep; how far it would have gone without damping, in the factors' own coordinates."""
    rows = np.arange(len(task.y)) if batch is None else batch
    new = parallel_pep_sweep(coefficients, task.y, K, task.epsilon, task.alpha, damping, batch)
    old, wanted = (Coefficients(*(part[rows] for part in each)) for each in (coefficients, new.coefficients))
    at = latent_marginal(posterior, K.upsilon[:, rows], np.zeros_like(K.cond_var[:, rows]))  # of υᵀf̄
    return Step(new.coefficients, pep_residual(wanted, old, *at) / damping, new.n_improper, new.posterior)


def _projected_sweep(
    coefficients: Coefficients, posterior: Gaussians, K: Matrices, task: PEP, damping: float, batch: Batch | None
) -> Step:
    """The same along υ alone: (A.8) to (A.20) contracted, see `projected`."""
    rows = np.arange(len(task.y)) if batch is None else batch
    old = Coefficients(*(part[rows] for part in coefficients))
    at = project(old, posterior, task.y[rows], K.upsilon[:, rows], K.cond_var[:, rows], task.epsilon, task.alpha)
    wanted = proposals(old, at, task.alpha)
    new = Coefficients(*(part.copy() for part in coefficients))
    for after, proposed, before in zip(new, wanted, old, strict=True):
        after[rows] = damped_update(proposed, before, damping)
    q = posterior_moments(*new, K.upsilon, K.K_ZZ)
    return Step(new, pep_residual(wanted, old, at.p, at.q), int(np.sum(~at.proper)), q)


def _printed_derivative(
    k: int,
    posterior: Gaussians,
    distributions: Sequence[TiltedDistribution],
    K: Matrices,
    alpha: float,
    rows: Batch,
    n: int,
) -> Derivative:
    """(A.28) in one class, from the derivatives of the matrices of all data."""

    def derivative(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
        direction = Direction(dK_ZZ, dK_XZ[rows], dk[rows])
        return pep_log_evidence_gradient(k, posterior, distributions, K, alpha, direction, n / len(rows))

    return derivative


@equation("villacampa2020", "u20-joint-optimisation")
def training_step(task: Task, state: State, batch: Batch) -> State:
    """One sweep over a batch, then one step of the hyper-parameters, without waiting for convergence: 3.1, 3.5.

    The numbers C¹ and C² stay while υ, s, K and q are recomputed. Where a cavity is no distribution there is no
    gradient, and the hyper-parameters wait.

    Parameters
    ----------
    task : Task               PEP of villacampa2020, inputs, and the hyper-parameters that move; none: factors alone
    state : State             before
    batch : (b,)              indices, each once; all data are a batch too

    Raises
    ------
    NotPositiveDefiniteError  if the step leads where K_ZZ is singular
    ValueError                if it leads out of the range of numbers
    """
    # fmt: off
    step = task.method.step(state.sites, state.posterior, state.K, batch)                          # (A.6) to (A.20)
    state = state.swept(step, task.method)
    return hyper_step(task, state, batch, task.exact) if len(task.options.learn) else state        # (A.28)
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
    options : Options         of "pep", or each by name

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular
    """
    X, y, prior = checked_input(X, y, prior)
    epsilon = _check.scalar(epsilon, "epsilon", True)
    check_power(options.alpha, epsilon)
    options = with_defaults(options, prior, ("inner",))
    searched = len(options.learn) > 0 and options.scheme == "outer"
    searched = searched or options.alpha == 0.0  # a limit that the printed equations do not have
    form = form_of(options.form, len(X), inducing_covariances(prior), options.alpha, searched)
    check_printed(form, options.alpha, "pep")
    task = Task(PEP(y, epsilon, options.alpha, options.damping, form), X, options, shared)
    return _fit(task, prior)._replace(form=form)


def _fit(task: Task, prior: Prior) -> Fit:
    """To the fixed point, over mini-batches, or learning."""
    # fmt: off
    options, record = task.options, Record(task)
    state = begin(task, prior, adaptive_learning_rate)                                             # φ̃ = 1, q = p(f̄)
    if len(options.learn) and options.optimizer == "lbfgs":
        return by_search(task, state)                                                              # (8), (A.28)
    if not options.in_parts and not len(options.learn):
        run = settled(task, state, lambda step: record.tell(step, state.K))                        # (A.6) to (A.20)
        return finish(task, state.swept(run, task.method), record.trace, run.converged, run.iterations)
    plan = ascending_batches(len(task.X), options.batches, options.batch_size, options.n_steps, options.seed)
    for batch in plan:
        old = state
        if options.scheme == "outer":
            run = settled(task, state)                                                             # (A.6) to (A.20)
            state = state.swept(run, task.method)
            record.tell(run, state.K)
            state = hyper_step(task, state, batch, task.exact)                                     # (A.28)
        else:
            state = training_step(task, state, batch)                                              # 3.1, 3.5
            record.tell(Step(state.sites, state.residual, state.n_improper - old.n_improper), old.K)
    return finish(task, state, record.trace, False, len(plan))                                     # (8), (A.28)
    # fmt: on
