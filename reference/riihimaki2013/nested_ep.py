"""Section 3.2: how each variant proposes a site from a marginal, nested EP and its independent-class twin.

A kind keeps the parameters of its sites; `visit` computes the full step from one marginal, moves its parameters by the
damped step, and says how large the full step was in the coordinates in which the marginal is standard normal.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import Options
from reference.riihimaki2013.inner_ep import change_of_site, inner_ep, inner_log_normaliser, inner_posterior
from reference.riihimaki2013.sites import (
    Augmented,
    Moments,
    Site,
    augmented_tilted,
    cavity,
    damp_inner_sites,
    iep_site_update,
    match_moments,
    outer_site,
    site_precision,
    tilted_covariance_augmented,
    tilted_mean_augmented,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Step(NamedTuple):
    """A site after its damped step, and the size of the full one."""

    site: Site
    change: float


class DiagonalSites(NamedTuple):
    """Sites whose precisions appendix B takes apart: those of (12) by their π_i, or diagonal ones."""

    pi: Array  # (n, c)      π_i, or the diagonals
    coupled: bool  # whether (12) couples the classes of a datum


class Kind(Protocol):
    """What a variant of EP must be able to do."""

    y: Labels  # (n,)
    independent: bool

    def cavity(self, i: int, mean: Array, cov: Array) -> Moments | None:
        """Cavity of datum i from its marginal, None if it is no distribution."""

    def visit(self, i: int, mean: Array, cov: Array) -> Step | None:
        """One damped step of the site of datum i; None if it was left as it is."""

    def log_norm(self, i: int, cavity_mean: Array, cavity_cov: Array) -> float:
        """log Z_q̂ of datum i from its cavity with the parameters as they are."""

    def diagonal(self) -> DiagonalSites | None:
        """The sites as appendix B takes them; None if they have no such form."""

    def local(self) -> dict[str, Array]:
        """The parameters, by name."""


def largest_change(w: Augmented, alpha: Array, beta: Array, d_alpha: Array, d_beta: Array) -> float:
    """The largest change of the scalar sites, each where its g_j has mean 0 and variance 1 under q̂(w).

    Parameters
    ----------
    w : Augmented                     cavity of w
    alpha, beta : (c-1,)              sites before the change
    d_alpha, d_beta : (c-1,)          the change
    """
    q = inner_posterior(w.mu_w, w.Sigma_w, w.B_tilde, alpha, beta)
    m = w.B_tilde.T @ q.mean
    v = np.sum(w.B_tilde * (q.cov @ w.B_tilde), axis=0)
    return max(
        change_of_site(float(a), float(b), float(p), float(s)) for a, b, p, s in zip(d_alpha, d_beta, m, v, strict=True)
    )


def dense_cavity(mean: Array, cov: Array, site: Site) -> Moments | None:
    """Cavity of a marginal mean (c,), cov (c, c) without a site; None if it is no distribution."""
    try:
        return cavity(mean, cov, site.precision, site.location)
    except NotPositiveDefiniteError:
        return None


def scalar_cavities(mean: Array, cov: Array, precision: Array, location: Array) -> Moments | None:
    """Cavities class by class: mean (c,), diagonal of cov (c, c), precision (c,), location (c,) of the site."""
    of_cavity = 1.0 / np.diag(cov) - precision
    if np.any(of_cavity <= 0.0):
        return None
    return Moments((mean / np.diag(cov) - location) / of_cavity, np.diag(1.0 / of_cavity))


def coupled_sites(alpha: Array, y: Labels) -> DiagonalSites:
    """π_i of (12) from inner precisions alpha (n, c-1) and labels y (n,)."""
    return DiagonalSites(np.stack([site_precision(a, int(k)).pi for a, k in zip(alpha, y, strict=True)]), True)


class NestedEP:
    """Nested EP: the sites are α̃, β̃, damped themselves."""

    independent = False

    def __init__(self, y: Labels, n_classes: int, options: Options) -> None:
        """y (n,) labels, n_classes, options of the method."""
        self.y, self.damping, self.options = y, options.damping, options
        self.alpha = np.zeros((len(y), n_classes - 1))
        self.beta = np.zeros((len(y), n_classes - 1))

    def site(self, i: int) -> Site:
        """The outer site of datum i."""
        return outer_site(self.alpha[i], self.beta[i], int(self.y[i]))

    def cavity(self, i: int, mean: Array, cov: Array) -> Moments | None:
        """Of datum i."""
        return dense_cavity(mean, cov, self.site(i))

    def visit(self, i: int, mean: Array, cov: Array) -> Step | None:
        """Inner EP on the cavity from the present α̃_i, β̃_i."""
        # fmt: off
        y, alpha, beta = int(self.y[i]), self.alpha[i].copy(), self.beta[i].copy()
        without = self.cavity(i, mean, cov)                                                   # 3.1
        if without is None:
            return None
        hat = inner_ep(without.mean, without.cov, y, alpha, beta, options=self.options)       # A, 3.2.3
        w = augmented_tilted(without.mean, without.cov, y)                                    # (7)
        change = largest_change(w, alpha, beta, hat.alpha - alpha, hat.beta - beta)
        self.alpha[i], self.beta[i] = damp_inner_sites(alpha, beta, hat.alpha, hat.beta, self.damping)   # 3.2.3
        return Step(self.site(i), change)                                                     # (12), (15)
        # fmt: on

    def log_norm(self, i: int, cavity_mean: Array, cavity_cov: Array) -> float:
        """log Z_q̂ of appendix A."""
        w = augmented_tilted(cavity_mean, cavity_cov, int(self.y[i]))
        return inner_log_normaliser(w, self.alpha[i], self.beta[i])

    def diagonal(self) -> DiagonalSites:
        """π_i of (12)."""
        return coupled_sites(self.alpha, self.y)

    def moment_gap(self, i: int, without: Moments) -> float:
        """How far (12) and (15) are from matching the moments (9), (13) of datum i on its cavity, section 3.1.

        Largest change of a site in units of the tilted distribution, as section 3.2.2 says zero but for rounding.
        """
        alpha, beta = self.alpha[i], self.beta[i]
        # fmt: off
        w = augmented_tilted(without.mean, without.cov, int(self.y[i]))                             # (7)
        cov = tilted_covariance_augmented(w.Sigma_w, w.B_tilde, alpha)                        # (9)
        mean = tilted_mean_augmented(w.mu_w, w.Sigma_w, w.B_tilde, alpha, beta)               # (13)
        matched = match_moments(mean, cov, without.mean, without.cov)                               # 3.1
        site = self.site(i)                                                                   # (12), (15)
        # fmt: on
        sd = np.sqrt(np.diag(cov))
        off = sd[:, None] * (matched.precision - site.precision) * sd
        return max(float(np.max(np.abs(off))), float(np.max(np.abs(sd * (matched.location - site.location)))))

    def local(self) -> dict[str, Array]:
        """α̃ and β̃."""
        return {"alpha_tilde": self.alpha, "beta_tilde": self.beta}


class NestedIEP:
    """Nested EP for independent classes: diagonal sites τ, ν, damped; the inner sites are kept beside them."""

    independent = True

    def __init__(self, y: Labels, n_classes: int, options: Options) -> None:
        """y (n,) labels, n_classes, options of the method."""
        self.y, self.damping, self.options = y, options.damping, options
        self.precision, self.location = np.zeros((2, len(y), n_classes))
        self.alpha, self.beta = np.zeros((2, len(y), n_classes - 1))

    def cavity(self, i: int, mean: Array, cov: Array) -> Moments | None:
        """Of datum i."""
        return scalar_cavities(mean, cov, self.precision[i], self.location[i])

    def visit(self, i: int, mean: Array, cov: Array) -> Step | None:
        """Inner EP on the diagonal cavity; its means and variances are matched."""
        y, alpha, beta = int(self.y[i]), self.alpha[i].copy(), self.beta[i].copy()
        # fmt: off
        without = self.cavity(i, mean, cov)                                                   # 3.1
        if without is None:
            return None
        hat = inner_ep(without.mean, without.cov, y, alpha, beta, options=self.options)       # A, 3.2.3
        self.alpha[i], self.beta[i] = hat.alpha, hat.beta
        full = iep_site_update(hat.mean[:-1], hat.cov[:-1, :-1], without.mean, without.cov)   # 3.2.2
        step = damped_diagonal(self, i, mean, cov, np.maximum(full.precision, 0.0), full.location)
        if self.options.inner == "incremental":
            w = augmented_tilted(without.mean, without.cov, y)                                # (7)
            inner_change = largest_change(w, alpha, beta, hat.alpha - alpha, hat.beta - beta)
            step = step._replace(change=max(step.change, inner_change))
        return step
        # fmt: on

    def log_norm(self, i: int, cavity_mean: Array, cavity_cov: Array) -> float:
        """log Z_q̂ of appendix A on the diagonal cavity."""
        w = augmented_tilted(cavity_mean, cavity_cov, int(self.y[i]))
        return inner_log_normaliser(w, self.alpha[i], self.beta[i])

    def diagonal(self) -> DiagonalSites:
        """τ as it is."""
        return DiagonalSites(self.precision.copy(), False)

    def local(self) -> dict[str, Array]:
        """α̃ and β̃ of the inner runs."""
        return {"alpha_tilde": self.alpha, "beta_tilde": self.beta}


def damped_diagonal(kind: Any, i: int, mean: Array, cov: Array, precision: Array, location: Array) -> Step:
    """Move the diagonal site i of a kind towards precision (c,), location (c,) by its damping.

    Parameters
    ----------
    kind : object             has precision (n, c), location (n, c), damping
    i : int                   datum
    mean : (c,)               of its marginal
    cov : (c, c)              of its marginal
    precision : (c,)          of the full step
    location : (c,)           of the full step
    """
    d_precision, d_location = precision - kind.precision[i], location - kind.location[i]
    change = max(
        change_of_site(float(p), float(v), float(m), float(var))
        for p, v, m, var in zip(d_precision, d_location, mean, np.diag(cov), strict=True)
    )
    kind.precision[i] += kind.damping * d_precision
    kind.location[i] += kind.damping * d_location
    return Step(Site(np.diag(kind.precision[i]), kind.location[i].copy()), change)
