"""The distribution function of two correlated Gaussians, by quadrature over the first.

SciPy's `multivariate_normal.cdf` samples before SciPy 1.17, to some 1e-5 and with other digits in each call.
"""

import numpy as np
from scipy.integrate import quad
from scipy.stats import norm


def bivariate_normal_cdf(upper, cov):
    """P(x_1 < upper_1, x_2 < upper_2) of N(0, cov), to 1e-12; upper (2,), cov (2, 2) of rank two."""
    (h, k), sd = np.asarray(upper) / np.sqrt(np.diag(cov)), np.sqrt(np.diag(cov))
    rho = cov[0][1] / (sd[0] * sd[1])
    rest = np.sqrt(1.0 - rho**2)
    # below -12 lies 1e-33; where the second factor bends the rule is told
    low, bend = min(-12.0, h - 12.0), k / rho if rho else 0.0
    points = [bend] if low < bend < h else None
    return quad(
        lambda x: norm.pdf(x) * norm.cdf((k - rho * x) / rest), low, h, points=points,
        epsabs=1e-15, epsrel=1e-12, limit=500,
    )[0]  # fmt: skip
