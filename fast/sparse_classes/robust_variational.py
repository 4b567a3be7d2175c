"""Variational inference with the robust likelihood for several classes, on mini-batches too: villacampa2017, 3.

The bound (15) is the energy of `fast.sparse_classes.alpha_runs` at alpha = 0, the data seen under q itself, and so are
its guarded ascent on all data, its value and its gradients. What is its own is the step that no bound guards, on
mini-batches or where the priors move after each: with the data terms of a batch n / b times, (P, w) moves by rho of the
way to (I - 2 Q, t - 2 Q m) (`fast.sparse_classes.alpha_energies.natural_target`).

That target need be no distribution. At the prior P(label) is 1/C, where the bound is convex in many means: a step that
is merely short enough for q to exist leaves some variance huge, the next one throws the mean far away, and there the
robust likelihood is flat for good. So rho times the residual, the length of the whole step in the metric of q, is at
most one half: no precision loses more than half of itself, and the rate grows with what q knows.
"""

from __future__ import annotations

from fast.core.types import IntArray
from fast.sparse_classes.alpha_energies import Energy
from fast.sparse_classes.alpha_runs import EnergyRun
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.ep import Swept
from fast.sparse_classes.projections import InducingClasses

_LONGEST = 0.5  # step, as q measures it


class RobustRun(EnergyRun):
    """q of the bound, its step size, and the priors that it stands on; q starts at the prior.

    guarded     steps on all data that never lower the bound; else steps of a bounded length
    nat_rate    in (0, 1], size of the steps that are not guarded, at most
    """

    def __init__(
        self, data: ClassData, points: InducingClasses, epsilon: float, *, guarded: bool, nat_rate: float = 0.1
    ) -> None:
        self.guarded, self.nat_rate = guarded, nat_rate
        super().__init__(data, points, Energy("arpep", 0.0, data.n), epsilon)

    def refresh(self, batch: IntArray | None = None) -> Swept:
        """One step; the residual is that of q before it. Time 2 C b m^2 + O(C m^3), for every size tried if guarded.

        Parameters
        ----------
        batch : (b,)    indices, none twice; None: all data
        """
        if batch is None and self.guarded:
            return super().refresh()
        distributions = self.energy.distributions(self.q)
        terms = self.terms(distributions, batch)
        change = self.energy.direction(distributions, terms.curvature, terms.derivative)
        moved = self._stepped(change, bounded_rate(change.residual, self.nat_rate))
        assert moved is not None  # P keeps half of itself
        self._set(moved)
        return Swept(change.residual, 0)


def bounded_rate(residual: float, rate: float) -> float:
    """Size of a step that moves q by half of its own scale at most.

    Parameters
    ----------
    residual : float    length of the whole step in the metric of q
    rate : float        in (0, 1]
    """
    return rate if rate * residual <= _LONGEST else _LONGEST / residual
