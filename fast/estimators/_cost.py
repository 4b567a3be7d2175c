"""What training will take, predicted before it is begun: memory of matrices, seconds of factorisations."""

from __future__ import annotations

import os
import time

import numpy as np

from fast.core.linalg import factorise

_FACTORISATIONS = 6  # an inverse, marginals and products take as much as five
_TRIED = 500  # rows of the matrix that is factorised for a measure, or fewer


def memory() -> float:
    """Bytes of memory that this machine has; infinite where it does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # no POSIX
        return float("inf")


def seconds_of_iteration(n: int) -> float:
    """Seconds that one latent function of a full GP takes in an iteration on n rows, by a smaller matrix here and now.

    Parameters
    ----------
    n : int    rows
    """
    size = min(n, _TRIED)
    matrix = np.full((size, size), 0.5)
    matrix.flat[:: size + 1] = 1.0
    started = time.perf_counter()
    factorise(matrix, "matrix of a measure", "this one has the smallest eigenvalue 1/2")
    return _FACTORISATIONS * (time.perf_counter() - started) * (n / size) ** 3
