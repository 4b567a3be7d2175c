"""Batch methods on data in parts: sums over leaves in a fixed tree, here or on the workers of a Dask cluster."""
