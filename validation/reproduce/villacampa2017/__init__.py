"""Experiments of villacampa2017: Fig. 1 and section 4."""
