"""Section 5.5: type-II MAP estimation of hyper-parameters, and section 4.3's alternation for the variational bound."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._options import shown
from reference.common._search import REACH, Limits, maximise
from reference.common.errors import factorise
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.riihimaki2013 import _check
from reference.riihimaki2013.fit import Gradients, Prior, as_gradients, covariance_derivatives
from reference.riihimaki2013.model import REMEDY, prior_covariance
from reference.riihimaki2013.priors import FAMILIES
from reference.riihimaki2013.variational import Factors, fit_vb, vb_hyper_objective

Array = NDArray[np.float64]

FIELDS = ("variance", "lengthscales", "noise")

Evidence = Callable[[Prior], tuple[float, Gradients]]


class Found(NamedTuple):
    """Where a search ended."""

    prior: Prior
    objective: float
    residual: float  # largest entry of the projected gradient in the logarithms
    converged: bool
    iterations: int
    trace: Array


def check_learn(learn: Any, prior: Prior) -> tuple[str, ...]:
    """The fields to learn in the order of FIELDS; learn is a name or several, prior their present values."""
    given = (learn,) if isinstance(learn, str) else tuple(learn)
    for field in given:
        if not isinstance(field, str) or field not in FIELDS:
            raise ValueError(f"learn: found {shown(field)}, expected some of {', '.join(FIELDS)}")
    if "noise" in given and np.any(np.asarray(prior.noise) == 0.0):
        raise ValueError("learn: found 'noise' with noise = 0, whose logarithm cannot move; expected noise > 0")
    return tuple(field for field in FIELDS if field in given)


def pack(prior: Prior, learn: Sequence[str], shared: bool) -> Array:
    """Logarithms of the fields `learn` of prior, one vector; shared: of the first class only."""
    return np.concatenate([np.log((getattr(prior, f)[:1] if shared else getattr(prior, f)).ravel()) for f in learn])


def unpack(where: Array, prior: Prior, learn: Sequence[str], shared: bool) -> Prior:
    """The prior with its learned fields (learn) at the logarithms `where` (p,); shared: the same for every class."""
    at, changes = 0, {}
    for field in learn:
        old = getattr(prior, field)
        shape = (1, *old.shape[1:]) if shared else old.shape
        size = int(np.prod(shape))
        changes[field] = np.broadcast_to(np.exp(where[at : at + size]).reshape(shape), old.shape).copy()
        at += size
    return prior._replace(**changes)


def log_hyperprior(
    prior: Prior,
    hyperprior: Mapping[str, tuple[str, float, float]] | None,
    shared: bool,
    prior_on: str = "field",
    map_density: str = "value",
) -> tuple[float, Gradients]:
    """Log density of the hyper-parameters and its derivatives in them.

    Parameters
    ----------
    prior : Prior             hyper-parameters of every class
    hyperprior : mapping      field -> (family, df, scale); None: nothing
    shared : bool             one density for all classes, counted in the first
    prior_on : str             "field", or "root": variance and noise enter by their square roots
    map_density : str         "value", or "log": the density of the logarithm, which adds log x
    """
    _check.choice(prior_on, ("field", "root"), "prior_on")
    _check.choice(map_density, ("value", "log"), "map_density")
    value = 0.0
    derivatives = {field: np.zeros_like(getattr(prior, field)) for field in FIELDS}
    for field, (family, df, scale) in (hyperprior or {}).items():
        theta = getattr(prior, field)[:1] if shared else getattr(prior, field)
        root = prior_on == "root" and field != "lengthscales"
        x = np.sqrt(theta) if root else theta
        density, derivative = FAMILIES[family]
        value += density(x.ravel(), df, scale)
        by_x = derivative(x, df, scale)
        if map_density == "log":
            value += float(np.sum(np.log(x)))
            by_x = by_x + 1.0 / x
        derivatives[field][: len(theta)] = by_x * (0.5 / x if root else 1.0)
    return value, Gradients(derivatives["variance"], derivatives["lengthscales"], derivatives["noise"])


@equation("riihimaki2013", "u5.5-map")
def type2_map_objective(
    evidence: Evidence,
    prior: Prior,
    hyperprior: Mapping[str, tuple[str, float, float]] | None,
    learn: Sequence[str],
    shared: bool,
    prior_on: str = "field",
    map_density: str = "value",
) -> tuple[float, Array]:
    """log Z + log p(θ) and its gradient in the logarithms of what is learned: section 5.5 of riihimaki2013.

    Parameters
    ----------
    evidence : callable       Prior to log Z and its Gradients
    prior : Prior             where
    hyperprior : mapping      field -> (family, df, scale); None: maximum likelihood of type II
    learn : names             fields of the vector
    shared : bool             one vector for all classes: the classes' gradients are summed
    prior_on : str             of `log_hyperprior`
    map_density : str         of `log_hyperprior`
    """
    value, derivatives = evidence(prior)
    log_density, density_derivatives = log_hyperprior(prior, hyperprior, shared, prior_on, map_density)
    parts = []
    for field in learn:
        theta = getattr(prior, field)
        derivative = (getattr(derivatives, field) + getattr(density_derivatives, field)) * theta
        parts.append((np.sum(derivative, axis=0) if shared else derivative).ravel())
    return value + log_density, np.concatenate(parts)


@takes("laplace")
def type2_map(
    evidence: Evidence,
    prior: Prior,
    hyperprior: Mapping[str, tuple[str, float, float]] | None,
    *,
    shared: bool = False,
    options: Options,
) -> Found:
    """The maximum of `type2_map_objective` by L-BFGS-B; a logarithm moves by a factor of 1e4 at most.

    Parameters
    ----------
    evidence : callable       Prior to log Z and its Gradients
    prior : Prior             start
    hyperprior : mapping      field -> (family, df, scale), or None
    shared : bool             one vector for all classes
    options : Options         of the method whose evidence it is, or those of laplace by name. max_iterations: of the
                              search, None: 200; learn_tolerance: largest entry of the projected gradient at which the
                              search has converged; prior_on, map_density: of `log_hyperprior`
    """
    learn = check_learn(options.learn, prior)

    def objective(there: Prior) -> tuple[float, Array]:
        return type2_map_objective(evidence, there, hyperprior, learn, shared, options.prior_on, options.map_density)

    return _ascend(objective, prior, learn, shared, _limit(options), options.learn_tolerance)


def _limit(options: Options) -> int:
    """Iterations of a search, 200 where nobody says."""
    return 200 if options.max_iterations is None else int(options.max_iterations)


def _ascend(
    objective: Callable[[Prior], tuple[float, Array]],
    prior: Prior,
    learn: Sequence[str],
    shared: bool,
    max_iterations: int,
    tolerance: float,
) -> Found:
    top = maximise(
        lambda where: objective(unpack(where, prior, learn, shared)),
        pack(prior, learn, shared),
        Limits(0.1 * tolerance, 1e-14, max_iterations),
        REACH,
    )
    at = unpack(top.where, prior, learn, shared)
    return Found(at, top.value, top.residual, top.residual <= tolerance, top.iterations, top.trace)


@equation("riihimaki2013", "u4.3-vb-hyper")
def vb_update_hyperparameters(
    factors: Factors, X: Array, prior: Prior, learn: Sequence[str], shared: bool, max_iterations: int = 200
) -> Prior:
    """θ that maximises the bound with q(v) and q(f) held: section 4.3 of riihimaki2013.

    Only E_q[log p(f|θ)] depends on θ then.

    Parameters
    ----------
    factors : Factors         q(f), held
    X : (n, d)                inputs
    prior : Prior             start
    learn : names             fields to learn
    shared : bool             one vector for all classes
    max_iterations : int      of the search
    """
    m = factors.mean.T.ravel()
    second = factors.cov + np.outer(m, m)
    learn = check_learn(learn, prior)

    def objective(there: Prior) -> tuple[float, Array]:
        K = prior_covariance(X, *there)
        inverse = factorise(K, "K_XX", REMEDY).inverse
        pull = 0.5 * (inverse @ second @ inverse - inverse)
        flat = np.array([np.sum(pull * dK) for dK in covariance_derivatives(X, there)])
        gradients = as_gradients(flat, len(there.variance))
        return type2_map_objective(lambda _: (vb_hyper_objective(factors, K), gradients), there, None, learn, shared)

    return _ascend(objective, prior, learn, shared, max_iterations, 1e-5).prior


@takes("vb-probit")
def vb_alternate(
    X: Array, y: NDArray[np.int64], n_classes: int, prior: Prior, *, shared: bool = False, options: Options
) -> Found:
    """Fixed point of the factors and `vb_update_hyperparameters` in turn, until the logarithms move by tolerance.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..n_classes-1
    n_classes : int           c
    prior : Prior             start
    shared : bool             one vector for all classes
    options : Options         of vb-probit. max_iterations: rounds, None: 200; learn_tolerance: largest move of a
                              logarithm at which it ends
    """
    learn = check_learn(options.learn, prior)
    trace: list[float] = []
    residual, rounds = np.inf, 0
    while rounds < _limit(options) and residual > options.learn_tolerance:
        fit = fit_vb(X, y, n_classes, prior)
        trace.append(fit.log_evidence)
        new = vb_update_hyperparameters(fit.factors, X, prior, learn, shared)
        residual = float(np.max(np.abs(pack(new, learn, shared) - pack(prior, learn, shared))))
        prior, rounds = new, rounds + 1
    value = fit_vb(X, y, n_classes, prior).log_evidence
    return Found(prior, value, residual, residual <= options.learn_tolerance, rounds, np.array(trace))
