"""Kernel parameters and latent values together: small posteriors known in closed form or by quadrature, emcee, Geweke's
joint-distribution test with known-bad twins, hard data, interruption, bad input."""

import itertools

import emcee
import numpy as np
import pytest
from scipy.special import expit, log_expit, log_softmax
from scipy.stats import lognorm, multivariate_normal, t

from gibbs.chains.diagnostics import standard_error
from gibbs.core.errors import NotPositiveDefiniteError
from gibbs.core.hyperpriors import Hyperprior, LogDensity, log_density
from gibbs.core.kernels import squared_exponential
from gibbs.core.linalg import factor
from gibbs.models import hyper_models
from gibbs.models.hyper import conditional_moments, log_joint
from gibbs.models.hyper_covariance import covariance, make_design
from gibbs_samplers import make_model
from gibbs_samplers import sample_hyper as sample

X3 = np.array([[-1.0], [0.2], [0.7]])
X_TEST = np.array([[0.4]])
Y3 = np.array([0, 1, 1])
PRIOR = {
    "variance": ("half-student-t", 4.0, 3.0),
    "lengthscales": ("log-normal", 0.8, 0.7),
    "noise": ("log-normal", 0.7, 0.3),
}
CASES = [
    ("logit", 0.0),
    ("probit", 0.0),
    ("softmax", 0.0),
    ("multinomial-probit", 0.0),
    ("threshold", 0.0),
    ("threshold", 0.2),
]
NOISE, JITTER = 0.3, 1e-3
BOTH = ("variance", "lengthscales")

# -- evidence of two classes in closed form or by quadrature ---------------------------------------------------------


def orthant(S, signs):
    """P(signs · d > 0), d ~ N(0, S), for up to three entries: arcsines. S (k, n, n)."""
    sd = np.sqrt(np.einsum("kii->ki", S))
    total = np.ones(len(S))
    for i, j in itertools.combinations(range(S.shape[1]), 2):
        total += 2.0 / np.pi * signs[i] * signs[j] * np.arcsin(S[:, i, j] / (sd[:, i] * sd[:, j]))
    return total / 2.0 ** S.shape[1]


def logistic_evidence(S, signs):
    """E Π σ(signs · d), d ~ N(0, S): trapezoid rule in white coordinates."""
    n = S.shape[1]
    axis = np.arange(-5.0, 5.1, 0.5)
    white = np.stack([g.ravel() for g in np.meshgrid(*[axis] * n, indexing="ij")])
    weight = np.exp(-0.5 * np.square(white).sum(axis=0))
    weight /= weight.sum()
    chol, signs = np.linalg.cholesky(S), np.asarray(signs)[:, None]
    return np.array([np.prod(expit(signs * (root @ white)), axis=0) @ weight for root in chol])


def evidence(likelihood, S, signs, epsilon):
    """p(y | θ) of two classes from the prior covariance S (k, n, n) of the margin f_1 - f_0 (binary: of f)."""
    n = S.shape[1]
    if likelihood in ("logit", "softmax"):
        return logistic_evidence(S, signs)
    width = {"probit": 1.0, "multinomial-probit": 2.0, "threshold": 0.0}[likelihood]
    S, signs = S + width * np.eye(n), np.asarray(signs)
    total = np.zeros(len(S))
    for right in itertools.product((False, True), repeat=n):
        index = np.flatnonzero(right)
        factor_here = (1.0 - epsilon) ** len(index) * (epsilon / 2.0) ** (n - len(index))
        if factor_here > 0.0:
            part = orthant(S[:, index][:, :, index], signs[index]) if len(index) else 1.0
            total = total + factor_here * part
    return total


def margin(likelihood, hypers, X, Z=None, jitter=JITTER):
    """Prior covariance of the margin: hypers a list of (k, 3) parameters of the classes, jitter on K_XX (on K_ZZ)."""
    design = make_design(X, X[:0], Z, np.full(1, jitter))
    return sum(covariance(design, h[:, None])[:, 0] for h in hypers)


def distributions(names):
    return [Hyperprior(*PRIOR[name], False) for name in names]


