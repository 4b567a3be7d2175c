"""Section 3, baseline GFITC: expectation propagation on the exact factors (1), inducing values marginalised.

The latent values of class k at the data have the prior N(0, P_k), P_k = Q_k + diag(s^k), Q = K_XZ K_ZZ⁻¹ K_ZX, and each
factor Θ(f_y - f_k) of a datum has a site exp(-½ C¹ f² + C² f) of its own on both latent values. Sites have the layout
of section 2.2: arrays (n, C), row i, column k, zero in the column of the label. This is the form "projected", in which
each factor touches one latent value of two classes; `gfitc_printed` has section 2.2's equations as they stand.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common._classes import Prior, checked_input, class_gradients, fields_to_learn, search
from reference.common._forms import chosen_form
from reference.common._learning import FIELDS, Derivative
from reference.common._neighbours import condition
from reference.common._sweeps import Step, Sweeps, to_fixed_point
from reference.common._training import Seen, Value
from reference.common.errors import NotPositiveDefiniteError, factorise
from reference.common.ledger import equation
from reference.common.options import Options, takes
from reference.villacampa2017.factors import Refined, damped_update
from reference.villacampa2017.gfitc_printed import latent_matrices, printed_gfitc_gradients
from reference.villacampa2017.hyper import prior_matrices
from reference.villacampa2017.methods import standardised_change
from reference.villacampa2017.posterior import (
    Coefficients,
    Gaussians,
    aggregate_linear_coefficients,
    aggregate_precision_coefficients,
    posterior_moments,
)
from reference.villacampa2017.printed import FACTOR, PrintedEP
from reference.villacampa2017.scalar import Cavities, Projected, own_columns, pair_cavities, refined_pairs

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class GFITCFit(NamedTuple):
    """Where expectation propagation, and the search for hyper-parameters around it, ended."""

    posterior: Gaussians  # of the inducing values, from the sites with the latent values integrated out
    latent_mean: Array  # (n, C)
    latent_var: Array  # (n, C)
    sites: Coefficients  # each (n, C)
    log_norm: Array  # (n, C) log Z_{i,k} under the last cavities
    log_evidence: float | None  # every constant included; None if a cavity is no distribution
    trace: Array  # log evidence after each sweep where asked for; with learn, of the search
    residual: float  # largest undamped change of a site in the last sweep, standardised; with learn, gradient left
    converged: bool
    n_improper: int
    iterations: int  # sweeps; with learn, iterations of the search
    prior: Prior  # as learned
    form: str  # which ran: "printed" or "projected"


def gfitc_form(form: str | None, K_XX: Array) -> str:
    """The form asked for, or that of `chosen_form`: villacampa2017's P_k are inverted, and lose their condition.

    Parameters
    ----------
    form : str or None        "printed", "projected", or None for the rule
    K_XX : (C, n, n)          P_k
    """
    C, n, _ = K_XX.shape
    return chosen_form(form, seconds=FACTOR * n * (C - 1), lost=condition(list(K_XX)))


def fitc_covariance(upsilon: Array, cond_var: Array, K_ZZ: Array) -> Array:
    """P_k = K_XZ K_ZZ⁻¹ K_ZX + diag(s^k), dense, (C, n, n): the FITC prior of section 2.1 of villacampa2017.

    Parameters
    ----------
    upsilon : (C, n, m)       υ_i^k
    cond_var : (C, n)         s_i^k
    K_ZZ : (C, m, m)          prior covariances of the inducing values
    """
    return np.stack([u @ K @ u.T + np.diag(s) for u, s, K in zip(upsilon, cond_var, K_ZZ, strict=True)])


def site_sums(sites: Coefficients, y: Labels) -> tuple[Array, Array]:
    """Δ and μ̃, each (C, n), of all sites together: (26) and (27) of villacampa2017.

    Parameters
    ----------
    sites : Coefficients      each (n, C)
    y : (n,)                  labels, 0..C-1
    """
    return (
        aggregate_precision_coefficients(sites.c1_label, sites.c1_other, y),
        aggregate_linear_coefficients(sites.c2_label, sites.c2_other, y),
    )


def latent_posterior(K_XX: Array, sites: Coefficients, y: Labels) -> tuple[Gaussians, Array, Array]:
    """q(f^k) = N(Σμ̃, Σ), Σ = (P⁻¹ + Δ)⁻¹; W = (P + Δ⁻¹)⁻¹; log|I + PΔ|: GFITC of villacampa2017.

    With B = I + Δ^½ P Δ^½: W = Δ^½ B⁻¹ Δ^½, Σ = P - P W P, and |I + PΔ| = |B|; P may be singular. The factors are
    log-concave, so no site has a negative precision.

    Parameters
    ----------
    K_XX : (C, n, n)          P_k
    sites : Coefficients      each (n, C)
    y : (n,)                  labels, 0..C-1

    Returns
    -------
    Gaussians, (C, n, n), (C,)    q, W and log|I + PΔ|
    """
    mean, cov, weight, log_det = [], [], [], []
    for P, delta, mu_tilde in zip(K_XX, *site_sums(sites, y), strict=True):
        root = np.sqrt(delta)
        B = factorise(np.eye(len(P)) + root[:, None] * P * root, "I + Δ^½ P Δ^½", "lower damping")
        W = root[:, None] * B.inverse * root
        Sigma = P - P @ W @ P
        mean.append(Sigma @ mu_tilde)
        cov.append(Sigma)
        weight.append(W)
        log_det.append(B.log_det)
    return Gaussians(np.array(mean), np.array(cov)), np.array(weight), np.array(log_det)


def _marginals(q: Gaussians) -> tuple[Array, Array]:
    """Means and variances (n, C) of the latent values."""
    return q.mean.T, np.einsum("kii->ik", q.cov)


def site_cavities(sites: Coefficients, latent_mean: Array, latent_var: Array, y: Labels) -> tuple[Cavities, Cavities]:
    r"""Cavities of f_y and of f_k for every factor: v\ = σ/(1 - C¹σ), mean (μ - C²σ)/(1 - C¹σ); GFITC, villacampa2017.

    Parameters
    ----------
    sites : Coefficients      each (n, C)
    latent_mean : (n, C)      μ of q
    latent_var : (n, C)       σ of q
    y : (n,)                  labels, 0..C-1
    """
    return pair_cavities(sites, Projected(latent_mean, latent_var), y)


def refine_sites(sites: Coefficients, latent_mean: Array, latent_var: Array, y: Labels) -> Refined:
    r"""All sites from the one q by moment matching with the exact factor, undamped: GFITC of villacampa2017.

    Nothing lies between the sites and the latent values, so the refinement is that of section 2.2 with s = 0.

        log Z = log Φ(α̂),  α̂ = (e_y - e_k)/√R,  R = v_y + v_k,  g = β/√R,  h = β(β + α̂)/R
        C¹ = h/(1 - h v),  C² = (±g + h e)/(1 - h v),   + for the class of the label

    Parameters
    ----------
    sites : Coefficients      each (n, C)
    latent_mean : (n, C)      means of q
    latent_var : (n, C)       variances of q
    y : (n,)                  labels, 0..C-1
    """
    label, other = site_cavities(sites, latent_mean, latent_var, y)
    proper = own_columns(y, latent_mean.shape[1]) | ((label.left > 0.0) & (other.left > 0.0))
    new, tilted = refined_pairs(label, other, y, np.zeros_like(latent_mean.T))
    return Refined(
        Coefficients(*(np.where(proper, part, old) for part, old in zip(new, sites, strict=True))),
        np.where(proper, tilted.log_norm, 0.0),
        int(np.sum(~proper)),
    )


def site_residual(new: Coefficients, old: Coefficients, latent_mean: Array, latent_var: Array, y: Labels) -> float:
    """Largest max(|ΔC¹| σ, |ΔC² - ΔC¹ μ| √σ) over sites and both classes, μ and σ of q(f_i^k): villacampa2017.

    Parameters
    ----------
    new : Coefficients        each (n, C), undamped
    old : Coefficients        each (n, C)
    latent_mean : (n, C)      μ before the update
    latent_var : (n, C)       σ before the update
    y : (n,)                  labels, 0..C-1
    """
    own = np.arange(len(y)), y
    d = Coefficients(*(a - b for a, b in zip(new, old, strict=True)))
    return max(
        standardised_change(d.c1_label, d.c2_label, Projected(latent_mean[own][:, None], latent_var[own][:, None])),
        standardised_change(d.c1_other, d.c2_other, Projected(latent_mean, latent_var)),
    )


def _log_site_norm(c1: Array, c2: Array, e: Array, v: Array) -> Array:
    """ψ = log E[exp(-½ C¹ w² + C² w)], w ~ N(e, v)."""
    return -0.5 * np.log1p(c1 * v) + 0.5 * (2.0 * c2 * e + c2**2 * v - c1 * e**2) / (1.0 + c1 * v)


def gfitc_log_evidence(K_XX: Array, sites: Coefficients, y: Labels) -> tuple[float | None, Array]:
    """log Z and the log Z_{i,k} (n, C); None for the first if a cavity is no distribution: GFITC of villacampa2017.

        log Z = Σ_k [½ μ̃ᵀΣμ̃ - ½ log|I + PΔ|] + Σ_i Σ_{k≠y_i} [log Z_{i,k} - ψ_y - ψ_k],

    ψ the logarithm of the mean of a site, without its scale, under its cavity.

    Parameters
    ----------
    K_XX : (C, n, n)          P_k
    sites : Coefficients      each (n, C)
    y : (n,)                  labels, 0..C-1
    """
    q, _, log_det = latent_posterior(K_XX, sites, y)
    moments = _marginals(q)
    refined = refine_sites(sites, *moments, y)
    if refined.n_improper:
        return None, refined.log_norm
    label, other = site_cavities(sites, *moments, y)
    # sites are zero in the columns of the labels, and so is ψ
    psi_label = _log_site_norm(sites.c1_label, sites.c2_label, label.mean, label.var)
    psi_other = _log_site_norm(sites.c1_other, sites.c2_other, other.mean, other.var)
    _, mu_tilde = site_sums(sites, y)
    prior_part = 0.5 * float(np.sum(mu_tilde * q.mean)) - 0.5 * float(np.sum(log_det))
    return prior_part + float(np.sum(refined.log_norm - psi_label - psi_other)), refined.log_norm


def gfitc_gradients(
    sites: Coefficients, X: Array, y: Labels, prior: Prior, learn: Sequence[str] = FIELDS, form: str = "projected"
) -> dict[str, Array]:
    """The derivative of log Z of GFITC in the prior, sites and cavities held, as is right at a fixed point.

        d log Z = Σ_k ½ bᵀ dP b - ½ tr(W dP),   b = μ̃ - Δμ;   dP = dQ + diag(dκ - dQ_ii),
        dQ = dK_XZ υᵀ + υ dK_ZX - υ dK_ZZ υᵀ,   rows of υ: υ_i

    Parameters
    ----------
    sites : Coefficients      each (n, C), at a fixed point of villacampa2017's GFITC
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1
    prior : Prior             hyper-parameters of all classes
    learn : names             the fields
    form : str                "printed": (10), or "projected": the closed form above

    Returns
    -------
    dict                      field to derivatives, shapes as in the prior; jitter is held
    """
    K = prior_matrices(X, prior)
    K_XX = fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ)
    if form == "printed":
        return printed_gfitc_gradients(sites, X, y, prior, K, K_XX, learn)
    q, weight, _ = latent_posterior(K_XX, sites, y)
    delta, mu_tilde = site_sums(sites, y)

    def derivative_of(k: int) -> Derivative:
        b = mu_tilde[k] - delta[k] * q.mean[k]
        A = 0.5 * (np.outer(b, b) - weight[k])
        upsilon = K.upsilon[k]

        def derivative(dK_ZZ: Array, dK_XZ: Array, dk: Array) -> float:
            dQ = dK_XZ @ upsilon.T + upsilon @ dK_XZ.T - upsilon @ dK_ZZ @ upsilon.T
            dP = dQ + np.diag(dk - np.diag(dQ))
            return float(np.sum(A * dP))

        return derivative

    return class_gradients([derivative_of(k) for k in range(len(K.K_ZZ))], X, prior, learn)


class _Projected:
    """A sweep and the evidence, contracted: of each factor its two numbers on one latent value of two classes."""

    def __init__(self, K_XX: Array, y: Labels, damping: float) -> None:
        self.K_XX, self.y, self.damping = K_XX, y, damping

    def posterior(self, sites: Coefficients) -> Gaussians:
        """q(f)."""
        return latent_posterior(self.K_XX, sites, self.y)[0]

    def step(self, sites: Coefficients, q: Gaussians) -> Step:
        """All sites refined from q, and damped."""
        moments = _marginals(q)
        refined = refine_sites(sites, *moments, self.y)
        residual = site_residual(refined.coefficients, sites, *moments, self.y)
        moved = (damped_update(a, b, self.damping) for a, b in zip(refined.coefficients, sites, strict=True))
        return Step(Coefficients(*moved), residual, refined.n_improper)

    def value(self, sites: Coefficients) -> Value:
        """log Z and the log Z_{i,k}."""
        return Value(*gfitc_log_evidence(self.K_XX, sites, self.y))


class _Printed:
    """The same by section 2.2: the latent values are their own inducing values."""

    def __init__(self, K_XX: Array, y: Labels, damping: float) -> None:
        self.P = latent_matrices(K_XX)
        self.method = PrintedEP(y, len(K_XX), damping, "parallel")
        self.everything = np.arange(len(y))

    def posterior(self, sites: Coefficients) -> Gaussians:
        """q(f): (25) to (27)."""
        return self.method.posterior(sites, self.P)

    def step(self, sites: Coefficients, q: Gaussians) -> Step:
        """All factors refined from q, and damped: (25) to (53)."""
        return self.method.step(sites, q, self.P, self.everything)

    def value(self, sites: Coefficients) -> Value:
        """log Z_q and the log Z_{i,k}: (9), (56) to (59)."""
        return self.method.value(sites, self.posterior(sites), self.P)


def _expectation_propagation(X: Array, y: Labels, prior: Prior, start: Coefficients, options: Options) -> GFITCFit:
    """Parallel damped sweeps at fixed hyper-parameters."""
    K = prior_matrices(X, prior)
    K_XX = fitc_covariance(K.upsilon, K.cond_var, K.K_ZZ)
    form = gfitc_form(options.form, K_XX)
    method = (_Printed if form == "printed" else _Projected)(K_XX, y, options.damping)
    values: list[float] = []
    count, improper = 0, 0

    def monitor(step: Step) -> None:
        nonlocal count, improper
        count, improper = count + 1, improper + step.n_improper
        if options.trace and (value := method.value(step.sites).log_evidence) is not None:
            values.append(value)
        if options.callback is not None:
            options.callback(Seen(count, step.residual, improper))

    sweeps = Sweeps(options.damping, options.tolerance)
    run = to_fixed_point(method.step, method.posterior, start, sweeps, options.max_iterations, monitor)
    sites, q = run.sites, run.posterior
    log_evidence, log_norm = method.value(sites)
    delta, mu_tilde = site_sums(sites, y)
    open_part = 1.0 + K.cond_var * delta  # a site on f is a wider one on its mean given the inducing values
    inducing = posterior_moments(delta / open_part, mu_tilde / open_part, K.upsilon, K.K_ZZ)
    return GFITCFit(
        inducing,
        *_marginals(q),
        sites,
        log_norm,
        log_evidence,
        np.array(values),
        run.residual,
        run.converged,
        run.n_improper,
        run.iterations,
        prior,
        form,
    )


@equation("villacampa2017", "u20-gfitc")
@takes("gfitc")
def gfitc_baseline(X: Array, y: Labels, prior: Prior, *, shared: bool = False, options: Options) -> GFITCFit:
    """GFITC: EP over the exact factors with the FITC prior, converged before every step of L-BFGS: villacampa2017.

    Parameters
    ----------
    X : (n, d)                inputs
    y : (n,)                  labels, 0..C-1; a class may be absent
    prior : Prior             hyper-parameters and inducing inputs of all classes; the start where learned
    shared : bool             one vector of hyper-parameters for all classes
    options : Options         of "gfitc", or each by name; form None: that of `gfitc_form`, and projected where
                              hyper-parameters are learned; sites start at zero; n_steps None: 200

    Raises
    ------
    ValueError                for bad input
    NotPositiveDefiniteError  if one of K_ZZ is singular, or a search starts where EP does not converge
    """
    X, y, prior = checked_input(X, y, prior)
    learned = fields_to_learn(options.learn, prior)
    if options.n_steps is not None and not learned:
        raise ValueError(f"n_steps: found {options.n_steps} without learn, expected fields to learn")
    if learned and options.form is None:
        options = replace(options, form="projected")  # type: ignore[type-var]
    last = Coefficients(*(np.zeros((len(X), len(prior.Z))) for _ in range(4)))

    def run(there: Prior) -> GFITCFit:
        nonlocal last
        fit = _expectation_propagation(X, y, there, last, options)
        last = fit.sites if fit.converged else last  # the search starts each time where it was before
        return fit

    def evidence(there: Prior) -> tuple[float, dict[str, Any]]:
        fit = run(there)
        if fit.log_evidence is None or not fit.converged:
            raise NotPositiveDefiniteError(
                f"gfitc: found a last change of {fit.residual:.3g} after {fit.iterations} sweeps, expected a distance "
                f"from the fixed point of at most {options.tolerance:.3g}; lower damping"
            )
        return fit.log_evidence, gfitc_gradients(fit.sites, X, y, there, learned, fit.form)

    if not learned:
        return run(prior)
    options = replace(options, trace=False)  # type: ignore[type-var]
    steps = 200 if options.n_steps is None else options.n_steps
    top = search(evidence, prior, learned, shared, steps, options.learn_tolerance)
    fit = run(top.prior)
    return fit._replace(
        trace=top.trace, residual=top.residual, converged=top.converged and fit.converged, iterations=top.iterations
    )
