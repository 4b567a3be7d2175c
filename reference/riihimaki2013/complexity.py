"""Section 5.4: the operation counts of Table 2."""

from typing import NamedTuple

from reference.common.ledger import equation
from reference.riihimaki2013 import _check

COUNTED = ("nested-ep", "qep", "nested-iep", "qiep", "vb-probit", "laplace", "gibbs-probit")


class Counts(NamedTuple):
    """Leading operation counts of one iteration."""

    posterior: float
    likelihood: float


@equation("riihimaki2013", "u5.4-complexity")
def complexity_table(method: str, n: int, n_classes: int, n_in: int, nodes: int, n_s: int) -> Counts:
    """One row of Table 2 of riihimaki2013; QEP's likelihood count with n where an m is printed.

    Parameters
    ----------
    method : str              of COUNTED
    n : int                   data
    n_classes : int           c
    n_in : int                inner iterations of nested EP
    nodes : int               cost n_q of a one-dimensional quadrature
    n_s : int                 cost of one draw from a region

    Raises
    ------
    ValueError                for another method
    """
    _check.choice(method, COUNTED, "method")
    c, cube = n_classes, float(n) ** 3
    return {
        "nested-ep": Counts((c + 1) * cube, n * n_in * (c - 1.0) ** 3),
        "qep": Counts((c + 1) * cube, n * float(nodes) ** (c - 1)),
        "nested-iep": Counts(c * cube, n * n_in * (c - 1.0) ** 3),
        "qiep": Counts(c * cube, n * ((2.0 * c - 1.0) * nodes + 2.0 * nodes**2)),
        "vb-probit": Counts(cube, n * (c - 1.0) * 2.0 * nodes),
        "laplace": Counts((c + 1) * cube, float(n * c)),
        "gibbs-probit": Counts(c * cube, float(n * c * n_s)),
    }[method]