def grid_posterior(likelihood, epsilon, names, n, per_latent=False, nodes=41, Z=None):
    """Moments of two log-parameters on a grid, with p(y* = 1 | y)."""
    signs = 2.0 * Y3[:n] - 1.0
    axes = [np.linspace(-8.0, 7.0, nodes), np.linspace(-5.5, 4.5, nodes)]
    if per_latent:
        axes = [axes[0]] * 2
    w = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    base = np.broadcast_to([1.0, 1.0, NOISE], (len(w), 3))
    columns = {"variance": 0, "lengthscales": 1, "noise": 2}
    copies = 1 if likelihood in ("logit", "probit") else 2
    if per_latent:
        hypers = [np.concatenate([np.exp(w[:, [k]]), base[:, 1:]], axis=1) for k in range(2)]
    else:
        one = base.copy()
        for j, name in enumerate(names):
            one[:, columns[name]] = np.exp(w[:, j])
        hypers = [one] * copies
    log_weight = sum(log_density(w[:, j], distribution).value for j, distribution in enumerate(distributions(names)))
    both = margin(likelihood, hypers, np.concatenate([X3[:n], X_TEST]), Z)
    # jitter stands at the data alone
    both[:, n, n] -= 0.0 if Z is not None else JITTER * len(hypers)
    parts = [evidence(likelihood, both[:, :n, :n], signs, epsilon)]
    if n + 1 <= 3:
        parts.append(evidence(likelihood, both, np.append(signs, 1.0), epsilon))
    weight = np.exp(log_weight) * parts[0]
    weight /= weight.sum()
    mean = weight @ w
    var = weight @ np.square(w - mean)
    probability = weight @ (parts[1] / parts[0]) if len(parts) > 1 else None
    return mean, var, probability


def run_chains(likelihood, epsilon, names, n, **options):
    settings = {
        "hyperprior": PRIOR, "learn": names, "shared": True, "n_chains": 32, "n_draws": 60, "n_warmup": 25, "seed": 3,
        "X_test": X_TEST, "epsilon": epsilon,
    } | options  # fmt: skip
    return sample(likelihood, X3[:n], Y3[:n], 2, 1.0, [1.0], NOISE, JITTER, **settings)


def log_z(got, names, mean, var):
    """z of means and variances of log-parameters; names in order, one entry each."""
    z = []
    for j, name in enumerate(names):
        z.append((got.log_hyper_mean[name].ravel()[0] - mean[j]) / got.log_hyper_mean_se[name].ravel()[0])
        z.append((got.log_hyper_var[name].ravel()[0] - var[j]) / got.log_hyper_var_se[name].ravel()[0])
    return z


HEAVY = pytest.mark.slow
GRID = [(*case, False) for case in (CASES[0], CASES[2], CASES[5])] + [(*CASES[1], True)]
GRID += [pytest.param(*case, False, marks=HEAVY) for case in (CASES[1], CASES[3], CASES[4])]
GRID += [pytest.param(*case, True, marks=HEAVY) for case in (CASES[0], CASES[2], CASES[5])]


@pytest.mark.parametrize(("likelihood", "epsilon", "fitc"), GRID)
def test_chains_agree_with_a_posterior_on_a_grid(assert_z, likelihood, epsilon, fitc):
    Z = np.array([[[-0.6], [0.5]]]) if fitc else None
    options = {"Z": Z[0], "prior_model": "fitc"} if fitc else {}
    got = run_chains(likelihood, epsilon, BOTH, 2, **options)
    mean, var, probability = grid_posterior(likelihood, epsilon, BOTH, 2, Z=Z)
    z = log_z(got, BOTH, mean, var)
    z.append((got.probabilities[0, 1] - probability) / got.probabilities_se[0, 1])
    assert_z(np.array(z) / 1.2)  # standard errors from autocorrelation estimates are themselves a fifth uncertain
    assert got.refused == {"gradient": 0.0, "slice": 0.0}
    assert got.settled


@pytest.mark.parametrize("likelihood", ["probit", pytest.param("threshold", marks=HEAVY)])
def test_three_data_and_the_noise_agree_with_a_grid(assert_z, likelihood):
    names = ("variance", "noise")
    got = run_chains(likelihood, 0.0, names, 3)
    columns = grid_posterior(likelihood, 0.0, names, 3)
    assert_z(np.array(log_z(got, names, *columns[:2])) / 1.2)  # as above


