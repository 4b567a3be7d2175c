"""EP and SEP as sections 2.2, 2.3 and the appendices B to H print them: the form "printed".

Every line calls the function of one equation, whose number stands at its right. One factor (i, k) after another is
taken out of q with its (m, m) matrices, which `scalar`, the form "projected", does for all factors at once along υ.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.common._forms import chosen_form
from reference.common._learning import FIELDS
from reference.common._options import shown
from reference.common._sweeps import Step
from reference.common._training import State, Value
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.villacampa2017.cavity import Cavity
from reference.villacampa2017.evidence import ep_log_evidence, factor_log_scale
from reference.villacampa2017.factors import (
    damped_update,
    ep_refine_factors,
    factor_cavities,
    matched_factor,
    moment_mismatch,
    parallel_ep_sweep,
    posterior_of,
)
from reference.villacampa2017.gradients import (
    Direction,
    Distributions,
    distributions_of,
    ep_log_evidence_gradient,
    hyper_directions,
    minibatch_log_evidence_gradient,
)
from reference.villacampa2017.hyper import Matrices
from reference.villacampa2017.methods import OverPrior, PairwiseEP
from reference.villacampa2017.model import REMEDY, fitc_conditional, projection_vectors
from reference.villacampa2017.posterior import (
    Coefficients,
    Gaussians,
    Natural,
    factor_linear,
    factor_precisions,
    natural_parameter_sum,
)
from reference.villacampa2017.prediction import predictive_latent_distribution
from reference.villacampa2017.scalar import Projected
from reference.villacampa2017.tied import TiedEP

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Batch = NDArray[np.intp]

# A factor takes about 0.3 ms as printed, with its share of log Z and gradients, and a fixed point some 60 sweeps
FACTOR = 0.019


def sep_form(form: str | None, n: int, n_classes: int) -> str:
    """The form asked for, or that of `chosen_form` for the n(C - 1) factors of villacampa2017.

    Parameters
    ----------
    form : str or None        "printed", "projected", or None for the rule
    n : int                   number of data
    n_classes : int           C
    """
    return chosen_form(form, seconds=FACTOR * n * (n_classes - 1))


def ep_form(form: str | None, factors: str, n: int, n_classes: int) -> str:
    """As `sep_form`; one factor a datum is "projected", for villacampa2017 prints no equations of it.

    Parameters
    ----------
    form : str or None        "printed", "projected", or None for the rule of size
    factors : str             "pairwise" or "datum"
    n : int                   number of data
    n_classes : int           C

    Raises
    ------
    ValueError                for "printed" with one factor a datum
    """
    if factors == "pairwise":
        return sep_form(form, n, n_classes)
    if form == "printed":
        raise ValueError(f"form: found {shown(form)} with factors = {shown(factors)}, expected None or 'projected'")
    return "projected"


class _Printed(OverPrior):
    """Latent values at the data and derivatives, as both methods have them."""

    y: Labels

    def distributions(self, sites: Any, posterior: Gaussians, K: Matrices) -> Distributions:
        """What (10) is evaluated on, from sites, posterior and K; ValueError if a cavity is no distribution."""
        raise NotImplementedError

    def gradients(
        self, X: Array, state: State, batch: Batch | None = None, exact: bool = False, learn: Sequence[str] = FIELDS
    ) -> dict[str, Array] | None:
        """(10) in every hyper-parameter ξ of learn, at a state over inputs X; of a mini-batch (12).

        "exact", which no equation of villacampa2017 is, has the contracted form only.
        """
        if exact:
            return super().gradients(X, state, batch, exact, learn)
        return printed_gradients(self, X, state, batch, learn)

    def latents(self, sites: Any, posterior: Gaussians, K: Matrices) -> Projected:
        """Moments at the data, from posterior and K; sites are not looked at."""
        return Projected(*predictive_latent_distribution(posterior, K.k_xx, K.K_XZ, K.K_ZZ))  # (65) to (67)


class PrintedEP(_Printed, PairwiseEP):
    """EP of villacampa2017, one factor after another; arrays over factors are (n, C), zero in the labels' columns."""

    def step(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """One damped sweep from sites and posterior, with K, over batch: sections 2.2 and 2.3.2, appendix E."""
        # fmt: off
        if self.schedule == "sequential":
            return self._in_turn(sites, posterior, K, batch)
        if len(batch) == len(self.y):
            new, q, whole = parallel_ep_sweep(                                                     # (25) to (53)
                sites, posterior, self.y, K.k_xx, K.K_XZ, K.K_ZZ, self.damping)
            return Step(new, whole.mismatch, whole.n_improper, q)
        here = K.rows(batch)
        old = Coefficients(*(part[batch] for part in sites))
        whole = ep_refine_factors(                                                                 # (29) to (53)
            old, posterior, self.y[batch], here.k_xx, here.K_XZ, here.K_ZZ)
        new = Coefficients(*(part.copy() for part in sites))
        for part, after, before in zip(new, whole.coefficients, old, strict=True):
            part[batch] = damped_update(after, before, self.damping)                               # appendix E
        return Step(new, whole.mismatch, whole.n_improper)
        # fmt: on

    def _in_turn(self, sites: Coefficients, posterior: Gaussians, K: Matrices, batch: Batch) -> Step:
        """The same with q made anew after each factor."""
        # fmt: off
        new, q = Coefficients(*(part.copy() for part in sites)), posterior
        upsilon = projection_vectors(K.K_XZ, K.K_ZZ)                                               # below (8)
        mismatch, n_improper = 0.0, 0
        for i in batch:
            y_i = int(self.y[i])
            for k in range(self.n_classes):
                if k == y_i:
                    continue
                try:
                    cavities = factor_cavities(new, q, upsilon, i, y_i, k)                         # (29) to (32)
                except ValueError:  # no distribution: the factor stays
                    n_improper += 1
                    continue
                pair = [y_i, k]
                result = matched_factor(                                                            # (33) to (53)
                    cavities, upsilon[pair, i], K.k_xx[pair, i], K.K_XZ[pair, i], K.K_ZZ[pair])
                mismatch = max(mismatch, *(
                    moment_mismatch(q.mean[j], q.cov[j], tilted, upsilon[j, i])
                    for j, tilted in zip(pair, result.tilted, strict=True)))
                for part, after in zip(new, result.coefficients, strict=True):
                    part[i, k] = damped_update(np.array(after), part[i, k], self.damping)          # appendix E
                q = posterior_of(new, self.y, upsilon, K.K_ZZ)                                     # (25) to (27)
        return Step(new, mismatch, n_improper, q)
        # fmt: on

    def value(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Value:
        """log Z_q by the natural parameters of sites, posterior and the prior of K: (9), (56) to (59)."""
        # fmt: off
        refined = ep_refine_factors(sites, posterior, self.y, K.k_xx, K.K_XZ, K.K_ZZ)              # (29) to (53)
        if refined.n_improper:
            return Value(None, refined.log_norm)
        upsilon = projection_vectors(K.K_XZ, K.K_ZZ)                                               # below (8)
        prior = [Natural(factorise(each, "K_ZZ", REMEDY).inverse, np.zeros(len(each))) for each in K.K_ZZ]
        parts: dict[tuple[int, int], tuple[Natural, Natural]] = {}
        of_class: list[list[Natural]] = [[] for _ in prior]
        for i, y_i in enumerate(self.y):
            for k in range(self.n_classes):
                if k == y_i:
                    continue
                u_y, u_k = upsilon[y_i, i], upsilon[k, i]
                c1_y, c2_y, c1_k, c2_k = (float(part[i, k]) for part in sites)
                T_y, T_k = factor_precisions(c1_y, c1_k, u_y, u_k)                                 # (20), (21), (50)
                t_y, t_k = factor_linear(c2_y, u_y), factor_linear(c2_k, u_k)                      # (22), (23), (54)
                parts[i, k] = Natural(T_y, t_y), Natural(T_k, t_k)
                of_class[y_i].append(parts[i, k][0])
                of_class[k].append(parts[i, k][1])
        theta = [natural_parameter_sum(*each) for each in zip(prior, of_class, strict=True)]       # below (62)
        log_scales = np.zeros_like(refined.log_norm)
        for (i, k), pair in parts.items():
            distributions = theta[self.y[i]], theta[k]
            cavities = [Natural(q.precision - site.precision, q.shift - site.shift)                # (28)
                        for q, site in zip(distributions, pair, strict=True)]
            log_scales[i, k] = factor_log_scale(float(refined.log_norm[i, k]), cavities, distributions)     # (56), (58)
        return Value(ep_log_evidence(theta, prior, log_scales), refined.log_norm)                  # (9), (57)
        # fmt: on

    def distributions(self, sites: Coefficients, posterior: Gaussians, K: Matrices) -> Distributions:
        """What (10) is evaluated on, from sites, posterior and K."""
        return distributions_of(sites, posterior, self.y, K.k_xx, K.K_XZ, K.K_ZZ)  # (29) to (32)


class PrintedSEP(_Printed, TiedEP):
    """SEP of villacampa2017: its cavity in the place of EP's, and then one factor after another."""

    def matched(self, cavities: Gaussians, y: Labels, K: Matrices) -> tuple[Coefficients, Array]:
        """Coefficients and log Z of all factors of data, each (n, C), from cavities, the labels y and K of the data."""
        # fmt: off
        upsilon = projection_vectors(K.K_XZ, K.K_ZZ)                                               # below (8)
        new = Coefficients(*(np.zeros((len(y), self.n_classes)) for _ in range(4)))
        log_norm = np.zeros((len(y), self.n_classes))
        without = [Cavity(m, V) for m, V in zip(*cavities, strict=True)]
        for i, y_i in enumerate(y):
            for k in range(self.n_classes):
                if k == y_i:
                    continue
                pair = [y_i, k]
                result = matched_factor(                                                            # (33) to (53)
                    (without[y_i], without[k]), upsilon[pair, i], K.k_xx[pair, i], K.K_XZ[pair, i], K.K_ZZ[pair])
                for part, after in zip(new, result.coefficients, strict=True):
                    part[i, k] = after
                log_norm[i, k] = result.log_norm
        return new, log_norm
        # fmt: on

    def distributions(self, sites: list[Natural], posterior: Gaussians, K: Matrices) -> Distributions:
        """What section 2.3.1 puts into (10), from sites, posterior and K: the cavities of SEP."""
        # fmt: off
        upsilon = projection_vectors(K.K_XZ, K.K_ZZ)                                               # below (8)
        cond_var = fitc_conditional(posterior.mean, K.k_xx, K.K_XZ, K.K_ZZ).var                    # (4), (5)
        without = [Cavity(m, V) for m, V in zip(*self.cavities(sites, K), strict=True)]            # section 2.3.1
        pairs = {(i, k): (without[y_i], without[k])
                 for i, y_i in enumerate(self.y) for k in range(self.n_classes) if k != y_i}
        return Distributions(posterior, pairs, upsilon, cond_var)
        # fmt: on


def printed_gradients(
    method: _Printed, X: Array, state: State, batch: Batch | None, learn: Sequence[str]
) -> dict[str, Array] | None:
    """(10) of villacampa2017 in every hyper-parameter ξ; of a mini-batch (12).

    Parameters
    ----------
    method : PrintedEP or PrintedSEP
    X : (n, d)                inputs
    state : State             factors, q, prior and its matrices
    batch : (b,) or None      data whose terms stand for all, n/b times; None: all data
    learn : names             fields wanted

    Returns
    -------
    dict or None              fields with shapes as in the prior; None if a cavity is no distribution
    """
    # fmt: off
    y, prior, K, results = method.y, state.prior, state.K, {}
    try:
        distributions = method.distributions(state.sites, state.posterior, K)                          # (29) to (32)
    except NotPositiveDefiniteError:
        raise
    except ValueError:
        return None
    directions = hyper_directions(X, prior.Z, prior.variance, prior.lengthscales, learn)
    for name, along in directions.items():
        xi = Direction(*(np.stack(parts) for parts in zip(*along, strict=True)))                   # every ξ of a field
        if batch is None:
            derivatives = ep_log_evidence_gradient(distributions, y, K.K_ZZ, xi)                       # (10), (62)
        else:
            derivatives = minibatch_log_evidence_gradient(distributions, y, K.K_ZZ, xi, batch)                   # (12)
        results[name] = derivatives.reshape(getattr(prior, name).shape)
    return results
    # fmt: on
