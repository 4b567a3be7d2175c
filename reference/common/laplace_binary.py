"""Laplace's method for two classes, logit or probit: Rasmussen and Williams (2006), sections 3.4, 3.5 and 5.5.1.

Also Williams and Barber (1998). No paper of the ledger prints it, so it stands in `common` and has no address. With
Ψ(f) = log p(y|f) - ½f'K⁻¹f, W = -∇∇log p(y|f) (diagonal) and f̂ the maximum of Ψ,

    f ← (K⁻¹ + W)⁻¹(Wf + ∇log p(y|f))                                     Newton's method, algorithm 3.1
    q(f) = N(f̂, (K⁻¹ + W)⁻¹)
    log Z = log p(y|f̂) - ½f̂'K⁻¹f̂ - ½log|I + KW|
    E f_* = k_*'∇log p(y|f̂),  Var f_* = k_** - k_*'(K + W⁻¹)⁻¹k_*          algorithm 3.2
    p(y_* = 1) = E of the link under that Gaussian

K may be singular and W zero: K⁻¹f is a, f = Ka, (K⁻¹ + W)⁻¹ is (I + KW)⁻¹K and (K + W⁻¹)⁻¹ is W(I + KW)⁻¹.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from reference.common import _check
from reference.common._learning import FIELDS, check_hyper, check_learn, each_parameter, maximise
from reference.common._options import shown
from reference.common.algebra import REMEDY, solution
from reference.common.errors import NotPositiveDefiniteError
from reference.common.kernels import squared_exponential
from reference.common.logistic import log_sigmoid
from reference.common.logistic_expectation import expect_log_sigmoid
from reference.common.options import Options, takes
from reference.common.priors import Hyper
from reference.common.probit import mills_derivative, probit_probability

Array = NDArray[np.float64]

LIKELIHOODS = ("logit", "probit")
# log Φ''' = Σ_k c_k z^(-3-2k) far to the left: the second derivative of |z| + 1/|z| - 2/|z|³ + 10/|z|⁵ - ...
_TAIL = (-2.0, 24.0, -300.0, 4144.0, -63540.0, 1077384.0, -20094620.0, 410014560.0)
_FAR = -30.0


class Derivatives(NamedTuple):
    """log p(y_i|f_i) and its derivatives in f_i, each (n,)."""

    value: Array
    first: Array
    second: Array
    third: Array


class Mode(NamedTuple):
    """Where Newton's method ended."""

    f: Array  # (n,)
    a: Array  # (n,) with f = Ka
    trace: Array  # (iterations + 1,) Ψ from f = 0 on
    residual: float
    converged: bool
    iterations: int


class LaplaceFit(NamedTuple):
    """The Gaussian at the mode."""

    latent_mean: Array  # (n,) f̂
    latent_cov: Array  # (n, n)
    log_evidence: float
    trace: Array
    residual: float
    converged: bool
    iterations: int
    hyper: Hyper


class LaplaceState(NamedTuple):
    """What a callback is told after every Newton step."""

    iteration: int
    log_joint: float
    residual: float


class Prediction(NamedTuple):
    """Predictions at the test points."""

    latent_mean: Array  # (t,)
    latent_var: Array  # (t,) noise included
    probabilities: Array  # (t, 2)
    probability_mass: Array  # (t,)


class LearnedFit(NamedTuple):
    """The maximum over hyper-parameters."""

    fit: LaplaceFit
    trace: Array
    residual: float
    converged: bool
    iterations: int


def logit_derivatives(f: Array, y_sign: Array) -> Derivatives:
    """log σ(yf) and its derivatives: yσ(-yf), -σ(f)σ(-f), σ(f)σ(-f)(σ(f) - σ(-f)).

    Parameters
    ----------
    f : (n,)                  latent values
    y_sign : (n,)             labels, -1 or +1
    """
    right, left = np.exp(log_sigmoid(f)), np.exp(log_sigmoid(-f))
    other = np.where(y_sign > 0.0, left, right)
    return Derivatives(log_sigmoid(y_sign * f), y_sign * other, -right * left, right * left * (right - left))


def probit_derivatives(f: Array, y_sign: Array) -> Derivatives:
    """log Φ(z), z = yf, and its derivatives in f: y r, -r(r + z), y r((r + z)(2r + z) - 1), with r = φ(z)/Φ(z).

    Left of -30 the last one's two terms agree to ten digits and more; there it is the series of its tail.

    Parameters
    ----------
    f : (n,)                  latent values
    y_sign : (n,)             labels, -1 or +1
    """
    z = y_sign * f
    ratio, second = mills_derivative(z)
    gap = np.divide(-second, ratio, out=np.array(z), where=ratio > 0.0)
    third = ratio * (gap * (ratio + gap) - 1.0)
    far = np.minimum(z, _FAR)
    tail = sum(c * far ** (-3 - 2 * k) for k, c in enumerate(_TAIL))
    return Derivatives(log_ndtr(z), y_sign * ratio, second, y_sign * np.where(z < _FAR, tail, third))


