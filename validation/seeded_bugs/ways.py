_bug = Seeds()

from __future__ import annotations

from validation.selftest import SeededBug

FAULTS: tuple[SeededBug, ...] = ()


"""Bugs of single kernels and of pieces of routes to log Z."""
