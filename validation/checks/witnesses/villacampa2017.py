"""villacampa2017: ep, sep, gfitc and vi-robust, by both witnesses, from definitions and in limits.

Two methods have two readings each: ep with a factor for every pair of classes or for every datum, sep with one count
of factors for all classes or one a class. What they are next to their truths is in `villacampa2017_truth`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad_vec
from scipy.stats import norm

from validation.checks.apart import apart, fields, gradients_apart, unconverged
from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.definitions.differences import parameter_differences
from validation.checks.definitions.predictive_integrals import unit_mass
from validation.checks.subjects import Subject, exact
from validation.checks.witnesses import bound, identity
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import gradient_limit, gradient_unit, identity_limit, relative_difference

PAPER = "villacampa2017"
WITNESSES = ("reference", "fast")
PARAMETERS = ("variance", "lengthscales", "noise", "Z")


class Setup(NamedTuple):
    """A method in one of its readings; `prefix` tells their checks apart, `end` the problems that it answers."""

    method: str
    prefix: str = ""
    options: Mapping[str, Any] = MappingProxyType({})
    end: str = "-threshold"

    def solve(self, context: Context, witness: str, problem: Problem, **more: Any) -> Solution:
        """The witness's answer."""
        return context.solve(witness, self.method, problem, **self.options, **more)

    def both(self, context: Context, problem: Problem, **more: Any) -> tuple[Solution, Solution]:
        """Both witnesses' answers."""
        left, right = (self.solve(context, witness, problem, **more) for witness in WITNESSES)
        return left, right


EP, DATUM = Setup("ep"), Setup("ep", "datum_", MappingProxyType({"factors": "datum"}))
SEP, PER_CLASS = Setup("sep"), Setup("sep", "per_class_", MappingProxyType({"count": "per-class"}))
GFITC, VI = Setup("gfitc"), Setup("vi-robust", end="-errors")
SETUPS = (EP, DATUM, SEP, PER_CLASS, GFITC, VI)


# -- identity ------------------------------------------------------------------------------------------------------


def derivatives(solution: Solution, name: str) -> NDArray[np.float64]:
    """A gradient in units of log Z for each logarithm."""
    assert solution.gradients is not None
    return np.asarray(solution.gradients[name] * gradient_unit(solution.problem, name))


def same_gradient(context: Context, setup: Setup, problem: Problem, name: str) -> Iterable[Outcome]:
    """One derivative of both witnesses at their fixed points."""
    left, right = setup.both(context, problem)
    yield from unconverged((left, right))
    yield gradients_apart(left, right, name, *gradient_limit(*identity_limit(problem)))


def same_field(
    context: Context, setup: Setup, problem: Problem, extract: Callable[[Solution], Any]
) -> Iterable[Outcome]:
    """One quantity of both witnesses at their fixed points."""
    left, right = setup.both(context, problem)
    yield from unconverged((left, right))
    a, b = extract(left), extract(right)
    limit, why = identity_limit(problem)
    yield Compared(np.inf if a is None or b is None else relative_difference(a, b), limit, why, *WITNESSES)
    if extract is identity.MASS:
        for solution in (left, right):
            yield from unit_mass(solution)