def laplace_derivatives(f: Array, y_sign: Array, likelihood: str) -> Derivatives:
    """Those of the likelihood with that name.

    Parameters
    ----------
    f : (n,)                  latent values
    y_sign : (n,)             labels, -1 or +1
    likelihood : str          "logit" or "probit"
    """
    return logit_derivatives(f, y_sign) if likelihood == "logit" else probit_derivatives(f, y_sign)


def laplace_newton(f: Array, K: Array, derivatives: Derivatives) -> Array:
    """a with Ka = (K⁻¹ + W)⁻¹(Wf + ∇log p(y|f)), which is (I + WK)⁻¹(Wf + ∇log p(y|f)).

    Parameters
    ----------
    f : (n,)                  latent values
    K : (n, n)                prior covariance
    derivatives : Derivatives of the log-likelihood at f
    """
    W = -derivatives.second
    return solution(np.eye(len(f)) + W[:, None] * K, W * f + derivatives.first, "I + WK")


def laplace_mode(
    K: Array,
    y_sign: Array,
    likelihood: str,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[LaplaceState], None] | None = None,
) -> Mode:
    """Newton's method from f = 0 to the maximum of Ψ.

    Parameters
    ----------
    K : (n, n)                prior covariance
    y_sign : (n,)             labels, -1 or +1
    likelihood : str          "logit" or "probit"
    tolerance : float         largest entry of the next Newton step, relative to max(1, |f|)
    max_iterations : int      Newton steps after which it gives up and says so
    callback : callable       given a LaplaceState after every step
    """
    f, a = np.zeros((2, len(K)))
    at = laplace_derivatives(f, y_sign, likelihood)
    trace = [float(np.sum(at.value))]
    while True:
        target = laplace_newton(f, K, at)
        residual = float(np.max(np.abs(K @ target - f))) / max(1.0, float(np.max(np.abs(f))))
        if callback is not None and len(trace) > 1:
            callback(LaplaceState(len(trace) - 1, trace[-1], residual))
        if residual <= tolerance or len(trace) > max_iterations:
            return Mode(f, a, np.array(trace), residual, residual <= tolerance, len(trace) - 1)
        f, a = K @ target, target
        at = laplace_derivatives(f, y_sign, likelihood)
        trace.append(float(np.sum(at.value)) - 0.5 * float(a @ f))


def laplace_covariance(K: Array, derivatives: Derivatives) -> Array:
    """(K⁻¹ + W)⁻¹ = (I + KW)⁻¹K, symmetric (n, n).

    Parameters
    ----------
    K : (n, n)                prior covariance
    derivatives : Derivatives of the log-likelihood at the mode
    """
    cov = solution(np.eye(len(K)) - K * derivatives.second, K, "I + KW")
    return 0.5 * (cov + cov.T)


def laplace_explained(K: Array, derivatives: Derivatives) -> Array:
    """(K + W⁻¹)⁻¹ = W(I + KW)⁻¹, symmetric (n, n).

    Parameters
    ----------
    K : (n, n)                prior covariance
    derivatives : Derivatives of the log-likelihood at the mode
    """
    explained = solution(np.eye(len(K)) - derivatives.second[:, None] * K, np.diag(-derivatives.second), "I + WK")
    return 0.5 * (explained + explained.T)


def laplace_log_evidence(f: Array, a: Array, K: Array, derivatives: Derivatives) -> float:
    """log p(y|f̂) - ½f̂'a - ½log|I + KW|, with a for K⁻¹f̂.

    Parameters
    ----------
    f : (n,)                  the mode
    a : (n,)                  f = Ka
    K : (n, n)                prior covariance
    derivatives : Derivatives of the log-likelihood at the mode
    """
    log_det = float(np.linalg.slogdet(np.eye(len(f)) - K * derivatives.second)[1])
    return float(np.sum(derivatives.value)) - 0.5 * float(f @ a) - 0.5 * log_det


def _prior_covariance(X: Array, hyper: Hyper) -> Array:
    """K (n, n) of latent values at the data, noise and jitter on its diagonal."""
    K = squared_exponential(X, X, hyper.variance, hyper.lengthscales)
    return K + (hyper.noise + hyper.jitter) * np.eye(len(X))


def _checked(X: Any, y_sign: Any, hyper: Hyper, likelihood: Any) -> tuple[Array, Array, Hyper]:
    if not isinstance(likelihood, str) or likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood: found {shown(likelihood)}, expected 'logit' or 'probit'")
    X = _check.points(X, "X")
    hyper = check_hyper(*hyper, X.shape[1])
    if hyper.Z is not None:
        raise ValueError("Z: found inducing inputs, expected None: Laplace's method for two classes takes a full GP")
    return X, _check.labels(y_sign, len(X)), hyper


