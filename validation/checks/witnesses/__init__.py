"""Checks between witnesses: identity, invariance, limit, bound, derivative."""