@pytest.mark.parametrize(("likelihood", "epsilon"), [CASES[5], pytest.param(*CASES[2], marks=HEAVY)])
def test_a_parameter_of_each_latent_agrees_with_a_grid(assert_z, likelihood, epsilon):
    got = run_chains(likelihood, epsilon, ("variance",), 2, shared=False)
    mean, var, _ = grid_posterior(likelihood, epsilon, ("variance", "variance"), 2, per_latent=True)
    z = np.concatenate(
        [
            (got.log_hyper_mean["variance"] - mean) / got.log_hyper_mean_se["variance"],
            (got.log_hyper_var["variance"] - var) / got.log_hyper_var_se["variance"],
        ]
    )
    assert_z(z / 1.2)  # as above


@pytest.mark.parametrize("likelihood", ["probit", pytest.param("logit", marks=HEAVY)])
def test_chains_agree_with_an_ensemble_on_the_marginal_posterior(assert_z, likelihood):
    names = ("variance", "lengthscales", "noise")
    n = 2 if likelihood == "logit" else 3
    signs = 2.0 * Y3[:n] - 1.0

    def log_posterior(w):
        hypers = [np.exp(np.clip(w, -30.0, 30.0))]
        value = sum(log_density(w[:, j], distribution).value for j, distribution in enumerate(distributions(names)))
        return value + np.log(evidence(likelihood, margin(likelihood, hypers, X3[:n]), signs, 0.0))

    walkers, steps = 64, 400
    legacy = np.random.RandomState(5)  # emcee draws from a RandomState
    sampler = emcee.EnsembleSampler(walkers, 3, log_posterior, vectorize=True)
    begin = sampler.run_mcmc(emcee.State(legacy.standard_normal((walkers, 3)), random_state=legacy.get_state()), 150)
    sampler.reset()
    sampler.run_mcmc(begin, steps)
    w = sampler.get_chain()  # (steps, walkers, 3)
    got = run_chains(likelihood, 0.0, names, n)
    z = []
    for j, name in enumerate(names):
        centre = w[:, :, j].mean()
        for mine, error, series in (
            (got.log_hyper_mean[name], got.log_hyper_mean_se[name], w[:, :, j].mean(axis=1)),
            (got.log_hyper_var[name], got.log_hyper_var_se[name], np.square(w[:, :, j] - centre).mean(axis=1)),
        ):
            # walkers depend on one another: batches of the ensemble's averages, 50 steps each, have the error
            batches = series.reshape(8, -1).mean(axis=1)
            total = np.hypot(error.ravel()[0], batches.std(ddof=1) / np.sqrt(8.0))
            z.append((mine.ravel()[0] - series.mean()) / total)
    assert_z(np.array(z) / 2.0)  # eight batches: a t of seven degrees of freedom, twice a normal at this level


# -- Geweke's joint-distribution test --------------------------------------------------------------------------------

GEWEKE_PRIOR = {
    "variance": ("log-normal", 0.7, 1.5),
    "lengthscales": ("log-normal", 0.6, 1.0),
    "noise": ("log-normal", 0.5, 0.4),
}
GEWEKE = [("logit", 2, 0.0), ("probit", 2, 0.0), ("softmax", 3, 0.0), ("multinomial-probit", 3, 0.0),
          ("threshold", 3, 0.0), ("threshold", 3, 0.3)]  # fmt: skip


def labels_given(rng, model, latent, hyper):
    """(v, y) jointly given the smooth part of the latent values, noise drawn anew: what the model does.

    Half of the noise of h is taken as part of it, so that y moves although it is a function of h.
    """
    r, L, n = latent.shape
    if model.likelihood in ("logit", "softmax"):
        if L == 1:
            return latent, (rng.random((r, n)) < expit(latent[:, 0])).astype(int)
        return latent, (latent + rng.gumbel(size=latent.shape)).argmax(axis=1)
    S = covariance(model.design, hyper)
    halved = 0.5 * (hyper[..., -1] + model.auxiliary_noise)
    T = model.per_latent(S + model.auxiliary_noise * np.eye(n))
    s = model.per_latent(halved)
    G = T - s[..., None, None] * np.eye(n)
    gain = G @ np.linalg.inv(T)
    chol = np.linalg.cholesky(G - gain @ G + 1e-12 * np.eye(n))
    g = np.einsum("rlij,rlj->rli", gain, latent) + np.einsum("rlij,rlj->rli", chol, rng.standard_normal(latent.shape))
    h = g + np.sqrt(s)[..., None] * rng.standard_normal(latent.shape)
    if L == 1:
        return h, (h[:, 0] > 0.0).astype(int)
    wrong = rng.random((r, n)) < model.epsilon
    return h, np.where(wrong, rng.integers(0, L, (r, n)), h.argmax(axis=1))


