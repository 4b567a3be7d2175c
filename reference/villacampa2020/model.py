"""Section 2: the rule that gives a label, the two likelihoods, and noise around the latent functions.

Labels count from 0.
"""

import numpy as np
from numpy.typing import NDArray

from reference.common.ledger import equation

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@equation("villacampa2020", "u1-labelling-rule")
def label_from_latents(latent_values: Array) -> Labels:
    """y_i = argmax_k f^k(x_i), labels (n,): section 2 of villacampa2020.

    Parameters
    ----------
    latent_values : (n, C)    rows f_i
    """
    return np.argmax(latent_values, axis=1).astype(np.int64)


@equation("villacampa2020", "1")
def hard_max_likelihood(latent_values: Array, y: Labels) -> float:
    """p(y|f) = Π_i Π_{k≠y_i} Θ(f^{y_i}(x_i) - f^k(x_i)), 0 or 1 where no two values are equal: (1) of villacampa2020.

    Each of r largest values has the probability 1/r, and the labels' probabilities sum to one. The paper leaves Θ(0)
    open; Θ(0) = ½ would give a quarter to each of three.

    Parameters
    ----------
    latent_values : (n, C)    rows f_i
    y : (n,)                  labels, 0..C-1
    """
    total = 1.0
    for f_i, label in zip(latent_values, y, strict=True):
        largest = f_i == np.max(f_i)
        total *= float(largest[label] / np.sum(largest))
    return total


@equation("villacampa2020", "2")
def robust_likelihood(f_i: Array, y_i: int, epsilon: float) -> float:
    """p(y_i|f_i) = (1 - ε) Π_{k≠y_i} Θ(f^{y_i} - f^k) + ε/C: (2) of villacampa2020.

    Parameters
    ----------
    f_i : (C,)                latent values of one observation
    y_i : int                 its label, 0..C-1
    epsilon : float           ε in [0, 1), probability of a label drawn at random
    """
    return (1.0 - epsilon) * hard_max_likelihood(f_i[None], np.array([y_i])) + epsilon / len(f_i)


@equation("villacampa2020", "u2-latent-noise")
def add_latent_noise(k_xx: Array, noise: Array) -> Array:
    """Prior variances (C, n) of the latent functions with independent Gaussian noise: section 2 of villacampa2020.

    Gumbel noise of scale one in its place makes the rule of the largest value the soft-max likelihood.

    Parameters
    ----------
    k_xx : (C, n)             prior variances without noise
    noise : (C,)              variances of the noise, one a class
    """
    return k_xx + noise[:, None]
