"""The two forms of `reference`: equations one by one as villacampa2017 prints them, and contracted along upsilon.

Of gfitc it prints none; as printed it runs those of EP with the latent values as their own inducing values.

A default takes the one or the other by size, so that the judge sees one form on small problems and the other on large
ones. Here both run on the same problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from validation.checks.core import Compared, Context, Outcome, check
from validation.checks.witnesses.villacampa2017 import (
    EP,
    GFITC,
    PAPER,
    PARAMETERS,
    PER_CLASS,
    SEP,
    VI,
    Setup,
    batches,
    derivatives,
    unconverged,
)
from validation.door.problem import Problem
from validation.judge.compare import relative_difference

FORMS = ("printed", "projected")
FIELDS = ("log_evidence", "inducing_mean", "inducing_cov", "latent_mean", "latent_cov", "test_latent_mean",
          "test_latent_cov", "probabilities", "trace")  # fmt: skip
SMALL = ("two-points-3-sparse-threshold",)
LARGER = ("toy-2-sparse-threshold", "toy-3-sparse-threshold", "toy-4-sparse-steep-threshold")
LEARN = {"learn": PARAMETERS, "rate": 0.02, "optimizer": "adam", "trace": True}


def both_forms(context: Context, setup: Setup, problem: Problem, limit: float, why: str, **more: Any) -> Iterable[Any]:
    """Every number of one run in both forms; `more`: its options."""
    left, right = (setup.solve(context, "reference", problem, form=form, **more) for form in FORMS)
    if not (more.get("batches") or more.get("max_iterations")):
        yield from unconverged((left, right))
    message = [value.settings.get("form") for value in (left, right)]
    yield Compared(float(message != list(FORMS)), 0.0, f"the answers say which form ran: {message}", *FORMS)
    pairs = {name: (getattr(left, name), getattr(right, name), 1e-300) for name in FIELDS}
    pairs |= {name: (left.local[name], right.local[name], 0.01) for name in left.local}
    pairs |= {f"learned {name}": (getattr(left.problem, name), getattr(right.problem, name), 1e-300)
              for name in PARAMETERS}  # fmt: skip
    floor = 0.01 * abs(left.log_evidence or 1.0)
    pairs |= {f"gradient in {name}": (derivatives(left, name), derivatives(right, name), floor) for name in PARAMETERS}
    value = {name: np.inf if a is None or b is None else relative_difference(a, b, least)
             for name, (a, b, least) in pairs.items() if not (a is None and b is None)}  # fmt: skip
    worst = max(value, key=lambda name: value[name])
    yield Compared(value[worst], limit, f"of {len(value)} quantities {worst} is worst: {why}", *FORMS)


def forms(context: Context, setup: Setup, problem: Problem, runs: Iterable[Mapping[str, Any]]) -> Iterable[Outcome]:
    """At the fixed point of each run, after sweeps that are damped by other than a half, after steps of learning."""
    for more in runs:
        message = ", ".join(f"{name}={value}" for name, value in more.items()) or "defaults"
        why = f"{message}: the same steps to one fixed point, 1e-10 for the last digits of what cancels"
        yield from both_forms(context, setup, problem, 1e-10, why, **more)
    if setup is GFITC:  # which the paper says cannot learn in parts
        return
    rows = batches(problem, size=max(1, problem.n // 2), count=3)
    why = "three mini-batches with a step of every hyper-parameter after each: nothing but rounding differs"
    yield from both_forms(context, setup, problem, 1e-10, why, batches=rows, **LEARN)


def _register(setup: Setup, runs: tuple[Mapping[str, Any], ...]) -> None:
    at, more = (tuple(name.replace("-threshold", setup.end) for name in names) for names in (SMALL, LARGER))

    @check(
        f"identity/{setup.method}/{setup.prefix}forms",
        paper=PAPER,
        question="Are the equations as printed and their contraction along upsilon one method?",
        problems=at,
        full=more,
    )
    def ask_identity(context: Context, problem: Problem) -> Iterable[Outcome]:
        return forms(context, setup, problem, runs)


DAMPED = {"damping": 0.7, "max_iterations": 3, "trace": True}  # at a half the old and the new could change places
NEAR = {"tolerance": 1e-12}  # sweeps of their own rounding end apart by as much
_register(EP, (NEAR, NEAR | {"schedule": "sequential"}, DAMPED, DAMPED | {"schedule": "sequential"}))
_register(SEP, (NEAR, DAMPED))
_register(PER_CLASS, (NEAR, DAMPED))
_register(VI, ({},))
_register(GFITC, (NEAR, DAMPED))
