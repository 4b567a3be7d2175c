"""Section 5, baseline svgpc: the ascents, in batches of all data and of some, and the search for hyper-parameters."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._iteration import Arrival, change
from reference.common._learning import check_learn, maximise
from reference.common._options import shown
from reference.common.options import Options, takes
from reference.common.priors import Hyper
from reference.common.probit import probit_probability
from reference.wenzel2019 import _prior
from reference.wenzel2019._stochastic import Method, SVIFit, run
from reference.wenzel2019.svgpc import svgpc_bound, svgpc_gradients, svgpc_natural_gradient
from reference.wenzel2019.updates import Gaussian, from_natural, natural_gradient_step, to_natural

Array = NDArray[np.float64]


# of steps on all data: whole ones circle around the maximum at prior variances above some 20, half ones above 1000
RATE = 0.5


class SVGPCFit(NamedTuple):
    """Where the ascent in batches of all data ended."""

    inducing_mean: Array  # (m,)
    inducing_cov: Array  # (m, m)
    latent_mean: Array  # (n,)
    latent_var: Array  # (n,)       noise included
    elbo: float  # a lower bound on log p(y), every constant included
    trace: Array  # (iterations,)   the bound after each step
    residual: float  # estimated relative distance to the fixed point
    converged: bool
    iterations: int
    hyper: Hyper  # as learned
    reason: str = ""  # why it has not converged


class ProbitPrediction(NamedTuple):
    """Predictions at the test points."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,)         noise included
    probability: Array  # (t, 2)      of -1 and +1, each worked out by itself
    probability_mass: Array  # (t,)   their sum


def ascend(
    given: _prior.Inputs, tolerance: float, max_iterations: int, rate: float = RATE, start: Gaussian | None = None
) -> SVGPCFit:
    """Natural-gradient steps of one rate on all data, from q(u) = p(u) or another start.

    `residual` is the estimated distance to the fixed point, see `Arrival`, by the largest relative change of μ and Σ as
    if the step had been whole. Where labels cancel, the digits of μ that are left are those of rounding: it is measured
    against the larger of its largest entry and 1 % of what it would be if all labels pulled one way.

    Parameters
    ----------
    given : Inputs            checked
    tolerance : float         of `residual`
    max_iterations : int      steps after which it gives up and says so; earlier if 200 bring no smaller change
    rate : float              of the steps
    start : Gaussian          q(u); None: p(u)
    """
    X, y_sign, hyper = given
    K = _prior.matrices(X, hyper)
    everything = np.arange(len(X))
    q = Gaussian(np.zeros(len(K.K_ZZ)), K.K_ZZ) if start is None else start
    eta = to_natural(*q)
    trace: list[float] = []
    arrival = Arrival(tolerance)
    # fmt: off
    while not arrival.converged and not arrival.stalled and len(trace) < max_iterations:
        gradient = svgpc_natural_gradient(*eta, everything, y_sign, K.upsilon, K.cond_var, K.K_ZZ_inv)   # (17)
        eta = natural_gradient_step(*eta, *gradient, rate)                                    # 4.3
        before, q = q, from_natural(*eta)                                                     # 4.3
        trace.append(svgpc_bound(*q, everything, y_sign, K.K_ZZ, K.upsilon, K.cond_var))
        floor = 0.005 * float(np.max(np.sum(np.abs(q.inducing_cov @ K.upsilon.T), axis=1)))
        moved = change(q.inducing_mean, before.inducing_mean, floor), change(q.inducing_cov, before.inducing_cov)
        arrival.see(max(moved) / rate)
    # fmt: on
    reason = "" if arrival.converged else arrival.reason(len(trace))
    moments = _prior.latent_moments(K, *q)
    history = np.array(trace)
    return SVGPCFit(
        *q, *moments, trace[-1], history, arrival.residual, arrival.converged, len(trace), hyper, reason
    )  # fmt: skip