@takes("laplace-binary")
def fit_laplace_binary(
    X: Array, y_sign: Array, hyper: Hyper, likelihood: str = "logit", *, options: Options
) -> LaplaceFit:
    """Laplace's approximation: mode, covariance and log Z, hyper-parameters held.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    hyper : Hyper             of the prior; Z None
    likelihood : str          "logit" or "probit"
    options : Options         of "laplace-binary", or each by name; those of learning are not looked at

    Raises
    ------
    ValueError                naming the argument
    """
    X, y_sign, hyper = _checked(X, y_sign, hyper, likelihood)
    K = _prior_covariance(X, hyper)
    mode = laplace_mode(K, y_sign, likelihood, options.tolerance, options.max_iterations, options.callback)
    at = laplace_derivatives(mode.f, y_sign, likelihood)
    return LaplaceFit(
        mode.f,
        laplace_covariance(K, at),
        laplace_log_evidence(mode.f, mode.a, K, at),
        mode.trace,
        mode.residual,
        mode.converged,
        mode.iterations,
        hyper,
    )


def laplace_binary_gradients(fit: LaplaceFit, X: Array, y_sign: Array, likelihood: str) -> dict[str, Any]:
    """Total derivative of log Z in variance, lengthscales and noise: the mode moves with them.

        ½a'(∂K)a - ½tr((K + W⁻¹)⁻¹∂K) + s'(I + KW)⁻¹(∂K)a,    a = ∇log p(y|f̂),   s_i = ½ Σ_ii ∂³log p(y_i|f̂_i)

    s is the derivative of -½log|I + KW| in f̂: ∂W_i/∂f_i = -∂³log p(y_i|f_i).

    Parameters
    ----------
    fit : LaplaceFit          converged
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    likelihood : str          "logit" or "probit"
    """
    K, n = _prior_covariance(X, fit.hyper), len(X)
    at = laplace_derivatives(fit.latent_mean, y_sign, likelihood)
    explained = laplace_explained(K, at)
    s = 0.5 * np.diag(fit.latent_cov) * at.third
    through_mode = solution((np.eye(n) - K * at.second).T, s, "I + KW")

    def derivative(dK: Array, _: Array, __: Array) -> float:
        pushed = dK @ at.first
        return float(0.5 * at.first @ pushed - 0.5 * np.sum(explained * dK) + through_mode @ pushed)

    return each_parameter(derivative, X, X, fit.hyper, FIELDS)


@takes("laplace-binary")
def learn_laplace_binary(
    X: Array, y_sign: Array, hyper: Hyper, likelihood: str = "logit", *, options: Options
) -> LearnedFit:
    """Hyper-parameters at the maximum of log Z, by L-BFGS-B in their logarithms, each mode from f = 0.

    Parameters
    ----------
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    hyper : Hyper             where the search starts; Z None
    likelihood : str          "logit" or "probit"
    options : Options         of "laplace-binary", or each by name; learn: at least one; max_iterations and callback
                              are not looked at

    Raises
    ------
    ValueError                naming the argument
    """
    X, y_sign, hyper = _checked(X, y_sign, hyper, likelihood)
    learned = check_learn(options.learn, hyper)
    if not learned:
        raise ValueError("learn: found no names, expected at least one")

    def fitted(there: Hyper) -> LaplaceFit:
        return fit_laplace_binary(X, y_sign, there, likelihood, tolerance=options.tolerance)

    def objective(there: Hyper) -> tuple[float, dict[str, Any]]:
        fit = fitted(there)
        return fit.log_evidence, laplace_binary_gradients(fit, X, y_sign, likelihood)

    end = maximise(objective, hyper, learned, options.learning_iterations)
    return LearnedFit(fitted(end.hyper), end.trace, end.residual, end.converged, end.iterations)


def predict_laplace_binary(fit: LaplaceFit, X: Array, y_sign: Array, X_test: Array, likelihood: str) -> Prediction:
    """Latent moments at test points and the link's mean under them, for each label on its own.

    Parameters
    ----------
    fit : LaplaceFit          of `fit_laplace_binary`
    X : (n, d)                inputs
    y_sign : (n,)             labels, -1 or +1
    X_test : (t, d)           test inputs
    likelihood : str          "logit" or "probit"

    Raises
    ------
    NotPositiveDefiniteError  if rounding makes a variance negative
    """
    tests = _check.points(X_test, "X_test", X.shape[1], allow_empty=True)
    hyper = fit.hyper
    at = laplace_derivatives(fit.latent_mean, y_sign, likelihood)
    K_TX = squared_exponential(tests, X, hyper.variance, hyper.lengthscales)
    mean = K_TX @ at.first
    var = hyper.variance + hyper.noise - np.sum((K_TX @ laplace_explained(_prior_covariance(X, hyper), at)) * K_TX, 1)
    if np.any(var < 0.0):
        raise NotPositiveDefiniteError(
            f"K_XX {2 * (len(X),)}: found latent variance {np.min(var):.3g} at row {np.argmin(var)} of X_test by "
            f"rounding, expected >= 0; {REMEDY}"
        )
    if likelihood == "probit":
        probabilities = probit_probability(mean, var)
    else:  # E σ(-f) and E σ(f)
        sides = [expect_log_sigmoid(sign * mean, var).first for sign in (1.0, -1.0)]
        probabilities = np.stack(sides, axis=1)
    mass = np.sum(probabilities, axis=1)
    return Prediction(mean, var, probabilities / mass[:, None], mass)
