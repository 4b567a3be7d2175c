"""EP and SEP as sections 2.2, 2.3 and the appendices B to H print them: what the loops of `fit` need of each.

Every line calls the function of one equation, whose number stands at its right. Arrays over factors are (n, C), row i,
column k, zero in the columns of the labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import class_gradients
from reference.common._learning import FIELDS
from reference.common._training import State, Step, Value
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.common.priors import Prior
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.derivatives import Weights, kernel_derivative, pair_derivatives, tied_pull, total_pulls
from reference.villacampa2017.evidence import ep_log_evidence, factor_log_scale
from reference.villacampa2017.factors import (
    ep_refine_factors,
    factor_indices,
    matched_factor,
    parallel_ep_sweep,
    posterior_of,
    sequential_ep_sweep,
)
from reference.villacampa2017.gradients import (
    Direction,
    Distributions,
    distributions_of,
    ep_log_evidence_gradient,
    hyper_directions,
    minibatch_log_evidence_gradient,
    minibatch_weights,
)
from reference.villacampa2017.hyper import Matrices, prior_matrices
from reference.villacampa2017.model import REMEDY, fitc_conditional, projection_vectors
from reference.villacampa2017.posterior import (
    Coefficients,
    Gaussians,
    Natural,
    factor_linear,
    factor_precisions,
    natural_parameter_sum,
    per_class,
)
from reference.villacampa2017.prediction import Latents, predictive_latent_distribution
from reference.villacampa2017.sep import (
    factor_counts,
    sep_batch_update,
    sep_cavity,
    sep_log_evidence,
    sep_tied_factor,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]


class PriorOfClasses:
    """The prior of all methods: its matrices, and their derivatives in the hyper-parameters."""

    def matrices(self, X: Array, prior: Prior) -> Matrices:
        """K_ZZ, υ and s of a prior at the inputs X (n, d)."""
        return prior_matrices(X, prior)

    def directions(self, X: Array, state: State, learn: Sequence[str]) -> dict[str, Direction]:
        """Derivatives of the matrices of a state's prior at X in every ξ of the fields learn."""
        prior = state.prior
        each = hyper_directions(X, prior.Z, prior.variance, prior.lengthscales, learn)
        return {
            name: Direction(*(np.stack(parts) for parts in zip(*along, strict=True))) for name, along in each.items()
        }

    def value(self, sites: Any, posterior: Gaussians, K: Any) -> Value:
        """log Z_q of all data, from sites, posterior and K."""
        raise NotImplementedError

    def traced(self, sites: Any, posterior: Gaussians, K: Any) -> float | None:
        """log Z_q after a sweep, from sites, posterior and K; none if a cavity is not a distribution."""
        return self.value(sites, posterior, K).log_evidence


