"""Sections 3.3 and 5.1: the two variants of EP whose tilted moments come from quadrature."""

import numpy as np
from numpy.typing import NDArray

from reference.common._product import check_nodes
from reference.common.algebra import eigenvalues, inverted, solution
from reference.common.errors import NotPositiveDefiniteError
from reference.common.options import Options
from reference.riihimaki2013.inner_ep import change_of_site
from reference.riihimaki2013.nested_ep import (
    DiagonalSites,
    Step,
    coupled_sites,
    damped_diagonal,
    dense_cavity,
    scalar_cavities,
)
from reference.riihimaki2013.quadrature_ep import (
    cavity_covariance_g,
    diagonal_lambda,
    lambda_from_moments,
    qiep_tilted_moments,
    quadrature_site,
    tilted_moments_quadrature,
    xi_from_moments,
)
from reference.riihimaki2013.sites import Moments, Site, difference_matrix

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

ROUNDING = 1e-9  # relative to the variance: how far below zero a site precision may come from rounding alone


class QuadratureEP:
    """Full EP by (c-1)-dimensional product rules; the sites are Λ and ξ."""

    independent = False

    def __init__(self, y: Labels, n_classes: int, options: Options) -> None:
        """y (n,) labels, n_classes, options of qep."""
        check_nodes(options.nodes, n_classes - 1)
        self.y, self.damping, self.nodes, self.diagonal_only = (
            y,
            options.damping,
            options.nodes,
            options.lambda_ == "diagonal",
        )
        self.Lambda = np.zeros((len(y), n_classes - 1, n_classes - 1))
        self.xi = np.zeros((len(y), n_classes - 1))

    def site(self, i: int) -> Site:
        """The outer site of datum i."""
        return quadrature_site(self.Lambda[i], self.xi[i], int(self.y[i]))

    def cavity(self, i: int, mean: Array, cov: Array) -> Moments | None:
        """Of datum i."""
        return dense_cavity(mean, cov, self.site(i))

    def _distribution_of_g(self, i: int, cavity_mean: Array, cavity_cov: Array) -> tuple[Array, Array, Array]:
        B = difference_matrix(len(cavity_mean), int(self.y[i]))
        return B, B.T @ cavity_mean, cavity_covariance_g(cavity_cov, B)

    def _propose(self, i: int, without: Moments) -> tuple[Array, Array] | None:
        B, mean_g, cov_g = self._distribution_of_g(i, without.mean, without.cov)
        hat = tilted_moments_quadrature(mean_g, cov_g, self.nodes)
        if hat.norm <= 0.0 or eigenvalues(hat.cov, "tilted Σ_g")[0] <= 0.0:
            return None
        Lambda = lambda_from_moments(hat.cov, without.cov, B)
        Lambda = 0.5 * (Lambda + Lambda.T)
        if self.diagonal_only:
            kept = diagonal_lambda(Lambda)
            if np.any(kept * np.diag(cov_g) < -ROUNDING):
                return None
            Lambda = np.diag(np.maximum(kept, 0.0))
        else:
            scale = np.sqrt(np.diag(cov_g))
            if eigenvalues(scale[:, None] * Lambda * scale, "Λ in units of Σ_g")[0] < -ROUNDING:
                return None
        return Lambda, xi_from_moments(hat.mean, hat.cov, without.mean, without.cov, B, self.diagonal_only)

    def visit(self, i: int, mean: Array, cov: Array) -> Step | None:
        """Λ and ξ from the moments of g under the tilted distribution."""
        without = self.cavity(i, mean, cov)
        proposal = None if without is None else self._propose(i, without)
        if without is None or proposal is None:
            return None
        _, mean_g, cov_g = self._distribution_of_g(i, without.mean, without.cov)
        # the marginal of g under cavity times site: (Σ_g⁻¹ + Λ)⁻¹
        posterior = inverted(inverted(cov_g, "Σ_g") + self.Lambda[i], "Σ_g⁻¹ + Λ")
        m = posterior @ (solution(cov_g, mean_g, "Σ_g") + self.xi[i])
        d_Lambda, d_xi = proposal[0] - self.Lambda[i], proposal[1] - self.xi[i]
        change = max(
            change_of_site(float(d_Lambda[j, j]), float(d_xi[j]), float(m[j]), float(posterior[j, j]))
            for j in range(len(m))
        )
        self.Lambda[i] += self.damping * d_Lambda
        self.xi[i] += self.damping * d_xi
        return Step(self.site(i), change)

    def log_norm(self, i: int, cavity_mean: Array, cavity_cov: Array) -> float:
        """log Ẑ of the rule."""
        _, mean_g, cov_g = self._distribution_of_g(i, cavity_mean, cavity_cov)
        return _log_or_refuse(tilted_moments_quadrature(mean_g, cov_g, self.nodes).norm)

    def diagonal(self) -> DiagonalSites | None:
        """π_i of (12) with Λ in the place of T̃; None for a full Λ."""
        return coupled_sites(np.einsum("ijj->ij", self.Lambda), self.y) if self.diagonal_only else None

    def local(self) -> dict[str, Array]:
        """Λ and ξ."""
        return {"lambda_tilde": self.Lambda, "xi": self.xi}


class QuadratureIEP:
    """EP for independent classes by one- and two-dimensional rules; the sites are τ and ν."""

    independent = True

    def __init__(self, y: Labels, n_classes: int, options: Options) -> None:
        """y (n,) labels, n_classes, options of qiep."""
        check_nodes(options.nodes, 2)
        self.y, self.damping, self.nodes = y, options.damping, options.nodes
        self.precision, self.location = np.zeros((2, len(y), n_classes))

    def cavity(self, i: int, mean: Array, cov: Array) -> Moments | None:
        """Of datum i."""
        return scalar_cavities(mean, cov, self.precision[i], self.location[i])

    def visit(self, i: int, mean: Array, cov: Array) -> Step | None:
        """τ and ν from the tilted means and variances."""
        without = self.cavity(i, mean, cov)
        if without is None:
            return None
        var = np.diag(without.cov)
        hat = qiep_tilted_moments(without.mean, var, int(self.y[i]), self.nodes)
        if hat.norm <= 0.0 or np.any(hat.cov <= 0.0):
            return None
        precision = 1.0 / hat.cov - 1.0 / var
        if np.any(precision * var < -ROUNDING):
            return None
        location = hat.mean / hat.cov - without.mean / var
        return damped_diagonal(self, i, mean, cov, np.maximum(precision, 0.0), location)

    def log_norm(self, i: int, cavity_mean: Array, cavity_cov: Array) -> float:
        """log Ẑ of the one-dimensional rule."""
        return _log_or_refuse(qiep_tilted_moments(cavity_mean, np.diag(cavity_cov), int(self.y[i]), self.nodes).norm)

    def diagonal(self) -> DiagonalSites:
        """τ as it is."""
        return DiagonalSites(self.precision.copy(), False)

    def local(self) -> dict[str, Array]:
        """Nothing beside the sites."""
        return {}


def _log_or_refuse(norm: float) -> float:
    """log Ẑ; a rule that misses all mass is a failure of the method and has no evidence."""
    if norm <= 0.0:
        raise NotPositiveDefiniteError(f"tilted normaliser: found {norm:.3g}, expected > 0; raise nodes")
    return float(np.log(norm))
