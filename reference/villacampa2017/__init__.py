"""Scalable multi-class classification by expectation propagation (Villacampa-Calvo and Hernández-Lobato, 2017)."""
