"""Sections 2.2 and 2.3: what a sweep costs, and what is kept, by the batch, tied and mini-batch versions."""

from typing import NamedTuple

from reference.common._options import shown
from reference.common.ledger import equation


class Counts(NamedTuple):
    """Leading counts."""

    operations: float  # multiplications of one update of q, all classes
    memory: float  # numbers kept between two updates, all classes


@equation("villacampa2017", "u19-costs")
def complexity_table(method: str, n: int, n_inducing: int, n_classes: int, batch_size: int | None = None) -> Counts:
    """Leading counts of an update of q from s data, C (s m² + m³), and of what is kept: sections 2.2 and 2.3.

    Products υ_iυ_iᵀ of s data take s m² multiplications a class, the inverse of a precision m³. EP keeps υ_i, along
    which the factors of all data lie, C n m numbers; SEP the tied precision, C m². The orders of villacampa2017 follow:
    O(n m²) for batches, printed without the factor C, and O(C m³) for a mini-batch of no more than m data.

    Parameters
    ----------
    method : str              "ep" or "sep"
    n : int                   data
    n_inducing : int          m
    n_classes : int           C
    batch_size : int or None  data of a mini-batch; None: all

    Raises
    ------
    ValueError                for another method
    """
    if not isinstance(method, str) or method not in ("ep", "sep"):
        raise ValueError(f"method: found {shown(method)}, expected ep or sep")
    m, s = float(n_inducing), float(n if batch_size is None else batch_size)
    return Counts(n_classes * (s * m**2 + m**3), n_classes * (n * m if method == "ep" else m**2))
