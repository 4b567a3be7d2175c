"""Which form the solvers of this paper run: the printed equations one by one, or what they contract to.

"printed" computes matrices (m, m) of every datum and class, as appendix A does, and natural parameters by inversion;
"projected" the two numbers of each along υ (`projected`), and energies in a basis of q and prior (`tied`).
"""

import numpy as np
from numpy.typing import NDArray

from reference.common._forms import chosen_form
from reference.common._neighbours import condition
from reference.common._options import shown

Array = NDArray[np.float64]

# a solve in some fifty sweeps or steps, each of n C factors of some thirty products with (m, m), as n C m units of it
UNIT = 0.0036


def form_of(form: str | None, n: int, K_ZZ: Array, alpha: float, searched: bool) -> str:
    """The form asked for, or that of `chosen_form`: inverses of villacampa2020 lose cond(K_ZZ).

    Sums over n data of differences over α lose another n/α (at α = 0, which energies have equations for, n).

    Parameters
    ----------
    form : str or None        "printed", "projected", or None for this rule
    n : int                   number of data
    K_ZZ : (C, m, m)          prior covariances of villacampa2020's inducing values
    alpha : float             α in [0, 1]
    searched : bool           whether L-BFGS-B looks for hyper-parameters
    """
    C, m, _ = K_ZZ.shape
    lost = condition(list(K_ZZ)) * n / (alpha or 1.0)
    return chosen_form(form, seconds=UNIT * n * C * m, lost=lost, searched=searched)


def check_printed(form: str, alpha: float, method: str) -> None:
    """Refuse power expectation propagation as printed at α = 0: its equations divide by α.

    Parameters
    ----------
    form : str                "printed" or "projected"
    alpha : float             α
    method : str              villacampa2020's, for the message

    Raises
    ------
    ValueError                for "printed" at zero
    """
    if form == "printed" and alpha == 0.0:
        raise ValueError(f"form: found {shown(form)} with alpha 0, expected 'projected' for the limit of {method}")
