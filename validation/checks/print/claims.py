"""What the papers say in words and a few numbers decide: statements that hold exactly, or in each of their cases.

Each check is `print/METHOD/says_ID`, ID that of the claim in `validation/claims/inventory` with underscores. Formulas
are the judge's own; the functions of `reference` stand in only where a statement is about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_ndtr, logsumexp, ndtr, softmax
from scipy.stats import chi2

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.witnesses.learning import tiny
from validation.door.problem import Problem

Array = NDArray[np.float64]
Statement = Callable[[Context], Iterable[Outcome]]

# the trapezoidal rule, exact to rounding for a Gaussian times what is smooth on its scale
nodes = np.arange(-12.0, 12.04, 0.08)
log_weights = np.log(0.08) - 0.5 * nodes**2 - 0.5 * np.log(2.0 * np.pi)


def says(paper: str, method: str, claim: str, question: str) -> Callable[[Statement], Statement]:
    def register(statement: Statement) -> Statement:
        name = f"print/{method}/says_{claim.replace('-', '_')}"

        def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
            return statement(context)

        ask.__module__ = statement.__module__  # what a process imports that is asked this check alone
        check(name, paper=paper, question=question, problems=(NO_PROBLEM,))(ask)
        return statement

    return register


def normal_mean(values: Array) -> Array:
    """Expectation over a standard normal variable from values at the nodes, (..., q)."""
    return np.asarray(np.exp(log_weights) * values).sum(axis=-1)


def within(observed: float, limit: float, why: str) -> Compared:
    return Compared(observed, limit, why, "paper", "definition")


# -- wenzel2019 ----------------------------------------------------------------------------------------------------


@says(
    "wenzel2019",
    "gibbs-logit",
    "logit-mixture",
    ("The logistic function is a mixture of Gaussian shapes over PG(1, 0)."),
)
def gibbs_logit_logit_mixture(context: Context) -> Iterable[Outcome]:
    from gibbs.draws.polya_gamma import sample_polya_gamma

    omega = sample_polya_gamma(np.random.default_rng(1), np.zeros(200_000))
    for z in (-3.0, -0.7, 0.4, 2.5):
        shapes = 0.5 * np.exp(0.5 * z - 0.5 * omega * z * z)
        error = float(shapes.std() / np.sqrt(shapes.size))
        yield Compared(abs(float(shapes.mean()) - float(expit(z))) / error, 5.0,
                       f"mean over 200 000 draws at z = {z}; five standard errors", "paper", "draws",
                       "standard errors")  # fmt: skip


def _gaussians(rng: np.random.Generator, count: int) -> Iterable[tuple[Array, Array]]:
    for _ in range(count):
        yield rng.normal(0.0, 2.0, 5), np.exp(rng.normal(0.0, 1.0, 5))


def _augmented(mean: Array, var: Array, c: Array, sign: Array) -> Array:
    """E log p(y, omega | f) - log q(omega), datum by datum, q(omega) = PG(1, c)."""
    theta = np.tanh(0.5 * c) / (2.0 * c)
    return 0.5 * sign * mean - 0.5 * theta * (mean**2 + var - c**2) - np.log(2.0 * np.cosh(0.5 * c))


@says(
    "wenzel2019",
    "x-gpc",
    "bounds-differ-by-kl",
    "The augmented bound is lower by the mean divergence of PG(1, c).",
)
def x_gpc_bounds_differ_by_kl(context: Context) -> Iterable[Outcome]:
    rng, observed, least = np.random.default_rng(2), 0.0, np.inf
    sign = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    for mean, var in _gaussians(rng, 6):
        c = np.exp(rng.normal(0.0, 1.0, 5))
        f = mean[:, None] + np.sqrt(var)[:, None] * nodes
        original = normal_mean(np.asarray(log_expit(sign[:, None] * f)))
        # KL(PG(1, c) || PG(1, f)) = log cosh(c/2) - log cosh(f/2) + (f^2 - c^2)/2 E(omega)
        theta = (np.tanh(0.5 * c) / (2.0 * c))[:, None]
        apart = np.log(np.cosh(0.5 * c))[:, None] - np.log(np.cosh(0.5 * f)) + 0.5 * (f**2 - c[:, None] ** 2) * theta
        observed = max(observed, float(np.abs(original - _augmented(mean, var, c, sign) - normal_mean(apart)).max()))
        least = min(least, float(apart.min()))
    yield within(observed, 1e-8, "one q(f), thirty data: difference of the bounds by quadrature")
    yield flaws(least < 0.0, f"the least divergence is {least:.2e}", "paper", "divergences below zero")


@says("wenzel2019", "x-gpc", "gibbs-mackay", "The bound without inducing points is that of Gibbs and MacKay.")
def x_gpc_gibbs_mackay(context: Context) -> Iterable[Outcome]:
    rng, observed = np.random.default_rng(3), 0.0
    sign = np.array([1.0, -1.0, -1.0, 1.0, 1.0])
    for mean, var in _gaussians(rng, 10):
        c = np.exp(rng.normal(0.0, 1.5, 5))
        # log sigma(t) >= log sigma(c) + (t - c)/2 - tanh(c/2)/(4c) (t^2 - c^2), in expectation
        derivative = np.tanh(0.5 * c) / (4.0 * c)
        mackay = log_expit(c) + 0.5 * (sign * mean - c) - derivative * (mean**2 + var - c**2)
        observed = max(observed, float(np.abs(mackay - _augmented(mean, var, c, sign)).max()))
    yield within(observed, 1e-13, "any q(f) and c, to rounding")


@says(
    "wenzel2019",
    "x-gpc",
    "gap-lower-bound",
    "The optimal bounds differ by at least the divergence at the augmented one.",
)
def x_gpc_gap_lower_bound(context: Context) -> Iterable[Outcome]:
    for kind in ("logit", "logit full", "logit small"):
        asked = tiny(kind)
        if asked.Z is None:
            asked = asked.replace(name=f"{kind}, inducing points at the data", Z=asked.X[None])
        augmented = context.solve("reference", "x-gpc", asked)
        original = context.solve("reference", "svi", asked)
        assert augmented.latent_mean is not None
        assert augmented.latent_cov is not None
        assert augmented.log_evidence is not None
        assert original.log_evidence is not None
        mean, var = augmented.latent_mean[:, 0], augmented.latent_cov[:, 0, 0]
        c = np.sqrt(mean**2 + var)
        f = asked.y_sign[:, None] * (mean[:, None] + np.sqrt(var)[:, None] * nodes)
        gap = float(np.sum(normal_mean(np.asarray(log_expit(f))) - _augmented(mean, var, c, asked.y_sign)))
        short = gap - (original.log_evidence - augmented.log_evidence)
        yield Compared(short, 1e-8, f"{kind}: the divergence is {gap:.3g} nat", "paper", "optima", "nat")


@says(
    "wenzel2019",
    "x-gpc",
    "rate-one-is-ascent",
    "A step of rate one is block-coordinate ascent, and the bound never decreases.",
)
def x_gpc_rate_one_is_ascent(context: Context) -> Iterable[Outcome]:
    rng = np.random.default_rng(4)
    K, kappa, cond, sign = _projected(rng)
    K_inv = np.linalg.inv(K)
    mu, Sigma = rng.normal(size=3), K.copy()
    observed, fall, last = 0.0, 0.0, -np.inf
    for _ in range(6):
        c = np.sqrt(cond + np.einsum("im,mk,ik->i", kappa, Sigma, kappa) + (kappa @ mu) ** 2)
        theta = np.tanh(0.5 * c) / (2.0 * c)
        # ascent in the blocks mu and Sigma
        P = K_inv + (kappa.T * theta) @ kappa
        ascent = np.linalg.solve(P, 0.5 * kappa.T @ sign), np.linalg.inv(P)
        # natural gradient: target minus present natural parameters
        eta = np.linalg.solve(Sigma, mu), -0.5 * np.linalg.inv(Sigma)
        step = 0.5 * kappa.T @ sign - eta[0], -0.5 * P - eta[1]
        Sigma = np.linalg.inv(-2.0 * (eta[1] + step[1]))
        mu = Sigma @ (eta[0] + step[0])
        observed = max(observed, float(np.abs(mu - ascent[0]).max()), float(np.abs(Sigma - ascent[1]).max()))
        mean, var = kappa @ mu, cond + np.einsum("im,mk,ik->i", kappa, Sigma, kappa)
        value = float(_augmented(mean, var, np.sqrt(mean**2 + var), sign).sum()) - _kl(mu, Sigma, K)
        fall, last = max(fall, last - value), value
    yield within(observed, 1e-12, "six steps from a q of its own")
    yield Compared(fall, 1e-12, "the bound after each step", "paper", "definition", "nat")


def _projected(rng: np.random.Generator) -> tuple[Any, ...]:
    """K_mm, kappa, the conditional variances and labels of seven data and three inducing points."""
    X, Z = rng.uniform(-2.0, 2.0, (7, 1)), np.array([[-1.2], [0.1], [1.3]])

    def k(a: Array, b: Array) -> Array:
        return np.asarray(1.7 * np.exp(-0.5 * (a - b.T) ** 2))

    K = k(Z, Z) + 1e-6 * np.eye(3)
    kappa = np.linalg.solve(K, k(Z, X)).T
    cond = 1.7 + 0.1 - np.einsum("im,mi->i", kappa, k(Z, X))
    return K, kappa, cond, np.where(rng.random(7) < 0.5, 1.0, -1.0)


def _kl(mu: Array, Sigma: Array, K: Array) -> float:
    inverse = np.linalg.inv(K)
    logs = np.linalg.slogdet(K)[1] - np.linalg.slogdet(Sigma)[1]
    return 0.5 * float(np.trace(inverse @ Sigma) + mu @ inverse @ mu - len(mu) + logs)


@says(
    "wenzel2019",
    "x-gpc-svi",
    "always-positive-definite",
    "Sigma is positive definite after steps of any rate up to one from any start, and not after every rate above.",
)
def x_gpc_svi_always_positive_definite(context: Context) -> Iterable[Outcome]:
    rng, least, beyond = np.random.default_rng(5), np.inf, np.inf
    for _ in range(60):
        K, kappa, _cond, _sign = _projected(rng)
        root = rng.standard_normal((3, 3))
        eta_2 = -0.5 * np.linalg.inv(root @ root.T + 10.0 ** rng.uniform(-6, 1) * np.eye(3))
        theta = rng.uniform(0.0, 0.25, 7)
        target = -0.5 * (np.linalg.inv(K) + (kappa.T * theta) @ kappa)
        rate = rng.uniform(0.0, 1.0)
        values, others = (
            np.linalg.eigvalsh(-2.0 * ((1.0 - step) * eta_2 + step * target)) for step in (rate, 1.0 + rate)
        )
        least = min(least, float(values[0] / values[-1]))
        beyond = min(beyond, float(others[0] / others[-1]))
    yield flaws(least <= 0.0, f"sixty steps: least over largest eigenvalue {least:.1e}", "paper", "indefinite steps")
    why = f"rates between one and two: least over largest eigenvalue {beyond:.1e}"
    yield flaws(beyond > 0.0, why, "paper", "no indefinite step above one")


@says("wenzel2019", "x-gpc", "local-unique", "(11) is the only maximum in c, and c = 0 is a minimum.")
def x_gpc_local_unique(context: Context) -> Iterable[Outcome]:
    rng, wrong = np.random.default_rng(6), 0
    grid = np.linspace(1e-3, 30.0, 30_000)
    for mean, var in _gaussians(rng, 4):
        for m, v in zip(mean, var, strict=True):
            values = _augmented(np.array(m), np.array(v), grid, np.array(1.0))
            best = float(np.sqrt(m * m + v))
            rising = np.diff(values) > 0.0
            wrong += int(np.sum(np.diff(rising.astype(int)) != 0) != 1)  # rises, then falls
            wrong += abs(float(grid[values.argmax()]) - best) > 2e-3
            wrong += not rising[0]
    yield flaws(wrong, "twenty q(f): the bound on a grid of 30 000 c rises up to (11) and falls behind it", "paper",
                 "departures")  # fmt: skip


# -- riihimaki2013 ---------------------------------------------------------------------------------------------------


@says("riihimaki2013", "nested-ep", "rank", "The site precision has rank c - 1.")
def nested_ep_rank(context: Context) -> Iterable[Outcome]:
    from reference.riihimaki2013 import sites

    rng, wrong = np.random.default_rng(7), 0
    for c in range(2, 11):
        for y in (0, c - 1):
            alpha = np.exp(rng.normal(0.0, 1.0, c - 1))
            values = np.linalg.eigvalsh(sites.site_precision_lowrank(sites.difference_matrix(c, y), alpha))
            wrong += int(np.sum(values > 1e-10 * values[-1])) != c - 1
    yield flaws(wrong, "(11) for c = 2 to 10", "paper", "other ranks")


@says(
    "riihimaki2013",
    "nested-ep",
    "pi-null-vector",
    "1 is the null vector of the site precision, and nu is orthogonal to it.",
)
def nested_ep_pi_null_vector(context: Context) -> Iterable[Outcome]:
    from reference.riihimaki2013 import sites

    rng, observed = np.random.default_rng(8), 0.0
    for c in range(2, 8):
        alpha, beta = np.exp(rng.normal(size=c - 1)), rng.normal(size=c - 1)
        site = sites.outer_site(alpha, beta, c // 2)
        precision, location = np.asarray(site[0]), np.asarray(site[1])
        observed = max(observed, float(np.abs(precision.sum(axis=1)).max()), abs(float(location.sum())))
    yield within(observed, 1e-13, "c = 2 to 7, to rounding")


@says(
    "riihimaki2013",
    "laplace",
    "pi-like-laplace",
    "The site precision has the form of Laplace's W, diagonal less rank one.",
)
def laplace_pi_like_laplace(context: Context) -> Iterable[Outcome]:
    from reference.riihimaki2013 import sites

    rng, observed = np.random.default_rng(9), 0.0
    for c in range(2, 7):
        p = softmax(rng.normal(0.0, 2.0, c))
        # (12) of pi scaled so that its entry for the label is one, as alpha stands for the others
        form = p[0] * sites.site_precision(p[1:] / p[0], 0).precision
        observed = max(observed, float(np.abs(form - (np.diag(p) - np.outer(p, p))).max()))
    yield within(observed, 1e-14, "(12) at pi = softmax(f), whose sum is one")


@says(
    "riihimaki2013",
    "nested-ep",
    "moment-matching",
    "The Gaussian that minimises KL(p||q) is the one with the moments of p.",
)
def nested_ep_moment_matching(context: Context) -> Iterable[Outcome]:
    mean, var = 0.3, 1.8  # of a skewed density: a normal one times Phi

    def tilted(t: Array) -> Array:
        return np.asarray(np.exp(log_ndtr(1.7 * t - 0.4)))

    t = mean + np.sqrt(var) * nodes
    weights = np.exp(log_weights) * tilted(t)
    weights /= weights.sum()
    m, v = float(weights @ t), float(weights @ t**2 - (weights @ t) ** 2)

    def minus_log_q(at: float, of: float) -> float:
        return float(weights @ (0.5 * np.log(2.0 * np.pi * of) + 0.5 * (t - at) ** 2 / of))

    h = 1e-4
    derivatives = [(minus_log_q(m + h, v) - minus_log_q(m - h, v)) / (2 * h),
              (minus_log_q(m, v + h) - minus_log_q(m, v - h)) / (2 * h)]  # fmt: skip
    yield within(
        float(np.abs(derivatives).max()), 1e-7, "central differences of KL in mean and variance, steps of 1e-4"
    )
    least = min(minus_log_q(m + a, v * np.exp(b)) for a in (-0.1, 0.1) for b in (-0.1, 0.1))
    yield flaws(least <= minus_log_q(m, v), "beside it KL is larger", "paper", "smaller divergences")


@says(
    "riihimaki2013",
    "nested-ep",
    "damping-breaks-form",
    "Damping of site precisions loses the form (12), and damping of alpha keeps it.",
)
def nested_ep_damping_breaks_form(context: Context) -> Iterable[Outcome]:
    from reference.riihimaki2013 import sites

    rng, kept, broken = np.random.default_rng(10), 0.0, np.inf
    for _ in range(10):
        one, other = np.exp(rng.normal(size=(2, 3)))
        first, second = (sites.site_precision(alpha, 1).precision for alpha in (one, other))

        def distance(P: Array) -> float:
            """To the matrix of the form (12) with the same entries beside the label's, which determine alpha."""
            others = np.delete(np.arange(4), 1)
            # -P_jk = a_j a_k / s off the diagonal, -P_jy = a_j / s: a_j = P_jk / P_yk for k other than j and y
            alpha = np.array([P[j, k] / P[1, k] for j, k in zip(others, np.roll(others, 1), strict=True)])
            return float(np.abs(P - sites.site_precision(alpha, 1).precision).max())

        alpha, _beta = sites.damp_inner_sites(one, one, other, other, 0.4)
        kept = max(kept, distance(sites.site_precision(alpha, 1).precision))
        broken = min(broken, distance(0.6 * first + 0.4 * second))
    yield within(kept, 1e-12, "damped alpha: distance from the form")
    yield flaws(broken < 1e-4, f"damped precisions are at least {broken:.1e} from it", "paper", "sites of the form")


