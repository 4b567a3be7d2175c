"""sep from its definition: the tied factor, its batch rule, log Z_q and both gradients, by dense algebra.

With T, t the natural parameters of the tied factor of a class, K^-1 those of its prior and n the number of factors,

    q = K^-1 + T, t;    cavity of every factor = K^-1 + (1 - 1/n) T, (1 - 1/n) t;
    T = sum of the refined factors, each of which gives cavity times Phi its means and variances along upsilon;
    a batch that holds the share r of the factors:  T <- T + damping (refined factors of the batch - r T);
    log Z_q = G(q) - G(prior) + sum log Z_ik + sum over the classes of n (G(cavity) - G(q)).

Both witnesses write these with one algebra, so that their agreement says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from validation.checks.apart import apart, unconverged
from validation.checks.core import Compared, Context, Outcome
from validation.checks.definitions.differences import parameter_differences
from validation.checks.definitions.power import Dense, G, inverse
from validation.checks.witnesses.villacampa2017 import (
    PARAMETERS,
    PER_CLASS,
    SEP,
    WITNESSES,
    Cavity,
    Setup,
    add,
    batches,
    tilted_pair,
)
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.judge.compare import gradient_unit, identity_limit, relative_difference

Array = NDArray[np.float64]

DAMPING = 0.7  # of the replayed batches: no method's default


class Tied(NamedTuple):
    """Natural parameters of the tied factor: (C, m, m) and (C, m)."""

    precision: Array
    shift: Array


def counts(y: NDArray[np.int64], n_classes: int, count: str) -> Array:
    """(C,) factors that share the tied one: all pairs of datum and other class, or those that touch the class."""
    pairs = [(int(label), k) for label in y for k in range(n_classes) if k != label]
    if count == "all":
        return np.full(n_classes, float(len(pairs)))
    return np.array([sum(k in pair for pair in pairs) for k in range(n_classes)], dtype=float)


def log_norms(y: NDArray[np.int64], mean: Array, var: Array) -> Array:
    """(n, C) log Phi((f_y - f_k)/deviation) integrated over independent latent values; zero for the label."""
    rows = np.arange(len(y))
    z = (mean[rows, y][:, None] - mean) / np.sqrt(var[rows, y][:, None] + var)
    value = np.asarray(norm.logcdf(z))
    value[rows, y] = 0.0
    return value


def cavity(dense: Dense, tied: Tied, n: Array) -> tuple[Array, Array]:
    """Natural parameters of q without an n-th of the tied factor."""
    left = 1.0 - 1.0 / n
    return dense.K_inv + left[:, None, None] * tied.precision, left[:, None] * tied.shift


def evidence(problem: Problem, tied: Tied, n: Array) -> float:
    """log Z_q at any tied factor."""
    dense = Dense(problem)
    P, h = dense.K_inv + tied.precision, tied.shift
    Pc, hc = cavity(dense, tied, n)
    total = G(P, h) - G(dense.K_inv, 0.0 * h) + float(log_norms(dense.y, *dense.moments(Pc, hc)).sum())
    for k, number in enumerate(n):
        one = slice(k, k + 1)
        total += float(number) * (G(Pc[one], hc[one]) - G(P[one], h[one]))
    return total


def refined(problem: Problem, tied: Tied, n: Array, rows: Iterable[int]) -> Tied:
    """The sum of the refined factors of some data, each by the moments of cavity times Phi."""
    dense = Dense(problem)
    Pc, hc = cavity(dense, tied, n)
    covs = inverse(Pc)
    means = np.einsum("kmj,kj->km", covs, hc)
    new = Tied(np.zeros_like(tied.precision), np.zeros_like(tied.shift))
    for i in rows:
        y = int(dense.y[i])
        for k in (k for k in range(problem.n_classes) if k != y):
            sides = []
            for j in (y, k):
                u = dense.upsilon[i, j]
                sides.append(Cavity(float(u @ means[j]), float(u @ covs[j] @ u), 0.0, 0.0))
            tilted = tilted_pair(sides[0], sides[1], dense.cond_var[i, y] + dense.cond_var[i, k])
            for j, side, mean, var in ((y, sides[0], *tilted[1:3]), (k, sides[1], *tilted[3:5])):
                u = dense.upsilon[i, j]
                new.precision[j] += (1.0 / var - 1.0 / side.var) * np.outer(u, u)
                new.shift[j] += (mean / var - side.mean / side.var) * u
    return new


def _tied(solution: Solution) -> Tied:
    return Tied(np.asarray(solution.local["tied_precision"]), np.asarray(solution.local["tied_shift"]))


def _numbers(setup: Setup, problem: Problem, rows: Sequence[int] | None = None) -> Array:
    y = problem.y if rows is None else problem.y[list(rows)]
    return counts(y, problem.n_classes, str(setup.options.get("count", "all")))


def _state(problem: Problem, tied: Tied, n: Array) -> dict[str, Any]:
    """What a witness says of a tied factor."""
    dense = Dense(problem)
    V = inverse(dense.K_inv + tied.precision)
    return {
        "inducing_mean": np.einsum("kmj,kj->km", V, tied.shift),
        "inducing_cov": V,
        "log_evidence": evidence(problem, tied, n),
    }


def fixed_point(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """T is the sum of the factors refined from its own cavity; q, its normalisers and log Z_q are those of T."""
    limit, why = identity_limit(problem)
    n = _numbers(setup, problem)
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem)
        yield from unconverged((answer,))
        tied = _tied(answer)
        new = refined(problem, tied, n, range(problem.n))
        norms = log_norms(problem.y, *Dense(problem).moments(*cavity(Dense(problem), tied, n)))
        pairs = {"tied_precision": tied.precision, "tied_shift": tied.shift}
        yield from apart(
            {name: (old, getattr(new, name.removeprefix("tied_"))) for name, old in pairs.items()},
            limit,
            f"sum of factors by moments of cavity times Phi, a trapezoidal rule each way to 1e-12; {why}",
            witness,
        )
        message = {name: (getattr(answer, name), value) for name, value in _state(problem, tied, n).items()}
        message["log_tilted_norm"] = answer.local["log_tilted_norm"], norms
        yield from apart(message, limit, f"by dense natural parameters; {why}", witness)


def replayed(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """Batches one after another from a tied factor of one, by the definition's own rule."""
    limit, why = identity_limit(problem)
    n, steps = _numbers(setup, problem), batches(problem)
    m = Dense(problem).K_inv.shape[1]
    tied = Tied(np.zeros((problem.n_classes, m, m)), np.zeros((problem.n_classes, m)))
    for rows in steps:
        share = _numbers(setup, problem, rows) / n
        new = refined(problem, tied, n, rows)
        tied = Tied(
            tied.precision + DAMPING * (new.precision - share[:, None, None] * tied.precision),
            tied.shift + DAMPING * (new.shift - share[:, None] * tied.shift),
        )
    expected = _state(problem, tied, n) | {"tied_precision": tied.precision, "tied_shift": tied.shift}
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem, batches=steps, damping=DAMPING)
        message = {
            name: (answer.local[name] if name.startswith("tied") else getattr(answer, name), value)
            for name, value in expected.items()
        }
        told = f"{len(steps)} batches, each in the place of its share of the factors, damping {DAMPING}; {why}"
        yield from apart(message, limit, told, witness)