def geweke(rng, likelihood, n_classes, epsilon, shared, learn, chains=300, sweeps=5, fitc=False):
    """z of averages per chain under the joint distribution, which starts there; with counts of labels."""
    X = X3[:2]
    model, _ = make_model(
        likelihood, X, np.array([0, 1]), n_classes, 1.5, [1.0], 0.4, 1e-3, X[:1] + 0.3 if fitc else None,
        "fitc" if fitc else "full", epsilon=epsilon, hyperprior=GEWEKE_PRIOR, learn=learn, shared=shared, n_steps=3,
    )  # fmt: skip
    p, hyper = len(learn), np.broadcast_to(model.hyper, (chains, *model.hyper.shape)).copy()
    centre = np.log([GEWEKE_PRIOR[name][2] for name in ("variance", "lengthscales", "noise") if name in learn])
    width = np.array([GEWEKE_PRIOR[name][1] for name in ("variance", "lengthscales", "noise") if name in learn])
    hyper = model.with_log(hyper, centre + width * rng.standard_normal((*hyper.shape[:2], p)))
    chol, good = factor(covariance(model.design, hyper) + model.auxiliary_noise * np.eye(2))
    assert good.all()
    latent = np.einsum("rlij,rlj->rli", model.per_latent(chol), rng.standard_normal((chains, model.n_latents, 2)))
    B = model.hyper.shape[0]
    state = {
        "hyper": hyper, "latent": latent, "sweep": np.ones(chains), "log_step": np.full((chains, B), np.log(0.3)),
        "log_turn": np.full(chains, np.log(0.12)), "normals": np.zeros((chains, 1, model.n_latents, 0)),
    }  # fmt: skip
    rngs = dict.fromkeys(hyper_models.PURPOSES, rng)
    total, counts = 0.0, np.zeros((n_classes, 3))
    for _ in range(sweeps):
        state["latent"], y = labels_given(rng, model, state["latent"], state["hyper"])
        for c in range(n_classes):
            np.add.at(counts[c], (y == c).sum(axis=1), 1)
        for pattern in np.unique(y, axis=0):
            rows = np.flatnonzero(np.all(y == pattern, axis=1))
            new = model._replace(y=pattern).step({name: value[rows] for name, value in state.items()}, rngs)
            state["hyper"][rows], state["latent"][rows] = new["hyper"], new["latent"]
        white = (model.log_hyper(state["hyper"]) - centre) / width
        S = covariance(model.design, state["hyper"]) + model.auxiliary_noise * np.eye(2)
        scaled = state["latent"] / np.sqrt(np.einsum("rlii->rli", model.per_latent(S)))
        product = model.per_latent(S)[:, :, 0, 1] / np.sqrt(np.einsum("rlii->rli", model.per_latent(S))).prod(axis=-1)
        statistics = [
            white.reshape(chains, -1), white.reshape(chains, -1) ** 2 - 1.0, white[..., 0] * white[..., -1] - (p == 1),
            scaled.reshape(chains, -1), scaled.reshape(chains, -1) ** 2 - 1.0, scaled.prod(axis=-1) - product,
            np.eye(n_classes)[y].reshape(chains, -1) - 1.0 / n_classes,
            (scaled**2 - 1.0).mean(axis=-1) * model.per_latent(white)[..., 0],
        ]  # fmt: skip
        total = total + np.concatenate(statistics, axis=1) / sweeps
    return total.mean(axis=0) / (total.std(axis=0, ddof=1) / np.sqrt(chains)), counts


