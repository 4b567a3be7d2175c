"""ep, pep and gfitc on data in parts: sites stay beside their rows, sums over leaves make q.

The runs are those of `fast.sparse_classes`, their passes over all data replaced by visits of leaves. A sweep is a plain
one: mixing would need the sites of all data at one place. The length of a step of pep is known only when the sums are:
leaves keep where a full step leads, and take the step at the beginning of the next visit.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

from fast.blockwise.classes import Natural, Seen, StandsFor
from fast.blockwise.engines import Spread, Visit
from fast.blockwise.tree import Most
from fast.core.types import FloatArray
from fast.sparse_classes.ep import Factors, SiteRun, Sites, Swept, damped, refreshed
from fast.sparse_classes.fitc_latents import LatentRun, LatentValues, effective_sites, latent_visit
from fast.sparse_classes.power_factors import PowerDatum, PowerRun
from fast.sparse_classes.projections import ClassDistribution, InducingClasses, add_projected

SiteSums = tuple[FloatArray, FloatArray, FloatArray, Most]  # triangles of P, w, improper cavities, largest change


class State(NamedTuple):
    """What a sweep brings."""

    q: Natural
    factors: Any  # their kind
    damping: float  # of this step; pep: of the step before


class Ready(NamedTuple):
    """The same, factorised."""

    q: ClassDistribution
    factors: Any
    damping: float


def ready(state: State) -> Ready:
    """q as matrices, factorised once for all leaves of a part. Time C m^3 / 3.

    Parameters
    ----------
    state    of the sweep
    """
    return Ready(state.q.distribution(), state.factors, state.damping)


def _of(table: FloatArray, part: Any) -> Sites:
    return tuple(table[:, part])


class _Total:
    """What the tiles of a leaf add to P and w, the improper cavities among their sites, and the largest change."""

    def __init__(self, q: ClassDistribution) -> None:
        self._precision, self._shift = np.zeros_like(q.precision), np.zeros_like(q.shift)
        self._gap, self._improper = 0.0, 0

    def add(self, visited: Any, view: Any, precision: FloatArray, shift: FloatArray) -> None:
        """Gap and improper cavities of a visit, and precision and shift of the sites that it brought."""
        self._gap, self._improper = max(self._gap, visited.gap), self._improper + visited.n_improper
        add_projected(self._precision, self._shift, view, precision, shift)

    def sums(self) -> SiteSums:
        """As a visit brings them."""
        return *Natural.of(self._precision, self._shift), np.array([float(self._improper)]), Most(self._gap)


def site_sums(leaf_data: Seen, ready: Ready) -> SiteSums:
    """Sites after a damped step, and what they add to P and w. Time 2 C b m^2 and the kernels.

    Parameters
    ----------
    leaf_data    the leaf, whose sites change
    ready        q before
    """
    q, factors, damping = ready
    total = _Total(q)
    for part, view, y in leaf_data.tiles():
        new, result = refreshed(factors, q, view, y, _of(leaf_data.sites, part), damping)
        leaf_data.sites[:, part] = new
        total.add(result, view, *factors.totals(y, new))
    return total.sums()


def site_values(leaf_data: Seen, ready: Ready) -> tuple[FloatArray]:
    """Sum over the factors of log Z - psi.

    Parameters
    ----------
    leaf_data    the leaf
    ready        q now
    """
    value = 0.0
    for part, view, y in leaf_data.tiles():
        sites = _of(leaf_data.sites, part)
        value += ready.factors.visit(y, ready.q.project(view), view.cond_var, sites).value
    return (np.array([value]),)


def power_sums(leaf_data: Seen, ready: Ready) -> SiteSums:
    """The step before taken; then where a full one leads, and what sites there would add to P and w.

    Parameters
    ----------
    leaf_data    the leaf, whose sites and targets change
    ready        q before, and the damping of the step before
    """
    q, factors, damping = ready
    total = _Total(q)
    leaf_data.sites[...] = damped(leaf_data.sites, leaf_data.target, damping)
    for part, view, y in leaf_data.tiles():
        result = factors.visit(y, q.project(view), view.cond_var, _of(leaf_data.sites, part))
        leaf_data.target[:, part] = result.target
        total.add(result, view, *factors.totals(y, result.target))
    return total.sums()


def power_values(leaf_data: Seen, ready: Ready) -> tuple[FloatArray]:
    """`site_values` after the step before, which stays to be taken.

    Parameters
    ----------
    leaf_data    the leaf
    ready        q now, and the damping of the step before
    """
    taken = damped(leaf_data.sites, leaf_data.target, ready.damping)
    return site_values(leaf_data._replace(sites=taken), ready)


def latent_sums(leaf_data: Seen, ready: Ready) -> SiteSums:
    """`site_sums` for sites on the latent values.

    Parameters
    ----------
    leaf_data    the leaf, whose sites change
    ready        q before
    """
    q, factors, damping = ready
    total = _Total(q)
    for part, view, y in leaf_data.tiles():
        old = _of(leaf_data.sites, part)
        result = latent_visit(factors, q, view, y, old)[0]
        new = tuple(damped(a, b, damping) for a, b in zip(old, result.target, strict=True))
        leaf_data.sites[:, part] = new
        effective = effective_sites(view.cond_var, factors.totals(y, new))
        total.add(result, view, effective.delta, effective.mu_tilde)
    return total.sums()


def latent_values(leaf_data: Seen, ready: Ready) -> tuple[FloatArray]:
    """What the data of a leaf add to log Z of gfitc.

    Parameters
    ----------
    leaf_data    the leaf
    ready        q now
    """
    values = np.zeros(3)
    for part, view, y in leaf_data.tiles():
        result = latent_visit(ready.factors, ready.q, view, y, _of(leaf_data.sites, part))
        values += LatentValues.of(*result, view.cond_var)
    return (values,)


SITES, SITE_VALUES = Visit(ready, site_sums, keeps=True), Visit(ready, site_values)
POWERS, POWER_VALUES = Visit(ready, power_sums, keeps=True), Visit(ready, power_values)
LATENTS, LATENT_VALUES = Visit(ready, latent_sums, keeps=True), Visit(ready, latent_values)

RunT = TypeVar("RunT", SiteRun, PowerRun, LatentRun)


class _Summed(NamedTuple):
    """What a sweep adds to the prior's P and w, and says of itself."""

    precision: FloatArray
    shift: FloatArray
    swept: Swept


