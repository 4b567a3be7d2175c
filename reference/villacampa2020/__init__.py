"""Villacampa-Calvo, Hernández-Lobato: Alpha Divergence Minimization in Multi-Class GP Classification, 2020."""