@pytest.mark.parametrize(("likelihood", "n_classes", "epsilon"), GEWEKE)
def test_the_sweep_leaves_the_joint_distribution_alone(rng, assert_z, likelihood, n_classes, epsilon):
    z, counts = geweke(rng, likelihood, n_classes, epsilon, True, ("variance", "lengthscales", "noise"))
    assert np.all(counts > 0)  # every count of every class is seen
    assert_z(z)


@pytest.mark.slow
@pytest.mark.parametrize("fitc", [False, True])
@pytest.mark.parametrize(("likelihood", "n_classes", "epsilon"), GEWEKE)
def test_the_sweep_leaves_the_joint_distribution_alone_latent_by_latent(
    rng, assert_z, likelihood, n_classes, epsilon, fitc
):
    z, _ = geweke(rng, likelihood, n_classes, epsilon, False, BOTH, chains=800, sweeps=8, fitc=fitc)
    assert_z(z)


@pytest.mark.parametrize(
    ("likelihood", "n_classes", "epsilon"),
    [GEWEKE[0], GEWEKE[5], *(pytest.param(*case, marks=HEAVY) for case in GEWEKE[1:5])],
)
def test_the_joint_distribution_test_sees_a_forgotten_jacobian(rng, monkeypatch, likelihood, n_classes, epsilon):
    right = hyper_models.joint_log_density

    def forgotten(log_hyper, distributions):
        result = right(log_hyper, distributions)
        return LogDensity(result.value - log_hyper.sum(axis=-1), result.gradient - 1.0)

    monkeypatch.setattr(hyper_models, "joint_log_density", forgotten)
    z, _ = geweke(rng, likelihood, n_classes, epsilon, True, BOTH)
    assert np.abs(z).max() > 6.0  # far outside what the test above lets pass


def test_the_joint_distribution_test_sees_a_stale_auxiliary(rng, monkeypatch):
    # h is g, its noise forgotten
    monkeypatch.setattr(hyper_models.HyperModel, "draw_auxiliary", lambda self, rng, g, sd, u: g + 0.0 * sd[..., None])
    z, _ = geweke(rng, "multinomial-probit", 3, 0.0, True, BOTH)
    assert np.abs(z).max() > 6.0  # as above


# -- averages over the parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fitc", [False, True])
@pytest.mark.parametrize(("likelihood", "epsilon"), CASES)
def test_held_parameters_give_moments_by_dense_algebra(rng, likelihood, epsilon, fitc):
    Z = np.array([[-0.6], [0.5]]) if fitc else None
    model, _ = make_model(likelihood, X3, Y3, 2, 1.3,
        [0.8], NOISE, JITTER, Z, "fitc" if fitc else "full", X_TEST, epsilon,
                          hyperprior=PRIOR, learn=BOTH, shared=False)  # fmt: skip
    L = model.n_latents
    state = {"hyper": np.exp(0.3 * rng.standard_normal((2, L, 3))), "latent": rng.standard_normal((2, L, 3)),
             "omega": rng.uniform(0.1, 0.4, (2, 3))}  # fmt: skip
    got = conditional_moments(model, state)
    for r in range(2):
        for k in range(L):
            h = state["hyper"][r, k]
            design = make_design(
                np.concatenate([X3, X_TEST]), X3[:0], None if Z is None else Z[None], np.zeros(1) + JITTER
            )
            both = covariance(design, h[None, None])[0, 0]
            if Z is None:
                both[3, 3] -= JITTER
            extra = np.full(3, {"probit": 1.0, "multinomial-probit": 1.0}.get(likelihood, 0.0))
            v = state["latent"][r, k]
            if likelihood == "logit":
                extra, v = 1.0 / state["omega"][r], (Y3 - 0.5) / state["omega"][r]
            inverse = np.linalg.inv(both[:3, :3] + np.diag(extra))
            mean, cov = both[:, :3] @ inverse @ v, both - both[:, :3] @ inverse @ both[:3]
            close = {"rtol": 0.0, "atol": 1e-10}  # condition below 1e4 times eps
            np.testing.assert_allclose(got.latent_mean[r, k], mean[:3], **close)
            np.testing.assert_allclose(got.latent_var[r, k], np.diag(cov)[:3], **close)
            np.testing.assert_allclose(got.test_mean[r, k], mean[3:], **close)
            np.testing.assert_allclose(got.test_var[r, k], np.diag(cov)[3:], **close)
            if Z is not None:
                cross = squared_exponential(Z, X3, h[0], h[1:-1])
                own = squared_exponential(Z, Z, h[0], h[1:-1]) + JITTER * np.eye(2)
                np.testing.assert_allclose(got.inducing_mean[r, k], cross @ inverse @ v, **close)
                np.testing.assert_allclose(got.inducing_cov[r, k], own - cross @ inverse @ cross.T, **close)


