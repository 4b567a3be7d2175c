"""Sections 3.2 to 3.5: APEP, ARPEP and RPAPEP, energies maximised over q and the prior, on all data or mini-batches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._batches import ascending_batches
from reference.common._classes import (
    Prior,
    checked_input,
    class_gradients,
    every_row,
    fields_to_learn,
    first_row,
    row_gradients,
    search,
)
from reference.common._learning import FIELDS, Slope, coordinates, log_slopes, moved
from reference.common._mixing import Mixing
from reference.common._neighbours import (
    Answer,
    largest_change,
    left_open,
    moment_answers,
    pushed,
    rounding_doubt,
    slope_answers,
)
from reference.common._options import shown
from reference.common._search import Limits, maximise
from reference.common.algebra import eigenvalues, inverted, solution
from reference.common.errors import NotPositiveDefiniteError, cholesky, factorise
from reference.common.options import checked_options
from reference.villacampa2020.energies import Energy, energy, printed_energy
from reference.villacampa2020.forms import form_of
from reference.villacampa2020.gradients import AdamState, adam_step, prior_term_gradient, prior_term_matrix
from reference.villacampa2020.hyper import Batch, Matrices, inducing_covariances, prior_matrices
from reference.villacampa2020.posterior import (
    REMEDY,
    Gaussians,
    Natural,
    moments_of,
    natural_parameters,
    natural_prior,
)
from reference.villacampa2020.power_likelihood import check_power
from reference.villacampa2020.sparse import latent_marginal
from reference.villacampa2020.tied import METHODS, along

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FINITE = "finite"
NOT_REACHED = "not reached"
_FAR = 1e6  # largest variance over the prior's, and whitened mean, of a q that still is an answer
_SMALLEST_RATE = 2.0**-40  # below it a step along the gradient changes nothing but rounding
_NEAR = 1e-3  # residual from which on the energy is a parabola, whose rounding hides a step that leads away
_LEAST_CEILING = 2.0**-7
_MEMORY = 12  # steps that are mixed
_SEARCH = 200  # iterations of L-BFGS to another optimum
_WIDER = 1e-6  # of a variance beyond the prior's, more than rounding
_PATIENCE = 40  # mixed steps before another search takes over


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
    residual: float  # natural gradient in the metric of q; of a search, slope left
    converged: bool
    iterations: int
    prior: Prior  # as learned
    form: str = "projected"  # which ran
    reason: str = ""  # why a q with a small residual is not called converged


class Data(NamedTuple):
    """What does not change."""

    X: Array
    y: Labels
    method: str
    epsilon: float
    alpha: float
    form: str = "projected"

    def at(self, q: Gaussians, K: Matrices, rows: Batch | None = None) -> Energy:
        """The energy of all data, or of a mini-batch that stands for all."""
        y = self.y
        if rows is not None:
            y, K = y[rows], K.of(rows)
        if self.form == "printed":
            return printed_energy(self.method, q, y, K, self.epsilon, self.alpha, len(self.y))
        energy_of = "apep" if self.method == "bb-alpha" else self.method  # minus one another
        return energy(energy_of, q, y, K.upsilon, K.cond_var, K.K_ZZ, self.epsilon, self.alpha, len(self.y))


def direction_length(direction: Natural, posterior: Gaussians) -> tuple[float, float]:
    """How far a change of θ would move q in its own metric: the residual, and the length that a contraction shortens.

    With dT and dt the changes of precision and shift and r = dt - dT m, the residual is the largest of √tr(V dT V dT)
    and √(rᵀV r) over classes, and the length √Σ_k [½ tr(V dT V dT) + rᵀV r].

    Parameters
    ----------
    direction : Natural       change of the natural parameters of villacampa2020's q
    posterior : Gaussians     moments of q
    """
    residual, square = 0.0, 0.0
    for dT, dt, m, V in zip(*direction, *posterior, strict=True):
        r = dt - dT @ m
        by_cov, by_mean = max(float(np.sum((V @ dT) * (V @ dT).T)), 0.0), max(float(r @ V @ r), 0.0)
        residual = max(residual, np.sqrt(by_cov), np.sqrt(by_mean))
        square += 0.5 * by_cov + by_mean
    return float(residual), float(np.sqrt(square))


def unbounded(posterior: Gaussians, K_ZZ: Array) -> str | None:
    """What of q grows without bound, None if nothing does: variances or means far beyond the prior's, villacampa2020.

    Parameters
    ----------
    posterior : Gaussians     q(f̄)
    K_ZZ : (C, m, m)          prior covariances
    """
    for k, (m, V, K) in enumerate(zip(*posterior, K_ZZ, strict=True)):
        root = cholesky(K, "K_ZZ", REMEDY)
        white = solution(root, solution(root, V, "chol K_ZZ").T, "chol K_ZZ")
        if not eigenvalues(0.5 * (white + white.T), "whitened covariance")[-1] <= _FAR:
            return f"none: the variance of class {k} grows without bound"
        if not np.linalg.norm(solution(root, m, "chol K_ZZ")) <= _FAR:
            return f"none: the mean of class {k} grows without bound"
    return None


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

    with m\ and V\ of the law of the data term, and M₂ the second moment that K⁻¹ meets: of q in ARPEP, of the prior's
    tilted law in RPAPEP, of the mean tilted law in APEP.

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

    def slope_of(k: int) -> Slope:
        inverse = factorise(K.K_ZZ[k], "K_ZZ", REMEDY).inverse
        upsilon, m, V = K.upsilon[k], objective.cavity.mean[k], objective.cavity.cov[k]
        M = prior_term_matrix(np.zeros(len(inverse)), objective.second[k], K.K_ZZ[k])  # (A.30), of the moment M₂

        def slope(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
            d_upsilon = (dK_XZ - upsilon @ dK_ZZ) @ inverse
            d_cond_var = dk - 2.0 * np.sum(upsilon * dK_XZ, axis=1) + np.sum((upsilon @ dK_ZZ) * upsilon, axis=1)
            d_var = d_cond_var + 2.0 * np.sum((upsilon @ V) * d_upsilon, axis=1)
            data = objective.data.d_mean[:, k] @ (d_upsilon @ m) + objective.data.d_var[:, k] @ d_var
            return prior_term_gradient(M, dK_ZZ) + float(data)  # (A.29) first

        return slope

    return class_gradients([slope_of(k) for k in range(len(K.K_ZZ))], X[rows], prior, learn)


def _result(data: Data, prior: Prior, q: Gaussians) -> EnergyFit:
    at = data.at(q, prior_matrices(data.X, prior))
    residual, _ = direction_length(at.direction, q)
    return EnergyFit(q, at.value, at.data.log_norm, NOT_REACHED, np.zeros(0), residual, False, 0, prior, data.form)


class _Units:
    """Natural parameters as one vector, in the prior's units."""

    def __init__(self, K_ZZ: Array) -> None:
        """Those of the prior with covariances K_ZZ."""
        self.roots = np.stack([cholesky(K, "K_ZZ", REMEDY) for K in K_ZZ])

    def vector(self, theta: Natural) -> Array:
        """Numbers of θ, or of a change of it."""
        back = np.transpose(self.roots, (0, 2, 1))
        return np.concatenate([np.ravel(back @ theta.precision @ self.roots), np.ravel(back @ theta.shift[:, :, None])])

    def natural(self, vector: Array) -> Natural:
        """The θ of a vector."""
        C, m = self.roots.shape[:2]
        cut = C * m * m
        inverse = inverted(self.roots, "chol Σ")
        precision = np.transpose(inverse, (0, 2, 1)) @ vector[:cut].reshape(C, m, m) @ inverse
        shift = np.transpose(inverse, (0, 2, 1)) @ vector[cut:].reshape(C, m, 1)
        return Natural(0.5 * (precision + np.transpose(precision, (0, 2, 1))), shift[:, :, 0])