def same_local(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """Sites, tied factors and normalisers of both witnesses at their fixed points."""
    left, right = setup.both(context, problem)
    limit, why = identity_limit(problem)
    assert left.local.keys() == right.local.keys()
    pairs = {name: (left.local[name], right.local[name]) for name in sorted(left.local)}
    yield from apart(pairs, limit, why, *WITNESSES, floor=0.01)


def batches(problem: Problem, size: int = 5, count: int = 4) -> list[list[int]]:
    """A seeded list of mini-batches; the last one meets indices of the first again."""
    rng = np.random.default_rng(2017)
    drawn = [sorted(rng.choice(problem.n, min(size, problem.n), replace=False).tolist()) for _ in range(count - 1)]
    return [*drawn, drawn[0][::-1]]


def same_steps(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """After a seeded list of mini-batches, with and without a step of every hyper-parameter after each."""
    runs: list[dict[str, Any]] = [{}, {"learn": PARAMETERS, "rate": 0.02}]
    if setup.method != "vi-robust":
        runs[1] |= {"optimizer": "adaptive"}
        runs.append(runs[1] | {"optimizer": "adam", "scheme": "inner-exact"})
    if setup.method == "ep":
        runs.append({"schedule": "sequential"})
    limit, why = identity_limit(problem)
    for more in runs:
        left, right = setup.both(context, problem, batches=batches(problem), trace=True, **more)
        message = (
            ", ".join(f"{key}={value}" for key, value in more.items() if key not in ("learn", "rate")) or "q alone"
        )
        pairs = {name: (getattr(left, name), getattr(right, name)) for name in ("log_evidence", "trace", "residual",
                 "inducing_mean", "inducing_cov", "probabilities")}  # fmt: skip
        if "learn" in more:
            pairs |= {name: (getattr(left.problem, name), getattr(right.problem, name)) for name in PARAMETERS}
        worst = max(pairs, key=lambda name: relative_difference(*pairs[name]))
        yield Compared(
            relative_difference(*pairs[worst]),
            limit,
            f"{message}: four batches of five data, one step after each; of {', '.join(pairs)} {worst} is worst; {why}",
            *WITNESSES,
        )


# -- exactness: cavities, tilted moments and sites from their definition ---------------------------------------------


class Linear(NamedTuple):
    """What the data see of one class's inducing values, by dense algebra."""

    K: NDArray[np.float64]  # (m, m)
    upsilon: NDArray[np.float64]  # (n, m)
    cond_var: NDArray[np.float64]  # (n,)


def linear(problem: Problem, X: NDArray[np.float64]) -> list[Linear]:
    """K_ZZ, K_ZZ^-1 k(Z, x) and the variance of f(x) given u of each class."""
    assert problem.Z is not None
    results = []
    for k in range(problem.n_classes):
        Z, scale, variance = problem.Z[k], problem.lengthscales[k], problem.variance[k]
        K = variance * np.exp(-0.5 * (((Z[:, None] - Z[None]) / scale) ** 2).sum(-1)) + problem.jitter[k] * np.eye(
            len(Z)
        )
        cross = variance * np.exp(-0.5 * (((X[:, None] - Z[None]) / scale) ** 2).sum(-1))
        upsilon = np.linalg.solve(K, cross.T).T
        results.append(Linear(K, upsilon, variance + problem.noise[k] - (cross * upsilon).sum(1)))
    return results


class Cavity(NamedTuple):
    """Mean and variance of upsilon'u of one class without the site of a factor, and its marginal under q."""

    mean: float
    var: float
    q_mean: float
    q_var: float


def cavity(solution: Solution, prior: list[Linear], i: int, k: int, c1: float, c2: float) -> Cavity:
    """By (m, m) matrices: q divided by exp(-c1 w^2/2 + c2 w), w = upsilon'u."""
    assert solution.inducing_mean is not None
    assert solution.inducing_cov is not None
    v, m, V = prior[k].upsilon[i], solution.inducing_mean[k], solution.inducing_cov[k]
    precision = np.linalg.inv(V)
    cov = np.linalg.inv(precision - c1 * np.outer(v, v))
    mean = cov @ (precision @ m - c2 * v)
    return Cavity(float(v @ mean), float(v @ cov @ v), float(v @ m), float(v @ V @ v))


def tilted_pair(label: Cavity, other: Cavity, cond: float) -> NDArray[np.float64]:
    """log Z, means and variances of (w_y, w_k) under the two cavities times Phi((w_y - w_k)/sqrt(cond)), by a sum.

    The integrand's Fourier transform falls as a Gaussian of the narrower of cavity and step, so that a trapezoidal rule
    of 0.6 of that leaves exp(-(2 pi/0.6)^2/2), nothing.
    """
    grids, densities = [], []
    for side in (label, other):
        sd = np.sqrt(side.var)
        count = int(np.ceil(18.0 * sd / (0.6 * min(sd, np.sqrt(cond)))))
        w = side.mean + 9.0 * sd * np.linspace(-1.0, 1.0, count + 1)
        grids.append(w)
        densities.append(18.0 * sd / count * norm.pdf(w, side.mean, sd))
    joint = np.outer(*densities) * norm.cdf((grids[0][:, None] - grids[1]) / np.sqrt(cond))
    Z = joint.sum()
    out = [np.log(Z)]
    for axis, w in enumerate(grids):
        p = joint.sum(axis=1 - axis) / Z
        mean = p @ w
        out += [mean, p @ (w - mean) ** 2]
    return np.array(out)


def pair_sites(context: Context, problem: Problem) -> Iterable[Outcome]:
    """At the fixed point q has the moments of cavity times factor, for every factor and both of its classes."""
    prior = linear(problem, problem.X)
    for witness in WITNESSES:
        answer = EP.solve(context, witness, problem)
        yield from unconverged((answer,))
        sites, results, expected = answer.local, [], []
        for i, y in enumerate(problem.y):
            for k in (k for k in range(problem.n_classes) if k != y):
                label = cavity(answer, prior, i, y, sites["c1_label"][i, k], sites["c2_label"][i, k])
                other = cavity(answer, prior, i, k, sites["c1_other"][i, k], sites["c2_other"][i, k])
                expected.append(tilted_pair(label, other, prior[y].cond_var[i] + prior[k].cond_var[i]))
                results.append([sites["log_tilted_norm"][i, k], label.q_mean, label.q_var, other.q_mean, other.q_var])
        yield Compared(
            relative_difference(results, expected),
            1e-8,
            f"log Z, means and variances of both projections of {len(results)} factors: cavities by matrices, tilted "
            "moments by a trapezoidal rule each way, which leaves 1e-12; fixed points to 1e-10",
            witness,
            "definition",
        )


def datum_sites(context: Context, problem: Problem) -> Iterable[Outcome]:
    """The same for one factor a datum: moments of the latent values where the label's is the largest."""
    prior = linear(problem, problem.X)
    for witness in WITNESSES:
        answer = DATUM.solve(context, witness, problem)
        yield from unconverged((answer,))
        assert answer.latent_mean is not None
        assert answer.latent_cov is not None
        pairs: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in ("latent values", "projections")}
        for i, y in enumerate(problem.y):
            cavities = [
                cavity(answer, prior, i, k, answer.local["site_precision"][i, k], answer.local["site_shift"][i, k])
                for k in range(problem.n_classes)
            ]
            s = np.array([each.cond_var[i] for each in prior])
            e, v = (np.array([getattr(each, name) for each in cavities]) for name in ("mean", "var"))
            log_norm, mean, var = largest(int(y), e, s + v)
            pairs["latent values"][0].append([answer.local["log_tilted_norm"][i], *answer.latent_mean[i],
                                              *np.diag(answer.latent_cov[i])])  # fmt: skip
            pairs["latent values"][1].append([log_norm, *mean, *var])
            # the mean of w given f is e + v (f - e)/(s + v)
            gain = v / (s + v)
            pairs["projections"][0].append([[each.q_mean, each.q_var] for each in cavities])
            pairs["projections"][1].append(np.stack([e + gain * (mean - e), v - gain * v + gain**2 * var], axis=1))
        for name, (value, expected) in pairs.items():
            yield Compared(
                relative_difference(value, expected),
                1e-8,
                f"{name}: cavities by matrices, moments of a Gaussian where one value is the largest by adaptive "
                "quadrature to 1e-11; fixed points to 1e-10",
                witness,
                "definition",
                f"relative difference of moments of {name}",
            )


def largest(
    y: int, mean: NDArray[np.float64], var: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """log P(f_y is the largest), means and variances given that, f_j independent: one adaptive integral over f_y."""
    sd = np.sqrt(var)

    def integrand(t: float) -> NDArray[np.float64]:
        z = (t - mean) / sd
        P, below = norm.cdf(z), norm.pdf(z)
        P[y] = 1.0
        # E[f 1(f < t)] and E[(f - mean)^2 1(f < t)] of each value
        first, second = mean * P - sd * below, var * (P - z * below)
        first[y], second[y] = t, (t - mean[y]) ** 2
        rest = np.array([np.prod(np.delete(P, j)) for j in range(mean.size)])
        return np.asarray(norm.pdf(t, mean[y], sd[y]) * np.concatenate([[np.prod(P)], rest * first, rest * second]))

    low, high = mean[y] - 12.0 * sd[y], mean[y] + 12.0 * sd[y]
    value = quad_vec(integrand, low, high, epsabs=1e-13, epsrel=1e-12, points=np.clip(mean, low, high))[0]
    C = mean.size
    first, second = value[1 : 1 + C] / value[0], value[1 + C :] / value[0]
    return float(np.log(value[0])), first, second - (first - mean) ** 2


# -- derivative: gradients against finite differences
# ---------------------------------------------------------------------


_STEP = 1e-3


def differences(value: Callable[[Problem], float], problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Derivatives of value(problem) in each parameter, in units: central differences, extrapolated.

    The unit of the noise is the whole variance, so that a step is far more than 0.1 % of a small noise: one difference
    alone is off by 4e-5 on toy-2-sparse-threshold.
    """
    problem = problem.replace(X_test=None, y_test=None)
    results = {}
    for name in PARAMETERS:
        whole, half_step = (parameter_differences(value, problem, name, step) for step in (_STEP, 0.5 * _STEP))
        results[name] = (4.0 * half_step - whole) / 3.0
    return results


def against_differences(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """Gradients at the fixed point against differences of log Z_q, iterated to its fixed point each time."""

    def value(moved: Problem) -> float:
        solution = setup.solve(context, "fast", moved, gradients=False)
        assert solution.log_evidence is not None
        return solution.log_evidence

    expected = differences(value, problem)
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem)
        yield from unconverged((answer,))
        for name in PARAMETERS:
            yield Compared(
                relative_difference(derivatives(answer, name), expected[name], 0.01),
                1e-6,
                f"gradient in {name}: steps of 0.1 % and of half that, extrapolated, leave 1e-9, a missing term 1e-2",
                witness,
                "differences of log Z, iterated anew",
            )


_ANOTHER = 0.1  # of the derivative's norm: a rule that is further off is no derivative; those of ep are off by 1e-6


def sep_gradients(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """What (10) and the exact inner gradient are for SEP: no derivatives of its log Z_q at the fixed point."""

    def value(moved: Problem) -> float:
        solution = setup.solve(context, "fast", moved, gradients=False)
        assert solution.log_evidence is not None
        return solution.log_evidence

    expected = np.concatenate([part.ravel() for part in differences(value, problem).values()])
    for rule in ("10", "exact"):
        for witness in WITNESSES:
            answer = setup.solve(context, witness, problem, gradient_rule=rule)
            yield from unconverged((answer,))
            given = np.concatenate([derivatives(answer, name).ravel() for name in PARAMETERS])
            distance = float(np.linalg.norm(given - expected) / np.linalg.norm(expected))
            yield Compared(
                -distance,
                -_ANOTHER,
                f'gradient_rule="{rule}": off by {distance:.3g} of the derivative of log Z_q at its fixed point, '
                "which is not stationary in tied factors: (10) is another direction",
                witness,
                "differences of log Z, iterated anew",
                "minus the deviation, of the derivative's norm",
            )


# -- limits ----------------------------------------------------------------------------------------------------------


def _pairs(left: Solution, right: Solution, names: Iterable[str], limit: float, why: str) -> Iterable[Outcome]:
    yield from apart(fields(left, right, names), limit, why, left.label, right.label)


_DISTRIBUTION = (
    "log_evidence",
    "inducing_mean",
    "inducing_cov",
    "test_latent_mean",
    "test_latent_cov",
    "probabilities",
)


def two_classes(context: Context, problem: Problem) -> Iterable[Outcome]:
    """With two classes and no labelling errors a datum is a pair, and gfitc integrates out the same latent values."""
    limit, why = identity_limit(problem)
    for a, b in (("reference", "fast"), ("fast", "reference")):
        left = EP.solve(context, a, problem)
        for setup in (GFITC, DATUM):
            right = setup.solve(context, b, problem)
            yield from unconverged((left, right))
            yield from _pairs(
                left, right, _DISTRIBUTION, limit, f"two classes: one factor a datum, one fixed point; {why}"
            )
    left, right = EP.solve(context, "reference", problem), GFITC.solve(context, "fast", problem)
    for name in PARAMETERS:
        assert left.log_evidence is not None
        yield Compared(
            relative_difference(derivatives(left, name), derivatives(right, name), 0.01 * abs(left.log_evidence)),
            1e-6,
            f"gradient in {name}: one function; small differences of large terms at fixed points to 1e-10",
            left.label,
            right.label,
            f"relative difference of the gradient in {name}",
        )


def inducing_at_data(context: Context, problem: Problem) -> Iterable[Outcome]:
    """One factor a datum with Z = X and unit noise: qiep, the multinomial probit with independent classes.

    u is the latent function at the data, and the unit noise of the multinomial probit is the variance of f given u.
    """
    probit = problem.replace(likelihood="multinomial-probit", noise=0.0, jitter=0.0)
    threshold = probit.replace(likelihood="threshold", noise=1.0, Z=problem.X, prior_model="fitc")
    limit, why = identity_limit(probit)
    for a, b in (("reference", "fast"), ("fast", "reference")):
        left = DATUM.solve(context, a, threshold)
        right = context.solve(b, "qiep", probit, nodes=60, prediction_nodes=60)
        yield from unconverged((left, right))
        assert left.inducing_mean is not None
        assert left.inducing_cov is not None
        assert right.latent_mean is not None
        assert right.latent_cov is not None
        pairs = {
            "log_evidence": (left.log_evidence, right.log_evidence),
            "inducing_mean": (left.inducing_mean.T, right.latent_mean),
            "inducing_cov": (np.einsum("lii->il", left.inducing_cov), np.einsum("nll->nl", right.latent_cov)),
            "probabilities": (left.probabilities, right.probabilities),
        }
        yield from apart(
            pairs,
            limit,
            f"inducing points at the data are the data; 60 nodes of qiep leave less; {why}",
            left.label,
            right.label,
        )


# -- invariance ------------------------------------------------------------------------------------------------------


def other_damping(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """Damping moves no fixed point."""
    limit, why = identity_limit(problem)
    for witness in WITNESSES:
        left = setup.solve(context, witness, problem)
        right = setup.solve(context, witness, problem, damping=0.9)
        yield from unconverged((left, right))
        yield from _pairs(left, right, _DISTRIBUTION, limit, f"damping 0.9 and 0.5; {why}")


def reordered(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """The data in another order, the classes with other names."""
    order, rename = np.random.default_rng(11).permutation(problem.n), np.roll(np.arange(problem.n_classes), 1)
    new_name = np.argsort(rename)  # new class k is old class rename[k]
    shuffled = problem.replace(X=problem.X[order], y=problem.y[order])
    fields = ("variance", "lengthscales", "noise", "jitter", "Z")
    renamed = problem.replace(y=new_name[problem.y], y_test=None, **{k: getattr(problem, k)[rename] for k in fields})
    limit, why = identity_limit(problem)
    for witness in WITNESSES:
        plain, other, others = (setup.solve(context, witness, asked) for asked in (problem, shuffled, renamed))
        yield from unconverged((plain, other, others))
        for name, left, right, what in (
            ("log_evidence", other.log_evidence, plain.log_evidence, "data"),
            ("latent_mean", other.latent_mean, plain.latent_mean[order], "data"),  # type: ignore[index]
            ("probabilities", other.probabilities, plain.probabilities, "data"),
            ("log_evidence", others.log_evidence, plain.log_evidence, "classes"),
            ("inducing_mean", others.inducing_mean, plain.inducing_mean[rename], "classes"),  # type: ignore[index]
            ("probabilities", others.probabilities, plain.probabilities[:, rename], "classes"),  # type: ignore[index]
        ):
            yield Compared(
                relative_difference(left, right),
                limit,
                f"{name}: {what} come in no order; {why}",
                witness,
                f"{what} in another order",
                f"relative difference of {name}",
            )


# -- bound -----------------------------------------------------------------------------------------------------------


def below_full(context: Context, problem: Problem) -> Iterable[Outcome]:
    """vi-robust bounds log Z of the full prior, without the jitter of K_ZZ."""
    full = problem.replace(Z=None, prior_model="full", jitter=0.0)
    return bound.below(context, Subject("vi-robust", PAPER, ""), problem, exact(context, full, 6.0))


# -- registration ----------------------------------------------------------------------------------------------------

_Function = Callable[[Context, Problem], Iterable[Outcome]]


def add(id: str, question: str, function: _Function, problems: tuple[str, ...], full: tuple[str, ...] = ()) -> None:
    """Register a check of the paper."""

    def asked(context: Context, problem: Problem) -> Iterable[Outcome]:
        return function(context, problem)

    # the module that a process imports to find the check again
    asked.__module__ = function.__module__
    check(id, paper=PAPER, question=question, problems=problems, full=full)(asked)


def _of(function: Callable[..., Iterable[Outcome]], setup: Setup, *more: Any) -> _Function:
    return lambda context, problem: function(context, setup, problem, *more)


for _setup in SETUPS:
    _few, _toy = f"two-points-3-sparse{_setup.end}", f"toy-3-sparse{_setup.end}"
    _two, _steep = f"toy-2-sparse{_setup.end}", f"toy-4-sparse-steep{_setup.end}"
    _where = f"{{}}/{_setup.method}/{_setup.prefix}{{}}"
    # these take seconds beyond a few data
    _slow = _setup in (GFITC, DATUM, PER_CLASS)
    _quick, _full = (_few, _two), (_toy, _steep)
    if not _slow:
        _quick, _full = (_few, _toy), (_two, _steep)
    for _name, _question in identity.FIELDS.items():
        add(_where.format("identity", _name), _question, _of(same_field, _setup, identity.field(_name)), _quick, _full)
    for _name, _question in identity.GRADIENTS.items():
        add(_where.format("identity", f"gradient_{_name}"), _question, _of(same_gradient, _setup, _name), _quick, _full)
    add(_where.format("identity", "sites"), (
        "Both witnesses find the same sites and normalisers."
    ), _of(same_local, _setup),
        _quick, _full)  # fmt: skip
    if _setup is not GFITC:
        add(_where.format("identity", "batches"), "Both witnesses are at the same place after the same mini-batches.",
            _of(same_steps, _setup), (_toy,), (_steep,))  # fmt: skip
    if _setup.method != "sep":
        add(_where.format("derivative", "gradients"), "The gradient is the derivative of log Z, iterated anew.",
            _of(against_differences, _setup), (_few,), (_two,))  # fmt: skip
    if _setup is not VI:
        add(_where.format("invariance", "damping"), "Damping does not move the fixed point.",
            _of(other_damping, _setup), (_few,), (_two,))  # fmt: skip
    add(_where.format("invariance", "order"), (
        "The answer does not depend on the order of the data or the names of the classes."
    ),
        _of(reordered, _setup), (_few,), (_two,))  # fmt: skip

add("exactness/ep/site_definition", "q has the moments of cavity times factor, by their definition.", pair_sites,
    ("two-points-3-sparse-threshold",), ("toy-2-sparse-threshold",))  # fmt: skip
add("exactness/ep/datum_site_definition", "q has the moments of cavity times factor, by their definition.",
    datum_sites, ("two-points-3-sparse-threshold",), ("toy-3-sparse-threshold",))  # fmt: skip
for _setup in (SEP, PER_CLASS):
    _problems: tuple[tuple[str, ...], ...] = (("two-points-3-sparse-threshold",), ())
    add(f"discrepancy/sep/{_setup.prefix}gradients", (
        "(10) differs from the derivative of the log Z of sep by as much as recorded."
    ),
        _of(sep_gradients, _setup), *(_problems if _setup is SEP else _problems[::-1]))  # fmt: skip
add("limit/ep/two_classes", "With two classes, ep, one factor a datum, and gfitc are one method.", two_classes,
    ("toy-2-sparse-threshold",))  # fmt: skip
add(
    "limit/ep/inducing_at_data",
    "With Z = X and unit noise, one factor a datum is qiep.",
    inducing_at_data,
    ("two-points-3",),
)
add("bound/vi-robust/quadrature", "The lower bound stays below log Z of the full prior.", below_full,
    ("two-points-3-sparse-errors",))  # fmt: skip