@pytest.mark.parametrize("fitc", [False, True])
@pytest.mark.parametrize(("likelihood", "epsilon"), CASES)
def test_the_log_joint_is_the_sum_of_prior_density_and_likelihood(rng, likelihood, epsilon, fitc):
    Z = np.array([[-0.6], [0.5]]) if fitc else None
    model, _ = make_model(likelihood, X3, Y3, 2, 1.3, [0.8], NOISE, JITTER, Z, "fitc" if fitc else "full", X_TEST,
                          epsilon, hyperprior=PRIOR, learn=tuple(PRIOR), shared=False)  # fmt: skip
    L = model.n_latents
    hyper, values = np.exp(0.4 * rng.standard_normal((2, L, 3))), rng.standard_normal((2, L, 3))
    design = make_design(X3, X3[:0], None if Z is None else Z[None], np.zeros(1) + JITTER)
    for r in range(2):
        if likelihood not in ("logit", "softmax") and epsilon == 0.0:  # inside the constraints
            values[r] = (
                np.where(Y3 == 1, 1.0, -1.0) * np.abs(values[r]) * (1.0 if L == 1 else np.array([[-1.0], [1.0]]))
            )
        expected = 0.0
        for k in range(L):
            noise = model.auxiliary_noise * np.eye(3)
            S = covariance(design, hyper[r, k][None, None])[0, 0] + noise
            expected += multivariate_normal.logpdf(values[r, k], np.zeros(3), S)
            x = hyper[r, k]
            # densities of logarithms: of x, times x
            expected += np.log(2.0) + t.logpdf(x[0], 4.0, scale=3.0) + np.log(x).sum()
            expected += lognorm.logpdf(x[1], 0.8, scale=0.7) + lognorm.logpdf(x[2], 0.7, scale=0.3)
        f = values[r]
        if likelihood == "logit":
            expected += log_expit(np.where(Y3 == 1, 1.0, -1.0) * f[0]).sum()
        elif likelihood == "softmax":
            expected += log_softmax(f, axis=0)[Y3, np.arange(3)].sum()
        elif L > 1:
            expected += np.log((1.0 - epsilon) * (f.argmax(axis=0) == Y3) + epsilon / 2.0).sum()
        state = {"hyper": hyper, "latent": values}
        # condition of S below 1e4
        np.testing.assert_allclose(log_joint(model, state)[r], expected, rtol=1e-11)


@pytest.mark.parametrize("likelihood", ["logit", "softmax"])
def test_the_gradient_of_the_log_likelihood_is_that_of_finite_differences(rng, likelihood):
    model, _ = make_model(likelihood, X3, Y3, 2, 1.3, [0.8], NOISE, JITTER, hyperprior=PRIOR, learn=BOTH)
    f, step = 3.0 * rng.standard_normal((2, model.n_latents, 3)), 1e-5
    got, none = model.log_likelihood_gradient(f), (np.zeros((2, model.n_latents)), np.zeros((2, 3)))
    for place in np.ndindex(f.shape[1:]):
        moved = np.zeros(f.shape)
        moved[(slice(None), *place)] = step
        ends = [model.log_likelihood(f + sign * moved, *none) for sign in (1.0, -1.0)]
        np.testing.assert_allclose(got[(slice(None), *place)], (ends[0] - ends[1]) / (2.0 * step), rtol=0, atol=1e-9)