def _ascend(
    data: Data,
    prior: Prior,
    start: Gaussians | None,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[EnergyState], None] | None,
) -> EnergyFit:
    """Mixed natural-gradient steps; if these do not arrive soon, L-BFGS in between, which is better on long ridges."""
    K = prior_matrices(data.X, prior)
    q = Gaussians(np.zeros(K.K_ZZ.shape[:2]), K.K_ZZ) if start is None else start
    values: list[float] = []

    def saw(value: float, residual: float) -> None:
        values.append(value)
        if callback is not None:
            callback(EnergyState(len(values), value, residual))

    q, at = _mixed_steps(data, K, q, tolerance, min(_PATIENCE, max_iterations), saw)
    while not _ended(at, q, K, tolerance) and len(values) < max_iterations:
        before = direction_length(at.direction, q)[0]
        q = _quasi_newton(data, K, q, max_iterations - len(values), saw)
        if len(values) < max_iterations:
            q, at = _mixed_steps(data, K, q, tolerance, min(_PATIENCE, max_iterations - len(values)), saw)
        else:
            at = data.at(q, K)
        if not direction_length(at.direction, q)[0] < 0.5 * before:
            break  # neither leads any further
    residual, _ = direction_length(at.direction, q)
    gone = unbounded(q, K.K_ZZ)
    converged = gone is None and residual <= tolerance
    optimum = gone or (FINITE if converged else NOT_REACHED)
    return EnergyFit(
        q, at.value, at.data.log_norm, optimum, np.array(values), residual, converged, len(values), prior, data.form
    )


