"""Experiments of izmailov2016: section 5."""
