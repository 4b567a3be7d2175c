"""Where there is no density and no power: a path through a hole, a covariance without a factor, alpha of zero.

Chains, sweeps and likelihoods of ordinary problems never come there. Each is led there, and does what its documentation
says; which algebra a form runs is seen by who is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.problem import Problem

Array = NDArray[np.float64]


@check(
    "identity/gibbs-logit/paths_through_a_hole",
    paper="wenzel2019",
    question="Is a path refused that comes through points without a density, however good its end is?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.moves.hyper import LogDensity, hamiltonian_move

    n, visited = 400, list[Array]()

    def density(x: Array) -> Any:
        """Flat, and none between 1 and 2."""
        visited.append(x[:, 0].copy())
        value = np.where((x[:, 0] > 1.0) & (x[:, 0] < 2.0), -np.inf, 0.0)
        return LogDensity(value, np.zeros_like(x))

    start = np.linspace(-3.0, 4.0, n)[:, None]
    start = start[(start[:, 0] <= 1.0) | (start[:, 0] >= 2.0)]
    moved = hamiltonian_move(np.random.default_rng(3), start, density, np.full(len(start), 0.4), 6)
    # a flat density has no gradient: a path is a straight line of steps that are equally long
    first = visited[1] - visited[0]
    line = start[:, :1] + first[:, None] * np.arange(7)
    through = ((line > 1.0) & (line < 2.0)).any(axis=1)
    across = through & ~((line[:, -1] > 1.0) & (line[:, -1] < 2.0))
    wrong = int((moved.refused != through).sum())
    wrong += int((moved.position[through] != start[through]).sum())
    # steps are tuned by it: a path that is refused would never have been accepted, one along a line always is
    wrong += int((np.abs(moved.acceptance - ~through) > 1e-12).sum())
    wrong += int(np.abs(moved.position[~through, 0] - line[~through, -1]).max() > 1e-12)
    why = f"{int(through.sum())} of {len(start)} straight paths meet the hole, {int(across.sum())} of them pass it"
    yield flaws(wrong + (across.sum() < 5), why, "gibbs", "paths")


@check(
    "identity/gibbs-probit/density_without_a_factor",
    paper="riihimaki2013",
    question="Is the density minus infinity, and its gradient zero, where the covariance has no Cholesky factor?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.hyper_covariance import Design, log_normal_density

    X = np.array([[0.0], [0.0], [1.0], [2.5]])  # a row twice: without noise its covariance is singular
    squared = np.square(X - X.T)[None]
    design = Design(squared, squared[:, :0], None, None, None, np.zeros(1))
    hyper = np.array([[[1.0, 1.0, 0.3]], [[1.0, 1.0, -0.5]], [[np.inf, 1.0, 0.3]]])
    values = np.ones((3, 1, 2, 4))
    with np.errstate(all="ignore"):
        result = log_normal_density(design, hyper, values)
    S = np.exp(-0.5 * squared[0]) + 0.3 * np.eye(4)
    whole = -values[0, 0, 0] @ np.linalg.solve(S, values[0, 0, 0]) - np.linalg.slogdet(2.0 * np.pi * S)[1]
    yield Compared(abs(float(result.value[0, 0]) - whole), 1e-11, "dense, of four rows", "gibbs", "definition")
    wrong = int((result.value[1:, 0] != -np.inf).sum()) + int(np.any(result.gradient[1:] != 0.0))
    yield flaws(wrong, "a negative and an infinite diagonal: minus infinity, gradient zero", "gibbs", "densities")


@check(
    "identity/pep/power_zero",
    paper="villacampa2020",
    question="Is the power of zero one, with the logarithm's average as the limit of the quotient?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from fast.likelihood.power import robust_power

    log_P = np.log(np.array([1e-9, 0.02, 0.5, 0.98, 1.0 - 1e-9]))
    none = np.zeros((5, 3))
    largest: Any = SimpleNamespace(log_mass=log_P, derivative=none, curvature=none)
    epsilon, C = 0.03, 3
    low, high = np.log(epsilon / C), np.log1p(epsilon / C - epsilon)
    at_zero, near = robust_power(largest, 0.0, epsilon, C), robust_power(largest, 1e-7, epsilon, C)
    P = np.exp(log_P)
    yield flaws(int((at_zero.log_norm != 0.0).sum()), "log E[L^0] = 0", "fast", "rows")
    wanted = P * high + (1.0 - P) * low
    gap = float(np.abs(at_zero[0] / wanted - 1.0).max())
    yield Compared(gap, 1e-13, "E[log L] of two values", "fast", "definition", "relative difference")
    # the quotient's next term is alpha/2 Var(log L), below 1e-6 of it
    gap = float(np.abs(near[0] / wanted - 1.0).max())
    yield Compared(gap, 1e-6, "the quotient at a power of 1e-7", "fast", "definition", "relative difference")


class Forms(NamedTuple):
    """What a form of a method of `reference` runs: the functions of its module that alone know this algebra."""

    method: str
    paper: str
    kind: str
    module: str
    functions: Mapping[str, tuple[str, ...]]


FORMS = (
    Forms("nested-ep", "riihimaki2013", "multinomial-probit full", "riihimaki2013.fit",
          {"printed": ("posterior_by_blocks",), "projected": ("ep_posterior",)}),
    Forms("pep", "villacampa2020", "threshold errors", "villacampa2020.fit_pep",
          {"printed": ("parallel_pep_sweep",), "projected": ("project",)}),
)  # fmt: skip


def _register(entry: Forms) -> None:
    @check(
        f"identity/{entry.method}/algebra_of_a_form",
        paper=entry.paper,
        question="Does each form of reference run its own algebra, and none of the other form's?",
        problems=(NO_PROBLEM,),
    )
    def _(context: Context, _problem: Problem | None) -> Iterable[Outcome]:
        place = import_module(f"reference.{entry.module}")
        for form in entry.functions:
            with ExitStack() as stack:
                watched = {
                    name: stack.enter_context(mock.patch.object(place, name, wraps=getattr(place, name)))
                    for names in entry.functions.values()
                    for name in names
                }
                asked = tiny(entry.kind).replace(name=f"{entry.kind}, form {form} of {entry.method}")
                context.solve("reference", entry.method, asked, form=form, max_iterations=2)
            wrong = sum((watched[name].call_count > 0) != (name in entry.functions[form]) for name in watched)
            called = ", ".join(f"{name} {spy.call_count} times" for name, spy in watched.items())
            yield flaws(wrong, f"form {form}: {called}", "reference", "functions")


for _entry in FORMS:
    _register(_entry)