def _certain(data: Data, fit: EnergyFit, tolerance: float) -> EnergyFit:
    """The fit, no longer called converged where its distance from the optimum, or rounding, leaves the answer open.

    The ascent is made again from a q beside the optimum, at neighbouring hyper-parameters, and by another method.
    """
    if not fit.converged:
        return fit
    prior = fit.prior

    def answers(there: Prior) -> dict[str, Answer]:
        q = fit.posterior
        if there is not prior:
            optimum = _ascend(data, there, Gaussians(*pushed(*q)), tolerance, 2 * _PATIENCE, None)
            if not optimum.converged:
                raise ValueError(f"residual: found {optimum.residual:.1e} again, expected at most {tolerance:.1e}")
            q = optimum.posterior
        return _answer(data, there, q, prior)

    matrices = list(prior_matrices(data.X, prior).K_ZZ)
    reason = _another_optimum(data, fit, tolerance)
    reason = reason or rounding_doubt(answers, prior, matrices, beside=True, tolerance=tolerance)
    return fit._replace(converged=not reason, reason=reason)


def _answer(data: Data, there: Prior, q: Gaussians, units: Prior) -> dict[str, Answer]:
    """Everything that a q under a prior answers; sizes are in units of another prior."""
    K = prior_matrices(data.X, there)
    at = data.at(q, K)
    mean, var = latent_marginal(q, K.upsilon, K.cond_var)
    answer = {"energy": Answer(at.value, 1.0)} | moment_answers(
        float(np.sqrt(np.max(units.variance + units.noise))),
        inducing_mean=q.mean,
        inducing_cov=q.cov,
        latent_mean=mean,
        latent_cov=var,
        log_norm=at.data.log_norm,
    )
    if data.method in ("apep", "bb-alpha"):
        theta = natural_parameters(q)
        answer["tied_precision"] = Answer(theta.precision - natural_prior(K.K_ZZ).precision)
        answer["tied_shift"] = Answer(theta.shift)
    return answer | slope_answers(energy_gradients(data.X, there, at, q), units, at.value)


def _another_optimum(data: Data, fit: EnergyFit, tolerance: float) -> str:
    """Where L-BFGS from the prior ends, if that is somewhere else; empty if it is here, or leads nowhere.

    Asked where q is wider than the prior in some direction: factors that widen belong to no log-concave likelihood, and
    without those nothing says that an energy has one maximum only.
    """
    K = prior_matrices(data.X, fit.prior)
    roots = np.stack([cholesky(each, "K_ZZ", REMEDY) for each in K.K_ZZ])
    white = _moved(fit.posterior, np.asarray(inverted(roots, "chol K_ZZ"), dtype=np.float64))
    if all(eigenvalues(V, "whitened covariance")[-1] <= 1.0 + _WIDER for V in white.cov):
        return ""
    there = data._replace(form="projected")  # the same energy, contracted: a third of the time
    start = Gaussians(np.zeros_like(fit.posterior.mean), K.K_ZZ)
    q = _quasi_newton(there, K, start, _SEARCH, lambda value, residual: None)
    optimum = _ascend(there, fit.prior, q, tolerance, 2 * _PATIENCE, None)
    if not optimum.converged:
        return ""
    here, other = (_answer(data, fit.prior, each.posterior, fit.prior) for each in (fit, optimum))
    change, name = largest_change(here, other)
    if change <= left_open(list(K.K_ZZ), tolerance):
        return ""
    return (
        f"two maxima of the energy, {fit.value:.6g} by natural gradients and {optimum.value:.6g} by L-BFGS, both from "
        f"the prior: {name} changes by {change:.1e}"
    )


