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

MOST = 200.0  # n C m: the four steps of n C factors, each some thirty products with (m, m), take 10 ms a sweep there
_LOST = 1e4  # inverses lose a condition number, sums over n data of differences over α another n/α: four of 16 digits


def form_of(form: str | None, n: int, K_ZZ: Array, alpha: float, searched: bool) -> str:
    """The form asked for, or "printed" where that takes a second or two and loses no digits that an answer needs.

    That is up to n C m = 200, up to cond(K_ZZ) n/α = 1e4 (at α = 0, which energies have equations for, cond(K_ZZ) n),
    and without a search over hyper-parameters, which wants a fixed point at each of its steps.

    Parameters
    ----------
    form : str or None        "printed", "projected", or None for this rule
    n : int                   number of data
    K_ZZ : (C, m, m)          prior covariances of villacampa2020's inducing values
    alpha : float             α in [0, 1]
    searched : bool           whether L-BFGS-B looks for hyper-parameters
    """
    C, m, _ = K_ZZ.shape
    exact = condition(list(K_ZZ)) * n <= _LOST * (alpha or 1.0)
    return chosen_form(form, float(n * C * m) if exact and not searched else np.inf, MOST)


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
