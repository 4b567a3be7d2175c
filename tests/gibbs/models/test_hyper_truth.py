"""The whole sampler on data that say much about a lengthscale, against its posterior by Gaussian orthants or by quasi
Monte Carlo on a grid; bugs of either move of the parameter must show."""

import itertools

import numpy as np
import pytest
from scipy.special import expit, log_softmax, ndtr, ndtri
from scipy.stats import multivariate_normal, norm, qmc

from gibbs.models.hyper_models import HyperModel
from gibbs_samplers import sample_hyper as sample

PRIOR = {"lengthscales": ("log-normal", 1.2, 1.0)}
VARIANCE, NOISE, JITTER = 9.0, 0.3, 1e-3
GRID = np.linspace(-6.0, 6.0, 97)  # of the logarithm: five standard deviations of the prior
X_TEST = np.array([[0.1]])
Z = np.array([[-1.8], [-1.0], [0.1], [0.9], [1.7]])
BINARY = {"X": np.linspace(-2.0, 2.0, 10)[:, None], "y": np.array([1, 1, 0, 0, 1, 1, 0, 0, 0, 1]), "C": 2}
THREE = {"X": np.array([[-2.0], [-1.9], [-0.6], [-0.5], [1.2], [1.3]]), "y": np.array([0, 0, 1, 1, 0, 0]), "C": 3}
HEAVY = pytest.mark.slow


def covariance(w, X, fitc):
    """Prior covariance of f at X and the test point, noise included: w (k,) -> (k, n + 1, n + 1)."""
    both, length = np.concatenate([X, X_TEST]), np.exp(w)[:, None, None]
    n = len(X)

    def k(A, B):
        return VARIANCE * np.exp(-0.5 * np.square((A - B.T) / length))

    if fitc:
        K_ZX = k(Z, both)
        S = np.swapaxes(K_ZX, 1, 2) @ np.linalg.solve(k(Z, Z) + JITTER * np.eye(len(Z)), K_ZX)
        S[:, np.arange(n + 1), np.arange(n + 1)] = VARIANCE + NOISE
        return S
    S = k(both, both) + NOISE * np.eye(n + 1)
    S[:, np.arange(n), np.arange(n)] += JITTER
    return S


def points(d, log2):
    return qmc.Sobol(d, seed=1).random_base2(log2)


def orthant(S, first):
    """P(x > 0) of the first entries and of all, x ~ N(0, S) (k, d, d): Genz's separation of variables, Sobol points."""
    chol = np.linalg.cholesky(S)
    d = S.shape[1]
    uniform = points(d, 12)
    z, total = np.empty((len(S), len(uniform), d)), np.ones((len(S), len(uniform)))
    part = np.ones(len(S))
    for i in range(d):
        bound = -np.einsum("kpj,kj->kp", z[..., :i], chol[:, i, :i]) / chol[:, i, i, None]
        chance = ndtr(-bound)
        total *= chance
        z[..., i] = -ndtri(np.clip(chance * uniform[:, i], 1e-300, 1.0))
        if i + 1 == first:
            part = total.mean(axis=1)
    return part, total.mean(axis=1)


def margins(y, C):
    """Rows h_y - h_j of all data, (n (C - 1), C n), and their data."""
    rows, data = [], []
    for i, c in enumerate(y):
        for j in range(C):
            if j != c:
                row = np.zeros((C, len(y)))
                row[c, i], row[j, i] = 1.0, -1.0
                rows.append(row.ravel())
                data.append(i)
    return np.array(rows), np.array(data)


def evidence(likelihood, epsilon, S, y, C):
    """p(y | θ) and p(y, y* = 0 | θ), (k,) each: S (k, n + 1, n + 1) of each latent function, the test point last."""
    n = len(y)
    labels = np.append(y, 0)
    if likelihood in ("logit", "softmax"):
        L = 1 if likelihood == "logit" else C
        # inputs in turn, so that the first and best dimensions are the same for both
        white = norm.ppf(points(L * (n + 1), 14)).reshape(-1, n + 1, L).swapaxes(1, 2)
        f = np.einsum("kij,plj->kpli", np.linalg.cholesky(S), white)
        if L == 1:
            each = expit((2 * labels - 1) * f[:, :, 0])
        else:
            each = np.exp(log_softmax(f, axis=2)[:, :, labels, np.arange(n + 1)])
        here = np.prod(each[..., :n], axis=2)
        return here.mean(axis=1), (here * each[..., n]).mean(axis=1)
    T = S + (0.0 if likelihood == "threshold" else 1.0) * np.eye(n + 1)
    if likelihood == "probit":
        signs = 2 * labels - 1
        return orthant(T * np.outer(signs, signs), n)
    rows, data = margins(labels, C)
    rows = rows.reshape(-1, C, n + 1)
    G = np.einsum("aci,kij,bcj->kab", rows, T, rows)
    here, there = np.zeros(len(S)), np.zeros(len(S))
    for clean in itertools.product((False, True) if epsilon else (True,), repeat=n):
        keep = np.flatnonzero(np.array([*clean, True])[data])
        one, both = orthant(G[:, keep][:, :, keep], keep.size - C + 1)
        chance = (1.0 - epsilon) ** sum(clean) * (epsilon / C) ** (n - sum(clean))
        here += chance * one
        there += chance * ((1.0 - epsilon) * both + epsilon / C * one)
    return here, there


