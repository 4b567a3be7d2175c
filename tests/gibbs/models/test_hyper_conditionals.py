"""Each move of a kernel parameter alone, everything else held, at n = 14: its distribution on a grid, by brute force.

The conditionals are written out again here from the definitions (priors from scipy.stats, covariances from inverses,
likelihoods from normal distribution functions). Chains start there; what a move leaves them at must be there still.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import lognorm, norm
from scipy.stats import t as student

from gibbs.core.hyperpriors import LogDensity
from gibbs.models import hyper_models
from gibbs.models.hyper_models import HyperModel
from gibbs_samplers import make_model

X = np.sort(np.random.default_rng(4).uniform(-2.0, 2.0, (14, 1)), axis=0)
Z = np.array([[-1.6], [-0.5], [0.4], [1.5]])
JITTER = 1e-3
COLUMNS = {"variance": 0, "lengthscales": 1, "noise": 2}
PRIOR = {
    "variance": ("half-student-t", 4.0, 4.0),
    "lengthscales": ("log-normal", 1.2, 0.8),
    "noise": ("log-normal", 1.0, 1.0),
}
CHAINS, MOVES = 3000, 4
GRADIENT_CHAINS, GRADIENT_MOVES = 1200, 3  # each move takes several factorisations and gradients
HEAVY = pytest.mark.slow


class Case(NamedTuple):
    """A model of which one field is sampled."""

    likelihood: str
    field: str
    epsilon: float = 0.0
    fitc: bool = False
    noise: float = 1.5
    shared: bool = True

    @property
    def n_classes(self):
        return 2 if self.likelihood in ("logit", "probit") else 3 if self.shared else 2

    @property
    def n_latents(self):
        return 1 if self.likelihood in ("logit", "probit") else self.n_classes

    @property
    def constraints(self):
        return self.likelihood not in ("logit", "softmax")

    @property
    def unit(self):
        return 1.0 if self.likelihood in ("probit", "multinomial-probit") else 0.0

    @property
    def held(self):
        return np.array([3.0, 0.7, self.noise])

    def model(self, y):
        result, _ = make_model(
            self.likelihood, X, y, self.n_classes, 3.0, [0.7], self.noise, JITTER, Z, "fitc" if self.fitc else "full",
            epsilon=self.epsilon, hyperprior=PRIOR, learn=(self.field,), shared=self.shared,
        )  # fmt: skip
        return result

    def hyper(self, w):
        """(k, 3) with exp(w) in the field sampled: w (k,)."""
        out = np.broadcast_to(self.held, (len(w), 3)).copy()
        out[:, COLUMNS[self.field]] = np.exp(w)
        return out


# -- brute force -----------------------------------------------------------------------------------------------------


def log_prior(case, w):
    """Density of w = log x."""
    family, df, scale = PRIOR[case.field]
    x = np.exp(w)
    if family == "log-normal":
        return lognorm.logpdf(x, df, scale=scale) + w
    return np.log(2.0) + student.logpdf(x, df, scale=scale) + w


def kernel(A, B, hyper):
    variance, length = hyper[:, 0, None, None], hyper[:, 1, None, None]
    return variance * np.exp(-0.5 * np.square((A - B.T) / length))


def prior_covariance(case, hyper):
    """Of f at X without the noise, (k, n, n)."""
    if not case.fitc:
        return kernel(X, X, hyper) + JITTER * np.eye(14)
    K_ZX = kernel(Z, X, hyper)
    K = np.swapaxes(K_ZX, 1, 2) @ np.linalg.solve(kernel(Z, Z, hyper) + JITTER * np.eye(4), K_ZX)
    K[:, np.arange(14), np.arange(14)] = hyper[:, :1]
    return K


def smooth_part(case, hyper):
    """chol (k, n, n) of the covariance of g, and the variance (k,) of h - g: a tenth of the noise of h is in g."""
    total = case.unit + hyper[:, 2]
    if not case.constraints:
        return np.linalg.cholesky(prior_covariance(case, hyper) + hyper[:, 2, None, None] * np.eye(14)), 0.0 * total
    return np.linalg.cholesky(prior_covariance(case, hyper) + 0.1 * total[:, None, None] * np.eye(14)), 0.9 * total


def log_label(case, y, g, var, u):
    """log p(y | g, u): g (k, L, n), var (k, L), u (n,)."""
    if case.likelihood == "logit":
        return -np.log1p(np.exp(-(2 * y - 1) * g[:, 0])).sum(axis=1)
    if case.likelihood == "probit":
        return norm.logcdf((2 * y - 1) * g[:, 0], scale=np.sqrt(var)).sum(axis=1)
    total = 0.0
    for i, c in enumerate(y):
        others = [j for j in range(case.n_classes) if j != c]
        if case.likelihood == "softmax":
            chance = 1.0 / (1.0 + sum(np.exp(g[:, j, i] - g[:, c, i]) for j in others))
        else:
            mine, chance = g[:, c, i] + np.sqrt(var[:, c]) * u[i], 1.0
            for j in others:
                wide = np.maximum(np.sqrt(var[:, j]), 1e-200)  # no noise: a step
                chance = chance * norm.cdf((mine - g[:, j, i]) / wide)
            chance = (1.0 - case.epsilon) * chance + case.epsilon / case.n_classes
        with np.errstate(divide="ignore"):
            total = total + np.log(chance)
    return total


class Distribution:
    """A density on a fine grid: inverse and distribution function."""

    def __init__(self, w, log_density):
        weight = np.exp(log_density - log_density.max())
        steps = 0.5 * (weight[1:] + weight[:-1]) * np.diff(w)
        self.w, self.cdf = w, np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
        assert weight[[0, -1]].max() < 1e-6  # nothing is left out

    def draw(self, rng, k):
        return np.interp(rng.random(k), self.cdf, self.w)

    def z(self, w):
        """z of averages over independent draws: uniform where it is theirs, so cosines and sines have variance ½."""
        p = np.interp(w, self.w, self.cdf)
        root = np.sqrt(len(w))
        moments = [(p - 0.5).mean() * np.sqrt(12.0), (np.square(p - 0.5) - 1.0 / 12.0).mean() * np.sqrt(180.0)]
        waves = [np.sqrt(2.0) * f(2.0 * np.pi * k * p).mean() for k in (1, 2, 3) for f in (np.cos, np.sin)]
        return root * np.array(moments + waves)

    @property
    def width(self):
        low, high = np.interp([0.16, 0.84], self.cdf, self.w)
        return 0.5 * (high - low)


GRID = np.linspace(-16.0, 9.0, 5001)


def distribution_on_grid(log_density):
    return Distribution(GRID, np.concatenate([log_density(part) for part in np.array_split(GRID, 8)]))


def prior_width(case):
    return distribution_on_grid(lambda w: log_prior(case, w)).width


# -- data ------------------------------------------------------------------------------------------------------------


def simulate(rng, case):
    """ν (L, n), u (n,), y (n,), h (L, n) (f without constraints) of the model at the parameters held."""
    held = case.held[None]
    chol, var = smooth_part(case, held)
    white = rng.standard_normal((case.n_latents, 14))
    e = rng.standard_normal((case.n_latents, 14))
    h = white @ chol[0].T + np.sqrt(var[0]) * e
    if case.n_latents == 1:
        score = h[0] + (0.0 if case.constraints else rng.logistic(size=14))
        y = (score > 0.0).astype(int)
    else:
        y = (h + (0.0 if case.constraints else rng.gumbel(size=h.shape))).argmax(axis=0)
    wrong = rng.random(14) < case.epsilon
    y = np.where(wrong, rng.integers(0, case.n_classes, 14), y)
    u = np.zeros(14) if case.n_latents == 1 or not case.constraints else e[y, np.arange(14)]
    return white, u, y, h


# -- the ancillary move ----------------------------------------------------------------------------------------------


def ancillary_distribution(case, white, u, y):
    def log_density(w):
        chol, var = smooth_part(case, case.hyper(w))
        g = np.einsum("kij,lj->kli", chol, white)
        return log_prior(case, w) + log_label(case, y, g, np.repeat(var[:, None], case.n_latents, axis=1), u)

    return distribution_on_grid(log_density)


def run_ancillary(rng, case):
    """(z, start, end, distribution) of chains that start from the conditional."""
    white, u, y, _ = simulate(rng, case)
    distribution, model = ancillary_distribution(case, white, u, y), case.model(y)
    start = distribution.draw(rng, CHAINS)
    hyper = case.hyper(start)[:, None]
    for _ in range(MOVES):
        nu = np.broadcast_to(white, (CHAINS, 1, *white.shape))
        hyper, g, sd, refused = model.ancillary_move(rng, hyper, nu, np.broadcast_to(u, (CHAINS, 14)))
    assert not refused.any()
    chol, var = smooth_part(case, hyper[:, 0])
    # what the move hands on belongs to the parameters it ends with; condition of S below 1e5
    np.testing.assert_allclose(g, np.einsum("kij,lj->kli", chol, white), rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.square(sd), np.repeat(var[:, None], case.n_latents, axis=1), rtol=1e-12)
    end = np.log(hyper[:, 0, COLUMNS[case.field]])
    return distribution.z(end), start, end, distribution


ANCILLARY = [
    Case("logit", "lengthscales"),
    Case("logit", "variance", noise=0.1, fitc=True),
    Case("probit", "lengthscales"),
    Case("probit", "noise", fitc=True),
    Case("multinomial-probit", "lengthscales"),
    Case("multinomial-probit", "variance", fitc=True),
    Case("threshold", "lengthscales", noise=0.5),
    Case("threshold", "variance", 0.3, noise=0.0),
    Case("threshold", "noise", 0.3, fitc=True, noise=0.5),
    Case("softmax", "lengthscales"),
    *(
        pytest.param(Case(likelihood, field, epsilon, fitc, noise), marks=HEAVY)
        for likelihood, epsilon in (("logit", 0.0), ("probit", 0.0), ("multinomial-probit", 0.0), ("threshold", 0.0),
                                    ("threshold", 0.3), ("softmax", 0.0))
        for field in COLUMNS
        for fitc in (False, True)
        for noise in (0.3, 1.5)
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", ANCILLARY)
def test_given_white_values_and_labels_a_parameter_stays_in_its_conditional(rng, assert_z, case):
    z, start, end, _ = run_ancillary(rng, case)
    assert_z(z)
    assert np.mean(start == end) < 0.01  # every slice moves; a start that is kept tests nothing
    assert abs(np.corrcoef(start, end)[0, 1]) < 0.5


def forgotten_labels(self, smooth, sd, own_noise):
    return np.zeros(smooth.shape[0])


def other_variance(right):
    return lambda self, smooth, sd, own_noise: right(self, smooth, np.full_like(sd, np.sqrt(0.9)), own_noise)


def no_own_noise(right):
    return lambda self, smooth, sd, own_noise: right(self, smooth, sd, 0.0 * own_noise)


def constraints_without_width(right):
    return lambda self, smooth, sd, own_noise: right(self, smooth, 0.2 * sd, own_noise)


def next_labels(right):
    return lambda self, smooth, sd, own_noise: right(
        self._replace(y=(self.y + 1) % self.n_classes), smooth, sd, own_noise
    )


INFORMED = [
    Case("logit", "lengthscales", noise=0.1),
    Case("probit", "variance"),
    Case("multinomial-probit", "lengthscales"),
    Case("threshold", "lengthscales", noise=0.5),
    Case("threshold", "lengthscales", 0.3, noise=0.5),
    Case("softmax", "lengthscales", noise=0.1, fitc=True),
]


@pytest.mark.parametrize("case", INFORMED)
@pytest.mark.parametrize("bug", [lambda right: forgotten_labels, next_labels], ids=["forgotten", "next class"])
def test_a_move_that_does_not_listen_to_the_labels_is_seen(rng, monkeypatch, case, bug):
    monkeypatch.setattr(HyperModel, "log_likelihood", bug(HyperModel.log_likelihood))
    assert np.abs(run_ancillary(rng, case)[0]).max() > 6.0  # far outside what the test above lets pass


# the binary probit integrates out the noise of the label's own value as well: there is none to forget
WIDTHS = [(case, bug) for case in INFORMED if case.constraints for bug in (other_variance, constraints_without_width)]
WIDTHS += [(case, no_own_noise) for case in INFORMED if case.constraints and case.n_latents > 1]


@pytest.mark.parametrize(("case", "bug"), WIDTHS)
def test_a_wrong_width_of_the_integrated_constraints_is_seen(rng, monkeypatch, case, bug):
    if case.likelihood == "threshold" and bug is other_variance:
        case = case._replace(noise=0.2)  # farther from the variance that the bug takes
    monkeypatch.setattr(HyperModel, "log_likelihood", bug(HyperModel.log_likelihood))
    assert np.abs(run_ancillary(rng, case)[0]).max() > 6.0  # as above


def forget_jacobian(monkeypatch):
    right = hyper_models.joint_log_density

    def forgotten(log_hyper, distributions):
        result = right(log_hyper, distributions)
        return LogDensity(result.value - log_hyper.sum(axis=-1), result.gradient - 1.0)

    monkeypatch.setattr(hyper_models, "joint_log_density", forgotten)


@pytest.mark.parametrize("case", INFORMED)
def test_a_forgotten_jacobian_of_the_ancillary_move_is_seen(rng, monkeypatch, case):
    forget_jacobian(monkeypatch)
    assert np.abs(run_ancillary(rng, case)[0]).max() > 6.0  # as above


# -- two blocks: the other one's parameter is the latest ---------------------------------------------------------------


def run_blocks(rng, case):
    """z of a linear and a quadratic statistic of two parameters against a grid in the plane."""
    white, u, y, _ = simulate(rng, case)
    w = np.linspace(-14.0, 6.0, 161) if case.field == "variance" else np.linspace(-7.0, 7.0, 161)
    chol, var = smooth_part(case, case.hyper(w))
    parts = [np.einsum("kij,j->ki", chol, white[b]) for b in range(2)]
    a, b = (index.ravel() for index in np.indices((w.size, w.size)))
    prior = log_prior(case, w)
    log_density = prior[a] + prior[b]
    g, both = np.stack([parts[0][a], parts[1][b]], axis=1), np.stack([var[a], var[b]], axis=1)
    log_density = log_density + log_label(case, y, g, both, u)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    ends = weight.reshape(w.size, w.size)
    assert max(ends[[0, -1]].max(), ends[:, [0, -1]].max()) < 1e-5 * weight.max()  # nothing is left out
    cell = rng.choice(weight.size, CHAINS, p=weight)
    place = np.stack([w[a[cell]], w[b[cell]]], axis=1) + (w[1] - w[0]) * (rng.random((CHAINS, 2)) - 0.5)
    hyper = np.stack([case.hyper(place[:, k]) for k in range(2)], axis=1)
    model = case.model(y)
    for _ in range(MOVES):
        nu = np.broadcast_to(white[:, None], (CHAINS, 2, 1, 14))
        hyper = model.ancillary_move(rng, hyper, nu, np.broadcast_to(u, (CHAINS, 14)))[0]
    end = np.log(hyper[..., COLUMNS[case.field]])
    mean = np.array([weight @ w[a], weight @ w[b]])
    z = []
    for f in (lambda x: x[:, 0], lambda x: x[:, 1], lambda x: x[:, 0] ** 2, lambda x: x[:, 1] ** 2,
              lambda x: x[:, 0] * x[:, 1]):  # fmt: skip
        result, expected = f(end - mean), weight @ f(np.stack([w[a], w[b]], axis=1) - mean)
        z.append((result.mean() - expected) / (result.std() / np.sqrt(CHAINS)))
    return np.array(z)


BLOCKS = [Case("threshold", "lengthscales", 0.3, noise=0.5, shared=False), Case("softmax", "variance", shared=False)]


@pytest.mark.parametrize("case", BLOCKS)
def test_parameters_of_two_latents_stay_in_their_joint_conditional(rng, assert_z, case):
    assert_z(run_blocks(rng, case))


@pytest.mark.parametrize("case", BLOCKS)
def test_a_block_that_takes_the_others_for_zero_is_seen(rng, monkeypatch, case):
    right = HyperModel.log_likelihood

    def alone(self, smooth, sd, own_noise):
        return right(self, smooth * (np.arange(2) == 0)[:, None], sd, own_noise)

    monkeypatch.setattr(HyperModel, "log_likelihood", alone)
    assert np.abs(run_blocks(rng, case)).max() > 6.0  # as above


# -- what the ancillary move is given and what follows it --------------------------------------------------------------


def white_statistics(rng, case):
    """z of mean and second moments of ν given h, against the Gaussian that is conditioned by dense algebra."""
    _, _, y, h = simulate(rng, case)
    model, chol, var = case.model(y), *smooth_part(case, case.held[None])
    C, L = chol[0], case.n_latents
    hyper = np.broadcast_to(case.held, (CHAINS, 1, 3)).copy()
    white, u = model.draw_white(rng, hyper, np.broadcast_to(h, (CHAINS, L, 14)))
    gain = C.T @ np.linalg.inv(C @ C.T + var[0] * np.eye(14))
    residual = white[:, 0] - h @ gain.T
    expected = np.eye(14) - gain @ C
    products = np.einsum("rli,rlj->rlij", residual, residual) - expected
    flat = np.concatenate([residual.reshape(CHAINS, -1), products.reshape(CHAINS, -1)], axis=1)
    own = h[y % L, np.arange(14)] - np.einsum("ij,rlj->rli", C, white[:, 0])[:, y % L, np.arange(14)]
    return flat.mean(axis=0) / (flat.std(axis=0) / np.sqrt(CHAINS)), u, own / np.sqrt(var[0])


WALLS = [Case("probit", "noise", fitc=True), Case("multinomial-probit", "noise", noise=0.3),
         Case("threshold", "noise", 0.3)]  # fmt: skip


@pytest.mark.parametrize("case", WALLS)
def test_white_values_given_the_auxiliary_are_gaussian_and_the_own_noise_fits_them(rng, assert_z, case):
    z, u, own = white_statistics(rng, case)
    assert_z(z)
    # condition of S below 1e5
    np.testing.assert_allclose(u, own[:, :0] if case.likelihood == "probit" else own, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", WALLS)
def test_white_values_with_another_residual_variance_are_seen(rng, monkeypatch, case):
    right = HyperModel.smooth_part

    def wrong(self, design, hyper):
        chol, sd, good = right(self, design, hyper)
        return chol, 1.3 * sd, good

    monkeypatch.setattr(HyperModel, "smooth_part", wrong)
    assert np.abs(white_statistics(rng, case)[0]).max() > 6.0  # as above


def auxiliary_statistics(rng, case, r=40_000):
    """z of values h given g, u, y between draws and a rejection sampler that knows the rule of the labels alone."""
    white, u, y, _ = simulate(rng, case)
    model, chol, var = case.model(y), *smooth_part(case, case.held[None])
    g, sd, L = white @ chol[0].T, np.sqrt(var[0]), case.n_latents
    shape = (r, L, 14)
    h = model.draw_auxiliary(rng, np.broadcast_to(g, shape).copy(), np.full((r, L), sd), np.broadcast_to(u, (r, 14)))
    e = rng.standard_normal((4 * r, L, 14))
    if L > 1:
        e[:, y, np.arange(14)] = u
    free = g + sd * e
    given = (free[:, 0] > 0.0) == (y == 1) if L == 1 else free.argmax(axis=1) == y
    if case.epsilon:
        chance = (1.0 - case.epsilon) * given + case.epsilon / L
        given = rng.random(given.shape) < chance
    z = []
    for i in range(14):
        kept = free[given[:, i], :, i]
        for c in range(L):
            if L > 1 and c == y[i]:
                np.testing.assert_allclose(h[:, c, i], g[c, i] + sd * u[i], rtol=1e-12, atol=1e-12)  # rounding
                continue
            for power in (1, 2):
                a, b = h[:, c, i] ** power, kept[:, c] ** power
                if len(b) > 2000:
                    z.append((a.mean() - b.mean()) / np.sqrt(a.var() / len(a) + b.var() / len(b)))
    assert len(z) > 14
    return np.array(z)


@pytest.mark.parametrize("case", WALLS)
def test_auxiliary_values_given_the_rest_agree_with_rejection(rng, assert_z, case):
    assert_z(auxiliary_statistics(rng, case))


def test_auxiliary_values_that_forget_the_errors_are_seen(rng, monkeypatch):
    # every label taken for a right one
    right = HyperModel.draw_auxiliary
    monkeypatch.setattr(
        HyperModel, "draw_auxiliary", lambda self, rng, g, sd, u: right(self._replace(epsilon=0.0), rng, g, sd, u)
    )
    assert np.abs(auxiliary_statistics(rng, WALLS[2])).max() > 6.0  # as above


# -- the sufficient move ---------------------------------------------------------------------------------------------


def simulate_sufficient(rng, case):
    """Gaussian vectors v (L, n), and further variances as the sweep has them, a number or (n,)."""
    _, _, y, f = simulate(rng, case)
    if case.likelihood == "logit":
        omega = rng.uniform(0.05, 0.25, 14)
        return y, (y - 0.5)[None] / omega, 1.0 / omega
    return y, f, case.unit


def sufficient_distribution(case, v, extra):
    def log_density(w):
        hyper = case.hyper(w)
        S = prior_covariance(case, hyper) + (hyper[:, 2, None, None] + extra) * np.eye(14)
        square = np.einsum("li,kil->k", v, np.linalg.solve(S, np.broadcast_to(v.T, (len(w), *v.T.shape))))
        return log_prior(case, w) - 0.5 * square - 0.5 * len(v) * np.linalg.slogdet(S)[1]

    return distribution_on_grid(log_density)


def run_sufficient(rng, case):
    y, v, extra = simulate_sufficient(rng, case)
    distribution, model = sufficient_distribution(case, v, extra), case.model(y)
    start = distribution.draw(rng, GRADIENT_CHAINS)
    hyper, size = case.hyper(start)[:, None], np.full((GRADIENT_CHAINS, 1), 0.4 * distribution.width)
    values = np.broadcast_to(v, (GRADIENT_CHAINS, 1, *v.shape))
    more = extra if np.ndim(extra) == 0 else np.broadcast_to(extra, (GRADIENT_CHAINS, 1, 14))
    for _ in range(GRADIENT_MOVES):
        hyper, acceptance, refused = model.sufficient_move(rng, hyper, values, more, size)
    assert not refused.any()
    end = np.log(hyper[:, 0, COLUMNS[case.field]])
    return distribution.z(end), start, end, acceptance


SUFFICIENT = [
    Case("logit", "lengthscales", noise=0.1),
    Case("logit", "variance", noise=0.1, fitc=True),
    Case("probit", "variance"),
    Case("multinomial-probit", "lengthscales"),
    Case("multinomial-probit", "noise", fitc=True),
    Case("threshold", "variance", fitc=True, noise=0.5),
    Case("softmax", "lengthscales", fitc=True, noise=0.5),
    Case("softmax", "noise", noise=0.5),
    *(
        pytest.param(Case(likelihood, field, fitc=fitc, noise=noise), marks=HEAVY)
        for likelihood in ("logit", "probit", "multinomial-probit", "threshold", "softmax")
        for field in COLUMNS
        for fitc in (False, True)
        for noise in (0.3, 1.5)
    ),
]


@pytest.mark.parametrize("case", SUFFICIENT)
def test_given_gaussian_values_a_parameter_stays_in_its_conditional(rng, assert_z, case):
    z, start, end, acceptance = run_sufficient(rng, case)
    assert_z(z)
    assert acceptance.mean() > 0.6  # the gradient leads along the density
    assert abs(np.corrcoef(start, end)[0, 1]) < 0.5  # and far


def forget_values(right):
    return lambda design, hyper, values, extra=0.0: right(design, hyper, 0.0 * values, extra)


def forget_extra(right):
    return lambda design, hyper, values, extra=0.0: right(design, hyper, values, 0.0)


def invert_extra(right):
    return lambda design, hyper, values, extra=0.0: right(design, hyper, values, 1.0 / extra)


def one_class_alone(right):
    return lambda design, hyper, values, extra=0.0: right(design, hyper, values[:, :, :1], extra)


def one_determinant(right):
    def wrong(design, hyper, values, extra=0.0):
        result, empty = right(design, hyper, values, extra), right(design, hyper, 0.0 * values, extra)
        return result._replace(value=result.value - (1.0 - 1.0 / values.shape[2]) * empty.value)

    return wrong


SUFFICIENT_FAULTS = [
    (Case("logit", "lengthscales", noise=0.1), forget_values),
    (Case("logit", "lengthscales", noise=0.1), invert_extra),
    (Case("probit", "variance", noise=0.3), forget_values),
    (Case("probit", "lengthscales", noise=0.1), forget_extra),
    (Case("multinomial-probit", "lengthscales", noise=0.1), forget_extra),
    (Case("multinomial-probit", "lengthscales"), one_class_alone),
    (Case("threshold", "variance", fitc=True, noise=0.5), one_determinant),
    (Case("softmax", "lengthscales", fitc=True, noise=0.5), one_class_alone),
]


@pytest.mark.parametrize(("case", "bug"), SUFFICIENT_FAULTS)
def test_a_wrong_gaussian_of_the_sufficient_move_is_seen(rng, monkeypatch, case, bug):
    monkeypatch.setattr(hyper_models, "log_normal_density", bug(hyper_models.log_normal_density))
    assert np.abs(run_sufficient(rng, case)[0]).max() > 6.0  # as above


@pytest.mark.parametrize("case", SUFFICIENT[:7:2])
def test_a_forgotten_jacobian_of_the_sufficient_move_is_seen(rng, monkeypatch, case):
    forget_jacobian(monkeypatch)
    assert np.abs(run_sufficient(rng, case)[0]).max() > 6.0  # as above
