"""The mode of a softmax model and the Gaussian at it. riihimaki2013, section 4.1; Williams and Barber (1998).

W_i = diag(pi_i) - pi_i pi_i' has the form of the sites of `fast.full_classes.couplings` with 1'pi_i = 1, and both W f +
grad and the gradient itself sum to zero over the classes: a Newton step is one conditioning, f = K b, and K is never
inverted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fast.core.ending import ended
from fast.core.types import FloatArray, IntArray
from fast.full_classes.couplings import Coupled, condition, weights_of
from fast.full_classes.prior import MulticlassPrior
from fast.ledger import equation


class Mode(NamedTuple):
    """Where Newton's method stopped."""

    posterior: Coupled  # sites W at the mode; weights b with mean K b the next Newton point
    latent: FloatArray  # (n, C) f
    derivative: FloatArray  # (n, C) grad log p(y|f)
    pi: FloatArray  # (n, C)
    log_likelihood: float
    residual: float
    converged: bool
    iterations: int


class SoftmaxTerms(NamedTuple):
    """log p(y|f) and its derivatives."""

    value: float
    derivative: FloatArray  # (n, C) e_y - pi
    pi: FloatArray  # (n, C)


@equation("riihimaki2013", "1", "u4.1-W")
def softmax_terms(latent: FloatArray, y: IntArray) -> SoftmaxTerms:
    """log-likelihood of the softmax model, its gradient and the pi of W = diag(pi) - pi pi': riihimaki2013 (1), 4.1.

    The label's entry of the gradient is the sum of the others' probabilities: it keeps its digits where pi_y is near 1.

    Parameters
    ----------
    latent : (n, C)    f
    y : (n,)           labels
    """
    rows = np.arange(y.size)
    shifted = latent - latent.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=1)
    pi = weights / total[:, None]
    derivative = -pi
    derivative[rows, y] = 0.0
    derivative[rows, y] = -derivative.sum(axis=1)
    value = float((shifted[rows, y] - np.log(total)).sum())
    return SoftmaxTerms(value, derivative, pi)


@equation("riihimaki2013", "u4.1-newton")
def newton_step(
    prior: MulticlassPrior,
    latent: FloatArray,
    terms: SoftmaxTerms,
    conditioning: Callable[[Any, FloatArray, FloatArray], Any] | None = None,
) -> Coupled:
    """(K^-1 + W)^-1 (W f + grad) as mean and weights of a posterior: riihimaki2013, 4.1. Time (4/3) C n^3.

    Parameters
    ----------
    prior                      the data
    latent : (n, C)            f
    terms                      of the likelihood at f
    conditioning : callable    another `fast.full_classes.couplings.condition`, for a prior with a structure
    """
    centred = latent - np.einsum("nc,nc->n", terms.pi, latent)[:, None]
    location = terms.pi * centred
    location -= location.mean(axis=1, keepdims=True)  # the sum is rounding
    result: Coupled = (conditioning or condition)(prior, terms.pi, location + terms.derivative)
    return result


def residual_at(prior: MulticlassPrior, latent: FloatArray, derivative: FloatArray) -> float:
    """max |f - K grad| / max(1, max |f|).

    Parameters
    ----------
    prior              the data
    latent : (n, C)    f
    derivative : (n, C)     grad log p(y|f)
    """
    away = latent - np.column_stack([prior.K(k) @ derivative[:, k] for k in range(prior.n_classes)])
    return float(np.abs(away).max()) / max(1.0, float(np.abs(latent).max()))


@equation("riihimaki2013", "u4.1-laplace")
def find_mode(
    prior: MulticlassPrior,
    *,
    tolerance: float,
    max_iterations: int,
    start: FloatArray | None = None,
    conditioning: Callable[[Any, FloatArray, FloatArray], Any] | None = None,
) -> Mode:
    """Newton's method from f = 0, steps halved while the log joint falls: riihimaki2013, section 4.1.

    Parameters
    ----------
    prior                    the data
    tolerance : float        on max |f - K grad| / max(1, max |f|)
    max_iterations : int     Newton steps
    start : (n, C)           weights b with f = K b; default zero
    conditioning             see `newton_step`
    """
    n, C = prior.n, prior.n_classes
    weights = np.zeros((C, n)) if start is None else start.T.copy()
    latent = np.column_stack([prior.K(k) @ weights[k] for k in range(C)])
    terms = softmax_terms(latent, prior.y)
    joint = terms.value - 0.5 * float(np.vdot(weights.T, latent))
    residual = residual_at(prior, latent, terms.derivative)
    iterations = 0
    while residual > tolerance and iterations < max_iterations and not (iterations and ended()):
        step = newton_step(prior, latent, terms, conditioning)
        iterations += 1
        share = 1.0
        while True:
            new_weights = weights + share * (step.weights - weights)
            new_latent = latent + share * (step.mean - latent)
            new_terms = softmax_terms(new_latent, prior.y)
            new_joint = new_terms.value - 0.5 * float(np.vdot(new_weights.T, new_latent))
            if new_joint >= joint - 1e-12 * (1.0 + abs(joint)) or share < 2.0**-30:
                break
            share *= 0.5
        weights, latent, terms, joint = new_weights, new_latent, new_terms, new_joint
        before, residual = residual, residual_at(prior, latent, terms.derivative)
        if residual > tolerance and residual >= before and residual < 1e-7:
            break  # rounding: a Newton step that does not come nearer
    at = newton_step(prior, latent, terms, conditioning)
    return Mode(at, latent, terms.derivative, terms.pi, terms.value, residual, residual <= tolerance, iterations)


@equation("riihimaki2013", "u4.1-logz")
def laplace_log_evidence(mode: Mode) -> float:
    """-f'K^-1 f/2 + log p(y|f) - log|I + K W|/2 with grad for K^-1 f: riihimaki2013, section 4.1.

    Parameters
    ----------
    mode    from `find_mode`
    """
    return mode.log_likelihood - 0.5 * float(np.vdot(mode.latent, mode.derivative)) - 0.5 * mode.posterior.log_det


def mode_weights(mode: Mode, cov: FloatArray) -> FloatArray:
    """r = (I + W K)^-1 s with s = d(-log|I + K W|/2)/df at the mode: what moves log Z through the mode, (C, n).

    s_ik = -pi_k [Sigma_kk - sum_a pi_a Sigma_aa - 2 (Sigma pi)_k + 2 pi'Sigma pi] / 2, summing to zero over k.

    Parameters
    ----------
    mode               from `find_mode`
    cov : (n, C, C)    blocks of (K^-1 + W)^-1
    """
    pi = mode.pi
    variances = np.einsum("ncc->nc", cov)
    crossed = np.einsum("nij,nj->ni", cov, pi)
    mean_var = np.einsum("nc,nc->n", pi, variances)
    quadratic = np.einsum("nc,nc->n", pi, crossed)
    derivative = -0.5 * pi * (variances - mean_var[:, None] - 2.0 * crossed + 2.0 * quadratic[:, None])
    derivative -= derivative.mean(axis=1, keepdims=True)  # the sum is rounding
    return weights_of(mode.posterior.factors, mode.posterior.coupling_chol, derivative)