def _ended(at: Energy, q: Gaussians, K: Matrices, tolerance: float) -> bool:
    """Whether q has arrived, or runs away."""
    return direction_length(at.direction, q)[0] <= tolerance or unbounded(q, K.K_ZZ) is not None


def _mixed_steps(
    data: Data,
    K: Matrices,
    q: Gaussians,
    tolerance: float,
    max_iterations: int,
    saw: Callable[[float, float], None],
) -> tuple[Gaussians, Energy]:
    """Natural-gradient steps, mixed with those before; none may lower the energy.

    Where the mixed step would, or leaves no distribution, a plain step is halved until it does not.
    """
    theta, at = natural_parameters(q), data.at(q, K)
    _, length = direction_length(at.direction, q)
    units, mixing = _Units(K.K_ZZ), Mixing(_MEMORY, 1e-12)
    rate, ceiling = 1.0, 1.0

    def tried(there: Natural) -> tuple[Natural, Gaussians, Energy] | None:
        """The energy there, None if it is lower than here."""
        try:
            new = moments_of(there, "precision of q")
            result = data.at(new, K)
        except NotPositiveDefiniteError:
            return None
        return (there, new, result) if result.value >= at.value - 1e-12 * (1.0 + abs(at.value)) else None

    for _ in range(max_iterations):
        if _ended(at, q, K, tolerance):
            break
        mixing.learn(units.vector(theta), units.vector(at.direction))
        mixed = mixing.propose()
        step = None if mixed is None else tried(units.natural(mixed))
        if step is None:
            mixing.forget(kept=1)
            while step is None and rate >= _SMALLEST_RATE:
                step = tried(along(theta, at.direction, rate))
                rate *= 1.0 if step else 0.5
            if step is None:
                break  # no step along the gradient leads up
        before = length
        theta, q, at = step
        residual, length = direction_length(at.direction, q)
        if residual < _NEAR and length > before:
            ceiling = max(0.5 * ceiling, _LEAST_CEILING)
        saw(at.value, residual)
        rate = min(ceiling, 2.0 * rate)
    return q, at


def _quasi_newton(
    data: Data, K: Matrices, q: Gaussians, max_iterations: int, saw: Callable[[float, float], None]
) -> Gaussians:
    """L-BFGS over the coordinates of `_pack` in units of the prior, until rounding stops it or q runs away."""
    roots = np.stack([cholesky(each, "K_ZZ", REMEDY) for each in K.K_ZZ])
    inverses: Array = np.asarray(inverted(roots, "chol Σ"), dtype=np.float64)
    C, m = q.mean.shape

    def law(where: Array) -> tuple[Gaussians, Array]:
        white, factors = _unpack(where, C, m)
        return _moved(white, roots), factors

    def objective(where: Array) -> tuple[float, Array]:
        here, factors = law(where)
        at = data.at(here, K)
        by_mean = np.einsum("kji,kj->ki", roots, at.by_mean)
        by_cov = np.transpose(roots, (0, 2, 1)) @ at.by_cov @ roots
        return at.value, _slopes(at._replace(by_mean=by_mean, by_cov=by_cov), factors)

    def runs_away(where: Array, value: float) -> bool:
        saw(value, float("nan"))
        return unbounded(law(where)[0], K.K_ZZ) is not None

    limits = Limits(1e-9, 1e-16, max_iterations, 20 * max_iterations, memory=50)
    return law(maximise(objective, _pack(_moved(q, inverses)), limits, after=runs_away).where)[0]


def _moved(q: Gaussians, maps: Array) -> Gaussians:
    """Gaussians of A u, one A a class."""
    cov = maps @ q.cov @ np.transpose(maps, (0, 2, 1))
    return Gaussians(np.einsum("kij,kj->ki", maps, q.mean), 0.5 * (cov + np.transpose(cov, (0, 2, 1))))


def _pack(q: Gaussians) -> Array:
    """Means, and lower Cholesky factors with the logarithms of their diagonals, one vector."""
    parts = []
    for m, V in zip(*q, strict=True):
        root = cholesky(V, "inducing_cov", "lower learning_rate")
        low = np.tril_indices(len(m), -1)
        parts += [m, np.log(np.diag(root)), root[low]]
    return np.concatenate(parts)