@takes("svgpc")
def fit_svgpc(
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
    *,
    options: Options,
) -> SVGPCFit:
    """The maximum of the probit bound in q(u), and in the hyper-parameters to learn.

    Natural-gradient steps on all data from q(u) = p(u), see `ascend`. Hyper-parameters
    by L-BFGS-B in log variance, log lengthscales, log noise and Z, with q(u) at its maximum each time.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1; one class alone is allowed
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, added to the prior variance of each latent value at data and test points
    jitter : float            >= 0, added to the diagonal of K_ZZ (of K_XX if Z is None)
    Z : (m, d) or None        inducing inputs; None is the full GP
    options : Options         of "svgpc", or each by name; rate: a number, or None: ½; others of mini-batches are
                              not looked at

    Returns
    -------
    SVGPCFit                  with learn, trace is that of the search and residual the largest gradient left

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    rate = RATE if options.rate is None else options.rate
    if rate == "adaptive" or isinstance(rate, tuple):
        raise ValueError(f"rate: found {shown(rate)}, expected a number for steps on all data")
    steps = options.tolerance, options.max_iterations, rate
    learned = check_learn(options.learn, given.hyper)
    everything = np.arange(len(given.X))

    if not learned:
        return ascend(given, *steps)
    last: list[Gaussian] = []  # where the search was before is near where it is now

    def objective(hyper: Hyper) -> tuple[float, dict[str, Any]]:
        start = last[0] if last else None
        fit = ascend(given._replace(hyper=hyper), *steps, start)
        last[:] = [Gaussian(fit.inducing_mean, fit.inducing_cov)]
        q = fit.inducing_mean, fit.inducing_cov
        return fit.elbo, svgpc_gradients(given.X, given.y_sign, hyper, *q, everything, learned)

    optimum = maximise(objective, given.hyper, learned, 200)
    fit = ascend(given._replace(hyper=optimum.hyper), *steps)
    return fit._replace(
        trace=optimum.trace,
        residual=optimum.residual,
        converged=optimum.converged and fit.converged,
        iterations=optimum.iterations,
    )


@takes("svgpc")
def fit_svgpc_svi(
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
    *,
    options: Options,
) -> SVIFit:
    """Stochastic natural gradients of the probit bound, hyper-parameters by Adam; see `fit_xgpc_svi`.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0
    jitter : float            >= 0
    Z : (m, d) or None        inducing inputs; None is the full GP
    options : Options         of "svgpc", or each by name; n_steps None: as many as batches, or 1000; init_batches None:
                              the first ten; stop, the average change over a window of steps below which the ascent
                              ends, "default": 1e-4 where mini-batches are drawn here, None where they are given

    Returns
    -------
    SVIFit                    elbo is the bound from all data at the end

    Raises
    ------
    ValueError                for bad input, an empty or foreign mini-batch, rates outside (0, 1], divergence
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    return run(Method(svgpc_natural_gradient, svgpc_bound, svgpc_gradients), given, options)


def predict_probit(
    q: Gaussian,
    X: Array,
    X_test: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
) -> ProbitPrediction:
    """Latent moments (13) of wenzel2019 and class probabilities through the probit link at test points.

    Parameters
    ----------
    q : Gaussian              mean (m,) and covariance (m, m) of u, the latent values at X if Z is None
    X : (n, d)                training inputs
    X_test : (t, d)           test inputs; t = 0 gives empty arrays
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, part of the latent variance of a test point
    jitter : float            >= 0, part of K_ZZ (K_XX) only
    Z : (m, d) or None        inducing inputs; None is the full GP

    Returns
    -------
    ProbitPrediction          latent_mean, latent_var (t,), probability (t, 2), probability_mass (t,)

    Raises
    ------
    ValueError                for bad input, or moments of another size
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular, or so close to it that a predictive variance is negative
    """
    X = _check.points(X, "X")
    given = _prior.checked(X, np.ones(len(X)), variance, lengthscales, noise, jitter, Z)
    latent = _prior.predict(*q, given.X, X_test, given.hyper)
    columns = probit_probability(latent.latent_mean, latent.latent_var)
    mass = np.sum(columns, axis=1)
    return ProbitPrediction(latent.latent_mean, latent.latent_var, columns / mass[:, None], mass)