@says(
    "riihimaki2013",
    "vb-probit",
    "probit-cone",
    "The multinomial probit is the probability that one of c unit normals is largest.",
)
def vb_probit_probit_cone(context: Context) -> Iterable[Outcome]:
    from reference.riihimaki2013 import model

    rng, observed = np.random.default_rng(11), 0.0
    for c in (2, 3, 5):
        f = rng.normal(0.0, 1.5, c)
        y = int(rng.integers(c))
        # u = f_y + e: every other one below it
        below = np.delete(f, y)[:, None]
        own = float(normal_mean(np.prod(ndtr(f[y] + nodes - below), axis=0)))
        for value in (model.multinomial_probit_likelihood(f, y), model.multinomial_probit_region(f, y)):
            observed = max(observed, abs(value - own))
    yield within(observed, 1e-9, "(2) and (24) beside the definition by quadrature")


# -- izmailov2016 ----------------------------------------------------------------------------------------------------


@says(
    "izmailov2016",
    "vi-jj",
    "jj-tight",
    "The bound on the log-logistic function holds everywhere and is tight at t = xi and -xi.",
)
def vi_jj_jj_tight(context: Context) -> Iterable[Outcome]:
    from reference.izmailov2016.jaakkola_jordan import jaakkola_jordan_bound

    t, xi = np.linspace(-20.0, 20.0, 801), np.linspace(0.05, 15.0, 300)
    grid, at = (a.ravel() for a in np.meshgrid(t, xi))
    gap = np.asarray(log_expit(grid)) - jaakkola_jordan_bound(grid, at).value
    off = np.abs(np.abs(grid) - at) > 0.05
    yield flaws(int(np.sum(gap[off] <= 0.0)) + int(np.sum(gap < -1e-13)), "240 300 pairs of t and xi", "paper",
                 "points above the function")  # fmt: skip
    tight = [np.asarray(log_expit(s * xi)) - jaakkola_jordan_bound(s * xi, xi).value for s in (1.0, -1.0)]
    yield within(float(np.abs(tight).max()), 1e-13, "at t = xi and t = -xi")


