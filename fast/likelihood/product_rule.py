"""Gauss-Hermite product rules for standard normal vectors. riihimaki2013, section 3.3."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from fast.core import inputs
from fast.core.types import FloatArray

_LARGEST = 10**6


def hermite_rule(nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights (nodes,) of the Gauss rule of N(0, 1); weights sum to one.

    Parameters
    ----------
    nodes : int    >= 1
    """
    x, w = hermegauss(nodes)
    return x, w / w.sum()


def product_rule(dimension: int, nodes: Any, name: str = "nodes") -> tuple[FloatArray, FloatArray]:
    """Points (nodes^D, D) and weights of the product rule of N(0, I).

    Parameters
    ----------
    dimension : int    D
    nodes : int        in each dimension, >= 2
    name : str         what an error calls it

    Raises
    ------
    ValueError    more than a million points
    """
    nodes = inputs.count(name, nodes)
    if nodes < 2:
        raise ValueError(f"{name}: found {nodes}, expected at least 2")
    if nodes**dimension > _LARGEST:
        raise ValueError(f"{name}: found {nodes} in {dimension} dimensions, expected at most {_LARGEST} points in all")
    x, w = hermite_rule(nodes)
    grids = np.meshgrid(*[x] * dimension, indexing="ij")
    weights = reduce(np.multiply.outer, [w] * dimension)
    return np.column_stack([grid.ravel() for grid in grids]), weights.ravel()
