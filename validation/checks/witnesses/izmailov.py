"""izmailov2016: svi, vi-jj, vi-jj-full, vi-jj-hybrid and vi-taylor, witness by witness, below log Z, and in limits.

The judge has its own form of what each method makes stationary (`Objective`): dense matrices and a trapezoidal rule.
Both witnesses are held against its value and its derivatives, so that a mistake which both make shows too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from validation.checks.apart import apart, fields, gradients_apart
from validation.checks.core import Compared, Context, Outcome
from validation.checks.subjects import FEW, SUBJECTS, THIRD, TINY, Asked, Subject, add, as_probit, truth
from validation.checks.witnesses import bound, identity, invariance
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import identity_limit, relative_difference

Array = NDArray[np.float64]

SVI, JJ, JJ_FULL, JJ_HYBRID, TAYLOR = (
    Subject(method, "izmailov2016", "gibbs-logit")
    for method in ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")
)
LOCAL_BOUNDS = (JJ, JJ_FULL, JJ_HYBRID)
METHODS = (SVI, *LOCAL_BOUNDS, TAYLOR)
X_GPC = SUBJECTS[0]
STEPS = 50
_WITNESSES = ("reference", "fast")
_QUICK = (*TINY, "toy")
_FULL = ("toy-steep", "toy-sparse", "iris", "wine")
_SPARSE = ("three-points-fitc",)
_SMOOTHNESS = (0.5, 1.5, 2.3)
_STATE = ("log_evidence", "latent_mean", "latent_cov", "inducing_mean", "inducing_cov", "test_latent_mean",
          "test_latent_cov", "probabilities")  # fmt: skip


def as_matern(problem: Problem, smoothness: float) -> Problem:
    """The problem with a Matérn kernel of this smoothness."""
    return problem.replace(name=f"{problem.name}-matern-{smoothness:g}", kernel="matern", smoothness=smoothness)


def same(
    problem: Problem, left: Solution, right: Solution, why: str, names: tuple[str, ...] = _STATE, *, label: str = ""
) -> Iterable[Outcome]:
    """Fields of two solutions that must be equal to rounding; both must have converged."""
    limit, condition = identity_limit(problem)
    for solution in (left, right):
        if not solution.converged:
            yield Compared(np.inf, 0.0, "an iteration that did not converge has no fixed point", solution.label, "-")
            return
    yield from apart(fields(left, right, names), limit, f"{why}; {condition}", f"{left.label}{label}", right.label)


# -- identity ----------------------------------------------------------------------------------------------------


def variants(context: Context, subject: Subject, asked: Iterable[Problem]) -> Iterable[Outcome]:
    """Both witnesses on other kernels or links: every field, and the gradients."""
    for problem in asked:
        left, right = (context.solve(witness, subject.method, problem) for witness in _WITNESSES)
        yield from same(problem, left, right, problem.name)
        for name in ("variance", "lengthscales", "noise"):
            yield from gradient(context, subject, problem, name)


def gradient(context: Context, subject: Subject, problem: Problem, name: str) -> Iterable[Outcome]:
    """One derivative of both witnesses, on the scale of the objective where it nearly vanishes."""
    left, right = (context.solve(witness, subject.method, problem) for witness in _WITNESSES)
    limit, why = identity_limit(problem)
    told = f"{problem.name}, by its unit: against 1 % of the objective at least, terms of that size cancel; {why}"
    yield gradients_apart(left, right, name, limit, told)


def steps(context: Context, problem: Problem, learn: tuple[str, ...]) -> Iterable[Outcome]:
    """Both witnesses after fifty steps of AdaDelta on the same batches."""
    rng = np.random.default_rng(20161116)
    batches = [rng.choice(problem.n, int(rng.integers(1, min(problem.n, 20) + 1)), replace=False) for _ in range(STEPS)]
    left, right = (
        context.solve(witness, SVI.method, problem, batches=batches, learn=learn, gradients=False)
        for witness in _WITNESSES
    )
    limit, why = identity_limit(problem)
    pairs = fields(left, right, _STATE)
    pairs |= {f"learned {name}": pair for name, pair in fields(left.problem, right.problem, learn).items()}
    told = f"after {STEPS} steps on the same batches: no chance is left; {why}"
    yield from apart(pairs, limit, told, *_WITNESSES)


def learned(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Where both searches by L-BFGS-B end."""
    learn = ("variance", "lengthscales")
    left, right = (context.solve(witness, subject.method, problem, learn=learn) for witness in _WITNESSES)
    for solution in (left, right):
        if not solution.converged:
            yield Compared(np.inf, 0.0, "a search that did not converge has no optimum", solution.label, "-")
            return
    yield from apart(
        fields(left.problem, right.problem, learn),
        1e-4,
        "a relative change of 1e-10 in a bound of 15 nat leaves 1e-5 to 1e-4 over curvatures of a tenth",
        *_WITNESSES,
    )
    yield Compared(
        relative_difference(left.log_evidence, right.log_evidence),
        1e-8,
        "log_evidence: at a maximum an error of 1e-4 in the parameters leaves its square",
        *_WITNESSES,
        "relative difference of log_evidence",
    )


