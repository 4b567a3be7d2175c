"""Section 4.3: the loops that alternate local, global and hyper-parameter steps; stochastic, and in batches of all."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._learning import check_learn, maximise
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.common.priors import Hyper
from reference.wenzel2019 import _prior
from reference.wenzel2019._stochastic import Method, SVIFit, run
from reference.wenzel2019.fit import XGPCFit, ascend, bound_gradients
from reference.wenzel2019.svi import batch_bound, batch_bound_gradients, svi_gradient

Array = NDArray[np.float64]

_PATIENCE = 10_000  # sweeps of one run of a search


class LearnedFit(NamedTuple):
    """The maximum of the fitted bound in the hyper-parameters."""

    hyper: Hyper
    fit: XGPCFit  # coordinate ascent, converged with these hyper-parameters
    trace: Array  # (iterations,) the fitted bound after each iteration of the search
    residual: float  # largest entry of the gradient of the fitted bound in a learned coordinate
    converged: bool
    iterations: int


@equation("wenzel2019", "u4.3-svi")
@takes("x-gpc-svi")
def fit_xgpc_svi(
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
    """Stochastic variational inference: wenzel2019, section 4.3.

    Starts at q(u) = p(u). One iteration takes a mini-batch S, sets c_S by (11), takes the natural gradient (12), steps
    by the rate, and then, where hyper-parameters are learned, makes one Adam step on S's estimate of the bound with
    μ and Σ held. η₁, η₂ stay what they are when the kernel moves.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1; a class may be absent, from a mini-batch or altogether
    variance : float          prior variance, > 0
    lengthscales : (d,)       one per input dimension, > 0
    noise : float             >= 0, added to the prior variance of each latent value at data and test points
    jitter : float            >= 0, added to the diagonal of K_ZZ (of K_XX if Z is None)
    Z : (m, d) or None        inducing inputs; None is the full GP
    options : Options         of "x-gpc-svi", or each by name; n_steps None: as many as batches, or 1000; init_batches
                              None: the first ten; stop, the average change over a window of steps below which it
                              ends, "default": 1e-4 where mini-batches are drawn here, None where they are given

    Returns
    -------
    SVIFit                    elbo is the bound from all data at the end, c at its maximum

    Raises
    ------
    ValueError                for bad input, an empty or foreign mini-batch, rates outside (0, 1], divergence
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    return run(Method(svi_gradient, batch_bound, batch_bound_gradients), given, options)


@equation("wenzel2019", "u4.3-hyper")
@takes("x-gpc")
def optimise_hyperparameters(
    X: Array,
    y_sign: Array,
    variance: float,
    lengthscales: Array,
    noise: float,
    jitter: float,
    Z: Array | None = None,
    *,
    options: Options,
) -> LearnedFit:
    """Maximise the fitted bound L(h) in the hyper-parameters: wenzel2019, section 4.3, "Optimization of the ...".

    Alternates coordinate ascent to its fixed point with steps of L-BFGS-B in log variance, log lengthscales, log noise
    and Z, along the gradient of the bound at fixed μ, Σ, c, which at the fixed point is that of the fitted bound.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    variance : float          where the search starts, > 0
    lengthscales : (d,)       where the search starts, > 0
    noise : float             where the search starts, >= 0; > 0 if it is learned
    jitter : float            >= 0, held
    Z : (m, d) or None        inducing inputs, where the search starts; None is the full GP
    options : Options         of "x-gpc", or each by name; learn: at least one; max_iterations is not looked at

    Returns
    -------
    LearnedFit                converged if no learned coordinate has a gradient above 1e-4

    Raises
    ------
    ValueError                for bad input, or nothing to learn
    NotPositiveDefiniteError  if K_ZZ (K_XX) is singular at the start

    Notes
    -----
    Logarithms move by a factor of 1e4 at most from the start: the bound may rise for ever along a length that
    switches an input off.
    """
    given = _prior.checked(X, y_sign, variance, lengthscales, noise, jitter, Z)
    learned = check_learn(options.learn, given.hyper)
    if not learned:
        raise ValueError("learn: found no names, expected at least one")

    def fitted(hyper: Hyper) -> XGPCFit:
        return ascend(given._replace(hyper=hyper), options.tolerance, max_iterations=_PATIENCE)

    def objective(hyper: Hyper) -> tuple[float, dict[str, Any]]:
        fit = fitted(hyper)
        return fit.elbo, bound_gradients(fit, given.X, given.y_sign, *hyper)._asdict()

    optimum = maximise(objective, given.hyper, learned, options.learning_iterations)
    return LearnedFit(
        optimum.hyper, fitted(optimum.hyper), optimum.trace, optimum.residual, optimum.converged, optimum.iterations
    )
