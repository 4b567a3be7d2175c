"""What every route to log Z says of itself: trusted within its target, and not where its halves disagree."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, log_softmax, ndtr

from gibbs.draws.polya_gamma import sample_polya_gamma
from gibbs.evidence import annealed, bridge, chib, fitted, pairwise, sequential, softmax_annealed, softmax_bridge

K = np.array([[1.6, 0.5], [0.5, 1.1]])
SIGN = np.array([1.0, -1.0])
COV = np.stack([K, 0.7 * K + 0.2 * np.eye(2), 1.5 * K])
Y = np.array([2, 0])
CROSS = np.array([[0.9, 0.3], [0.2, 0.8]])
FITC = (np.array([[1.3, 0.2], [0.2, 1.0]]), CROSS, np.array([1.6, 1.4]), SIGN)
LOADINGS = np.array([[1.1, -0.4], [0.3, 0.9], [-0.6, 1.4]])
ISLANDS = {"n_particles": 16, "n_islands": 16, "max_rounds": 1}


def kept(rng, prior, probability, s, r=4):
    """(r, s, ...) independent draws of the posterior, by rejection: probability (k,) of prior(k)."""
    parts, count = [], 0
    while count < r * s:
        drawn = prior(4 * r * s)
        parts.append(drawn[rng.random(len(drawn)) < probability(drawn)])
        count += len(parts[-1])
    drawn = np.concatenate(parts)[: r * s]
    return drawn.reshape(r, s, *drawn.shape[1:])


def gaussian(rng, cov):
    root = np.linalg.cholesky(cov)
    return lambda size: np.einsum("...ij,k...j->k...i", root, rng.standard_normal((size, *cov.shape[:-1])))


def logit_draws(rng, s=160):
    return kept(rng, gaussian(rng, K), lambda f: expit(SIGN * f).prod(axis=1), s)


def inducing_draws(rng, s=160):
    K_ZZ, K_XZ, k_xx, _ = FITC
    gain = np.linalg.solve(K_ZZ, K_XZ.T).T
    rest = k_xx - np.sum(gain * K_XZ, axis=1)

    def probability(u):  # one draw of f given u, in place of its integral
        return expit(SIGN * (u @ gain.T + np.sqrt(rest) * rng.standard_normal((len(u), 2)))).prod(axis=1)

    return kept(rng, gaussian(rng, K_ZZ), probability, s)


def softmax_draws(rng, s=160):
    draws = kept(
        rng, gaussian(rng, COV), lambda f: np.exp(log_softmax(f, axis=1)[:, Y, np.arange(2)].sum(axis=1)), s
    )  # fmt: skip
    return np.moveaxis(draws, 2, 3)


def cone_draws(rng, s=160):
    return kept(rng, gaussian(rng, COV), lambda h: np.all(h.argmax(axis=1) == Y, axis=1), s)


def margin_draws(rng, s=160):
    return kept(rng, gaussian(rng, np.eye(2)), lambda xi: ndtr(xi @ LOADINGS.T).prod(axis=1), s)


BRIDGES = {
    "bridge": (logit_draws, lambda rng, f, **o: bridge.log_evidence_full(rng, K, SIGN, f, **o)),
    "bridge, FITC": (inducing_draws, lambda rng, u, **o: bridge.log_evidence_fitc(rng, *FITC, u, **o)),
    "softmax bridge": (softmax_draws, lambda rng, f, **o: softmax_bridge.log_evidence(rng, COV, Y, f, **o)),
    "fitted bridge": (cone_draws, lambda rng, h, **o: fitted.log_evidence(rng, COV, Y, h, **o)),
    "pairwise bridge": (margin_draws, lambda rng, xi, **o: pairwise.log_evidence(rng, LOADINGS, xi, **o)),
}


def omega(rng, fitc):
    f = inducing_draws(rng) @ np.linalg.solve(FITC[0], CROSS.T) if fitc else logit_draws(rng)
    return sample_polya_gamma(rng, f.reshape(-1, 2)).reshape(f.shape)


def on(module, *given, route="log_evidence"):
    def answer(rng, **options):
        return getattr(module, route)(rng, *given, options=replace(module.DEFAULTS, **(ISLANDS | options)))

    return answer


ROUTES = {
    name: lambda rng, draws=draws, answer=answer, **o: answer(rng, draws(rng), **o)
    for name, (draws, answer) in BRIDGES.items()
} | {
    "chib": lambda rng, **o: chib.log_evidence_full(K, SIGN, omega(rng, False), **o),
    "chib, FITC": lambda rng, **o: chib.log_evidence_fitc(*FITC, omega(rng, True), **o),
    "annealed": on(annealed, K, SIGN),
    "annealed, FITC": on(annealed, *FITC, route="log_evidence_fitc"),
    "softmax annealed": on(softmax_annealed, COV, Y),
    "sequential": on(sequential, COV, Y, 0.2),
}


@pytest.mark.parametrize("name", ROUTES)
def test_a_route_is_trusted_where_its_error_is_within_the_target_and_not_a_billionth_beyond(name):
    def answer(target):
        return ROUTES[name](np.random.default_rng(43), target_error=target)

    plain = answer(1e3)
    assert plain.trusted
    within, beyond = (answer(factor * plain.standard_error) for factor in (1.0 + 1e-9, 1.0 - 1e-9))
    assert within.trusted
    assert not beyond.trusted
    assert within.value == beyond.value == plain.value  # one round: the target decides about trust alone
    assert within.standard_error == beyond.standard_error == plain.standard_error


# by how much the second half of each chain is wider, or every two hundredth draw of all; and the length of chains
SPOILT = {
    "bridge": (("half", 1.5, 640), ("half", 6.0, 640), ("outliers", 320.0, 640)),
    "bridge, FITC": (("half", 1.5, 640), ("half", 6.0, 1280), ("outliers", 320.0, 640)),
    "softmax bridge": (("half", 1.5, 640), ("half", 4.0, 640), ("outliers", 100.0, 640)),
    "fitted bridge": (("half", 1.5, 640), ("half", 2.0, 5120), ("half", 0.05, 640)),
    "pairwise bridge": (("half", 1.5, 640), ("half", 6.0, 640), ("outliers", 260.0, 640)),
}


@pytest.mark.parametrize("name", BRIDGES)
def test_a_bridge_is_trusted_only_where_its_halves_overlap_and_agree(name):
    draws, route = BRIDGES[name]
    verdicts = []
    for kind, scale, s in SPOILT[name]:
        given = draws(np.random.default_rng(3), s=s)
        rows = slice(s // 2, s) if kind == "half" else slice(0, s, 200)
        given[:, rows] *= scale  # stays within the constraints of the labels
        result = route(np.random.default_rng(4), given, target_error=1e3)
        # four errors of a difference: the mean of both errors is stated, of which that is between 5.6 and 8
        apart = result.detail["gap_between_halves"] / result.standard_error
        verdicts.append((result.trusted, result.detail["overlap"] >= 0.02, apart < 5.6, apart < 8.0))
    good, apart, thin = verdicts
    assert good == (True, True, True, True)
    assert apart == (False, True, False, False)  # they overlap, and disagree
    assert thin == (False, False, True, True)  # they agree, and hardly overlap


@pytest.mark.parametrize("name", ["annealed", "softmax annealed"])
def test_labels_of_a_prior_without_variance_have_the_evidence_of_guessing(name):
    tiny = 1e-12
    module, given, classes = {
        "annealed": (annealed, (tiny * K, SIGN), 2), "softmax annealed": (softmax_annealed, (tiny * COV, Y), 3)
    }[name]  # fmt: skip
    result = module.log_evidence(np.random.default_rng(1), *given)
    assert result.value == pytest.approx(-2.0 * np.log(classes), abs=1e-5)  # latent values of a millionth
    assert result.trusted


@pytest.mark.parametrize("name", ["annealed", pytest.param("softmax annealed", marks=pytest.mark.slow)])
def test_particles_that_are_drawn_anew_between_powers_leave_the_evidence_unbiased(name):
    # twenty labels that pull both ways on latent values of one common factor: an integral in one variable
    n, variance, share = 20, 100.0, 0.5
    sign = np.resize([-1.0, 1.0], n)
    x = np.linspace(-8.0, 8.0, 1601)
    weight = np.exp(-0.5 * x**2) * (x[1] - x[0]) / np.sqrt(2.0 * np.pi)
    common, own = np.sqrt(variance * share), np.sqrt(variance * (1.0 - share))
    positive = expit(common * x[:, None] + own * x) @ weight
    truth = np.log(weight @ (positive * (1.0 - positive)) ** (n // 2))
    cov = variance * (share + (1.0 - share) * np.eye(n))
    route = {
        "annealed": on(annealed, cov, sign),
        "softmax annealed": on(softmax_annealed, 0.5 * np.stack([cov, cov]), (sign > 0.0).astype(int)),
    }[name]
    result = route(np.random.default_rng(48), n_particles=6, n_islands=1000, target_error=1.0)
    # copies by their order in place of their weight leave seven errors
    assert abs(result.value - truth) < 4.9 * result.standard_error


SHORT = {
    "chib": lambda k_xx: chib.log_evidence_fitc(K, K, k_xx, SIGN, np.full((2, 64, 2), 0.2)),
    "bridge": lambda k_xx: bridge.log_evidence_fitc(
        np.random.default_rng(2), K, K, k_xx, SIGN, logit_draws(np.random.default_rng(1))
    ),
    "annealed": lambda k_xx: annealed.log_evidence_fitc(np.random.default_rng(2), K, K, k_xx, SIGN),
}


@pytest.mark.parametrize("name", SHORT)
def test_rounding_below_no_conditional_variance_leaves_the_evidence_of_fitc(name):
    # the data are the inducing points: nothing is left of their variances, and rounding leaves less than nothing
    exact, rounded = (SHORT[name](np.diag(K) * (1.0 - share)) for share in (0.0, 1e-10))
    assert np.isfinite(rounded.value)
    assert rounded.value == pytest.approx(exact.value, abs=1e-8)


def test_chibs_estimate_at_any_point_is_the_ratio_of_its_densities(rng):
    n, m = 4, 3
    root = rng.standard_normal((n + m, 2 * (n + m)))
    joint = root @ root.T / (n + m)
    K_XX, K_ZZ, K_XZ = joint[:n, :n], joint[n:, n:], joint[:n, n:]
    sign, draws = np.array([1.0, -1.0, -1.0, 1.0]), rng.uniform(0.05, 0.6, (2, 64, n))
    f, u = rng.standard_normal(n), rng.standard_normal(m)

    def log_density(at, mean, precision):
        gap = at - mean
        return 0.5 * np.linalg.slogdet(precision / (2.0 * np.pi))[1] - 0.5 * gap @ precision @ gap

    def conditional(rows, prior, weight, at):
        P = np.linalg.inv(prior) + (rows.T * weight) @ rows
        return lambda shift: log_density(at, np.linalg.solve(P, rows.T @ shift), P)

    given = [conditional(np.eye(n), K_XX, w, f)(0.5 * sign) for w in draws.reshape(-1, n)]
    prior = log_density(f, np.zeros(n), np.linalg.inv(K_XX)) - np.logaddexp(0.0, -sign * f).sum()
    result = chib.log_evidence_full(K_XX, sign, draws, f)
    # condition of 4 x 4 matrices below 1e4
    assert result.value == pytest.approx(prior - np.log(np.mean(np.exp(given))), abs=1e-10)

    gain = np.linalg.solve(K_ZZ, K_XZ.T).T
    rest = np.diag(K_XX) - np.sum(gain * K_XZ, axis=1)
    given = []
    for w in draws.reshape(-1, n):
        seen = 1.0 / (1.0 + rest * w)  # f given u has variance `rest`, through which a label is seen
        given.append(conditional(gain, K_ZZ, w * seen, u)(0.5 * sign * seen))
    t = np.linspace(-10.0, 10.0, 4001)
    weight = np.exp(-0.5 * t**2) * (t[1] - t[0]) / np.sqrt(2.0 * np.pi)
    at = sign[:, None] * ((gain @ u)[:, None] + np.sqrt(rest)[:, None] * t)
    prior = log_density(u, np.zeros(m), np.linalg.inv(K_ZZ)) + np.log(expit(at) @ weight).sum()
    result = chib.log_evidence_fitc(K_ZZ, K_XZ, np.diag(K_XX), sign, draws, u)
    assert result.value == pytest.approx(prior - np.log(np.mean(np.exp(given))), abs=1e-9)