def test_what_is_told_of_the_parameters_is_told_of_the_draws():
    got = sample("threshold", X3, np.array([0, 1, 2]), 3, [1.0, 2.0, 0.5], [1.0], NOISE, JITTER, hyperprior=PRIOR,
                 learn=("variance", "noise"), n_chains=4, n_draws=12, n_warmup=4, seed=2)  # fmt: skip
    for name in ("variance", "noise"):
        draws = got.hyper_draws[name]
        logs = np.log(draws)
        spread = np.square(logs - logs.mean(axis=(0, 1)))
        for told, error, terms in (
            (got.hyper_mean, got.hyper_mean_se, draws), (got.log_hyper_mean, got.log_hyper_mean_se, logs),
            (got.log_hyper_var, got.log_hyper_var_se, spread),
        ):  # fmt: skip
            np.testing.assert_allclose(told[name], terms.mean(axis=(0, 1)), rtol=1e-12)
            np.testing.assert_allclose(error[name], standard_error(terms), rtol=1e-12)
    assert len(np.unique(got.log_hyper_mean["variance"])) == 3  # each latent function has its own


def test_a_noise_that_is_learnt_may_be_given_as_zero():
    prior = {"noise": ("log-normal", 0.5, 0.3)}
    got = sample("logit", X3, Y3, 2, 1.0, [1.0], 0.0, JITTER, hyperprior=prior, learn=("noise",), n_chains=8,
                 n_draws=8, n_warmup=0, seed=2)  # fmt: skip
    first = got.hyper_draws["noise"][:, 0, 0]
    assert np.all((first > 0.01) & (first < 10.0))  # chains start about the scale of the prior: seven deviations
    assert got.settled


# -- runs, hard data, bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("likelihood", "epsilon"), CASES)
@pytest.mark.parametrize("log_variance", [pytest.param(-8.0, marks=HEAVY), 8.0])
def test_hard_data_and_extreme_variances_give_finite_answers_that_move(likelihood, epsilon, log_variance):
    v = np.exp(log_variance)
    X = np.linspace(-1.0, 1.0, 6)[:, None]
    X[1] = X[0] + 1e-9  # a near duplicate with another label: only the noise tells them apart
    binary = likelihood in ("logit", "probit")
    y, C = (np.array([0, 1, 0, 1, 1, 1]), 2) if binary else (np.array([0, 1, 0, 2, 2, 2]), 4)
    prior = {"variance": ("log-normal", 1.0, v), "lengthscales": ("half-student-t", 4.0, 10.0)}
    got = sample(likelihood, X, y, C, v, [0.5], 1e-3 * v, 0.0, None, "full", X, epsilon, hyperprior=prior, learn=BOTH,
                 shared=True, n_chains=4, n_draws=10, n_warmup=10, seed=1)  # fmt: skip
    assert all(np.all(np.isfinite(a)) for a in got._asdict().values() if isinstance(a, np.ndarray))
    np.testing.assert_allclose(got.probabilities.sum(axis=1), 1.0, rtol=1e-12)  # normalised
    assert got.settled
    assert got.refused == {"gradient": 0.0, "slice": 0.0}


def test_a_covariance_that_cannot_be_factorised_is_counted_and_keeps_the_gate_shut():
    # without noise a smooth prior of many near points has no factor in float64 once the lengthscale is long
    X = np.linspace(0.0, 1.0, 12)[:, None]
    prior = {"lengthscales": ("log-normal", 2.0, 0.5)}
    got = sample("softmax", X, np.arange(12) % 3, 3, 1.0, [0.05], 0.0, 0.0, hyperprior=prior, learn=("lengthscales",),
                 shared=True, n_chains=4, n_draws=20, n_warmup=20, seed=0)  # fmt: skip
    assert got.refused["slice"] > 0.0
    assert not got.gate
    assert np.all(np.isfinite(got.log_joint))


def test_parameters_that_stand_still_are_not_passed(monkeypatch):
    monkeypatch.setattr(hyper_models.HyperModel, "ancillary_move", lambda self, rng, hyper, white, u: (
        hyper, np.matmul(white, np.swapaxes(self.smooth_part(self.design, hyper)[0], -1, -2)).reshape(4, 1, 3),
        np.zeros((4, 1)), np.zeros((4, 1)),
    ))  # fmt: skip
    monkeypatch.setattr(hyper_models.HyperModel, "_sufficient", lambda self, rngs, held, hyper, *rest, **options: (
        hyper, np.zeros((4, 1)), np.zeros((4, 1))
    ))  # fmt: skip
    got = sample("logit", X3, Y3, 2, 1.0, [1.0], NOISE, JITTER, hyperprior=PRIOR, learn=BOTH, n_chains=4, n_draws=20,
                 n_warmup=2, seed=0)  # fmt: skip
    assert not got.settled
    np.testing.assert_array_equal(got.movement, 0.0)