@says("izmailov2016", "vi-jj", "jj-below-elbo", "J is below the bound (11) for every xi.")
def vi_jj_jj_below_elbo(context: Context) -> Iterable[Outcome]:
    rng, worst = np.random.default_rng(13), -np.inf
    sign = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    for mean, var in _gaussians(rng, 20):
        xi = np.exp(rng.normal(0.0, 1.5, 5))
        f = sign[:, None] * (mean[:, None] + np.sqrt(var)[:, None] * nodes)
        worst = max(worst, float(np.max(_augmented(mean, var, xi, sign) - normal_mean(np.asarray(log_expit(f))))))
    yield Compared(worst, 1e-9, "data terms at one q, a hundred data: the divergence is the same", "paper",
                   "quadrature", "nat")  # fmt: skip


@says("izmailov2016", "vi-jj", "jj-xi-optimal", "The optimal xi has the closed form (15).")
def vi_jj_jj_xi_optimal(context: Context) -> Iterable[Outcome]:
    from reference.izmailov2016.jaakkola_jordan import jj_optimal_xi

    rng, wrong = np.random.default_rng(14), 0
    for mean, var in _gaussians(rng, 10):
        xi = jj_optimal_xi(mean, var)
        best = _augmented(mean, var, np.abs(xi), np.ones(5))
        for factor in (0.5, 0.99, 1.01, 2.0):
            wrong += int(np.sum(_augmented(mean, var, factor * np.abs(xi), np.ones(5)) >= best))
        h = 1e-5
        derivative = (_augmented(mean, var, xi + h, np.ones(5)) - _augmented(mean, var, xi - h, np.ones(5))) / (2 * h)
        wrong += int(np.sum(np.abs(derivative) > 1e-8))
    yield flaws(
        wrong, "fifty data: nothing beside (15) is larger, and the derivative there is zero", "paper", "departures"
    )


