"""A misprint of riihimaki2013, (19), as runnable code; the ledger has the reason, and slips in words."""

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
