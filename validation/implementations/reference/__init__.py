"""`reference` behind the one door: one module per family of methods, each with its table."""

from __future__ import annotations

from validation.implementations.common import dispatcher

answer = dispatcher("reference", __name__, __path__)
