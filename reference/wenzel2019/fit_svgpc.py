"""Section 5, baseline svgpc: the ascents, in batches of all data and of some, and the search for hyper-parameters."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common import _check
from reference.common._iteration import Arrival, change
from reference.common._learning import Hyper, check_learn, maximise
from reference.common.options import Options, takes
from reference.common.probit import probit_probability
from reference.wenzel2019 import _prior
from reference.wenzel2019._certain import certain
from reference.wenzel2019._stochastic import Method, SVIFit, run
from reference.wenzel2019.svgpc import svgpc_bound, svgpc_gradients, svgpc_gradients_at_maximum, svgpc_natural_gradient
from reference.wenzel2019.updates import Gaussian, Natural, from_natural, natural_gradient_step, to_natural

Array = NDArray[np.float64]


_NEAR, _ROUNDED = 1e-3, 1e-11  # relative changes between which a longer step is a step that led away
_LEAST_CEILING = 0.05


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
    reason: str = ""  # why an ascent that came to its end is not called converged


class ProbitPrediction(NamedTuple):
    """Predictions at the test points."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,)         noise included
    probability: Array  # (t, 2)      of -1 and +1, each worked out by itself
    probability_mass: Array  # (t,)   their sum


def _ascend(given: _prior.Inputs, tolerance: float, max_iterations: int, start: Gaussian | None) -> SVGPCFit:
    """Natural-gradient steps on all data, halved where the bound would fall, doubled up to one where it does not."""
    X, y_sign, hyper = given
    K = _prior.matrices(X, hyper)
    everything = np.arange(len(X))
    q = Gaussian(np.zeros(len(K.K_ZZ)), K.K_ZZ)
    eta = Natural(np.zeros(len(K.K_ZZ)), -0.5 * K.K_ZZ_inv)

    def bound(at: Gaussian) -> float:
        return svgpc_bound(*at, everything, y_sign, K.K_ZZ, K.upsilon, K.cond_var)

    if start is not None:
        eta, q = to_natural(*start), start
    elbo, rate, ceiling = bound(q), 1.0, 1.0
    trace: list[float] = []
    arrival, stuck = Arrival(tolerance), False
    while not (arrival.converged or stuck) and len(trace) < max_iterations and not arrival.stalled:
        gradient = svgpc_natural_gradient(*eta, everything, y_sign, K.upsilon, K.cond_var, K.K_ZZ_inv)
        while True:
            new_eta = natural_gradient_step(*eta, *gradient, rate)
            new = from_natural(*new_eta)
            value = bound(new)
            # near the fixed point the bound changes by rounding only: sums of n + m terms, 1e-11 of their size
            if value >= elbo - 1e-11 * (1.0 + abs(elbo)):
                break
            stuck = rate < 1e-6  # rounding of the bound hides its rise: no length of a step will help
            if stuck:
                break
            rate *= 0.5
        # where labels cancel, the digits of the mean that are left are those of rounding: it is measured against 1 % of
        # what it would be if all labels pulled one way, and the distance as if the step had been whole
        uncancelled = 0.5 * float(np.max(np.sum(np.abs(new.inducing_cov @ K.upsilon.T), axis=1)))
        floors = 0.01 * uncancelled, 0.0
        arrival.see(max(change(a, b, floor) for a, b, floor in zip(new, q, floors, strict=True)) / rate)
        changes = arrival.changes
        eta, q, elbo = new_eta, new, value
        trace.append(elbo)
        # so near the fixed point the bound no longer tells a step that leads away, but its successor is longer
        if len(changes) > 1 and _NEAR > changes[-1] > changes[-2] > _ROUNDED:
            ceiling = max(0.5 * rate, _LEAST_CEILING)
        rate = min(ceiling, 2.0 * rate)
    moments = _prior.latent_moments(K, *q)
    converged = arrival.converged and not stuck
    return SVGPCFit(*q, *moments, elbo, np.array(trace), arrival.residual, converged, len(trace), hyper)


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

    Natural-gradient steps on all data from q(u) = p(u), each of rate one unless the bound would fall, which halves it.
    Hyper-parameters by L-BFGS-B in log variance, log lengthscales, log noise and Z, with q(u) at its maximum each time.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1; one class alone is allowed
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, added to the prior variance of each latent value at data and test points
    jitter : float            >= 0, added to the diagonal of K_ZZ (of K_XX if Z is None)
    Z : (m, d) or None        inducing inputs; None is the full GP
    options : Options         of "svgpc", or each by name; those of mini-batches are not looked at

    Returns
    -------
    SVGPCFit                  with learn, trace is that of the search and residual the largest gradient left

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    tolerance, max_iterations = options.tolerance, options.max_iterations
    learned = check_learn(options.learn, given.hyper)
    everything = np.arange(len(given.X))

    def answer(hyper: Hyper) -> SVGPCFit:
        """The maximum in q(u), and whether rounding leaves it open."""
        held = given._replace(hyper=hyper)
        fit = _ascend(held, tolerance, max_iterations, None)
        start = Gaussian(fit.inducing_mean, fit.inducing_cov)

        def again(there: _prior.Inputs) -> SVGPCFit:
            return _ascend(there, tolerance, max_iterations, start)

        def derivatives(value: SVGPCFit, there: Hyper) -> dict[str, Any]:
            return svgpc_gradients_at_maximum(given.X, given.y_sign, there, value.inducing_mean, value.inducing_cov)

        return certain(fit, held, tolerance, again, derivatives)

    if not learned:
        return answer(given.hyper)
    last: list[Gaussian] = []  # where the search was before is near where it is now

    def objective(hyper: Hyper) -> tuple[float, dict[str, Any]]:
        start = last[0] if last else None
        fit = _ascend(given._replace(hyper=hyper), tolerance, max_iterations, start)
        last[:] = [Gaussian(fit.inducing_mean, fit.inducing_cov)]
        q = fit.inducing_mean, fit.inducing_cov
        return fit.elbo, svgpc_gradients(given.X, given.y_sign, hyper, *q, everything, learned)

    optimum = maximise(objective, given.hyper, learned, 200)
    fit = answer(optimum.hyper)
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
