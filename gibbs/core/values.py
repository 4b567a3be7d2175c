"""What a user gives besides options: the data, and the prior over their latent functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)  # arrays have no truth value to compare by
class Data:
    """Inputs and labels, as they were given; a sampler checks what it takes."""

    X: Any  # (n, d)
    y: Any  # (n,), ints below n_classes, a class may be absent
    n_classes: Any = 2  # C
    X_test: Any = None  # (t, d)


@dataclass(frozen=True, eq=False)
class Prior:
    """Gaussian processes, as they were given: L independent latent functions, each with its parameters or all with one.

    k(x, x') = variance exp(-1/2 sum_j (x_j - x'_j)^2 / lengthscales_j^2), or a Matern kernel.
    """

    variance: Any  # > 0: () or (L,)
    lengthscales: Any  # > 0: (d,) or (L, d)
    noise: Any  # >= 0, part of every latent value at data and test points: () or (L,)
    jitter: Any  # >= 0, on the diagonal of K_ZZ, of a full GP of K_XX: () or (L,)
    Z: Any = None  # inducing points of prior_model "fitc", (m, d) or (L, m, d)
    prior_model: Any = "full"  # or "fitc": latent values independent given the inducing values
    smoothness: Any = None  # order of Matern kernels, () or (L,); None: squared exponential
    shared: Any = False  # sampled parameters only: one vector, and one density of it, for all latent functions
    hyperprior: Any = None  # of sampled parameters: field -> (family, df, scale), see `gibbs.core.hyperpriors`