@says("izmailov2016", "svi", "parameters-svi", "The number of parameters that svi optimises grows as m squared.")
def svi_parameters_svi(context: Context) -> Iterable[Outcome]:
    for m in (2, 3, 4):
        # dimension of the set that q(u) moves in, from differences of its ends on more data sets than that
        wanted, rng, ends = m + m * (m + 1) // 2, np.random.default_rng(17), []
        for k in range(wanted + 4):
            X = rng.uniform(-2.0, 2.0, (12, 1))
            asked = Problem(f"svi-{m}-{k}", X, rng.integers(0, 2, 12), 2, "logit", 3.0, 0.9, jitter=1e-6,
                            Z=np.linspace(-1.8, 1.8, m)[:, None])  # fmt: skip
            q = context.solve("fast", "svi", asked, tolerance=1e-6, gradients=False)
            assert q.inducing_mean is not None
            assert q.inducing_cov is not None
            ends.append(np.concatenate([q.inducing_mean[0], q.inducing_cov[0].ravel()]))
        found = int(np.linalg.matrix_rank(np.array(ends[1:]) - ends[0], tol=1e-4))
        yield flaws(found != wanted, f"m = {m}: q(u) has {found} free numbers, said {wanted}", "paper", "other counts")


# -- villacampa2017 and villacampa2020 -------------------------------------------------------------------------------


