"""Truth files: posterior moments with standard errors, each with the card that says why to believe them."""

from __future__ import annotations

from validation.truth.card import EvidenceCard
from validation.truth.make import ROUTES, Truth, make_truth
from validation.truth.shelf import load, names
from validation.truth.store import stored_truth

__all__ = ["ROUTES", "EvidenceCard", "Truth", "load", "make_truth", "names", "stored_truth"]
