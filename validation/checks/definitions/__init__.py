"""Checks of kind `definition`: witnesses against the judge's own dense or brute-force definitions."""