@says("villacampa2017", "vi-robust", "jensen", "log E[p] is at least E[log p].")
def vi_robust_jensen(context: Context) -> Iterable[Outcome]:
    rng, least = np.random.default_rng(15), np.inf
    for mean, var in _gaussians(rng, 20):
        p = 1e-3 / 3.0 + (1.0 - 1e-3) * ndtr(mean[:, None] + np.sqrt(var)[:, None] * nodes)
        least = min(least, float(np.min(np.log(normal_mean(p)) - normal_mean(np.log(p)))))
    yield flaws(least <= 0.0, f"a hundred q with variance: the least gap is {least:.1e}", "paper", "gaps below zero")


@says("villacampa2017", "ep", "predictive-one-dimension", "Class probabilities are integrals in one dimension.")
def ep_predictive_one_dimension(context: Context) -> Iterable[Outcome]:
    from reference.villacampa2017.prediction import predictive_class_probability

    rng, C = np.random.default_rng(16), 4
    for _ in range(3):
        mean, var = rng.normal(size=C), np.exp(rng.normal(size=C))
        draws = mean + np.sqrt(var) * rng.standard_normal((200_000, C))
        shares = np.bincount(draws.argmax(axis=1), minlength=C) / len(draws)
        exact = predictive_class_probability(mean[None], var[None])[0]
        error = np.sqrt(exact * (1.0 - exact) / len(draws))
        yield Compared(float(np.max(np.abs(shares - exact) / error)), 5.0,
                       "four latents, 200 000 draws; five standard errors", "paper", "draws",
                       "standard errors")  # fmt: skip


