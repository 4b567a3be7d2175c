"""Section 3.1: what the four variants of EP share: marginals and cavities of a datum, the record of a run, its end."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._iteration import Arrival
from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import Options
from reference.riihimaki2013.evidence import ep_log_marginal
from reference.riihimaki2013.inner_ep import change_of_site
from reference.riihimaki2013.posterior import Posterior, marginals
from reference.riihimaki2013.sites import Moments, Site, cavity

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class State(NamedTuple):
    """What a callback sees after an outer iteration."""

    iteration: int
    residual: float
    n_improper: int


class Evidence(NamedTuple):
    """log Z of (28), and the n log Z_q̂ in it."""

    value: float | None  # None if a cavity is not a distribution
    log_norm: Array  # (n,), empty without a value


class EPFit(NamedTuple):
    """What EP ended with."""

    method: str
    site_precision: Array  # (n, c, c)
    site_location: Array  # (n, c)
    posterior: Posterior
    latent_mean: Array  # (n, c)
    latent_cov: Array  # (n, c, c)
    log_evidence: float | None  # None if a cavity is not a distribution
    log_tilted_norm: Array  # (n,), empty with log_evidence None
    local: dict[str, Array]
    trace: Array
    residual: float  # estimated distance of a site from its end
    converged: bool
    n_improper: int
    iterations: int
    reason: str  # why it has not converged
    stationary: bool  # sites keep all moments that they may: log Z does not move with them, `ep_gradients` holds
    M: Array  # (cn, cn) T(I + KT)⁻¹
    moment_gap: float | None = None  # nested-ep: how far a site is from matching the moments of its inner approximation


class Record:
    """The sweeps of a run: sizes of steps, sites that were left, log Z, and whether another sweep follows.

    `residual` is the estimated distance of a site from its end, see `Arrival`: the largest undamped step of a sweep, in
    the coordinates in which the marginal that the site sees is standard normal, and what a contraction like the last
    ones leaves after it. Sweeps end when it is below the tolerance and no site was left, after max_iterations
    (None: 1000), and when 200 of them have brought no smaller step.
    """

    def __init__(self, options: Options) -> None:
        """No sweep made."""
        self.options, self.arrival = options, Arrival(options.tolerance)
        self.limit = 1000 if options.max_iterations is None else int(options.max_iterations)
        self.trace: list[float] = []
        self.iterations = self.n_improper = 0
        self.converged = False
        self._steps: list[float] = []
        self._left = 0

    @property
    def ended(self) -> bool:
        """Whether no further sweep is to be made."""
        return self.converged or self.arrival.stalled or self.iterations >= self.limit

    @property
    def reason(self) -> str:
        """Why it has not converged, empty if it has."""
        if self.converged:
            return ""
        if self._left:
            return f"{self._left} sites of the last sweep were left as they were, expected a cavity for each"
        return self.arrival.reason(self.iterations)

    def step(self, size: float) -> None:
        """A site was moved; size: of its undamped step."""
        self._steps.append(size)

    def left(self) -> None:
        """A site was left as it was: its cavity is not a distribution, or its quadrature makes no site."""
        self._left += 1

    def swept(self, evidence: Callable[[], Evidence]) -> None:
        """A sweep has ended; evidence: log Z of the sites, asked where it is traced."""
        self.iterations += 1
        self.n_improper += self._left
        if self._steps:
            self.arrival.see(max(self._steps))
        self.converged = self.arrival.converged and not self._left
        if self.options.trace and (value := evidence().value) is not None:
            self.trace.append(value)
        if self.options.callback is not None:
            self.options.callback(State(self.iterations, self.arrival.residual, self.n_improper))
        if not self.ended:
            self._steps, self._left = [], 0


def marginal(q: Posterior, i: int, n: int) -> Moments:
    """Mean (c,) and covariance (c, c) of f_i under q; datum i of n."""
    mine = slice(i, None, n)
    return Moments(q.mean[mine], q.cov[mine, mine])


def proper_cavity(mean: Array, cov: Array, site: Site) -> Moments | None:
    """Cavity of a marginal mean (c,), cov (c, c) without its site; None if it is not a distribution."""
    try:
        return cavity(mean, cov, site.precision, site.location)
    except NotPositiveDefiniteError:
        return None


def independent_cavity(mean: Array, cov: Array, precision: Array, location: Array) -> Moments | None:
    """The same class by class: mean (c,), diagonal of cov (c, c), precision (c,) and location (c,) of the site."""
    left = 1.0 / np.diag(cov) - precision
    if np.any(left <= 0.0):
        return None
    return Moments((mean / np.diag(cov) - location) / left, np.diag(1.0 / left))


def largest_step(d_precision: Array, d_location: Array, mean: Array, var: Array) -> float:
    """Largest step of scalar sites, each where its variable has mean 0 and variance 1.

    Parameters
    ----------
    d_precision, d_location : (J,)    undamped steps
    mean, var : (J,)                  of the variables
    """
    steps = zip(d_precision, d_location, mean, var, strict=True)
    return max(change_of_site(*(float(number) for number in step)) for step in steps)


def evidence_of(
    q: Posterior, location: Array, cavities: Sequence[Moments | None], log_norm: Callable[[int, Moments], float]
) -> Evidence:
    """log Z of (28), none if a cavity is not a distribution.

    Parameters
    ----------
    q : Posterior             that the sites make
    location : (n, c)         ν_i
    cavities : n Moments      None where there is none
    log_norm : callable       datum and its cavity to log Z_q̂; NotPositiveDefiniteError where there is none
    """
    n = len(location)
    latent = marginals(q.mean, q.cov, n)
    proper = [each for each in cavities if each is not None]
    if len(proper) < n:
        return Evidence(None, np.zeros(0))
    means, covs = np.stack([each.mean for each in proper]), np.stack([each.cov for each in proper])
    try:
        norms = np.array([log_norm(i, without) for i, without in enumerate(proper)])
        value = ep_log_marginal(location.T.ravel(), q.mean, q.log_det, norms, means, covs, *latent)  # (28)
    except NotPositiveDefiniteError:
        return Evidence(None, np.zeros(0))
    return Evidence(value, norms)


def ended(
    record: Record,
    sites: Sequence[Site],
    q: Posterior,
    latent: Moments,
    evidence: Evidence,
    local: dict[str, Array],
    M: Array,
    stationary: bool = True,
) -> EPFit:
    """The answer of a run whose sweeps have ended.

    Parameters
    ----------
    record : Record           of the run
    sites : n Sites           the last ones
    q : Posterior             that they make
    latent : Moments          its marginals
    evidence : Evidence       its log Z
    local : dict              parameters of the sites by name
    M : (cn, cn)              T(I + KT)⁻¹
    stationary : bool         see `EPFit`
    """
    precision, location = np.stack([site.precision for site in sites]), np.stack([site.location for site in sites])
    return EPFit(
        record.options.method, precision, location, q, *latent, *evidence, local, np.array(record.trace),
        record.arrival.residual, record.converged, record.n_improper, record.iterations, record.reason, stationary, M,
    )  # fmt: skip
