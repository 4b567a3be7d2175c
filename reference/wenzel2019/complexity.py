"""Sections 3.2 and 4.3: what an iteration and a prediction cost."""

from typing import NamedTuple

from reference.common.ledger import equation


class Counts(NamedTuple):
    """Multiplications."""

    iteration: float
    mean: float  # of one test point
    variance: float  # of one test point


@equation("wenzel2019", "u4.3-costs")
def complexity_table(n_inducing: int, batch_size: int) -> Counts:
    """Leading counts of an iteration, s m² + m³, and of a prediction, m and m²: wenzel2019, sections 3.2 and 4.3.

    κ_Sᵀ Θ_S κ_S takes s m² multiplications, the inverse of η₂ m³: the printed O(m³) where s is no more than m. With
    K_mm⁻¹μ and K_mm⁻¹(ΣK_mm⁻¹ - I) kept, the mean is one inner product, the variance a product with a matrix and one
    inner product, m² + m. n occurs nowhere; without inducing inputs m is n, and the cost n³.

    Parameters
    ----------
    n_inducing : int          m
    batch_size : int          s
    """
    m, s = float(n_inducing), float(batch_size)
    return Counts(s * m**2 + m**3, m, m**2 + m)
