"""A misprint of section 2.3 of villacampa2020 as runnable code; the ledger has the reason, and slips in words."""

import numpy as np

from reference.common.ledger import equation


@equation("villacampa2020", "u9-vb-local", as_printed=True)
def vb_as_reversed_divergence_as_printed(
    mean: float, var: float, c1: float, c2: float, cavity_mean: float, cavity_var: float
) -> float:
    r"""KL[q || Z_i⁻¹ φ̃_i q\] with φ̃_i = exp(-½ C¹ x² + C² x): section 2.3 of villacampa2020 as printed.

    Parameters
    ----------
    mean, var : float         of q
    c1, c2 : float            C¹ and C²
    cavity_mean : float       mean of q\
    cavity_var : float        its variance
    """
    tilted_var = 1.0 / (1.0 / cavity_var + c1)
    away = mean - tilted_var * (cavity_mean / cavity_var + c2)
    return float(0.5 * (var / tilted_var + away**2 / tilted_var - 1.0 - np.log(var / tilted_var)))