def held(problem: Problem, tied: Tied, n: Array, rows: Sequence[int], scale: float) -> Any:
    """(10), or (12) of a batch, as a function of the prior whose derivative it is: E_q[log p(u)] + scale sum log Z_ik.

    q and the cavity are held as distributions of the inducing values.
    """
    dense = Dense(problem)
    V = inverse(dense.K_inv + tied.precision)
    mean = np.einsum("kmj,kj->km", V, tied.shift)
    second = V + mean[:, :, None] * mean[:, None]
    distribution = cavity(dense, tied, n)

    def value(moved: Problem) -> float:
        there = Dense(moved)
        prior = -0.5 * np.sum(there.K_inv * second) + 0.5 * np.linalg.slogdet(there.K_inv)[1].sum()
        return float(prior) + scale * float(log_norms(there.y, *there.moments(*distribution))[list(rows)].sum())

    return value


def gradients(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """(10) and the exact gradient by differences of what each is the derivative of."""
    n = _numbers(setup, problem)
    for witness in WITNESSES:
        for rule in ("10", "exact"):
            answer = setup.solve(context, witness, problem, gradient_rule=rule)
            yield from unconverged((answer,))
            tied = _tied(answer)
            value = held(problem, tied, n, range(problem.n), 1.0)
            if rule == "exact":

                def value(moved: Problem, tied: Tied = tied) -> float:
                    return evidence(moved, tied, n)

            for name in PARAMETERS:
                derivatives = parameter_differences(value, problem, name, 1e-4)
                assert answer.gradients is not None
                assert answer.log_evidence is not None
                yield Compared(
                    relative_difference(
                        answer.gradients[name] * gradient_unit(problem, name),
                        derivatives,
                        0.01 * abs(answer.log_evidence),
                    ),
                    1e-6,
                    f'gradient_rule="{rule}" in {name}: differences of 1e-4 units leave 1e-8, a missing term 1e-2',
                    witness,
                    "differences of the definition",
                    f"relative difference of the gradient in {name}",
                )


def learned_step(context: Context, setup: Setup, problem: Problem) -> Iterable[Outcome]:
    """One batch, then one step of every parameter along (12): the rate times the gradient, in logarithms but for Z."""
    rate, n, rows = 1e-3, _numbers(setup, problem), batches(problem)[0]
    m = Dense(problem).K_inv.shape[1]
    start = Tied(np.zeros((problem.n_classes, m, m)), np.zeros((problem.n_classes, m)))
    new = refined(problem, start, n, rows)
    tied = Tied(DAMPING * new.precision, DAMPING * new.shift)
    value = held(problem, tied, n, rows, problem.n / len(rows))
    options: dict[str, Any] = {"batches": [rows], "damping": DAMPING, "learn": PARAMETERS, "rate": rate}
    for witness in WITNESSES:
        answer = setup.solve(context, witness, problem, optimizer="adaptive", **options)
        for name in PARAMETERS:
            before, after = (np.asarray(getattr(each, name)) for each in (problem, answer.problem))
            derivatives = parameter_differences(value, problem, name, 1e-4)
            # differences are in units of the parameter; those of the noise are units of the whole variance
            derivatives = derivatives / gradient_unit(problem, name)
            moved = after - before if name == "Z" else np.log(after / before)
            yield Compared(
                relative_difference(moved, rate * derivatives * (1.0 if name == "Z" else before)),
                1e-6,
                f"{name}: one step of {rate:g} along (12), N/|S| times the batch's terms; differences leave 1e-8",
                witness,
                "differences of the definition",
                f"relative difference of the step in {name}",
            )


_FEW, _TOY = "two-points-3-sparse-threshold", "toy-3-sparse-threshold"
for _setup in (SEP, PER_CLASS):

    def _of(function: Any, setup: Setup = _setup) -> Any:
        def asked(context: Context, problem: Problem) -> Iterable[Outcome]:
            result: Iterable[Outcome] = function(context, setup, problem)
            return result

        asked.__module__ = __name__
        return asked

    _where = f"{{}}/sep/{_setup.prefix}{{}}"
    add(_where.format("limit", "definition"), "The tied factor is the sum of the factors refined from its cavity.",
        _of(fixed_point), (_FEW,), (_TOY,))  # fmt: skip
    add(_where.format("limit", "batch_definition"), "Batches move the tied factor as the definition says.",
        _of(replayed), (_TOY,))  # fmt: skip
    add(_where.format("derivative", "definition"), "Both gradients are derivatives of what they are documented to be.",
        _of(gradients), (_FEW,), (_TOY,))  # fmt: skip
    add(_where.format("derivative", "batch_definition"), "A step of learning goes along (12) for the batch's share.",
        _of(learned_step), (_TOY,))  # fmt: skip
