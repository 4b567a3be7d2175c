"""A seeded generator for the tests of the reference, and numbers that count what is done with them."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20190127)


class Multiplications:
    """Arrays of numbers that add one to `total` for each multiplication and each division."""

    def __init__(self):
        self.total = 0

    def count(self, array):
        """The array with counting entries."""
        return np.vectorize(lambda value: _Counted(value, self), otypes=[object])(array)

    def plain(self, array):
        """The numbers again."""
        return np.vectorize(lambda counted: counted.value, otypes=[float])(array)

    def inverse(self, matrix):
        """Gauss-Jordan elimination in place: m steps, each with m² multiplications or divisions."""
        A, m = matrix, len(matrix)
        for p in range(m):
            pivot = A[p, p]
            A[p, p] = _Counted(1.0, self)
            for j in range(m):
                A[p, j] = A[p, j] / pivot
            for i in range(m):
                if i != p:
                    factor, A[i, p] = A[i, p], _Counted(0.0, self)
                    for j in range(m):
                        A[i, j] = A[i, j] - factor * A[p, j]
        return A


class _Counted:
    def __init__(self, value, counter):
        self.value, self.counter = value, counter

    def __mul__(self, other):
        self.counter.total += 1
        return _Counted(self.value * other.value, self.counter)

    def __truediv__(self, other):
        self.counter.total += 1
        return _Counted(self.value / other.value, self.counter)

    def __add__(self, other):
        return _Counted(self.value + other.value, self.counter)

    def __sub__(self, other):
        return _Counted(self.value - other.value, self.counter)


@pytest.fixture
def multiplications():
    return Multiplications()
