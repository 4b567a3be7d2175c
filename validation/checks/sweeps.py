"""Chains over kernel parameters of a few labels, made without a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation.by_name import sampler_by_name
from validation.checks import hyper_model as own

Array = NDArray[np.float64]
PAPER = "riihimaki2013"

INPUTS = np.array([[-1.0], [-0.4], [0.1], [0.5], [1.2]])


LAWS: Mapping[str, own.Distribution] = {
    "variance": ("half-student-t", 4.0, 2.0),
    "lengthscales": ("log-normal", 1.0, 1.0),
    "noise": ("log-normal", 1.0, 0.3),
}


def hyper_model(likelihood: str, n_classes: int, y: NDArray[np.int64], **more: Any) -> Any:
    """What chains over kernel parameters of these labels are made of."""
    from gibbs.models.hyper import make_model

    options: dict[str, Any] = {"hyperprior": dict(LAWS), "learn": own.FIELDS, "shared": True, **more}
    epsilon, n_warmup = options.pop("epsilon", 0.0), options.pop("n_warmup", 0)
    made, _ = sampler_by_name(make_model, n_warmup=n_warmup)(
        likelihood, INPUTS, y, n_classes, 1.5, np.array([1.4]), 0.05, 1e-4, None, "full", INPUTS[:1], epsilon, **options
    )
    return made
