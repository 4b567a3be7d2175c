"""Exact draws from the Pólya-Gamma distributions PG(b, c), integer b: wenzel2019, sections 3.1 and 5.1.

ω ~ PG(1, c) is ω = x/4 with x ~ J*(1, z), z = |c|/2 (Polson, Scott & Windle 2013). The density of J*(1, z) is the
alternating series cosh(z) e^(-z²x/2) Σ_n (-1)ⁿ a_n(x), whose terms fall from n = 0 on if a_n is written one way for
x <= 0.64 and the other way above (Devroye 2009):

    a_n(x) = π (n+½) (2/πx)^(3/2) exp(-2(n+½)²/x)     x <= t
    a_n(x) = π (n+½) exp(-(n+½)²π²x/2)                x > t

A proposal from the first term is accepted by partial sums, which settle every case exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from gibbs.core.checks import shown
from gibbs.core.errors import Array
from gibbs.core.generators import chunk, rows_per_chain, subset
from gibbs.ledger import equation

_T = 0.64  # truncation point: both forms of a_n fall in n there
_CHUNK = 16384  # proposals at a time: the working arrays stay in the second-level cache
_TAIL = float(ndtr(-1.0 / np.sqrt(_T)))  # P(N > 1/√t)
# a_1/a_0 is 3 exp(-4/x) below t and 3 exp(-π²x) above, largest at t: a uniform under 1 - that accepts at once. The
# margin covers rounding of the terms: whatever is near the border is left to the series.
_SURE = 1.0 - 1.000001 * 3.0 * np.exp(-4.0 / _T)
_Z_CLIP = 40.0  # there the right piece has mass below 1e-180: never chosen by a double
_GRID = 64.0  # cells of the table of right masses per unit of z


def _right_mass(z: Array) -> Array:
    """Probability that the proposal lies above t: p/(p+q) of Polson, Scott & Windle (2013), 0 <= z <= 40."""
    root = np.sqrt(_T)
    rate = np.pi**2 / 8.0 + 0.5 * z * z
    right = np.pi / (2.0 * rate) * np.exp(-rate * _T)
    left = 2.0 * (np.exp(-z) * ndtr(root * z - 1.0 / root) + np.exp(z) * ndtr(-root * z - 1.0 / root))
    return right / (right + left)


# In z the proposal is tilted by exp(-z²x/2), a monotone likelihood ratio: the right mass falls in z, so its values at
# the ends of a cell enclose it. The relative margin covers rounding of either evaluation.
_NODES = _right_mass(np.arange(0.0, _Z_CLIP + 2.0 / _GRID, 1.0 / _GRID))
_UPPER, _LOWER = _NODES[:-1] * (1.0 + 1e-9), _NODES[1:] * (1.0 - 1e-9)


def _choose_right(rng: np.random.Generator, z: Array) -> np.ndarray:
    """Flags: propose above t. The table settles nearly all, the formula the rest."""
    uniform = rng.random(z.size)
    clipped = np.minimum(z, _Z_CLIP)
    cell = (clipped * _GRID).astype(np.intp)
    right = uniform < _LOWER[cell]
    open_cases = np.flatnonzero(right != (uniform < _UPPER[cell]))
    if open_cases.size:
        right[open_cases] = uniform[open_cases] < _right_mass(clipped[open_cases])
    return right


def _left_small(rng: np.random.Generator, z: Array) -> Array:
    """Inverse Gaussian(1/z, 1) below t for z < 1/t: truncated 1/χ² by inversion, thinned by exp(-z²x/2)."""
    out = np.empty(z.size)
    halved = 0.5 * z * z
    live: np.ndarray | slice = slice(None)
    while halved.size:
        root = ndtri(_TAIL * (1.0 - rng.random(halved.size)))  # 1 - [0, 1) keeps zero out
        x = 1.0 / (root * root)
        reject = np.flatnonzero(rng.standard_exponential(halved.size) < halved * x)
        out[live] = x  # a rejected value is overwritten in a later round
        live = reject if isinstance(live, slice) else live[reject]
        rng = subset(rng, reject, halved.size)
        halved = halved[reject]
    return out


def _left_large(rng: np.random.Generator, z: Array) -> Array:
    """Inverse Gaussian(1/z, 1) below t for z >= 1/t: Michael, Schucany & Haas (1976), thinned at t."""
    out = np.empty(z.size)
    mu = 1.0 / z
    live: np.ndarray | slice = slice(None)
    while mu.size:
        normal = rng.standard_normal(mu.size)
        w = 0.5 * mu * (normal * normal)
        x = mu / (1.0 + w + np.sqrt(w * (2.0 + w)))  # the smaller root, free of cancellation
        other = rng.random(mu.size) * (mu + x) > mu
        x = np.where(other, mu * (mu / x), x)
        reject = np.flatnonzero(x > _T)
        out[live] = x
        live = reject if isinstance(live, slice) else live[reject]
        rng = subset(rng, reject, mu.size)
        mu = mu[reject]
    return out


def _series_accepts(x: Array, uniform: Array) -> np.ndarray:
    """Devroye's alternating partial sums S_0 > S_2 > ... and S_1 < S_3 < ...: is u a_0 under the density?

    uniform in [0, 1); all sums are divided by a_0. Every case is settled after finitely many terms.
    """
    accepted = np.zeros(x.size, dtype=bool)
    live = np.arange(x.size)
    # a_n/a_0 = (2n+1) exp(-r (n² + n)), r = 2/x below t and π²x/2 above
    decay = np.where(x <= _T, 2.0 / x, 0.5 * np.pi**2 * x)
    total = np.ones(x.size)
    n = 0
    while live.size:
        n += 1
        term = (2 * n + 1) * np.exp(-decay[live] * (n * n + n))
        if n % 2:  # S_n is a lower bound
            total[live] -= term
            settled = uniform[live] <= total[live]
            accepted[live[settled]] = True
        else:  # S_n is an upper bound
            total[live] += term
            settled = uniform[live] > total[live]
        # a term lost in rounding ends the sum: the case is then decided by the sum itself
        spent = ~settled & (term < 1e-17)
        accepted[live[spent]] = uniform[live[spent]] <= total[live[spent]]
        live = live[~(settled | spent)]
    return accepted


def _propose(rng: np.random.Generator, z: Array) -> Array:
    """One proposal from the first term of the series for every z."""
    right = _choose_right(rng, z)
    x = np.empty(z.size)
    above = np.flatnonzero(right)
    z_above = z[above]
    rate = np.pi**2 / 8.0 + 0.5 * z_above * z_above
    x[above] = _T + subset(rng, above, z.size).standard_exponential(above.size) / rate
    small = z < 1.0 / _T
    below = np.flatnonzero(~right & small)
    x[below] = _left_small(subset(rng, below, z.size), z[below])
    below = np.flatnonzero(~(right | small))
    x[below] = _left_large(subset(rng, below, z.size), z[below])
    return x


def _jacobi(rng: np.random.Generator, z: Array) -> Array:
    """J*(1, z) for z (k,) >= 0."""
    x = _propose(rng, z)
    uniform = rng.random(z.size)
    refused = np.flatnonzero(uniform > _SURE)
    while refused.size:
        refused = refused[~_series_accepts(x[refused], uniform[refused])]
        again = subset(rng, refused, z.size)
        x[refused] = _propose(again, z[refused])
        uniform[refused] = again.random(refused.size)
    return x


@equation("wenzel2019", "u3.1-pg-sampler")
def sample_polya_gamma(rng: np.random.Generator, c: ArrayLike, b: int | np.ndarray = 1) -> Array:
    """Independent exact draws ω ~ PG(b, c): wenzel2019, sections 3.1 and 5.1; Polson, Scott & Windle (2013).

    rng: source of randomness; how many numbers it gives depends on the draws and is not fixed. Streams of chains
    (`gibbs.core.generators.ChainStreams`) serve the rows of c.
    c: tilts of any shape, finite; the distribution depends on |c| only. |c| up to 1e15 keeps full relative accuracy.
    b: integers >= 1, broadcast against c; PG(b, c) is the sum of b independent PG(1, c), so time grows with b.

    Returns ω > 0 of the broadcast shape of c and b; E[ω] = b tanh(c/2)/(2c), b/4 at c = 0.
    Raises ValueError if c is not finite or b is not integer or below 1.
    """
    tilt = np.asarray(c, dtype=np.float64)
    if not np.all(np.isfinite(tilt)):
        raise ValueError(f"c: found {np.count_nonzero(~np.isfinite(tilt))} entries NaN or infinite, expected 0")
    counts = np.asarray(b)
    if not np.issubdtype(counts.dtype, np.integer) or (counts.size and counts.min() < 1):
        raise ValueError(f"b: found {shown(b)}, expected integers >= 1")
    shape = np.broadcast_shapes(tilt.shape, counts.shape)
    z = 0.5 * np.abs(np.broadcast_to(tilt, shape)).ravel()
    if z.size == 0:
        return np.empty(shape)
    out = np.zeros(z.size)
    one_chain = rows_per_chain(rng, z.size)
    length = max(1, _CHUNK // one_chain) * one_chain  # whole chains: a chain's numbers do not hang on its neighbours
    if counts.min() == counts.max():
        for _ in range(int(counts.flat[0])):
            for start in range(0, z.size, length):
                part = slice(start, min(start + length, z.size))
                out[part] += _jacobi(chunk(rng, part.start, part.stop, z.size), z[part])
    else:
        repeats = np.broadcast_to(counts, shape).ravel()
        for done in range(int(counts.max())):
            open_cases = np.flatnonzero(repeats > done)
            for start in range(0, open_cases.size, _CHUNK):
                part_index = open_cases[start : start + _CHUNK]
                out[part_index] += _jacobi(subset(rng, part_index, z.size), z[part_index])
    out *= 0.25
    return out.reshape(shape)
