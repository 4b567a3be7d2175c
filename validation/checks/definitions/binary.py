"""Binary methods from their definitions: stationary points, log Z of EP, predictions, gradients and stochastic steps.

Dense matrices and one trapezoidal rule; nothing of either witness. kappa are the rows K_iZ K_ZZ^-1 (I for a full GP), P
and h the precision and the precision-adjusted mean of q(u). What a batch S of n data says is scaled with n/|S|:

    x-gpc-svi, svgpc   P <- (1 - r) P + r (K^-1 + n/|S| sum w_i kappa_i kappa_i')
                       h <- (1 - r) h + r n/|S| sum b_i kappa_i
                       with w = tanh(c/2)/(2c), c^2 = E f^2, b = y/2, or w = -2 dE/dv, b = dE/dm + w m, E = E log Phi
    epgpc              sites of a batch side by side from one q, damped in natural parameters
    svi                AdaDelta along the derivatives in mean and Cholesky factor of the scaled bound
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import norm

from validation.checks.apart import apart
from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.definitions.differences import parameter_differences
from validation.checks.definitions.power import G, inverse
from validation.checks.definitions.power import differences as free_differences
from validation.checks.subjects import as_probit
from validation.checks.witnesses.izmailov import Objective, derivatives_at_zero, of_vector
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.implementations.quadrature_rule import kernel
from validation.judge.compare import gradient_unit, identity_limit, relative_difference

Array = NDArray[np.float64]

PAPERS = dict.fromkeys(("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor"), "izmailov2016") | dict.fromkeys(
    ("x-gpc", "x-gpc-svi", "svgpc", "epgpc"), "wenzel2019"
)
PROBIT = ("svgpc", "epgpc")
LOCAL = {"x-gpc": "c", "vi-jj": "xi", "vi-jj-full": "xi", "vi-jj-hybrid": "xi"}
_WITNESSES = ("reference", "fast")
_RATE, _ADAM, _DAMPING = 0.3, 0.01, 0.8
# E g(f), f = m + sqrt(v) z: log Phi and log sigma are analytic in a strip wide enough for 1e-13 at v < 100
_NODES = np.linspace(-10.0, 10.0, 4001)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.sqrt(2.0 * np.pi) * (_NODES[1] - _NODES[0])


def question(method: str, problem: Problem) -> Problem:
    """The problem with the link that the method has."""
    return as_probit(problem) if method in PROBIT else problem


def _solve(context: Context, witness: str, method: str, problem: Problem, **options: Any) -> Solution:
    if method == "x-gpc-svi" and "batches" not in options:
        options |= {"batches": batches(problem), "rate": _RATE}
    return context.solve(witness, method, question(method, problem), **options)


def batches(problem: Problem) -> list[list[int]]:
    """Six batches of about half of the data."""
    rng = np.random.default_rng(20190127)
    return [rng.choice(problem.n, max(2, min(problem.n // 2, 8)), replace=False).tolist() for _ in range(6)]


def expected(problem: Problem, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
    """E log p(y|f), and its derivatives in m and v, for f ~ N(m, v)."""
    f = m[:, None] + np.sqrt(v)[:, None] * _NODES
    z = y[:, None] * f
    if problem.likelihood == "probit":
        value = log_ndtr(z)
        ratio = np.exp(norm.logpdf(z) - value)
        derivative, curvature = ratio, -ratio * (z + ratio)
    else:
        value = -np.logaddexp(0.0, -z)
        right = np.exp(value)
        derivative, curvature = 1.0 - right, -right * (1.0 - right)
    return value @ _WEIGHTS, y * (derivative @ _WEIGHTS), 0.5 * (curvature @ _WEIGHTS)


class Distribution(NamedTuple):
    """q(u)."""

    mean: Array
    cov: Array

    @property
    def root(self) -> Array:
        """Lower Cholesky factor of the covariance."""
        return np.asarray(np.linalg.cholesky(self.cov), dtype=np.float64)


def distribution_of(solution: Solution) -> Distribution:
    """What a solution says of q(u)."""
    assert solution.inducing_mean is not None
    assert solution.inducing_cov is not None
    return Distribution(solution.inducing_mean[0], solution.inducing_cov[0])


def elbo(problem: Problem, q: Distribution, rows: Sequence[int] | None = None) -> float:
    """E log p(y|f) - KL, or its estimate from some rows."""
    dense = Objective(problem)
    chosen = list(range(problem.n) if rows is None else rows)
    m, v = dense.moments(q.mean, q.root)
    values = expected(problem, np.asarray(dense.y[chosen]), m[chosen], v[chosen])[0]
    return float(problem.n / len(chosen) * values.sum()) - dense.divergence(q.mean, q.root)


def local_elbo(problem: Problem, q: Distribution, rows: Sequence[int] | None = None) -> float:
    """The bound of x-gpc with each c at its maximum, or its estimate from some rows."""
    dense = Objective(problem)
    chosen = list(range(problem.n) if rows is None else rows)
    m, v = dense.moments(q.mean, q.root)
    xi, halved = np.sqrt(m * m + v)[chosen], 0.5 * (dense.y * m)[chosen]
    # at the maximum the quadratic term is its own tangent: log sigma(c) + (y m - c)/2
    values = -np.logaddexp(0.0, -xi) + halved - 0.5 * xi
    return float(problem.n / len(chosen) * values.sum()) - dense.divergence(q.mean, q.root)


# -- expectation propagation -----------------------------------------------------------------------------------------


def ep_distribution(dense: Objective, sites: Array) -> tuple[Array, Array]:
    """P and h of q(u) at sites (2, n) of precision and shift."""
    return dense.inverse + (dense.kappa.T * sites[0]) @ dense.kappa, dense.kappa.T @ sites[1]


def ep_evidence(problem: Problem, sites: Array) -> float:
    """log Z_q of binary EP: G(q) - G(prior) + sum of log Z_i + G(cavity) - G(q)."""
    dense = Objective(problem)
    P, h = ep_distribution(dense, sites)
    whole = G(P[None], h[None])
    total = whole - G(dense.inverse[None], 0.0 * h[None])
    for i, row in enumerate(dense.kappa):
        Pc, hc = P - sites[0, i] * np.outer(row, row), h - sites[1, i] * row
        V = inverse(Pc)
        total += float(norm.logcdf(dense.y[i] * (row @ V @ hc) / np.sqrt(1.0 + dense.cond_var[i] + row @ V @ row)))
        total += G(Pc[None], hc[None]) - whole
    return total


def ep_matched(problem: Problem, sites: Array, rows: Iterable[int]) -> Array:
    """(2, n) sites, those of some rows replaced by what matches the moments of cavity times Phi, by numbers alone."""
    dense = Objective(problem)
    P, h = ep_distribution(dense, sites)
    new = sites.copy()
    for i in rows:
        row = dense.kappa[i]
        V = inverse(P - sites[0, i] * np.outer(row, row))
        var = float(row @ V @ row)
        mean = float(row @ V @ (h - sites[1, i] * row))
        w = mean + np.sqrt(var) * _NODES
        p = _WEIGHTS * norm.cdf(dense.y[i] * w / np.sqrt(1.0 + dense.cond_var[i]))
        first = float(p @ w / p.sum())
        second = float(p @ (w - first) ** 2 / p.sum())
        new[:, i] = 1.0 / second - 1.0 / var, first / second - mean / var
    return new


def _sites(solution: Solution) -> Array:
    return np.array([solution.local["site_precision"], solution.local["site_shift"]])


def ep_definition(context: Context, method: str, problem: Problem) -> Iterable[Outcome]:
    """epgpc: log Z_q, that it is stationary in the sites, and the sites themselves."""
    asked = question(method, problem)
    limit, why = identity_limit(asked)
    for witness in _WITNESSES:
        answer = _solve(context, witness, method, problem)
        sites = _sites(answer)
        stated = {
            "log_evidence": (answer.log_evidence, ep_evidence(asked, sites)),
            "sites": (sites, ep_matched(asked, sites, range(problem.n))),
        }
        q = distribution_of(answer)
        P, h = ep_distribution(Objective(asked), sites)
        stated |= {"precision of q": (inverse(q.cov), P), "mean of q": (P @ q.mean, h)}
        yield from apart(
            stated, 10.0 * limit, f"dense natural parameters, a trapezoidal rule to 1e-13; {why}", answer.label
        )
        units = np.array([np.abs(sites[0]) + 0.1, np.abs(sites[1]) + 0.1])
        derivatives = free_differences(lambda x, asked=asked: ep_evidence(asked, x), sites, units)  # type: ignore[misc]
        yield Compared(float(np.abs(derivatives).max()), 1e-6, "stationary: steps of 1e-4 leave 1e-8", answer.label,
                       "0", "largest entry of the gradient in a site")  # fmt: skip


# -- stationary points -----------------------------------------------------------------------------------------------


def stationary(context: Context, method: str, problem: Problem) -> Iterable[Outcome]:
    """x-gpc and svgpc: value and derivatives of the judge's own bound at each witness's answer."""
    asked = question(method, problem)
    limit, why = identity_limit(asked)
    for witness in _WITNESSES:
        answer = _solve(context, witness, method, problem)
        q = distribution_of(answer)
        dense, C = Objective(asked), q.root
        m = q.mean.size
        free = m * (m + 3) // 2
        if method == "x-gpc":
            c = np.asarray(answer.local["c"])

            def value(x: Array, dense: Objective = dense, q: Distribution = q, C: Array = C, c: Array = c) -> float:
                return dense.local_bound(*of_vector(q.mean, C, x), c * np.exp(x[-c.size :]))

            size = free + problem.n
        else:

            def value(x: Array, asked: Problem = asked, q: Distribution = q, C: Array = C) -> float:  # type: ignore[misc]
                mean, root = of_vector(q.mean, C, x)
                return elbo(asked, Distribution(mean, root @ root.T))

            size = free
        yield from apart({"log_evidence": (answer.log_evidence, value(np.zeros(size)))}, limit, why, answer.label)
        yield Compared(
            float(np.abs(derivatives_at_zero(value, size)).max()),
            1e-6,
            "in units of q(u) derivatives of order one are the rule; steps of 1e-4 leave 1e-8 times third derivatives",
            answer.label,
            "0",
            "largest entry of the gradient in the parameters of q",
        )


# -- predictions -----------------------------------------------------------------------------------------------------


def predicted(problem: Problem, X: Array, q: Distribution) -> tuple[Array, Array]:
    """Mean and variance of f at new inputs under q(u), noise included."""
    points = problem.X if problem.Z is None else problem.Z[0]
    K, cross = Objective(problem).K, kernel(problem, 0, X, points)
    rows = np.linalg.solve(K, cross.T).T
    var = problem.variance[0] + problem.noise[0] - (rows * cross).sum(axis=1)
    return rows @ q.mean, var + np.einsum("tm,mp,tp->t", rows, q.cov, rows)


def predictions(context: Context, method: str, problem: Problem) -> Iterable[Outcome]:
    """Latent moments at data and test points and class probabilities, all of the reported q(u).

    epgpc reports f at the data after its own label was seen: what p(f | u) leaves open is tilted too.
    """
    asked = question(method, problem)
    limit, why = identity_limit(asked)
    dense = Objective(asked)
    for witness in _WITNESSES:
        answer = _solve(context, witness, method, problem)
        q = distribution_of(answer)
        mean, var = dense.moments(q.mean, q.root)
        if method == "epgpc":
            mean, var = _tilted_latents(asked, _sites(answer))
        assert asked.X_test is not None
        test_mean, test_var = predicted(asked, asked.X_test, q)
        f = test_mean[:, None] + np.sqrt(test_var)[:, None] * _NODES
        link = norm.cdf if asked.likelihood == "probit" else lambda z: np.exp(-np.logaddexp(0.0, -z))
        right = link(f) @ _WEIGHTS
        stated = {
            "latent_mean": (answer.latent_mean, mean[:, None]),
            "latent_cov": (answer.latent_cov, var[:, None, None]),
            "test_latent_mean": (answer.test_latent_mean, test_mean[:, None]),
            "test_latent_cov": (answer.test_latent_cov, test_var[:, None, None]),
            "probabilities": (answer.probabilities, np.stack([1.0 - right, right], axis=1)),
        }
        yield from apart(
            stated, limit, f"of the reported q(u), by dense matrices and a trapezoidal rule; {why}", answer.label
        )


def _tilted_latents(problem: Problem, sites: Array) -> tuple[Array, Array]:
    """Moments of f_i under cavity times Phi(y f), by numbers."""
    dense = Objective(problem)
    P, h = ep_distribution(dense, sites)
    results = []
    for i, row in enumerate(dense.kappa):
        V = inverse(P - sites[0, i] * np.outer(row, row))
        var = float(row @ V @ row) + dense.cond_var[i]
        f = float(row @ V @ (h - sites[1, i] * row)) + np.sqrt(var) * _NODES
        p = _WEIGHTS * norm.cdf(dense.y[i] * f)
        mean = p @ f / p.sum()
        results.append((mean, p @ (f - mean) ** 2 / p.sum()))
    means, variances = np.array(results).T
    return means, variances


# -- gradients -------------------------------------------------------------------------------------------------------


def _objective(method: str, answer: Solution) -> Callable[[Problem], float]:
    """What a method differentiates, as a function of the prior: q(u) and local numbers held, at which it is flat.

    vi-taylor's (19) is no flat function of xi: its gradient is the one at which the points of expansion stay.
    """
    q = distribution_of(answer)
    if method == "epgpc":
        sites = _sites(answer)
        return lambda moved: ep_evidence(moved, sites)
    if method == "vi-taylor":
        xi = np.asarray(answer.local["xi"])
        return lambda moved: Objective(moved).expanded(q.mean, q.root, xi)
    if method in ("svgpc", "svi"):
        return lambda moved: elbo(moved, q)
    return lambda moved: local_elbo(moved, q)


def gradients(context: Context, method: str, problem: Problem) -> Iterable[Outcome]:
    """Reported derivatives in the prior against differences."""
    for witness in _WITNESSES:
        answer = _solve(context, witness, method, problem)
        if answer.gradients is None:
            continue
        value = _objective(method, answer)
        for name, given in answer.gradients.items():
            # a noise far below its unit, the whole variance, needs the extrapolation
            whole, half_step = (parameter_differences(value, answer.problem, name, step) for step in (1e-4, 5e-5))
            derivatives = (4.0 * half_step - whole) / 3.0
            assert answer.log_evidence is not None
            yield Compared(
                relative_difference(given * gradient_unit(answer.problem, name), derivatives,
                                    0.01 * abs(answer.log_evidence)),
                1e-6,
                f"gradient in {name}: differences of 1e-4 units, extrapolated, leave 1e-8, a missing term 1e-2",
                answer.label,
                "differences of the definition",
                f"relative difference of the gradient in {name}",
            )  # fmt: skip


# -- stochastic steps ------------------------------------------------------------------------------------------------


def _natural_step(method: str, problem: Problem, P: Array, h: Array, rows: Sequence[int]) -> tuple[Array, Array]:
    dense = Objective(problem)
    V = inverse(P)
    q = Distribution(V @ h, V)
    m, v = (part[rows] for part in dense.moments(q.mean, q.root))
    kappa, y = dense.kappa[rows], np.asarray(dense.y[rows], dtype=np.float64)
    if method == "x-gpc-svi":
        c = np.sqrt(m * m + v)
        weight, shift = np.tanh(0.5 * c) / (2.0 * c), 0.5 * y
    else:
        _, by_mean, by_var = expected(problem, y, m, v)
        weight = -2.0 * by_var
        shift = by_mean + weight * m
    scale = problem.n / len(rows)
    target = dense.inverse + scale * (kappa.T * weight) @ kappa, scale * kappa.T @ shift
    return (1.0 - _RATE) * P + _RATE * target[0], (1.0 - _RATE) * h + _RATE * target[1]


class Adam:
    """Kingma and Ba, algorithm 1, uphill."""

    def __init__(self, rate: float = _ADAM) -> None:
        self.rate, self.first, self.second, self.steps = rate, np.zeros(1), np.zeros(1), 0

    def step(self, gradient: Array) -> Array:
        """What to add."""
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean, square = self.first / (1.0 - 0.9**self.steps), self.second / (1.0 - 0.999**self.steps)
        return np.asarray(self.rate * mean / (np.sqrt(square) + 1e-8))


_LEARNED = ("variance", "lengthscales")


def _moved(problem: Problem, value: Callable[[Problem], float], adam: Adam) -> Problem:
    """The problem after one step of Adam in the logarithms of variance and lengthscales."""
    # the unit of both is the parameter: differences are derivatives in the logarithm
    derivatives = [parameter_differences(value, problem, name, 1e-4) for name in _LEARNED]
    step = adam.step(np.concatenate([part.ravel() for part in derivatives]))
    at, changed = 0, {}
    for name, part in zip(_LEARNED, derivatives, strict=True):
        changed[name] = getattr(problem, name) * np.exp(step[at : at + part.size].reshape(part.shape))
        at += part.size
    return problem.replace(**changed)


def steps(context: Context, method: str, problem: Problem, *, learning: bool = False) -> Iterable[Outcome]:
    """Batches by the definition's own rule, with and without Adam's steps on the prior in between."""
    asked = question(method, problem)
    limit, why = identity_limit(asked)
    options: dict[str, Any] = {"batches": batches(problem), "rate": _RATE}
    if learning:
        options |= {"learn": _LEARNED, "learning_rate": _ADAM}
    bound = local_elbo if method == "x-gpc-svi" else elbo
    moved, adam = asked, Adam()
    P, h = Objective(asked).inverse, np.zeros(len(Objective(asked).K))
    for rows in options["batches"]:
        P, h = _natural_step(method, moved, P, h, rows)
        if learning:
            V = inverse(P)
            q = Distribution(V @ h, V)
            moved = _moved(moved, lambda there, q=q, rows=rows: bound(there, q, rows), adam)  # type: ignore[misc]
    V = inverse(P)
    q = Distribution(V @ h, V)
    for witness in _WITNESSES:
        answer = context.solve(witness, method, asked, **options)
        stated: dict[str, tuple[Any, Any]] = {
            "inducing_mean": (answer.inducing_mean, q.mean[None]),
            "inducing_cov": (answer.inducing_cov, q.cov[None]),
            "log_evidence": (answer.log_evidence, bound(moved, q)),
        }
        if learning:
            stated |= {name: (getattr(answer.problem, name), getattr(moved, name)) for name in _LEARNED}
        told = "derivatives by differences leave 1e-8 of a step of 1e-2" if learning else why
        yield from apart(
            stated, 1e-6 if learning else limit, f"after {len(options['batches'])} batches; {told}", answer.label
        )


def ep_steps(context: Context, method: str, problem: Problem) -> Iterable[Outcome]:
    """epgpc: sites of each batch, side by side, damped."""
    asked = question(method, problem)
    limit, why = identity_limit(asked)
    sites = np.zeros((2, problem.n))
    for rows in batches(problem):
        new = sites.copy()
        new[:, rows] = (1.0 - _DAMPING) * sites[:, rows] + _DAMPING * ep_matched(asked, sites, rows)[:, rows]
        sites = new
    P, h = ep_distribution(Objective(asked), sites)
    V = inverse(P)
    for witness in _WITNESSES:
        answer = context.solve(witness, method, asked, batches=batches(problem), damping=_DAMPING)
        stated = {
            "site_precision": (answer.local["site_precision"], sites[0]),
            "site_shift": (answer.local["site_shift"], sites[1]),
            "inducing_mean": (answer.inducing_mean, (V @ h)[None]),
            "inducing_cov": (answer.inducing_cov, V[None]),
            "log_evidence": (answer.log_evidence, ep_evidence(asked, sites)),
        }
        yield from apart(stated, 10.0 * limit, f"moments by a trapezoidal rule; {why}", answer.label)


def adadelta(context: Context, method: str, problem: Problem) -> Iterable[Outcome]:
    """svi: AdaDelta along differences of the scaled bound in the mean and the lower triangle of the Cholesky factor."""
    m = len(Objective(problem).K)
    low = np.tril_indices(m)
    where = np.concatenate([np.zeros(m), np.eye(m)[low]])
    squares, moves = np.zeros(where.size), np.zeros(where.size)

    def at(x: Array) -> Distribution:
        C = np.zeros((m, m))
        C[low] = x[m:]
        return Distribution(x[:m], C @ C.T)

    for rows in batches(problem):
        start = where
        gradient = derivatives_at_zero(lambda x, rows=rows, start=start: elbo(problem, at(start + x), rows), where.size)  # type: ignore[misc]
        squares = 0.95 * squares + 0.05 * gradient**2
        step = np.sqrt(moves + 1e-6) / np.sqrt(squares + 1e-6) * gradient
        moves = 0.95 * moves + 0.05 * step**2
        where = where + step
    q = at(where)
    for witness in _WITNESSES:
        answer = context.solve(witness, method, problem, batches=batches(problem))
        stated = {
            "inducing_mean": (answer.inducing_mean, q.mean[None]),
            "inducing_cov": (answer.inducing_cov, q.cov[None]),
            "log_evidence": (answer.log_evidence, elbo(problem, q)),
        }
        yield from apart(stated, 1e-6, "derivatives by differences of 1e-4 leave 1e-8", answer.label)


# -- registration ----------------------------------------------------------------------------------------------------


def _add(
    kind: str,
    method: str,
    quantity: str,
    sentence: str,
    function: Callable[..., Iterable[Outcome]],
    problems: tuple[str, ...],
    full: tuple[str, ...] = (),
    **options: Any,
) -> None:
    @check(f"{kind}/{method}/{quantity}", paper=PAPERS[method], question=sentence, problems=problems, full=full)
    def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
        return function(context, method, problem, **options)


_SMALL, _SPARSE = ("two-points", "three-points-fitc"), ("three-points-fitc",)
for _method in PAPERS:
    _add("limit", _method, "predictions", "Predictions are those of the reported q(u).", predictions,
         *((_SPARSE, ("toy-sparse",)) if _method == "x-gpc-svi" else (_SMALL, ("toy", "toy-sparse"))))  # fmt: skip
    _add("derivative", _method, "gradient_definition", "The gradient is that of the judge's own objective.", gradients,
         _SPARSE if _method == "x-gpc-svi" else ("three-points", *_SPARSE))  # fmt: skip
for _method in ("x-gpc", "svgpc"):
    _add("derivative", _method, "stationary", (
        "The judge's own objective is stationary at the answer, and equal to it."
    ),
         stationary, _SMALL, ("three-points",))  # fmt: skip
_add("limit", "epgpc", "definition", "Sites, q and log Z are those of expectation propagation.", ep_definition, _SMALL,
     ("three-points",))  # fmt: skip
for _method in ("x-gpc-svi", "svgpc"):
    _add("limit", _method, "batch_definition", "Batches move q(u) as the definition says.", steps, _SPARSE,
         ("toy-sparse",))  # fmt: skip
    _add("limit", _method, "learning_definition", "Steps on the prior are Adam's along the scaled bound.", steps,
         _SPARSE, learning=True)  # fmt: skip
_add("limit", "epgpc", "batch_definition", "Batches move sites as the definition says.", ep_steps, _SPARSE,
     ("toy-sparse",))  # fmt: skip
_add("limit", "svi", "batch_definition", "Steps are AdaDelta's along the scaled bound.", adadelta, _SPARSE)
