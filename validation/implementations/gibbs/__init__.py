"""`gibbs` behind the one door: one module per family of models, each with its table."""

from __future__ import annotations

from typing import Any

from gibbs.core.options import METHODS, LearntOptions
from validation.implementations.common import dispatcher

# module -> the methods of its TABLE
ADAPTERS = {
    "exact_probit": ("exact-probit",),
    "logit": ("gibbs-logit", "ensemble-logit"),
    "multilatent": ("gibbs-probit", "gibbs-threshold"),
    "pairwise": ("gibbs-pairwise",),
    "softmax": ("mh-softmax",),
}

answer = dispatcher("gibbs", __name__, ADAPTERS)
# samplers with chains side by side
CHAINS = tuple(method for method, row in METHODS.items() if "n_chains" in row)


def defaults(method: str, *, sampled: bool) -> dict[str, Any]:
    """Options of a method and their defaults, with parameters of the prior sampled or held."""
    row = LearntOptions.declared() if sampled else METHODS[method]
    return {name: option.default for name, option in row.items()}
