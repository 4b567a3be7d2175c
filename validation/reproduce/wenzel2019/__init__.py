"""Experiments of wenzel2019: section 5 and Table 1."""
