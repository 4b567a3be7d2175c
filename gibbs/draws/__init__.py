"""Exact samplers of single distributions."""
