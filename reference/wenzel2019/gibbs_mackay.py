"""Appendix A.5: the bound of Gibbs and MacKay (2000) on the logit link, and its equality with the augmented bound."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.common.ledger import equation
from reference.common.logistic import log_cosh, log_sigmoid
from reference.wenzel2019.augmentation import pg_mean

Array = NDArray[np.float64]


class BoundPair(NamedTuple):
    """Two bounds on log p(y|f), datum by datum."""

    augmented: Array  # (n,)
    gibbs_mackay: Array  # (n,)


@equation("wenzel2019", "A.5-augmented")
def pg_pointwise_bound(latent_values: Array, c: Array, y_sign: Array) -> float:
    """Bound on log p(y|f) from the augmented model without sparsity: wenzel2019, A.5, first display.

        log p(y|f) >= E_{q(ω)}[log p(y|f, ω)] - KL(q(ω)||p(ω))
                    = Σ_i { -log 2 + y_i f_i/2 - θ_i f_i²/2 + c_i² θ_i/2 - log cosh(c_i/2) }

    with equality where c_i = ±f_i.

    Parameters
    ----------
    latent_values : (n,)      f
    c : (n,)                  tilts of q(ω_i)
    y_sign : (n,)             y, labels -1 or +1

    Notes
    -----
    The right-hand side is lost in the extracted text; it follows from (5) and A.2.
    """
    f, theta = latent_values, pg_mean(1.0, c)
    loglik = -np.log(2.0) + 0.5 * y_sign * f - 0.5 * theta * f**2  # E[log p(y_i|f_i, ω_i)]
    divergence = log_cosh(0.5 * c) - 0.5 * c**2 * theta  # KL(q(ω_i)||p(ω_i))
    return float(np.sum(loglik - divergence))


@equation("wenzel2019", "A.5-gibbs-mackay")
def gibbs_mackay_bound(z: ArrayLike, c: ArrayLike) -> Array:
    """Log of the exponential-quadratic bound on the logit link: wenzel2019, A.5; Gibbs and MacKay (2000).

        σ(z) >= σ(c) exp{ (z - c)/2 - (σ(c) - ½)/(2c) (z² - c²) }

    with equality at z = ±c.

    Parameters
    ----------
    z : (k,)                  argument of the link
    c : (k,)                  point of contact; its sign does not matter

    Returns
    -------
    (k,) the logarithm of the right-hand side, finite for any finite z and c

    Notes
    -----
    The extracted text shows (z - c²): the superscript of z stands alone on the line above.
    """
    z, c = np.asarray(z, dtype=float), np.asarray(c, dtype=float)
    # σ(c) - ½ = tanh(c/2)/2, the paper's last line, keeps the digits that the difference loses for small c
    half_c = 0.5 * c
    at_zero = half_c == 0.0
    derivative = np.where(at_zero, 0.125, 0.5 * np.tanh(half_c) / (4.0 * np.where(at_zero, 1.0, half_c)))
    return log_sigmoid(c) + 0.5 * (z - c) - derivative * (z**2 - c**2)


@equation("wenzel2019", "A.5-equality")
def bounds_equal(latent_values: Array, c: Array, y_sign: Array) -> BoundPair:
    """Both bounds on log p(y_i|f_i): wenzel2019, A.5, last display, says that they are equal.

        log σ(c_i) + (y_i f_i - c_i)/2 - (σ(c_i) - ½)/(2c_i) (f_i² - c_i²)
            = -log 2 + y_i f_i/2 - θ_i f_i²/2 + c_i² θ_i/2 - log cosh(c_i/2)

    as log σ(c) = c/2 - log 2 - log cosh(c/2) and (σ(c) - ½)/c = θ.

    Parameters
    ----------
    latent_values : (n,)      f
    c : (n,)                  tilts of q(ω_i), points of contact
    y_sign : (n,)             y, labels -1 or +1

    Returns
    -------
    BoundPair                 augmented (n,) and gibbs_mackay (n,)
    """
    f, theta = latent_values, pg_mean(1.0, c)
    augmented = -np.log(2.0) + 0.5 * y_sign * f - 0.5 * theta * f**2 + 0.5 * c**2 * theta - log_cosh(0.5 * c)
    return BoundPair(augmented=augmented, gibbs_mackay=gibbs_mackay_bound(y_sign * f, c))