@pytest.mark.parametrize(("likelihood", "epsilon"), [CASES[0], CASES[2], CASES[5]])
def test_a_seed_fixes_every_number_and_an_interrupted_run_resumes_bit_by_bit(tmp_path, likelihood, epsilon):
    def run(seed=3, checkpoint=None, stop=0):
        def callback(progress):
            if progress.sweep == stop:
                raise KeyboardInterrupt

        return run_chains(likelihood, epsilon, BOTH, 3, n_chains=3, n_draws=8, n_warmup=8, thin=2, seed=seed,
                          callback=callback, checkpoint=checkpoint, checkpoint_every=5)  # fmt: skip

    whole, path = run(), tmp_path / "run.npz"
    for stop in (3, 11):
        with pytest.raises(KeyboardInterrupt):
            run(checkpoint=path, stop=stop)
    resumed = run(checkpoint=path)
    for name, value in whole._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(resumed, name), value)
    for name, value in whole.hyper_draws.items():
        np.testing.assert_array_equal(resumed.hyper_draws[name], value)
    assert not np.array_equal(run(seed=4).latent_draws, whole.latent_draws)


def test_step_sizes_are_learnt_in_the_warm_up_alone():
    got = [run_chains("probit", 0.0, BOTH, 3, n_chains=2, n_draws=k, n_warmup=30, seed=1) for k in (4, 8)]
    # the average of a constant: nothing but rounding is left
    np.testing.assert_allclose(got[0].step_size, got[1].step_size, rtol=1e-12)
    assert np.all(np.abs(np.log(got[0].step_size / 0.1)) > 0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"likelihood": "poisson"}, r"likelihood: found 'poisson', expected one of"),
        ({"n_classes": 3}, r"n_classes: found 3, expected 2 for the likelihood 'logit'"),
        ({"epsilon": 0.1}, r"epsilon: found 0.1, expected \[0, 1\) for 'threshold' and 0"),
        ({"n_steps": 0}, r"n_steps: found 0"),
        ({"learn": ("noise", "jitter")}, r"learn: found \('noise', 'jitter'\)"),
        ({"hyperprior": {}}, r"hyperprior: found no entry for 'variance'"),
        ({"likelihood": "softmax", "variance": [1.0, 2.0], "shared": True}, r"variance: found entries that differ"),
        ({"likelihood": "softmax", "lengthscales": [[1.0], [2.0]], "shared": True}, r"lengthscales: found"),
        ({"likelihood": "softmax", "noise": [0.1, 0.2], "shared": True}, r"noise: found entries that differ"),
        ({"likelihood": "softmax", "jitter": [0.0, 1e-4], "shared": True}, r"jitter: found entries that differ"),
        ({"max_kept_bytes": 5}, r"max_kept_bytes: found 5"),
        ({"y": [0, 1, 5]}, r"y: found labels 0 to 5, expected 0 to 1"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    arguments = {
        "likelihood": "logit", "X": X3, "y": Y3, "n_classes": 2, "variance": 1.0, "lengthscales": [1.0], "noise": 0.1,
        "jitter": 0.0, "hyperprior": PRIOR, "learn": BOTH, "n_draws": 8, "n_warmup": 0, "seed": 0,
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message):
        sample(**arguments)


def test_a_start_without_a_factor_is_an_error_that_says_what_would_help():
    with pytest.raises(
        NotPositiveDefiniteError, match=r"K_XX \(6, 6\): found no Cholesky factor .* raise noise or jitter"
    ):
        sample("logit", np.concatenate([X3, X3]), np.tile(Y3, 2), 2, 1.0, [1.0], 0.0, 0.0, hyperprior=PRIOR, learn=BOTH,
               n_draws=8, n_warmup=0, seed=0)  # fmt: skip
