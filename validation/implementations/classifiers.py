"""The classifiers of `fast.estimators` by name, for checks that hold them against the methods that they stand for."""

from __future__ import annotations

import importlib
from typing import Any


def classifier(name: str) -> Any:
    """The class of that name."""
    return getattr(importlib.import_module("fast.estimators"), name)