# -- the judge's own form of each objective ------------------------------------------------------------------------

# E g(f) for f = m + S z by the trapezoidal rule: for log σ the error is exp(-2π·π/(S h)), below 1e-16 for S < 100,
# and beyond 10 the normal density is below 1e-22
_NODES = np.linspace(-10.0, 10.0, 4001)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.sqrt(2.0 * np.pi) * (_NODES[1] - _NODES[0])


def _log_sigmoid(z: Array) -> Array:
    return -np.logaddexp(0.0, -z)


class Objective:
    """The bound (11), those of sections 4.1 and 4.2, and the log posterior of the projected model, by dense matrices.

    Squared exponential kernel, logistic link. q(u) = N(mean, C Cᵀ); u = f for a full GP.
    """

    def __init__(self, problem: Problem) -> None:
        variance, lengthscales = float(problem.variance[0]), problem.lengthscales[0]

        def kernel(a: Array, b: Array) -> Array:
            gap = (a[:, None] - b[None]) / lengthscales
            return np.asarray(variance * np.exp(-0.5 * (gap * gap).sum(axis=2)))

        noise, jitter = float(problem.noise[0]), float(problem.jitter[0])
        self.kappa: Array
        self.cond_var: Array
        self.y = 2.0 * problem.y - 1.0
        if problem.Z is None:
            self.K = kernel(problem.X, problem.X) + (noise + jitter) * np.eye(problem.n)
            self.kappa, self.cond_var = np.eye(problem.n), np.zeros(problem.n)
        else:
            self.K = kernel(problem.Z[0], problem.Z[0]) + jitter * np.eye(len(problem.Z[0]))
            cross = kernel(problem.X, problem.Z[0])
            self.kappa = np.asarray(np.linalg.solve(self.K, cross.T).T, dtype=np.float64)
            self.cond_var = variance + noise - np.einsum("nm,nm->n", self.kappa, cross)
        self.inverse: Array = np.asarray(np.linalg.inv(self.K), dtype=np.float64)
        self.log_det = np.linalg.slogdet(self.K)[1]

    def moments(self, mean: Array, C: Array) -> tuple[Array, Array]:
        """Mean and variance of every f_i."""
        whitened = self.kappa @ C
        return self.kappa @ mean, self.cond_var + (whitened * whitened).sum(axis=1)

    def divergence(self, mean: Array, C: Array) -> float:
        """KL(q(u) || p(u))."""
        trace, log_det = np.sum(self.inverse * (C @ C.T)), 2.0 * np.log(np.abs(np.diagonal(C))).sum()
        return float(0.5 * (self.log_det - log_det - len(mean) + trace + mean @ self.inverse @ mean))

    def elbo(self, mean: Array, C: Array) -> float:
        """(11) with every constant."""
        m, v = self.moments(mean, C)
        f = m[:, None] + np.sqrt(v)[:, None] * _NODES
        return float((_log_sigmoid(self.y[:, None] * f) @ _WEIGHTS).sum()) - self.divergence(mean, C)

    def local_bound(self, mean: Array, C: Array, xi: Array) -> float:
        """J(μ, Σ, ξ) with λ(ξ) = tanh(ξ/2)/(4ξ)."""
        m, v = self.moments(mean, C)
        data = _log_sigmoid(xi) + 0.5 * (self.y * m - xi) - np.tanh(0.5 * xi) / (4.0 * xi) * (m * m + v - xi * xi)
        return float(data.sum()) - self.divergence(mean, C)

    def log_posterior(self, u: Array) -> float:
        """log p(u) Π p(y_i | κ_i u), up to a constant."""
        return float(_log_sigmoid(self.y * (self.kappa @ u)).sum() - 0.5 * u @ self.inverse @ u)

    def expanded(self, mean: Array, C: Array, xi: Array) -> float:
        """The approximate bound of section 4.2."""
        m, v = self.moments(mean, C)
        z = self.y * xi
        right = np.exp(_log_sigmoid(z))
        data = _log_sigmoid(z) + self.y * (1.0 - right) * (m - xi) - 0.5 * right * (1.0 - right) * ((m - xi) ** 2 + v)
        return float(data.sum()) - self.divergence(mean, C)


