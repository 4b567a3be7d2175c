"""Izmailov and Kropotov (2016), Faster variational inducing input Gaussian process classification."""
