"""Methods of `fast` whose sweep is a sum over rows, on rows that are read part by part: docs/cluster.md."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from validation.door.problem import Problem

QUADRATIC = ("x-gpc", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")
CLASSES = ("ep", "sep", "gfitc", "vi-robust", "pep", "apep", "arpep", "rpapep", "bb-alpha")


def in_parts(method: str, problem: Problem, leaf: int, client: Any = None) -> dict[str, Any]:
    """log Z or bound, moments at the inducing points, and probabilities at the test points, of the fixed point.

    leaf     rows that are read at a time
    client   of a Dask cluster; None: here
    """
    values = importlib.import_module("fast.core.values")
    rows_of = importlib.import_module("fast.blockwise.rows").rows_of
    quadratic, taylor, sep, multiclass = (
        importlib.import_module(f"fast.blockwise.{name}") for name in ("quadratic", "taylor", "sep", "multiclass")
    )
    rows, test_rows = rows_of(problem.X, problem.y, leaf=leaf), rows_of(problem.X_test, leaf=2)
    fields = {name: getattr(problem, name) for name in ("variance", "lengthscales", "noise", "jitter", "Z")}
    if method in QUADRATIC:
        prior = values.Prior(**{name: value[0] for name, value in fields.items()})
        ask = taylor.fit if method == "vi-taylor" else lambda *given, **more: quadratic.fit(method, *given, **more)
        found = ask(rows, prior, quadratic.BlockwiseOptions(1e-12), client=client)
        parts = list(quadratic.predictions(found, test_rows, client=client))
        evidence = found.elbo
    else:
        prior, C = values.Prior(**fields, shared=problem.shared), problem.n_classes
        if method == "sep":
            found = sep.fit(rows, C, prior, client=client)
            parts = list(sep.predictions(found, test_rows, client=client))
        else:
            own = multiclass.METHODS[method].options
            known = own.declared()
            options = own(**{"epsilon": problem.epsilon} if "epsilon" in known else {})
            found = multiclass.fit(method, rows, C, prior, options, client=client)
            parts = list(multiclass.predictions(found, test_rows, client=client))
        evidence = found.log_evidence
    return {
        "log_evidence": evidence, "inducing_mean": np.atleast_2d(found.inducing_mean),
        "probabilities": np.concatenate([part.probabilities for _, part in parts]),
    }  # fmt: skip


def part_rows(X: Any, y: Any, **leaf: int) -> Any:
    """Rows that are read leaf by leaf, of memory maps.

    leaf    rows that are read at a time
    """
    return importlib.import_module("fast.blockwise.rows").rows_of(X, y, **leaf)


def sweeps(method: str, rows: Any, prior: Any, count: int, after: Callable[..., None], client: Any = None) -> Any:
    """Bounds after each of so many sweeps of a method of QUADRATIC, plain ones.

    after    called with (sweep, bound, step) after every sweep
    """
    quadratic = importlib.import_module("fast.blockwise.quadratic")
    return quadratic.fit(method, rows, prior, quadratic.BlockwiseOptions(1e-300, count, after), client=client).trace
