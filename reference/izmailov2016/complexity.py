"""Sections 2.2, 3.2, 4 and 5.1: what an evaluation of a bound costs, and how many numbers each method searches."""

from typing import NamedTuple

from reference.common._options import shown
from reference.common.ledger import equation


class Counts(NamedTuple):
    """Leading counts."""

    operations: float  # multiplications of one evaluation of the bound
    searched: int  # numbers of q(u) and ξ that are optimised numerically


@equation("izmailov2016", "u3.2-costs")
def complexity_table(method: str, n: int, n_inducing: int) -> Counts:
    """Leading counts of an evaluation, n m² + m³, or n³ without inducing inputs: izmailov2016, 2.2, 3.2, 4 and 5.1.

    K_mn Λ K_nm takes n m² multiplications, the inverse of B or of K_mm m³. svi searches μ and a factor of Σ,
    m + m(m + 1)/2 numbers, the O(m²) of section 4; vi-jj-full and vi-jj-hybrid ξ; vi-jj and vi-taylor nothing but θ,
    which is not counted.

    Parameters
    ----------
    method : str              "full" (sections 2.2, 3), or one of the five of table 1
    n : int                   data
    n_inducing : int          m

    Raises
    ------
    ValueError                for another method
    """
    m = n_inducing
    searched = {"full": 0, "svi": m + m * (m + 1) // 2, "vi-jj": 0, "vi-taylor": 0, "vi-jj-hybrid": n, "vi-jj-full": n}
    if not isinstance(method, str) or method not in searched:
        raise ValueError(f"method: found {shown(method)}, expected one of {', '.join(searched)}")
    operations = float(n) ** 3 if method == "full" else float(n) * m**2 + float(m) ** 3
    return Counts(operations, searched[method])