def _fixed_points(context: Context, method: str, **options: Any) -> Iterable[Outcome]:
    asked = tiny("threshold errors" if method == "pep" else "threshold")
    one, other = (
        context.solve(
            "fast", method, asked.replace(name=f"damping {damping}"), damping=damping, tolerance=1e-11, **options
        )
        for damping in (0.2, 0.9)
    )
    gaps = [float(np.abs(np.asarray(getattr(one, name)) - np.asarray(getattr(other, name))).max())
            for name in ("inducing_mean", "inducing_cov", "log_evidence")]  # fmt: skip
    yield flaws(not (one.converged and other.converged), "dampings of 0.2 and 0.9", "paper", "unconverged runs")
    yield within(max(gaps), 1e-8, "q and log Z at both")


@says("villacampa2017", "ep", "damping-fixed-points", "Damping does not move the fixed points of EP.")
def ep_damping_fixed_points(context: Context) -> Iterable[Outcome]:
    return _fixed_points(context, "ep")


@says("villacampa2020", "pep", "damping-fixed-points", "Damping does not move the fixed points of power EP.")
def pep_damping_fixed_points(context: Context) -> Iterable[Outcome]:
    return _fixed_points(context, "pep", alpha=0.5)


@says(
    "villacampa2020",
    "bb-alpha",
    "hellinger-symmetric",
    "alpha = 1/2 is the only symmetric member of the family of divergences.",
)
def bb_alpha_hellinger_symmetric(context: Context) -> Iterable[Outcome]:
    def divergence(alpha: float, m: tuple[float, float], v: tuple[float, float]) -> float:
        """(1 - int p^a q^(1-a)) / (a (1 - a)) of two Gaussians, in closed form."""
        precision = alpha / v[0] + (1.0 - alpha) / v[1]
        shift = alpha * m[0] / v[0] + (1.0 - alpha) * m[1] / v[1]
        square = alpha * m[0] ** 2 / v[0] + (1.0 - alpha) * m[1] ** 2 / v[1]
        logs = -0.5 * alpha * np.log(v[0]) - 0.5 * (1.0 - alpha) * np.log(v[1]) - 0.5 * np.log(precision)
        return float((1.0 - np.exp(logs + 0.5 * (shift**2 / precision - square))) / (alpha * (1.0 - alpha)))

    for alpha in np.arange(0.1, 0.95, 0.1):
        gap = abs(divergence(alpha, (0.3, -0.5), (1.0, 2.5)) - divergence(alpha, (-0.5, 0.3), (2.5, 1.0)))
        even = abs(alpha - 0.5) < 1e-9
        yield flaws((gap > 1e-14) if even else (gap < 1e-3), f"alpha = {alpha:.1f}: both ways {gap:.1e} apart", "paper",
                     "departures")  # fmt: skip