def _unpack(where: Array, C: int, m: int) -> tuple[Gaussians, Array]:
    """q, and its Cholesky factors (C, m, m)."""
    low = np.tril_indices(m, -1)
    rows = where.reshape(C, -1)
    roots = np.zeros((C, m, m))
    with np.errstate(over="ignore", invalid="ignore"):  # after a step too far, which the energy there tells
        for root, row in zip(roots, rows, strict=True):
            root[low] = row[2 * m :]
            root[np.diag_indices(m)] = np.exp(row[m : 2 * m])
        return Gaussians(rows[:, :m].copy(), roots @ np.transpose(roots, (0, 2, 1))), roots


def _slopes(at: Energy, roots: Array) -> Array:
    """The energy's derivatives in the coordinates of `_pack`."""
    low = np.tril_indices(roots.shape[1], -1)
    parts = []
    for by_mean, by_cov, root in zip(at.by_mean, at.by_cov, roots, strict=True):
        by_root = 2.0 * by_cov @ root
        parts += [by_mean, np.diag(by_root) * np.diag(root), by_root[low]]
    return np.concatenate(parts)


def _stochastic(
    data: Data,
    prior: Prior,
    plan: Sequence[Batch],
    learn: tuple[str, ...],
    shared: bool,
    learning_rate: float,
    trace: bool,
    callback: Callable[[EnergyState], None] | None,
) -> EnergyFit:
    """Adam's steps over q and what is learned of the prior, together, one a mini-batch.

    A step to where the energy is no number ends the run at one of the last places before it, with the reason.
    """
    K = prior_matrices(data.X, prior)
    C, m = K.K_ZZ.shape[:2]
    of_q = _pack(Gaussians(np.zeros((C, m)), K.K_ZZ))
    size = len(of_q) + len(coordinates(cast(Any, first_row(prior, shared)), learn))
    adam = AdamState(np.zeros(size), np.zeros(size), 0)
    values: list[float] = []
    places, reason = [(of_q, prior)], ""  # before the last steps, of a run that still has an energy there
    for t, rows in enumerate(plan):
        try:
            q, roots = _unpack(of_q, C, m)
            if trace:
                values.append(data.at(q, K).value)
            at = data.at(q, K, rows)
            slopes, where = [_slopes(at, roots)], [of_q]
            row = cast(Any, first_row(prior, shared))
            if learn:
                gradients = row_gradients(energy_gradients(data.X, prior, at, q, rows, learn), shared)
                slopes.append(log_slopes(row, learn, gradients))
                where.append(coordinates(row, learn))
            places = [*places[-1:], (of_q, prior)]
            new, adam = adam_step(np.concatenate(where), np.concatenate(slopes), adam, learning_rate)
            of_q = new[: len(of_q)]
            if learn:
                prior = every_row(cast(Prior, moved(row, learn, new[len(of_q) :])), prior)
                K = prior_matrices(data.X, prior)
        except (ValueError, NotPositiveDefiniteError) as error:
            reason, steps = f"diverged at step {t + 1}: {error}", t
            break
        if callback is not None:
            callback(EnergyState(t + 1, at.value, direction_length(at.direction, q)[0]))
    else:
        places, steps = [*places, (of_q, prior)], len(plan)
    while True:
        of_q, prior = places.pop()
        try:
            fit = _result(data, prior, _unpack(of_q, C, m)[0])
            return fit._replace(trace=np.array(values), iterations=steps, reason=reason)
        except (ValueError, NotPositiveDefiniteError) as error:  # a batch may have an energy where all data have none
            if not places:
                raise
            reason = reason or f"diverged at step {steps}: {error}"


