"""Averages of chains recomputed from their own draws: conditional Gaussians, log joints and class probabilities.

What a chain averages is, draw by draw, a moment given what it has drawn: given h, given ω, given differences between
classes, given u. Each is dense algebra on the joint Gaussian of f, f* and u, so averages, total covariances and log
joint densities are held to rounding, and quadratures to what they state. Nothing is shared with `gibbs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import block_diag, helmert
from scipy.special import log_expit, log_ndtr, log_softmax, softmax

import gibbs_samplers
from gibbs.chains import summary
from validation.checks.definitions import hyper_model as own
from validation.checks.definitions.few_data import JITTER, X_TEST, Few, X, Z

Array = NDArray[np.float64]
# sums of 128 draws, condition numbers below 1e3: 1e-12, and a thousand times that for luck; quadratures state 1e-10
LIMIT = 1e-9

_LENGTHS = {"n_chains": 4, "n_draws": 16, "n_warmup": 8}


class Sampler(NamedTuple):
    """A sampler on two data."""

    method: str
    few: Few


ENTRIES = (
    Sampler("gibbs-logit", Few("logit")),
    Sampler("gibbs-logit", Few("logit", fitc=True)),
    Sampler("gibbs-probit", Few("probit", fitc=True)),
    Sampler("gibbs-probit", Few("multinomial-probit")),
    Sampler("gibbs-threshold", Few("threshold", 0.3, True)),
    Sampler("gibbs-threshold", Few("threshold")),
    Sampler("mh-softmax", Few("softmax", fitc=True)),
    Sampler("gibbs-pairwise", Few("threshold", fitc=True)),
)


def sampled(entry):
    """One run of a sampler, fields of `gibbs` as they are."""
    few, theta = entry.few, entry.few.thetas
    given = {
        "X": X, "y": few.y, "n_classes": few.n_classes, "variance": theta[:, 0], "lengthscales": theta[:, 1:-1],
        "noise": theta[:, -1], "jitter": JITTER, "Z": Z if few.fitc else None,
        "prior_model": "fitc" if few.fitc else "full", "X_test": X_TEST,
    }  # fmt: skip
    if entry.method == "gibbs-logit":
        given |= {name: given[name][0] for name in ("variance", "lengthscales", "noise")}
    own = {"gibbs-probit": {"likelihood": few.likelihood}, "gibbs-threshold": {"epsilon": few.epsilon}}
    sample = {
        "gibbs-logit": gibbs_samplers.sample_logit,
        "gibbs-probit": gibbs_samplers.sample_probit,
        "gibbs-threshold": gibbs_samplers.sample_threshold,
        "gibbs-pairwise": gibbs_samplers.sample_pairwise,
        "mh-softmax": gibbs_samplers.sample_softmax,
    }[entry.method]
    return sample(**given, **own.get(entry.method, {}), **_LENGTHS, seed=5)


class Distribution(NamedTuple):
    """Means (N, L, .) and covariances (N or 1, L ., L .) of one of f, f*, u given each draw."""

    mean: Array
    cov: Array


def given(few: Few, v: Array, A: Array, noise: Array) -> dict[str, Distribution]:
    """Distributions of f, f* and u given v = A f + N(0, diag(noise)): v (N, k), A (k, L n), noise (N or 1, k)."""
    parts = few.blocks
    S = block_diag(*[value.data for value in parts])
    crosses = {"latent": S, "test": block_diag(*[value.test for value in parts])}
    priors = {"latent": S, "test": np.diag(np.concatenate([value.test_var for value in parts]))}
    if few.fitc:
        crosses["inducing"] = block_diag(*[value.cross for value in parts])
        priors["inducing"] = block_diag(*[value.inducing for value in parts])
    T = A @ S @ A.T + noise[:, :, None] * np.eye(len(A))
    out = {}
    for name, cross in crosses.items():
        gain = np.linalg.solve(T, (A @ cross.T)[None]).transpose(0, 2, 1)
        mean = np.einsum("nij,nj->ni", np.broadcast_to(gain, (len(v), *gain.shape[1:])), v)
        out[name] = Distribution(mean.reshape(len(v), few.n_latents, -1), priors[name] - gain @ (A @ cross.T))
    return out


def given_inducing(few: Few, u: Array) -> dict[str, Distribution]:
    """Distributions of f and f*, each value independent of the others, given u (N, L, m)."""
    out = {"inducing": Distribution(u, np.zeros((1, u[0].size, u[0].size)))}
    for name, inputs in (("latent", X), ("test", X_TEST)):
        means, variances = [], []
        for k, theta in enumerate(few.thetas):
            K, cross = few.blocks[k].inducing, own.kernel(theta, Z, inputs)
            assert K is not None
            gain = np.linalg.solve(K, cross)
            means.append(u[:, k] @ gain)
            variances.append(theta[0] + theta[-1] - (cross * gain).sum(axis=0))
        out[name] = Distribution(np.stack(means, axis=1), np.diag(np.concatenate(variances))[None])
    return out


def total(distribution: Distribution) -> tuple[Array, Array]:
    """Mean (L, .) and E[Cov] + Cov[E] (L ., L .)."""
    flat = distribution.mean.reshape(len(distribution.mean), -1)
    centred = flat - flat.mean(axis=0)
    return distribution.mean.mean(axis=0), distribution.cov.mean(axis=0) + centred.T @ centred / len(flat)


def by_point(cov: Array, L: int) -> Array:
    """(L k, L k) -> (k, L, L), the blocks of one point."""
    k = len(cov) // L
    return np.stack([cov[i::k, i::k] for i in range(k)])


def by_latent(cov: Array, L: int) -> Array:
    """(L m, L m) -> (L, m, m)."""
    m = len(cov) // L
    return np.stack([cov[k * m : (k + 1) * m, k * m : (k + 1) * m] for k in range(L)])


def log_joint(few: Few, chains: Any, v: Array) -> Array:
    """What each sampler documents as its log joint, (N,): v (N, L, n) is f or h, of the pairwise model ξ (N, L m)."""
    L, rows = few.n_latents, np.arange(len(X))
    if few.likelihood == "logit":
        sign = 2.0 * few.y - 1.0
        f = v[:, 0]
        value, at = few.blocks[0], log_expit(sign * f).sum(axis=1)
        if not few.fitc:
            return at + _log_white(np.linalg.solve(np.linalg.cholesky(value.data), f.T).T)
        u = chains.inducing_draws.reshape(len(v), -1)
        distribution = given_inducing(few, u[:, None])["latent"]
        assert value.inducing is not None
        white = np.linalg.solve(np.linalg.cholesky(value.inducing), u.T).T
        return (
            at + _log_white(white) + _log_white((f - distribution.mean[:, 0]) / np.sqrt(np.diag(distribution.cov[0])))
        )
    if few.likelihood == "softmax":
        T = np.kron(helmert(L), np.eye(len(X)))  # orthonormal: any such basis has the same density
        cov = T @ block_diag(*few.cov) @ T.T
        d = v.reshape(len(v), -1) @ T.T
        at = log_softmax(v, axis=1)[:, few.y, rows].sum(axis=1)
        return np.array([a + own.log_gaussian(e, cov) for a, e in zip(at, d, strict=True)])
    prior = np.array([sum(own.log_gaussian(h[k], few.cov[k]) for k in range(L)) for h in v])
    if few.likelihood == "probit":
        return prior
    return prior + np.array([own.log_likelihood("threshold", h, few.y, few.epsilon) for h in v])


def _log_white(white: Array) -> Array:
    return np.asarray(-0.5 * (white**2).sum(axis=1) - 0.5 * white.shape[1] * np.log(2.0 * np.pi))


def pairwise_log_joint(few: Few, white: Array) -> Array:
    """Σ log Φ((m^y - m^k)/√(s^y + s^k)) + log N(ξ; 0, I), u = chol(K_ZZ) ξ."""
    distribution, total_log = given_inducing(few, inducing_of(few, white))["latent"], _log_white(white)
    n, L = len(X), few.n_latents
    s = np.diag(distribution.cov[0]).reshape(L, n)
    for i, label in enumerate(few.y):
        for k in range(L):
            if k != label:
                gap = distribution.mean[:, label, i] - distribution.mean[:, k, i]
                total_log = total_log + log_ndtr(gap / np.sqrt(s[label, i] + s[k, i]))
    return total_log


def inducing_of(few: Few, white: Array) -> Array:
    """u (N, L, m) of white coordinates (N, L m)."""
    at = white.reshape(len(white), few.n_latents, -1)
    roots = [np.linalg.cholesky(value.inducing) for value in few.blocks]  # type: ignore[arg-type]
    return np.stack([at[:, k] @ root.T for k, root in enumerate(roots)], axis=1)


_GRID = np.linspace(-6.6, 6.6, 27)


def softmax_probabilities(mean: Array, var: Array) -> Array:
    """E softmax (L,) of three independent Gaussians, by a product rule."""
    axes = [mean[k] + np.sqrt(var[k]) * _GRID for k in range(len(mean))]
    f = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(mean), -1)
    weight = np.exp(-0.5 * sum(g**2 for g in np.meshgrid(*[_GRID] * len(mean), indexing="ij"))).ravel()
    return np.asarray(softmax(f, axis=0) @ weight / weight.sum())


def _probabilities(few: Few, distribution: Distribution) -> Array:
    """(N, C) of the one test point, from means and the variances given the draw."""
    out = []
    for k in range(len(distribution.mean)):
        var = np.diag(distribution.cov[min(k, len(distribution.cov) - 1)])
        if few.likelihood == "softmax":
            out.append(softmax_probabilities(distribution.mean[k, :, 0], var))
        else:
            unit = own.unit_noise(few.likelihood)
            out.append(own.class_probabilities(few.likelihood, distribution.mean[k, :, 0], var, unit, few.epsilon))
    return np.array(out)


def differences(entry: Sampler) -> Iterable[tuple[str, float]]:
    """Each average of a run, and by how much it differs from what its draws say."""
    few, chains = entry.few, sampled(entry)
    L, n = few.n_latents, len(X)
    eye, none = np.eye(L * n), np.zeros((1, L * n))
    if entry.method == "gibbs-pairwise":
        white = chains.white_draws.reshape(-1, chains.white_draws.shape[-1])
        distributions = given_inducing(few, inducing_of(few, white))
        at_test, joint = distributions["test"], pairwise_log_joint(few, white)
    else:
        f = np.asarray(chains.latent_draws).reshape(-1, n, L).swapaxes(1, 2)
        if few.likelihood == "logit":
            omega = chains.omega_draws.reshape(-1, n)
            distributions, v = given(few, (few.y - 0.5) / omega, eye, 1.0 / omega), f
            at_test = distributions["test"]
        elif few.likelihood == "softmax":
            T = np.kron(helmert(L), np.eye(n))
            distributions, v = given(few, f.reshape(len(f), -1) @ T.T, T, np.zeros((1, len(T)))), f
            some = f.reshape(len(f), -1)  # predictions are averaged given f itself
            at_test = given(few, some, eye, none)["test"]
        else:
            v = chains.auxiliary_draws.reshape(-1, n, L).swapaxes(1, 2)
            distributions = given(few, v.reshape(len(v), -1), eye, none + own.unit_noise(few.likelihood))
            at_test = distributions["test"]
        joint = log_joint(few, chains, v)
    yield "log_joint", own.difference(np.ravel(chains.log_joint), joint)
    one = few.likelihood == "logit"
    names = [("latent", "latent"), ("test", "test_latent")] + ([("inducing", "inducing")] if few.fitc else [])
    for key, name in names:
        mean, cov = total(distributions[key])
        if one:
            right = (mean[0], cov if key == "inducing" else np.diag(cov))
            left = (getattr(chains, f"{name}_mean"), getattr(chains, f"{name}_{'cov' if key == 'inducing' else 'var'}"))
        else:
            shape = by_latent if key == "inducing" else by_point
            right = (mean if key == "inducing" else mean.T, shape(cov, L))
            left = (getattr(chains, f"{name}_mean"), getattr(chains, f"{name}_cov"))
        yield f"{name}_mean", own.difference(left[0], right[0])
        yield f"{name}_cov", own.difference(left[1], right[1])
    p = _probabilities(few, at_test).mean(axis=0)
    yield "probabilities", own.difference(chains.probabilities, p[1:] if one else p[None])
    if not one:
        yield "probability_mass", own.difference(chains.probability_mass, np.ones(len(X_TEST)))
    if few.epsilon and chains.error_probability is not None:
        wrong = v.argmax(axis=1) != few.y
        rate = (few.epsilon / few.n_classes) / (1.0 - few.epsilon + few.epsilon / few.n_classes)
        yield "error_probability", own.difference(chains.error_probability, np.where(wrong, 1.0, rate).mean(axis=0))
    lengths = _LENGTHS["n_draws"], _LENGTHS["n_warmup"]
    sweeps = chains.n_sweeps - sum(lengths)
    yield "n_sweeps", float(abs(sweeps))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.method}-{entry.few}")
def test_averages_are_what_the_draws_say(entry):
    assert {name: value for name, value in differences(entry) if value > LIMIT} == {}


def test_an_average_that_forgets_the_spread_of_means_is_seen(monkeypatch):
    right = summary.batch_covariance
    monkeypatch.setattr(
        summary, "batch_covariance", lambda means, second, cond, widths: right(means, 0.0 * second, cond, widths)
    )
    result = dict(differences(ENTRIES[3]))
    assert result["latent_cov"] > 1e-3
    assert result["log_joint"] < 1e-9