@says("villacampa2020", "pep", "objective-near-test", "The data term of PEP comes closer to log E[p] as alpha rises.")
def pep_objective_near_test(context: Context) -> Iterable[Outcome]:
    rng, wrong, last = np.random.default_rng(18), 0, 0.0
    alphas = np.linspace(0.05, 1.0, 20)
    for mean, var in _gaussians(rng, 10):
        log_p = np.log(1e-3 / 3.0 + (1.0 - 1e-3) * ndtr(mean[:, None] + np.sqrt(var)[:, None] * nodes))
        terms = np.array([logsumexp(alpha * log_p + log_weights, axis=1) / alpha for alpha in alphas])
        gap = terms - terms[-1]
        # where p is next to constant under q all powers agree to rounding
        wrong += int(np.sum(np.diff(gap, axis=0) <= -1e-14)) + int(np.sum(gap[:-1] >= 1e-14))
        wrong += not float(gap.min()) < -1e-3
        last = max(last, float(np.abs(gap[-1]).max()))
    yield flaws(wrong, "fifty q at twenty powers: below zero, rising, zero at one", "paper", "departures")
    yield within(last, 0.0, "at alpha = 1")


@says(
    "villacampa2020", "mh-softmax", "gumbel", "The largest latent value with Gumbel noise is labelled by the softmax."
)
def mh_softmax_gumbel(context: Context) -> Iterable[Outcome]:
    rng, size = np.random.default_rng(19), 100_000
    f = np.array([0.3, -0.8, 1.1, 0.0])
    counts = np.bincount((f + rng.gumbel(size=(size, 4))).argmax(axis=1), minlength=4)
    expected = size * softmax(f)
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    yield Compared(statistic, float(chi2.isf(1e-6, 3)), "100 000 labels; chi-squared at one in a million", "paper",
                   "draws", "chi-squared")  # fmt: skip