def _summed(leaves: Spread, visit: Visit[SiteSums], state: State) -> _Summed:
    """A sweep over all leaves; P has the prior's I in it."""
    triangles, shift, improper, gap = leaves.total(visit, state)
    precision = Natural(triangles, shift).matrices()
    diagonal = np.arange(precision.shape[1])
    precision[:, diagonal, diagonal] += 1.0
    return _Summed(precision, shift, Swept(gap.value, int(improper[0])))


def _state(run: Any, damping: float) -> State:
    return State(Natural.of(run.q.precision, run.q.shift), run.factors, damping)


class SitesInParts(SiteRun):
    """`SiteRun` whose sites are with the leaves."""

    may_mix = False

    def __init__(
        self, leaves: Spread, stands_for: StandsFor, points: InducingClasses, factors: Factors, damping: float
    ) -> None:
        data: Any = stands_for
        super().__init__(data, points, factors, np.zeros(0), fresh=True, damping=damping)
        self.leaves = leaves

    def sweep(self, damping: float) -> Swept:
        """All sites from one q, then q."""
        precision, shift, swept = _summed(self.leaves, SITES, _state(self, damping))
        self.q = ClassDistribution.of(precision, shift)
        return swept

    def factor_value(self) -> float:
        """sum over the factors of log Z - psi at the present q; NaN if a cavity is improper."""
        return float(self.leaves.total(SITE_VALUES, _state(self, 1.0))[0][0])


class PowersInParts(PowerRun):
    """`PowerRun` whose sites are with the leaves."""

    may_mix = False

    def __init__(
        self, leaves: Spread, stands_for: StandsFor, points: InducingClasses, factors: PowerDatum, damping: float
    ) -> None:
        data: Any = stands_for
        super().__init__(data, points, factors, np.zeros(0), damping=damping)
        self.leaves, self._taken = leaves, 0.0

    def sweep(self, damping: float) -> Swept:
        """All sites from one q, then q; damping is halved until q has a covariance."""
        precision, shift, swept = _summed(self.leaves, POWERS, _state(self, self._taken))
        self._taken, halvings = self._move_damped(precision - self.q.precision, shift - self.q.shift, damping)
        return Swept(swept.residual, swept.n_improper + halvings)

    def factor_value(self) -> float:
        """sum over the factors of log Z - psi at the present q; NaN if a cavity is improper."""
        return float(self.leaves.total(POWER_VALUES, _state(self, self._taken))[0][0])


class LatentsInParts(LatentRun):
    """`LatentRun` whose sites are with the leaves."""

    def __init__(self, leaves: Spread, stands_for: StandsFor, points: InducingClasses, damping: float) -> None:
        data: Any = stands_for._replace(n=0)  # no sites here
        super().__init__(data, points, damping=damping)
        self.leaves = leaves

    def refresh(self) -> Swept:
        """All sites from one q, then q."""
        precision, shift, swept = _summed(self.leaves, LATENTS, _state(self, self.damping))
        self.q = ClassDistribution.of(precision, shift)
        return swept

    def factor_values(self) -> LatentValues:
        """What all data add to log Z at the present q."""
        return LatentValues(*self.leaves.total(LATENT_VALUES, _state(self, 1.0))[0].tolist())