def truth(likelihood, epsilon, fitc, X, y, C):
    """Mean and variance of log lengthscale, and p(y* = 0)."""
    both = np.concatenate([covariance(part, X, fitc) for part in np.array_split(GRID, 8)])
    parts = [evidence(likelihood, epsilon, part, y, C) for part in np.array_split(both, 24)]  # bounded memory
    here, there = (np.concatenate(column) for column in zip(*parts, strict=True))
    prior = norm.pdf(GRID, np.log(1.0), 1.2)
    weight = prior * here
    assert weight[[0, -1]].max() < 1e-4 * weight.max()
    weight /= weight.sum()
    mean = weight @ GRID
    chance = weight @ (there / here)
    return mean, weight @ np.square(GRID - mean), chance


def run(likelihood, epsilon, fitc, data, **options):
    settings = {"n_chains": 64, "n_draws": 60, "n_warmup": 30, "seed": 5} | options
    return sample(
        likelihood, data["X"], data["y"], data["C"], VARIANCE, [1.0], NOISE, JITTER, Z if fitc else None,
        "fitc" if fitc else "full", X_TEST, epsilon, hyperprior=PRIOR, learn=("lengthscales",), shared=True, **settings,
    )  # fmt: skip


def z_statistics(got, expected):
    mean, var, chance = expected
    return np.array([
        (got.log_hyper_mean["lengthscales"].ravel()[0] - mean) / got.log_hyper_mean_se["lengthscales"].ravel()[0],
        (got.log_hyper_var["lengthscales"].ravel()[0] - var) / got.log_hyper_var_se["lengthscales"].ravel()[0],
        (got.probabilities[0, 0] - chance) / got.probabilities_se[0, 0],
    ])  # fmt: skip


CASES = {
    "logit": ("logit", 0.0, False, BINARY),
    "probit": ("probit", 0.0, False, BINARY),
    "multinomial-probit": ("multinomial-probit", 0.0, False, THREE),
    "threshold": ("threshold", 0.0, False, THREE),
    "threshold with errors": ("threshold", 0.3, False, THREE | {"X": THREE["X"][:4], "y": THREE["y"][:4]}),
    "softmax": ("softmax", 0.0, False, THREE),
}
CASES |= {f"{name} fitc": (case[0], case[1], True, case[3]) for name, case in CASES.items()}
LIGHT = ("probit", "multinomial-probit")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in LIGHT else HEAVY) for name in CASES])
def test_a_lengthscale_with_much_said_about_it_agrees_with_its_posterior(assert_z, name):
    case = CASES[name]
    expected = truth(*case[:3], **case[3])
    got = run(*case)
    assert_z(z_statistics(got, expected) / 1.2)  # errors from autocorrelations are themselves a fifth uncertain
    assert got.refused == {"gradient": 0.0, "slice": 0.0}


def test_orthants_of_the_grid_agree_with_another_routine():
    S = covariance(np.array([-0.7]), BINARY["X"], False)[:, :8, :8] + np.eye(8)
    distribution = multivariate_normal(np.zeros(8), S[0], seed=np.random.RandomState(1), maxpts=200_000, abseps=1e-6)
    # quasi Monte Carlo errors of either; the probability is about 0.02
    np.testing.assert_allclose(orthant(S, 8)[1][0], distribution.cdf(np.zeros(8)), rtol=2e-3)


def forgotten_labels(monkeypatch):
    monkeypatch.setattr(HyperModel, "log_likelihood", lambda self, smooth, sd, u: np.zeros(smooth.shape[0]))


def forgotten_values(monkeypatch):
    right = HyperModel.sufficient_move
    monkeypatch.setattr(
        HyperModel,
        "sufficient_move",
        lambda self, rng, hyper, values, *rest: right(self, rng, hyper, 0.0 * values, *rest),
    )


TWINS = [
    ("probit", forgotten_labels),
    ("probit", forgotten_values),
    pytest.param("multinomial-probit", forgotten_labels, marks=HEAVY),
    *(pytest.param(name, bug, marks=HEAVY) for name in ("logit", "threshold", "threshold with errors")
      for bug in (forgotten_labels, forgotten_values)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "bug"), TWINS)
def test_a_bug_of_one_move_shows_in_the_posterior(monkeypatch, name, bug):
    case = CASES[name]
    expected = truth(*case[:3], **case[3])
    bug(monkeypatch)
    assert np.abs(z_statistics(run(*case), expected)).max() > 6.0  # far outside what the test above lets pass