@checked_options("apep", learning_rate="rate", learning_tolerance="learn_tolerance")
def fit_energy(
    X: Array,
    y: Labels,
    prior: Prior,
    method: str,
    epsilon: float = 0.0,
    alpha: float = 0.5,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
    batches: Sequence[Any] | None = None,
    batch_size: int | None = None,
    n_steps: int | None = None,
    learn: Sequence[str] = (),
    shared: bool = False,
    optimizer: str | None = None,
    learning_rate: float = 0.001,
    learning_tolerance: float = 1e-5,
    seed: int = 0,
    trace: bool = False,
    callback: Callable[[EnergyState], None] | None = None,
    form: str | None = None,
) -> EnergyFit:
    """APEP, ARPEP or RPAPEP of villacampa2020: q, and the prior where asked for, at the maximum of its energy.

    On all data by natural gradients that do not lower the energy, and L-BFGS over the prior with q at its maximum each
    time; on mini-batches by Adam over means, Cholesky factors (logarithms of the diagonals) and the prior together.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs of all classes; the start where learned
    method : str              "apep", "arpep", "rpapep" or "bb-alpha", minus the energy of apep
    epsilon : float           ε in [0, 1), positive at α = 0
    alpha : float             α, 0 or in [1e-8, 1]
    tolerance : float         natural gradient in the metric of q at which the ascent ends
    max_iterations : int      steps on all data after which it gives up
    batches : index lists     one a step
    batch_size : int          of mini-batches drawn without replacement
    n_steps : int             Adam's steps (250, or as many as batches); with "lbfgs", iterations (200)
    learn : names             of "variance", "lengthscales", "noise", "Z"
    shared : bool             one vector of hyper-parameters for all classes
    optimizer : str           "lbfgs" or "adam"; None: "adam" where batches or batch_size is given
    learning_rate : float     Adam's
    learning_tolerance : float    largest projected slope of a search that has converged
    seed : int                of the drawn mini-batches
    trace : bool              whether Adam's steps work out the energy of all data
    callback : callable       told an EnergyState after every step
    form : str                "printed": `printed_energy`, objectives and slopes as the paper has them; "projected":
                              `energy`, which contracts them in a basis of q and prior; None: by size, see `form_of`

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
    check_power(alpha, epsilon)
    if method in ("apep", "bb-alpha") and alpha == len(y):
        raise ValueError("alpha: found 1 with one datum, where the energy of apep does not depend on q; expected < 1")
    for name, value in (("tolerance", tolerance), ("learning_rate", learning_rate)):
        _check.scalar(value, name, zero_allowed=False)
    _check.scalar(learning_tolerance, "learning_tolerance", zero_allowed=False)
    _check.count(max_iterations, "max_iterations")
    if optimizer not in (None, "lbfgs", "adam"):
        raise ValueError(f"optimizer: found {shown(optimizer)}, expected lbfgs or adam")
    in_parts = batches is not None or batch_size is not None
    if optimizer == "lbfgs" and in_parts:
        raise ValueError("optimizer: found 'lbfgs' with mini-batches, expected 'adam'")
    learned = fields_to_learn(learn, prior)
    if optimizer is None:
        optimizer = "adam" if in_parts else "lbfgs"
    if n_steps is not None and optimizer == "lbfgs" and not learned:
        raise ValueError(f"n_steps: found {n_steps}, expected None without learn or mini-batches; see max_iterations")
    searched = bool(learned) and optimizer == "lbfgs"
    form = form_of(form, len(X), inducing_covariances(prior), float(alpha), searched)
    data = Data(X, y, method, float(epsilon), float(alpha), form)
    if optimizer == "adam":
        plan = ascending_batches(len(X), batches, batch_size, n_steps, seed)
        return _stochastic(data, prior, plan, learned, shared, learning_rate, trace, callback)
    fit = _ascend(data, prior, None, tolerance, max_iterations, callback)
    if not learned or fit.optimum.startswith("none"):
        return _certain(data, fit, tolerance)
    last = [fit.posterior]  # where the search was before is near where it is now

    def fit_at(there: Prior) -> EnergyFit:
        optimum = _ascend(data, there, last[0], tolerance, max_iterations, callback)
        if optimum.optimum.startswith("none"):  # for the search: a place where there is no answer
            raise NotPositiveDefiniteError(f"inducing_cov: found {optimum.optimum}, expected alpha lower")
        last[:] = [optimum.posterior]
        return optimum

    def evidence(there: Prior) -> tuple[float, dict[str, Any]]:
        optimum = fit_at(there)
        at = data.at(optimum.posterior, prior_matrices(X, there))
        return optimum.value, energy_gradients(X, there, at, optimum.posterior, None, learned)

    steps = 200 if n_steps is None else _check.count(n_steps, "n_steps")
    ended = search(evidence, prior, learned, shared, steps, learning_tolerance)
    fit = _certain(data, fit_at(ended.prior), tolerance)
    return fit._replace(
        trace=ended.trace,
        residual=ended.residual,
        converged=ended.converged and fit.converged,
        iterations=ended.iterations,
    )
