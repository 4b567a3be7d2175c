"""Misprints of riihimaki2013: (19) as runnable code, others in words.

- (19): Λ_i = Σ̂_g⁻¹ - Σ_w⁻¹ subtracts a (c+1, c+1) matrix from a (c-1, c-1) one; the line below it defines Σ_g, which
  is meant (`quadrature_ep.lambda_from_moments`).
- (8): the right-hand side ends in dw_i, without an integral; it is a density of w_i.
- (13): H_i is the H of (9).
- Section 3.2.1 calls Σ̂_i⁻¹ the site precision, section 3.2.2 Σ̃_i⁻¹, which is it; below (15) the location ν̃_i is called
  a precision vector; appendix B calls T̃ the site covariance, and it is the precision.
- Before (14): the natural location is called μ̃_i = Σ̃_i⁻¹ μ̃_i; it is ν̃_i.
- At (25): q(g_i) is said to follow from q(f_i) by the transformation B_i, which leaves out u_i; it is B̃_i of f_i and
  u_i, one more in every entry of the covariance (`prediction.class_probability_from_g`).
- Figure 1, caption: "five- and ten-dimensional product rules" have five and ten nodes in each dimension.
- Table 2: the cost of QEP is printed m n_q^(c-1) with an m that is nowhere defined; it is n n_q^(c-1), unless the text
  at hand lost a letter.
"""

import numpy as np
from numpy.typing import NDArray

from reference.common.ledger import equation

Array = NDArray[np.float64]


@equation("riihimaki2013", "19", as_printed=True)
def lambda_from_moments_as_printed(tilted_cov_g: Array, Sigma_w: Array) -> Array:
    """Λ_i = Σ̂_g⁻¹ - Σ_w⁻¹: (19) of riihimaki2013 as printed; the shapes agree for no c.

    With two classes NumPy broadcasts the 1 x 1 matrix against the 3 x 3 one, with more it refuses.

    Parameters
    ----------
    tilted_cov_g : (c-1, c-1)   Σ̂_g
    Sigma_w : (c+1, c+1)        Σ_w

    Raises
    ------
    ValueError                  for three or more classes
    """
    return np.linalg.inv(tilted_cov_g) - np.linalg.inv(Sigma_w)
