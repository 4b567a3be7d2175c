"""Bugs at edges that ordinary problems do not reach: ties, full tables, failed factorisations, rare decisions."""

from __future__ import annotations

FAULTS = ()
