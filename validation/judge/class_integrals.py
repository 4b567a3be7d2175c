"""Class probabilities of correlated Gaussian values, by rules of the judge's own, each with its error.

`fast` and `reference` share one rule for these integrals: fixed points of Sobol's sequence, with errors up to 8e-3. The
judge uses no sequence of Sobol's and no Gaussian rule of NumPy's. In a few dimensions it takes a product trapezoidal
rule, which converges exponentially for such integrands (Trefethen and Weideman 2014); its error is the difference
between the rule and the same rule moved by half a step. Beyond, a lattice of square roots, randomly shifted, with the
standard error of its shifts.

Softmax: C - 1 dimensions, the differences to the last class. Multinomial probit: the orthant of f_k - f_j with unit
noise on each value, C - 2 dimensions: differences of covariance V are g + e with e ~ N(0, r I), r the smallest
eigenvalue of V, and e is integrated in closed form, so that the integrand is a product of normal distribution
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, softmax

from validation.door.problem import Problem
from validation.implementations.quadrature_rule import spacing

Array = NDArray[np.float64]

#: Methods whose class probabilities are no integral over their predictive Gaussian: ratios of two evidences.
RATIOS = ("laplace-tkp",)

# the trapezoidal rule: digits that its spacing is made for, where its axes end (the normal density there is 1e-11 of
# its peak), and the most nodes of one integral and of all
_DIGITS, _RADIUS = 7.0, 6.8
_MOST_NODES, _MOST_IN_ALL = 4_000_000, 40_000_000
# an axis along which differences vary less than this moves no probability in double precision: the second order counts
_FLAT = 1e-9
_ROUNDING = 1e-13

# the lattice: shifts, and points of each
_SHIFTS, _POINTS = 8, 8191


class Integrated(NamedTuple):
    """Class probabilities (t, C) and the largest error that the rule leaves in one of them."""

    probabilities: Array
    error: float


class _Integral(NamedTuple):
    """The mean of values(mean + root z) over z ~ N(0, I), with the spacing of a trapezoidal rule along each z."""

    mean: Array  # (D,)
    root: Array  # (D, r)
    steps: Array  # (r,)
    values: Callable[[Array], Array]  # (nodes, D) -> (nodes, outputs)

    @property
    def nodes(self) -> float:
        """Number of nodes of the product rule."""
        return float(np.prod(2.0 * np.ceil(_RADIUS / self.steps) + 1.0))


def class_probabilities(problem: Problem, method: str, mean: Array, cov: Array) -> Integrated | None:
    """Class probabilities under f ~ N(mean, cov) at each test point; None where they are no such integral.

    Softmax and multinomial probit only: for the other likelihoods both witnesses have one-dimensional rules, good to
    ten digits, or closed forms.

    Parameters
    ----------
    problem            its likelihood is integrated
    method             "laplace-tkp" predicts by ratios of evidences
    mean, cov          (t, C), (t, C, C)
    """
    if problem.likelihood not in _RULES or method in RATIOS or not mean.size:
        return None
    return _kept(problem.likelihood, mean.shape, mean.tobytes(), cov.tobytes())


@lru_cache(maxsize=64)
def _kept(likelihood: str, shape: tuple[int, int], mean: bytes, cov: bytes) -> Integrated:
    return _RULES[likelihood](np.frombuffer(mean).reshape(shape), np.frombuffer(cov).reshape(*shape, shape[1]))


def softmax_mean(mean: Array, cov: Array) -> Integrated:
    """E[softmax(f)], f ~ N(mean, cov): (t, C) from (t, C), (t, C, C)."""
    C = mean.shape[1]
    A = np.concatenate([np.eye(C - 1), -np.ones((C - 1, 1))], axis=1)

    def values(d: Array) -> Array:
        return np.asarray(softmax(np.concatenate([d, np.zeros((len(d), 1))], axis=1), axis=1))

    integrals = []
    for m, S in zip(mean, cov, strict=True):
        root = _root(A @ S @ A.T)
        # the softmax has no pole while all differences between two classes stay within pi of the real axis
        every = np.concatenate([root, np.zeros((1, root.shape[1]))])
        steps = np.array([spacing(np.pi, float(np.ptp(column)), _DIGITS) for column in every.T])
        integrals.append(_Integral(A @ m, root, steps, values))
    return _integrated(integrals, (len(mean), C))


def probit_orthants(mean: Array, cov: Array) -> Integrated:
    """P(f_k + e_k is the largest), e ~ N(0, I), normalised over the classes: (t, C) from (t, C), (t, C, C)."""
    t, C = mean.shape
    integrals = []
    for m, S in zip(mean, cov, strict=True):
        for k in range(C):
            A = -np.delete(np.eye(C), k, axis=0)
            A[:, k] = 1.0
            V = A @ (S + np.eye(C)) @ A.T
            least = float(np.linalg.eigvalsh(V)[0])
            root = _root(V - least * np.eye(C - 1))
            # the transform of a product of normal distribution functions and the normal density falls like a normal
            # density of variance 1 + |column|^2 / least
            width = np.sqrt(1.0 + (root**2).sum(axis=0) / least)
            steps = np.minimum(2.0 * np.pi / (width * np.sqrt(2.0 * (_DIGITS + 1.3) * np.log(10.0))), 4.0 / _DIGITS)

            def values(d: Array, sd: float = np.sqrt(least)) -> Array:
                return np.asarray(ndtr(d / sd).prod(axis=1, keepdims=True))

            integrals.append(_Integral(A @ m, root, steps, values))
    raw = _integrated(integrals, (t, C))
    mass = raw.probabilities.sum(axis=1, keepdims=True)
    return Integrated(raw.probabilities / mass, raw.error + float(np.abs(mass - 1.0).max()))


_RULES = {"softmax": softmax_mean, "multinomial-probit": probit_orthants}


def _root(V: Array) -> Array:
    """(D, r) with V = root root', by eigenvectors, without directions in which nothing varies."""
    values, vectors = np.linalg.eigh(V)
    sd = np.sqrt(np.maximum(values, 0.0))
    return np.asarray((vectors * sd)[:, sd > _FLAT])


