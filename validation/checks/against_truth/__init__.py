"""Checks against truths: chains, exact draws, quadrature, and recorded distances."""