class Pairwise(PriorOfClasses):
    """What EP and SEP do alike: latent values at the data, derivatives by (10)."""

    y: Labels

    def distributions(self, sites: Any, posterior: Gaussians, K: Matrices) -> Distributions:
        """What (10) is evaluated on, from sites, posterior and K; ValueError if a cavity is not a distribution."""
        raise NotImplementedError

    def exact(self, sites: Any, distributions: Distributions, K: Matrices, weights: Array) -> list[Any]:
        """The whole derivative of log Z_q in the prior's matrices K, sites held, data weighted."""
        raise NotImplementedError

    def latents(self, sites: Any, posterior: Gaussians, K: Matrices) -> Latents:
        """Moments at the data, from posterior and K; sites are not looked at."""
        return predictive_latent_distribution(posterior, K.k_xx, K.K_XZ, K.K_ZZ)  # (65) to (67)

    def gradients(
        self, X: Array, state: State, batch: Batch | None = None, exact: bool = False, learn: Sequence[str] = FIELDS
    ) -> dict[str, Array] | None:
        """(10) of villacampa2017 in every hyper-parameter ξ; (12) for a mini-batch.

        Parameters
        ----------
        X : (n, d)                inputs
        state : State             factors, q, prior and its matrices
        batch : (b,) or None      data whose terms stand for all, n/b times; None: all data
        exact : bool              the whole derivative of log Z_q with the factors' numbers held, in place of (10)
        learn : names             fields wanted

        Returns
        -------
        dict or None              fields with shapes as in the prior; None if a cavity is not a distribution
        """
        # fmt: off
        K, prior = state.K, state.prior
        try:
            data = self.distributions(state.sites, state.posterior, K)                             # (29) to (32)
        except NotPositiveDefiniteError:
            raise
        except ValueError:
            return None
        if exact:
            pulls = self.exact(state.sites, data, K, minibatch_weights(len(X), batch))
            by_K = [kernel_derivative(*each) for each in zip(pulls, K.upsilon, K.K_ZZ, strict=True)]
            return class_gradients(by_K, X, prior, learn)
        results = {}
        for name, xi in self.directions(X, state, learn).items():                                  # every ξ of a field
            if batch is None:
                derivatives = ep_log_evidence_gradient(data, self.y, K.K_ZZ, xi)                   # (10), (62)
            else:
                derivatives = minibatch_log_evidence_gradient(data, self.y, K.K_ZZ, xi, batch)     # (12)
            results[name] = derivatives.reshape(getattr(prior, name).shape)
        return results
        # fmt: on