def _integrated(integrals: list[_Integral], shape: tuple[int, int]) -> Integrated:
    by_product = max(one.nodes for one in integrals) <= _MOST_NODES and (
        sum(one.nodes for one in integrals) <= _MOST_IN_ALL
    )
    results = [(_trapezoidal if by_product else _by_lattice)(one) for one in integrals]
    value = np.concatenate([value for value, _ in results]).reshape(shape)
    return Integrated(value, max(error for _, error in results) + _ROUNDING)


def _trapezoidal(one: _Integral) -> tuple[Array, float]:
    """The mean of two product rules, one moved by half a step along every axis, and their largest difference."""
    results = []
    for shift in (0.0, 0.5):
        axes = [step * (np.arange(-np.ceil(_RADIUS / step), np.ceil(_RADIUS / step) + 1.0) + shift)
                for step in one.steps]  # fmt: skip
        z = np.stack([grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")], axis=1) if axes else np.zeros((1, 0))
        square = (z**2).sum(axis=1)
        inside = square <= _RADIUS**2 + len(axes)  # a ball: the corners of the box weigh nothing
        weight = np.exp(-0.5 * square[inside])
        results.append(weight @ one.values(one.mean + z[inside] @ one.root.T) / weight.sum())
    return 0.5 * (results[0] + results[1]), float(np.abs(results[0] - results[1]).max())


def _by_lattice(one: _Integral) -> tuple[Array, float]:
    """The mean over shifts of a lattice, and four standard errors of it."""
    r = one.root.shape[1]
    shifts = np.random.default_rng(0).random((_SHIFTS, r))
    results = [one.values(one.mean + ndtri(lattice(r, shift)) @ one.root.T).mean(axis=0) for shift in shifts]
    error = 4.0 * float(np.std(results, axis=0, ddof=1).max()) / np.sqrt(_SHIFTS)
    return np.mean(results, axis=0), error


def lattice(dimension: int, shift: Array) -> Array:
    """8191 points in the open unit cube: multiples of square roots modulo one, shifted and folded: (8191, dimension).

    Richtmyer's sequence as a lattice rule (Niederreiter 1978, Bull. Amer. Math. Soc. 84, 957), of square roots of
    primes, which with one are linearly independent over the rationals; folding by the tent 1 - |2u - 1| makes a
    periodic function of any (Hickernell 2002).
    """
    steps = np.sqrt(np.array(_primes(dimension), dtype=float))
    u = (np.arange(1, _POINTS + 1)[:, None] * steps + shift) % 1.0
    # a point on the edge would be infinitely far
    return np.asarray(np.clip(1.0 - np.abs(2.0 * u - 1.0), 1e-15, 1.0 - 1e-15))


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return found
