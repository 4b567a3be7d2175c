"""Section 4.3: learning rates of the stochastic ascent, above all the adaptive one of Ranganath et al. (2013)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.ledger import equation

Array = NDArray[np.float64]


class RateMemory(NamedTuple):
    """Running averages of noisy gradients."""

    gradient_mean: Array  # (p,)  ḡ
    squared_norm: float  # h̄, of gᵀg
    memory: float  # τ, how many gradients the averages remember


class RateUpdate(NamedTuple):
    """The rate of this step, and what the next one remembers."""

    rate: float
    memory: RateMemory


@equation("wenzel2019", "u4.3-adaptive-rate")
def start_adaptive_rate(gradients: Array) -> RateMemory:
    """Averages before the first step: wenzel2019, section 4.3, after Ranganath et al. (2013), section 3.

        ḡ = Σ_r g_r / R,   h̄ = Σ_r g_rᵀg_r / R,   τ = R

    Parameters
    ----------
    gradients : (R, p)        noisy gradients at the start, one a row, each from a mini-batch of its own

    Returns
    -------
    RateMemory                gradient_mean (p,), squared_norm, memory
    """
    return RateMemory(np.mean(gradients, axis=0), float(np.mean(np.sum(gradients**2, axis=1))), float(len(gradients)))


@equation("wenzel2019", "u4.3-adaptive-rate")
def adaptive_learning_rate(gradient: Array, memory: RateMemory) -> RateUpdate:
    """Adaptive learning rate: wenzel2019, section 4.3 (by reference), Ranganath et al. (2013), section 3.

        ḡ ← (1 - 1/τ) ḡ + g/τ,   h̄ ← (1 - 1/τ) h̄ + gᵀg/τ
        ρ = ḡᵀḡ / h̄,   τ ← (1 - ρ) τ + 1

    The best rate for a quadratic bound is the squared norm of the mean gradient over the mean of the squared norm;
    the averages stand for both. By Jensen's inequality ρ <= 1.

    Parameters
    ----------
    gradient : (p,)           g, the noisy natural gradient of this step, all of its entries in one vector
    memory : RateMemory       averages after the step before

    Returns
    -------
    RateUpdate                rate ρ in [0, 1], memory

    Notes
    -----
    The paper names the method and no formula. g is read as all entries of (∇̃_η₁, ∇̃_η₂) in one vector, the matrix with
    both of its halves, which gives one rate for both; Ranganath et al. also allow one rate for each coordinate.
    Where all gradients were zero, ρ is 0/0 and irrelevant; it is then 1.
    """
    tau = memory.memory
    mean = (1.0 - 1.0 / tau) * memory.gradient_mean + gradient / tau
    squared = (1.0 - 1.0 / tau) * memory.squared_norm + float(gradient @ gradient) / tau
    # Jensen's bound holds up to rounding of two sums
    rate = min(float(mean @ mean) / squared, 1.0) if squared > 0.0 else 1.0
    return RateUpdate(rate, RateMemory(mean, squared, (1.0 - rate) * tau + 1.0))


def decaying_rate(iteration: int, initial_rate: float, delay: float, decay: float) -> float:
    """ρ_t = initial_rate · (t + delay)^(-decay): the schedule of Robbins and Monro as Hoffman et al. (2013) write it.

    Parameters
    ----------
    iteration : int           t = 1, 2, ...
    initial_rate : float      ρ₀
    delay : float             >= 0, down-weights the first steps
    decay : float             in (½, 1] for convergence; 0 is a fixed rate
    """
    return float(initial_rate * (iteration + delay) ** (-decay))