class EP(Pairwise):
    """EP of villacampa2017: a factor (8) for each datum and other class."""

    def __init__(self, y: Labels, n_classes: int, damping: float, schedule: str) -> None:
        """Labels y (n,) of n_classes classes, damping in (0, 1], schedule parallel or sequential."""
        self.y, self.n_classes, self.damping = y, n_classes, damping
        self._sweep: Any = parallel_ep_sweep if schedule == "parallel" else sequential_ep_sweep

    def start(self, K: Matrices) -> Coefficients:
        """Factors of one; K is not looked at."""
        return Coefficients(*(np.zeros((len(self.y), self.n_classes)) for _ in range(4)))

    def posterior(self, sites: Coefficients, K: Matrices) -> Gaussians:
        """q(f̄) from sites and K."""
        return posterior_of(sites, self.y, K.upsilon, K.K_ZZ)  # (25) to (27)

    def sweep(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """One damped sweep from sites and posterior, with K, over batch: sections 2.2 and 2.3.2, appendix E."""
        new, q, refined = self._sweep(  # (25) to (53)
            sites, posterior, self.y, K.k_xx, K.K_XZ, K.K_ZZ, self.damping, batch
        )
        return Step(new, q, refined.mismatch, refined.n_improper)

    def value(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q by the natural parameters of sites, posterior and the prior of K: (9), (56) to (59)."""
        # fmt: off
        refined = ep_refine_factors(sites, posterior, self.y, K.k_xx, K.K_XZ, K.K_ZZ)              # (29) to (53)
        if refined.n_improper:
            return Value(None, refined.log_norm)
        upsilon = projection_vectors(K.K_XZ, K.K_ZZ)                                               # below (8)
        prior = [Natural(factorise(each, "K_ZZ", REMEDY).inverse, np.zeros(len(each))) for each in K.K_ZZ]
        parts: dict[tuple[int, int, int], tuple[Natural, Natural]] = {}
        of_class: list[list[Natural]] = [[] for _ in prior]
        for i, y_i, k in factor_indices(self.y, self.n_classes):
            u_y, u_k = upsilon[y_i, i], upsilon[k, i]
            c1_y, c2_y, c1_k, c2_k = (float(part[i, k]) for part in sites)
            T_y, T_k = factor_precisions(c1_y, c1_k, u_y, u_k)                                     # (20), (21), (50)
            t_y, t_k = factor_linear(c2_y, u_y), factor_linear(c2_k, u_k)                          # (22), (23), (54)
            parts[i, y_i, k] = Natural(T_y, t_y), Natural(T_k, t_k)
            of_class[y_i].append(parts[i, y_i, k][0])
            of_class[k].append(parts[i, y_i, k][1])
        theta = [natural_parameter_sum(*each) for each in zip(prior, of_class, strict=True)]       # below (62)
        log_scales = np.zeros_like(refined.log_norm)
        for (i, y_i, k), pair in parts.items():
            distributions = theta[y_i], theta[k]
            cavities = [Natural(q.precision - site.precision, q.shift - site.shift)                # (28)
                        for q, site in zip(distributions, pair, strict=True)]
            log_scales[i, k] = factor_log_scale(float(refined.log_norm[i, k]), cavities, distributions)     # (56), (58)
        return Value(ep_log_evidence(theta, prior, log_scales), refined.log_norm)                  # (9), (57)
        # fmt: on

    def distributions(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Distributions:
        """What (10) is evaluated on, from sites, posterior and K."""
        return distributions_of(sites, posterior, self.y, K.k_xx, K.K_XZ, K.K_ZZ)  # (29) to (32)

    def exact(self, sites: Coefficients, distributions: Distributions, K: Matrices, weights: Array) -> list[Any]:
        """Derivatives of log Z_q on cavities in the prior's matrices K, sites held; weights (n,) of the data."""
        return total_pulls(sites, distributions, self.y, K.K_ZZ, weights)


class SEP(Pairwise):
    """SEP of villacampa2017: factors tied, one precision and one shift kept a class.

    A sweep replaces the part of the tied factor that its data stand for, r of it, by their refined factors:
    T ← T + ρ (Σ new - r T), where r is the share of the data; with the count "per-class", of the factors of a class.
    """

    def __init__(self, y: Labels, n_classes: int, damping: float, count: str) -> None:
        """Labels y (n,) of n_classes classes, damping ρ in (0, 1], count all or per-class."""
        self.y, self.n_classes, self.damping, self.count = y, n_classes, damping, count
        self.counts = factor_counts(y, n_classes, count)

    def start(self, K: Matrices) -> list[Natural]:
        """Factors of one, in the size of K."""
        C, m, _ = K.K_ZZ.shape
        return [Natural(np.zeros((m, m)), np.zeros(m)) for _ in range(C)]

    def natural(self, sites: list[Natural], K: Matrices) -> list[Natural]:
        """Natural parameters of q(f̄) from sites and K."""
        prior = [Natural(factorise(each, "K_ZZ", REMEDY).inverse, np.zeros(len(each))) for each in K.K_ZZ]
        return [natural_parameter_sum(at, [tied]) for at, tied in zip(prior, sites, strict=True)]  # below (62)

    def posterior(self, sites: list[Natural], K: Matrices) -> Gaussians:
        """q(f̄) from sites and K."""
        return _moments(self.natural(sites, K))

    def cavities(self, sites: list[Natural], K: Matrices) -> Gaussians:
        """q without one n-th of the tied factor, from sites and K."""
        return _moments(sep_cavity(self.natural(sites, K), sites, self.counts))  # section 2.3.1

    def matched(self, cavities: Gaussians, y: Labels, K: Matrices) -> tuple[Coefficients, Array]:
        """Coefficients and log Z of all factors of data, each (n, C), from cavities, the labels y and K of the data."""
        # fmt: off
        upsilon = projection_vectors(K.K_XZ, K.K_ZZ)                                               # below (8)
        new = Coefficients(*(np.zeros((len(y), self.n_classes)) for _ in range(4)))
        log_norm, without = np.zeros((len(y), self.n_classes)), _each(cavities)
        for i, y_i, k in factor_indices(y, self.n_classes):
            pair = [y_i, k]
            result = matched_factor(                                                                # (33) to (53)
                (without[y_i], without[k]), upsilon[pair, i], K.k_xx[pair, i], K.K_XZ[pair, i], K.K_ZZ[pair])
            for part, after in zip(new, result.coefficients, strict=True):
                part[i, k] = after
            log_norm[i, k] = result.log_norm
        return new, log_norm
        # fmt: on

    def sweep(self, sites: list[Natural], posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """One damped sweep from sites and posterior, with K, over batch: sections 2.3.1 and 2.3.2, appendix E.

        The residual is the change of the tied factor in units of q: √tr(V ΔT V ΔT), and |Δt - ΔT m| in the norm of V.
        """
        # fmt: off
        here, y = K.rows(batch), self.y[batch]
        refined, _ = self.matched(self.cavities(sites, K), y, here)                                # 2.3.1, (33) to (53)
        target = sep_tied_factor(refined, y, here.upsilon)                                         # φ̃ = Π φ̃_i^k
        shares = factor_counts(y, self.n_classes, self.count) / self.counts
        squares, new = [0.0], []
        for old, wanted, share, m, V in zip(sites, target, shares.tolist(), *posterior, strict=True):
            dT, dt = wanted.precision - share * old.precision, wanted.shift - share * old.shift
            squares += [float(np.sum((V @ dT) * (V @ dT).T)), float((dt - dT @ m) @ V @ (dt - dT @ m))]
            new.append(sep_batch_update(old, wanted, share, self.damping))                         # 2.3.2, appendix E
        return Step(new, self.posterior(new, K), float(np.sqrt(max(squares))), 0)
        # fmt: on

    def value(self, sites: list[Natural], posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q with n factors of one kind a class, from sites, posterior and K: 2.3.1, (60)."""
        cavities = self.cavities(sites, K)
        _, log_norm = self.matched(cavities, self.y, K)
        return Value(sep_log_evidence(cavities, posterior, K.K_ZZ, self.counts, log_norm), log_norm)

    def distributions(self, sites: list[Natural], posterior: Gaussians, K: Matrices) -> Distributions:
        """What section 2.3.1 puts into (10), from sites, posterior and K: the cavities of SEP."""
        # fmt: off
        upsilon = projection_vectors(K.K_XZ, K.K_ZZ)                                               # below (8)
        cond_var = fitc_conditional(posterior.mean, K.k_xx, K.K_XZ, K.K_ZZ).var                    # (4), (5)
        without = _each(self.cavities(sites, K))                                                   # section 2.3.1
        pairs = {(i, k): (without[y_i], without[k]) for i, y_i, k in factor_indices(self.y, self.n_classes)}
        return Distributions(posterior, pairs, upsilon, cond_var)
        # fmt: on

    def exact(self, sites: list[Natural], distributions: Distributions, K: Matrices, weights: Array) -> list[Any]:
        """Derivatives of log Z_q on cavities in the prior's matrices K, sites held; weights (n,) of the data."""
        g, h = pair_derivatives(distributions, self.y)
        by_var = 0.5 * (g**2 - h)
        mean, var = weights * per_class(g, -g, self.y), weights * per_class(by_var, by_var, self.y)
        of_class = _each(distributions.posterior), _each(self.cavities(sites, K)), self.counts.tolist()
        each = zip(mean, var, *of_class, distributions.upsilon, K.K_ZZ, strict=True)
        return [tied_pull(Weights(by_mean, by_v, by_v), *rest) for by_mean, by_v, *rest in each]


def _moments(theta: Sequence[Natural]) -> Gaussians:
    """Means and covariances of every class."""
    cov = [factorise(each.precision, "precision", "lower damping").inverse for each in theta]
    return Gaussians(np.array([V @ each.shift for V, each in zip(cov, theta, strict=True)]), np.array(cov))


def _each(distributions: Gaussians) -> list[Cavity]:
    """One Gaussian a class."""
    return [Cavity(m, V) for m, V in zip(*distributions, strict=True)]
