"""Pólya-Gamma methods: a sweep of coordinate ascent against its floor, draws of PG(1, c), effective draws a second."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from fast.core.values import Data, Prior
from fast.methods import x_gpc
from gibbs.models.logit import draw_omega
from validation import problems
from validation.bench.measure import Row, best_of
from validation.door.solve import solve


def sweep(*, n: int = 20_000, m: int = 200, d: int = 8, repeats: int = 7) -> Iterable[Row]:
    """One CAVI sweep of `fast` x-gpc with the projections kept, against the calls that it cannot do without."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    Z = X[rng.permutation(n)[:m]]
    prior = x_gpc.prepare(Data(X, y), Prior(2.0, np.full(d, 2.0), 0.01, 1e-6, Z))
    c = np.abs(rng.standard_normal(n)) + 0.1

    block = 1000
    rows = rng.standard_normal((n, m)) / np.sqrt(m)
    scaled = np.empty((block, m))
    signs = rng.choice([-0.5, 0.5], n)

    def floor() -> None:
        # in blocks, as the sweep itself: a floor that misses the cache would be none
        theta = np.tanh(0.5 * c) / (2.0 * c)
        root = np.sqrt(theta)
        B = np.eye(m)
        for start in range(0, n, block):
            part = rows[start : start + block]
            np.multiply(part, root[start : start + block, None], out=scaled)
            B += scaled.T @ scaled
        factor, _ = dpotrf(B, lower=1)
        weights = rows.T @ signs
        for start in range(0, n, block):
            part = rows[start : start + block]
            whitened = dtrsm(1.0, factor, part.T, side=0, lower=1)
            np.einsum("mn,mn->n", whitened, whitened)
            part @ weights

    ours, bare = best_of([lambda: x_gpc.sweep(prior, c), floor], repeats)
    calls = (
        f"tanh and divide ({n},)",
        f"in blocks of {block} rows: scale ({block}, {m}), product ({m}, {block}) x ({block}, {m})",
        f"Cholesky ({m}, {m})",
        f"in blocks: triangular solve ({m}, {m}) \\ ({m}, {block}), squared norms, product with a vector",
        f"product ({m}, {n}) with a vector",
    )
    yield Row("x-gpc/sweep", f"n = {n}, m = {m}", 1e3 * ours, "ms", "", None)
    yield Row("x-gpc/sweep", "floor", 1e3 * bare, "ms", "", None, calls)
    yield Row("x-gpc/sweep", "ratio to the floor", ours / bare, "", "<= 2", ours / bare <= 2.0)


def polya_gamma(*, size: int = 1_000_000, repeats: int = 5) -> Iterable[Row]:
    """Draws of PG(1, c) a second on one core, for tilts of several sizes."""
    rng = np.random.default_rng(1)
    cases = {
        "c = 0": np.zeros(size),
        "c ~ N(0, 1)": rng.standard_normal(size),
        "c ~ N(0, 4)": 2.0 * rng.standard_normal(size),
        "c = 5": np.full(size, 5.0),
        "c ~ N(0, 100)": 10.0 * rng.standard_normal(size),
    }
    for name, c in cases.items():
        (seconds,) = best_of([partial(draw_omega, rng, c)], repeats)
        rate = size / seconds / 1e6
        yield Row("gibbs/polya-gamma", name, rate, "million draws/s", ">= 4", rate >= 4.0)


def chains(*, n_draws: int = 1500) -> Iterable[Row]:
    """Effective draws a second of the latents beside sweeps a second."""
    for name in ("toy", "toy-steep", "iris", "breast-cancer"):
        solution = solve(
            "gibbs", "gibbs-logit", problems.get(name), seed=2, n_draws=n_draws, n_warmup=200, evidence="none"
        )
        seconds = solution.settings["sampling_seconds"]
        yield Row(
            "gibbs/chains", f"{name}: effective draws", solution.settings["ess_latent"] / seconds, "1/s", "", None
        )
        per_second = solution.settings["sweeps_per_second"] * solution.settings["n_chains"]
        yield Row("gibbs/chains", f"{name}: sweeps of one chain", per_second, "1/s", "", None)
