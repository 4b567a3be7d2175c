"""Where chains start: spread wider than the prior in both directions."""

from __future__ import annotations

import numpy as np

from gibbs.core.errors import Array


def start_factors(n_chains: int) -> Array:
    """Factors (r,) spread evenly over [1/4, 2], the first one 1, and none of them changed by further chains.

    n_chains: r. The points ⅔ + k · golden ratio (mod 1) leave no gap wherever the sequence ends.
    """
    golden = 0.5 * (np.sqrt(5.0) - 1.0)
    return 0.25 * 8.0 ** np.mod(2.0 / 3.0 + golden * np.arange(n_chains), 1.0)
