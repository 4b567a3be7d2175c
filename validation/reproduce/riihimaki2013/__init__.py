"""Experiments of riihimaki2013: section 5."""
