"""apep, arpep, rpapep, bb-alpha and vi-robust on data in parts: the sums of one pass; no number a datum is kept.

The run is that of `fast.sparse_classes.alpha_runs`, with its guarded steps; only its pass over all data is another one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fast.blockwise.classes import Natural, Seen, StandsFor
from fast.blockwise.engines import Spread, Visit
from fast.core.types import FloatArray, IntArray
from fast.sparse_classes.alpha_energies import Distributions, Energy
from fast.sparse_classes.alpha_runs import EnergyRun, Terms, data_terms
from fast.sparse_classes.projections import ClassDistribution, InducingClasses


class State(NamedTuple):
    """What a pass brings."""

    seen_under: Natural  # the distribution under which the data are seen
    alpha: float
    epsilon: float


def ready(state: State) -> tuple[ClassDistribution, State]:
    """The distribution factorised once for all leaves of a part. Time C m^3 / 3.

    Parameters
    ----------
    state    of the pass
    """
    return state.seen_under.distribution(), state


def leaf_sums(leaf_data: Seen, ready: tuple[ClassDistribution, State]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Curvature, derivative and value of a leaf. Time 2 C b m^2, the kernels and the quadratures.

    Parameters
    ----------
    leaf_data    the leaf
    ready        the distribution, and the likelihood's numbers
    """
    q, state = ready
    terms = data_terms(leaf_data.tiles(), q, state.alpha, state.epsilon)
    return *Natural.of(terms.curvature, terms.derivative), np.array([terms.value])


TERMS = Visit(ready, leaf_sums)


class EnergyInParts(EnergyRun):
    """`EnergyRun` that sees its data leaf by leaf, where they are."""

    def __init__(
        self, leaves: Spread, stands_for: StandsFor, points: InducingClasses, energy: Energy, epsilon: float
    ) -> None:
        data: Any = stands_for
        super().__init__(data, points, energy, epsilon)
        self.leaves, self.stands_for = leaves, stands_for

    def terms(self, distributions: Distributions, batch: IntArray | None = None) -> Terms:
        """Sums over all data under c.

        Parameters
        ----------
        distributions   of q
        batch           None: there are no batches here
        """
        assert batch is None
        c = distributions.data
        state = State(Natural.of(c.precision, c.shift), self.energy.alpha, self.epsilon)
        triangles, derivative, value = self.leaves.total(TERMS, state)
        return Terms(float(value[0]), Natural(triangles, derivative).matrices(), derivative)

    def data_value(self, distributions: Distributions) -> float:
        """sum of F_i over all data.

        Parameters
        ----------
        distributions    of q
        """
        return self.terms(distributions).value

    def with_energy(self, energy: Energy) -> EnergyRun:
        """A run of another energy on the same data, from the prior.

        Parameters
        ----------
        energy    of it
        """
        return EnergyInParts(self.leaves, self.stands_for, self.points, energy, self.epsilon)
