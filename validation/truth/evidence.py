"""What a card says of log Z and of errors, from a solution: routes, standard errors, and whether two of them agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from validation.door.solution import Solution
from validation.door.statistics import LEVEL, QUANTITIES

# of log Z, in nats: design, What agreement means
MOST_ERROR = 0.05


def routes_of(solution: Solution) -> dict[str, tuple[float, float, int]]:
    """log Z by every route of a solution: value, standard error, and whether the route trusts its own error (0, 1)."""
    routes: dict[str, tuple[float, float, int]] = {}
    named = {key: value for key, value in solution.local.items() if key.startswith("log_evidence_")}
    for key, value in named.items():
        route = key.removeprefix("log_evidence_")
        label = f"{solution.method} {route}"
        routes[label] = (float(value[0]), float(value[1]), int(solution.settings.get(f"trusted_{route}", True)))
    if not named and solution.log_evidence is not None:
        error = solution.log_evidence_se
        if error is None:  # quadrature states a bound in place of a standard error
            error = float(solution.settings.get("error_log_evidence", 0.0))
        routes[solution.method] = (float(solution.log_evidence), float(error), 1)
    return routes


def agreement(routes: Mapping[str, Sequence[float]], none: str, one: str) -> dict[str, Any]:
    """Fields of a card about log Z: the best trusted route against every other one that is sure to 0.05 nat.

    none, one    why there is no route, or no second one
    """
    sure = {label: r for label, r in routes.items() if r[2] and r[1] <= MOST_ERROR}
    if not routes:
        return {"evidence_note": f"no log Z: {none}"}
    if not sure:
        label, route = min(routes.items(), key=lambda item: item[1][1])
        return {"evidence_note": f"no log Z is sure to {MOST_ERROR} nat: {label} has {route[1]:.2g}"}
    best = min(sure, key=lambda label: sure[label][1])
    others = [label for label in sure if label != best]
    if not others:
        return {"evidence_note": f"log Z by {best}; {one}"}
    z = [
        abs(sure[best][0] - sure[label][0]) / max(float(np.hypot(sure[best][1], sure[label][1])), np.finfo(float).tiny)
        for label in others
    ]
    return {
        "evidence_note": f"log Z by {best}, and by estimators that share its prior covariance alone: "
        + ", ".join(others),
        "evidence_z": float(max(z)),
        "evidence_limit": float(-ndtri(0.5 * LEVEL / len(z))),
    }


def mcse(solution: Solution) -> dict[str, float]:
    """Largest standard error of each quantity in its natural unit; nothing of what is exact.

    Means in posterior standard deviations, covariances in the larger of the two variances, probabilities and log Z as
    they are.
    """
    result: dict[str, float] = {}
    for quantity in QUANTITIES:
        error, value = getattr(solution, f"{quantity}_se", None), getattr(solution, quantity)
        if error is None or value is None or not np.size(error):
            continue
        unit: Any = 1.0
        if quantity.endswith("cov"):
            unit = np.diagonal(value, axis1=-2, axis2=-1).max(axis=-1)[..., None, None]
        elif quantity.endswith("mean"):
            cov = getattr(solution, quantity.removesuffix("mean") + "cov")
            unit = np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1))
        result[quantity] = float(f"{np.max(error / unit):.3g}")
    return result