def _inducing(solution: Solution) -> tuple[Array, Array]:
    assert solution.inducing_mean is not None
    assert solution.inducing_cov is not None
    return solution.inducing_mean[0], np.linalg.cholesky(solution.inducing_cov[0])


def of_vector(mean: Array, C: Array, vector: Array) -> tuple[Array, Array]:
    """μ + C a and C (I + T): coordinates in which q(u) has the size of one."""
    m = mean.size
    T = np.zeros((m, m))
    T[np.tril_indices(m)] = vector[m : m + m * (m + 1) // 2]
    return mean + C @ vector[:m], C @ (np.eye(m) + T)


def derivatives_at_zero(function: Callable[[Array], float], size: int, step: float = 1e-4) -> Array:
    """Central differences at zero."""
    return np.array([(function(step * e) - function(-step * e)) / (2.0 * step) for e in np.eye(size)])


def _objective(subject: Subject, problem: Problem, solution: Solution) -> Callable[[Array], float]:
    """What the method makes stationary, of the coordinates of `of_vector` and of log ξ where ξ is free."""
    judge = Objective(problem)
    mean, C = _inducing(solution)
    if subject is SVI:
        return lambda vector: judge.elbo(*of_vector(mean, C, vector))
    xi = np.asarray(solution.local["xi"])
    if subject is TAYLOR:
        return lambda vector: judge.expanded(*of_vector(mean, C, vector), xi)
    free = mean.size * (mean.size + 3) // 2
    return lambda vector: judge.local_bound(*of_vector(mean, C, vector), xi * np.exp(vector[free:]))


def stationary(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Value and derivatives of the judge's own objective at each witness's answer."""
    limit, why = identity_limit(problem)
    for witness in _WITNESSES:
        solution = context.solve(witness, subject.method, problem)
        function = _objective(subject, problem, solution)
        size = solution.inducing_mean.shape[1] if solution.inducing_mean is not None else 0
        size = size * (size + 3) // 2 + (problem.n if subject in LOCAL_BOUNDS else 0)
        yield Compared(
            relative_difference(solution.log_evidence, function(np.zeros(size))),
            limit,
            f"the objective at the reported q(u), every constant in it, by dense matrices; {why}",
            solution.label,
            "dense",
        )
        yield Compared(
            float(np.abs(derivatives_at_zero(function, size)).max()),
            1e-6,
            "in units of q(u) derivatives of order one are the rule; steps of 1e-4 leave 1e-8 times third derivatives, "
            "rounding leaves 1e-15 of some 10 nat over 1e-4",
            solution.label,
            "0",
            "largest entry of the gradient in the parameters of q",
        )


def projected_mode(context: Context, problem: Problem) -> Iterable[Outcome]:
    """vi-taylor: μ is the mode of p(u) Π p(y_i | κ_i u), Σ the inverse of its negative Hessian, ξ the values there."""
    judge = Objective(problem)
    limit, why = identity_limit(problem)
    for witness in _WITNESSES:
        solution = context.solve(witness, TAYLOR.method, problem)
        mean, C = _inducing(solution)
        m, h = mean.size, 1e-3

        def height(a: Array, mean: Array = mean, C: Array = C) -> float:
            return judge.log_posterior(mean + C @ a)

        yield Compared(
            float(np.abs(derivatives_at_zero(height, m)).max()),
            1e-6,
            "the derivative at the mode is zero; steps of 1e-4 leave 1e-8 times third derivatives",
            solution.label,
            "0",
            "largest entry of the gradient, in standard deviations",
        )
        axes = h * np.eye(m)
        hessian = [[(height(a + b) - height(a - b) - height(b - a) + height(-a - b)) / (4.0 * h * h) for b in axes]
                   for a in axes]  # fmt: skip
        yield Compared(
            float(np.abs(np.array(hessian) + np.eye(m)).max()),
            1e-5,
            "in units of Σ the negative Hessian is I; steps of 1e-3 leave 1e-6 times fourth derivatives of order one, "
            "rounding 1e-15 of some 10 nat over 1e-6",
            solution.label,
            "I",
            "largest difference of entries",
        )
        yield Compared(
            relative_difference(solution.local["xi"], judge.kappa @ mean),
            limit,
            f"ξ_i = m_i; {why}",
            solution.label,
            "κ μ",
        )


# -- bound -------------------------------------------------------------------------------------------------------


def below_svi(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Ĵ at its maximum lies below the maximum of (11)."""
    for witness in _WITNESSES:
        best = context.solve("fast" if witness == "reference" else "reference", SVI.method, problem)
        assert best.log_evidence is not None
        for subject in LOCAL_BOUNDS:
            solution = context.solve(witness, subject.method, problem)
            assert solution.log_evidence is not None
            yield Compared(
                solution.log_evidence - best.log_evidence,
                1e-9 * abs(best.log_evidence),
                "J lies below (11) at every q(u), so below its maximum, up to rounding",
                solution.label,
                best.label,
                "bound minus optimum, nat",
            )


# -- limit -------------------------------------------------------------------------------------------------------


def polya_gamma(context: Context, problem: Problem) -> Iterable[Outcome]:
    """vi-jj against x-gpc, within and across the witnesses."""
    limit, condition = identity_limit(problem)
    for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
        a, b = context.solve(left, JJ.method, problem), context.solve(right, X_GPC.method, problem)
        yield from same(problem, a, b, "with ξ = c Jaakkola and Jordan's bound is that of Pólya-Gamma augmentation")
        yield Compared(relative_difference(a.local["xi"], b.local["c"]), limit, f"ξ = c; {condition}", a.label, b.label)


def one_fixed_point(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """vi-jj-full or vi-jj-hybrid against vi-jj, nothing learned."""
    for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
        a, b = context.solve(left, subject.method, problem), context.solve(right, JJ.method, problem)
        yield from same(problem, a, b, "with the prior held all three maximise one bound")


def inducing_at_data(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Z = X against no Z, without noise or jitter."""
    full = problem.replace(Z=None, prior_model="full", noise=0.0, jitter=0.0)
    sparse = full.replace(Z=problem.X)
    for left, right in (("reference", "reference"), ("fast", "fast"), ("fast", "reference")):
        a, b = context.solve(left, subject.method, sparse), context.solve(right, subject.method, full)
        yield from same(sparse, a, b, "with Z = X the sparse model is the full one", label=", Z = X")


# -- registration ------------------------------------------------------------------------------------------------


def cancelling_labels(context: Context, subject: Subject, problem: Problem) -> Iterable[Outcome]:
    """Every input with both labels: q(u) has no mean by symmetry, and a fit must end there, where it is rounding."""
    X, n = problem.X, len(problem.X)
    pairs = problem.replace(
        name=f"{problem.name}-both-labels", X=np.concatenate([X, X]), y=np.repeat(np.arange(2), n)
    )  # fmt: skip
    deviation = float(np.sqrt(problem.variance[0]))
    for witness in _WITNESSES:
        solution = context.solve(witness, subject.method, pairs)
        mean, _ = _inducing(solution)
        size = float(np.abs(mean).max()) / deviation if solution.converged else np.inf
        why = f"{solution.iterations} iterations; the mean is zero by symmetry, left by steps in units of 1e-9"
        yield Compared(size, 1e-8, why, solution.label, "symmetry", "prior deviations")


_add = partial(add, __name__)


def _derivative_in(name: str) -> Asked:
    return lambda context, subject, problem: gradient(context, subject, problem, name)


for _subject in METHODS:
    for _name, _question in identity.FIELDS.items():
        _add("identity", _subject, _name, _question, identity.comparing(identity.field(_name)), _QUICK, _FULL)
    for _name, _question in identity.GRADIENTS.items():
        # a full GP has no inducing inputs to differentiate by
        _where = (_SPARSE, ("toy-sparse", "wine")) if _name == "Z" else (_QUICK, _FULL)
        _add("identity", _subject, f"gradient_{_name}", _question, _derivative_in(_name), *_where)
    _add(
        "identity",
        _subject,
        "matern",
        "Both witnesses agree with Matérn kernels of smoothness 0.5, 1.5 and 2.3.",
        lambda context, subject, problem: variants(context, subject, [as_matern(problem, nu) for nu in _SMOOTHNESS]),
        ("three-points", "three-points-fitc"),
        ("toy", "toy-sparse"),
    )
    _add("identity", _subject, "learned", "Both searches end at the same hyper-parameters.", learned, ("toy",))
    _add("limit", _subject, "inducing_at_data", "The sparse form with Z = X is the full one.", inducing_at_data,
         ("two-points", "toy-spread"))  # fmt: skip
    _add("invariance", _subject, "data_order", (
        "The answer does not depend on the order of the data."
    ), invariance.permuted_data,
         ("toy",), ("toy-sparse",))  # fmt: skip
    _add("invariance", _subject, "classes", "Swapping the classes mirrors the answer.", invariance.flipped_classes,
         ("toy",), ("toy-sparse",))  # fmt: skip
    _add("derivative", _subject, "stationary", "The judge's objective is stationary at the answer, and equal to it.",
         stationary, TINY)  # fmt: skip
    _add("bound", _subject, "equality", "When the prior variance vanishes, log Z = -n log 2.",
         bound.equality, TINY)  # fmt: skip
    if _subject is not TAYLOR:  # (19) is no bound
        _add(
            "bound",
            _subject,
            "log_evidence",
            "The lower bound stays below log Z.",
            lambda context, subject, problem: bound.below(context, subject, problem, truth(context, subject, problem)),
            # iris has a stored truth; toy's chains run anew
            (*FEW, "iris"),
            (*THIRD, "toy", "toy-steep", "toy-sparse", "wine"),
        )

for _subject in (SVI, TAYLOR):
    _add(
        "identity",
        _subject,
        "probit",
        "Both witnesses agree with the probit link.",
        lambda context, subject, problem: variants(context, subject, [as_probit(problem)]),
        _SPARSE,
        ("toy",),
    )
for _subject in (SVI, JJ, TAYLOR):
    _add("identity", _subject, "cancelling_labels", "A fit converges where labels cancel, and its mean is zero.",
         cancelling_labels, _SPARSE)  # fmt: skip
for _quantity, _learn in (("steps", ()), ("steps_learning", ("variance", "lengthscales", "noise"))):
    _add(
        "identity",
        SVI,
        _quantity,
        f"Both witnesses make the same {STEPS} steps on the same batches.",
        lambda context, _, problem, learn=_learn: steps(context, problem, learn),  # type: ignore[misc]
        ("three-points-fitc", "toy-sparse"),
    )
for _subject in (JJ_FULL, JJ_HYBRID):
    _add("limit", _subject, "vi-jj", "With the prior fixed, this is vi-jj.", one_fixed_point, _QUICK, _FULL)
_add("limit", JJ, "x-gpc", "At its fixed point vi-jj is x-gpc.",
     lambda context, _, problem: polya_gamma(context, problem), _QUICK, _FULL)  # fmt: skip
_add("bound", JJ, "below_svi", "The local bound stays below the maximum of (11).",
     lambda context, _, problem: below_svi(context, problem), _QUICK, _FULL)  # fmt: skip
_add("bound", JJ, "monotone", "The updates never lower the bound.", bound.monotone, _QUICK, _FULL)
_add("derivative", TAYLOR, "projected_mode", "μ is the mode of the projected posterior, and Σ its inverse Hessian.",
     lambda context, _, problem: projected_mode(context, problem), TINY)  # fmt: skip
