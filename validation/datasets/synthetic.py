"""Generated data: draws from the models themselves, the papers' toy problems, Breiman's waveforms.

Every generator takes `rng` first and returns a `Dataset` with n_train = 0, whose rows are in random order (they are
independent draws) and whose `sha256` is that of its arrays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import cdist
from scipy.special import expit, ndtr

from validation.datasets.dataset import Dataset
from validation.door import arguments

LIKELIHOODS = ("logit", "probit", "softmax", "multinomial-probit", "threshold")
BINARY_LIKELIHOODS = ("logit", "probit")


class Scales(TypedDict, total=False):
    """Hyper-parameters of the latent functions, each with a default in `draw_latents`."""

    variance: ArrayLike  # (L,), or a scalar for all latents
    lengthscales: ArrayLike  # (L, d), or (d,), or a scalar
    noise: ArrayLike  # (L,), or a scalar


def make_gp_classification(
    rng: np.random.Generator,
    n: int = 100,
    d: int = 2,
    n_classes: int = 2,
    likelihood: str = "logit",
    epsilon: float = 0.0,
    *,
    X: ArrayLike | None = None,
    **scales: Unpack[Scales],
) -> Dataset:
    """Inputs, latent functions and labels drawn from the model that the witnesses fit.

    Drawn in this order: X ~ N(0, I_d) unless given, the latent values (`draw_latents`), the labels (`draw_labels`).
    n_classes is 2 for the binary likelihoods, which have one latent function, and the number of latent functions for
    the others. A class may fail to occur: nothing is drawn again, because that would change the model.

    Parameters
    ----------
    n, d : int                    rows and inputs, if X is not given
    n_classes : int               C >= 2
    likelihood : str              logit, probit, softmax, multinomial-probit, threshold
    epsilon : float               label-error probability of the threshold likelihood, in [0, 1)
    X : (n, d)                    inputs to use instead of normal ones
    scales                        variance, lengthscales and noise of `draw_latents`
    """
    arguments.generator(rng, "rng")
    arguments.choice(likelihood, LIKELIHOODS, "likelihood")
    n_classes = arguments.integer(n_classes, "n_classes", at_least=2)
    arguments.size(n_classes, "n_classes")
    if likelihood in BINARY_LIKELIHOODS and n_classes != 2:
        raise ValueError(f"n_classes: found {n_classes}, expected 2 for the {likelihood} likelihood")
    L = 1 if likelihood in BINARY_LIKELIHOODS else n_classes
    if X is None:
        size = (arguments.size(n, "n"), arguments.size(d, "d"))
        inputs = rng.standard_normal(size)
    else:
        inputs = arguments.matrix(X, "X")
    latent_values = draw_latents(rng, inputs, L, **scales)
    y = draw_labels(rng, latent_values, likelihood, epsilon)
    return _generated(
        f"gp-{likelihood}-{n_classes}", inputs, y, n_classes, "a draw from the model", "make_gp_classification"
    )


def draw_latents(
    rng: np.random.Generator,
    X: ArrayLike,
    n_latents: int,
    variance: ArrayLike = 1.0,
    lengthscales: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
) -> NDArray[np.float64]:
    """(n, L) independent draws of the L latent functions at X, each from N(0, K + noise I).

    K = variance exp(-½ Σ_j (x_j - x'_j)²/lengthscales_j²). K may be singular to working precision (a thousand points in
    a plane are), so it is factorised by pivoted Cholesky, with no jitter. That stops where no point has more than the
    fraction n eps of its variance left: what is cut off has a standard deviation below sqrt(n eps variance), 5e-7 for
    n = 1000 and variance 1. rng gives, for each latent in turn, n normals, and n more where its noise is not zero.
    """
    arguments.generator(rng, "rng")
    points = arguments.matrix(X, "X")
    n, d = points.shape
    if n == 0 or d == 0:
        raise ValueError(f"X: found shape {points.shape}, expected at least one row and one column")
    L = arguments.size(n_latents, "n_latents")
    variances = arguments.per_latent(variance, L, "variance", positive=True)
    noises = arguments.per_latent(noise, L, "noise", positive=False)
    scales = arguments.float_array(lengthscales, "lengthscales")
    if scales.shape not in ((), (d,), (L, d)):
        raise ValueError(f"lengthscales: found shape {scales.shape}, expected a scalar, {(d,)} or {(L, d)}")
    arguments.positive_array(scales, "lengthscales")
    scale_rows = np.broadcast_to(scales, (L, d))
    latent_values = np.empty((n, L))
    for l in range(L):  # noqa: E741 - the shape letter of latents
        with np.errstate(over="ignore"):  # refused below
            scaled = points / scale_rows[l]
        if not np.all(np.isfinite(scaled)):
            smallest = float(np.min(scale_rows[l]))
            raise ValueError(f"lengthscales: found {smallest:.3g}, expected inputs / lengthscales to be finite")
        root = _semidefinite_root(np.exp(-0.5 * cdist(scaled, scaled, "sqeuclidean")))
        latent_values[:, l] = np.sqrt(variances[l]) * (root @ rng.standard_normal((n,))[: root.shape[1]])
        if noises[l] > 0.0:
            latent_values[:, l] += np.sqrt(noises[l]) * rng.standard_normal((n,))
    return latent_values


def draw_labels(
    rng: np.random.Generator, latent_values: ArrayLike, likelihood: str, epsilon: float = 0.0
) -> NDArray[np.int64]:
    """(n,) labels given (n, L) latent values.

    logit, probit                 one latent f: y = 1 with probability sigma(f), Phi(f)
    softmax                       p(y = k) proportional to exp(f^k)
    multinomial-probit            y = argmax_k f^k + N(0, 1)
    threshold                     y = argmax_k f^k; with probability epsilon any of the C labels instead, the right one
                                  included: p(y | f) = (1 - epsilon) prod Theta + epsilon/C, the robust likelihood of
                                  villacampa2017 (section 3.3) and villacampa2020
    """
    arguments.generator(rng, "rng")
    arguments.choice(likelihood, LIKELIHOODS, "likelihood")
    f = arguments.matrix(latent_values, "latent_values")
    n, L = f.shape
    if likelihood in BINARY_LIKELIHOODS and L != 1:
        raise ValueError(f"latent_values: found {L} latents, expected 1 for the {likelihood} likelihood")
    if likelihood not in BINARY_LIKELIHOODS and L < 2:
        raise ValueError(f"latent_values: found {L} latent, expected one for each class")
    epsilon = arguments.real(epsilon, "epsilon")
    if not 0.0 <= epsilon < 1.0 or (epsilon > 0.0 and likelihood != "threshold"):
        raise ValueError(f"epsilon: found {epsilon}, expected a number in [0, 1), and 0 unless threshold")
    if likelihood in BINARY_LIKELIHOODS:
        link = expit if likelihood == "logit" else ndtr
        return (rng.random(n) < link(f[:, 0])).astype(np.int64)
    if likelihood == "softmax":
        # The largest of f^k + Gumbel has the softmax probabilities.
        return np.argmax(f + rng.gumbel(size=f.shape), axis=1).astype(np.int64)
    if likelihood == "multinomial-probit":
        return np.argmax(f + rng.standard_normal(f.shape), axis=1).astype(np.int64)
    y = np.argmax(f, axis=1).astype(np.int64)
    if epsilon > 0.0:
        wrong = rng.random(n) < epsilon
        y = np.where(wrong, rng.integers(L, size=n), y)
    return y


def make_villacampa2017_toy(
    rng: np.random.Generator, n: int = 1000, variance: float = 1.0, lengthscales: ArrayLike = 1.0
) -> Dataset:
    """Three classes in the plane: villacampa2017, section 4.2; used again in villacampa2020, section 5.2.

    x uniform in [-2.5, 2.5]², three latent functions from the Gaussian process prior, y = argmax_k f^k(x); n = 1000
    training points in both papers. The papers keep the hyper-parameters at "their true values" and do not print
    them: variance = lengthscales = 1 is our choice.
    """
    arguments.generator(rng, "rng")
    X = rng.uniform(-2.5, 2.5, size=(arguments.size(n, "n"), 2))
    drawn = make_gp_classification(
        rng, n_classes=3, likelihood="threshold", variance=variance, lengthscales=lengthscales, X=X
    )
    return replace(
        drawn,
        name="villacampa2017-toy",
        citation="villacampa2017, section 4.2",
        source="make_villacampa2017_toy",
    )


def make_riihimaki2013_toy(rng: np.random.Generator, n_per_class: int = 5) -> Dataset:
    """Three classes on the line: riihimaki2013, section 5.2, Figures 2 to 4.

    n = 15 inputs from three normals with means -1, 2, 3 and standard deviations 1, 0.5, 0.5. That each class has five
    of them is our reading: the paper prints the sum, not the inputs. Its hyper-parameters are log variance = 4.62,
    log lengthscale = 0.26.
    """
    arguments.generator(rng, "rng")
    size = arguments.size(n_per_class, "n_per_class")
    y = rng.permutation(np.repeat(np.arange(3), size))
    X = rng.normal(np.array([-1.0, 2.0, 3.0])[y], np.array([1.0, 0.5, 0.5])[y])[:, None]
    return _generated("riihimaki2013-toy", X, y, 3, "riihimaki2013, section 5.2", "make_riihimaki2013_toy")


def make_waveform(rng: np.random.Generator, n: int = 1000) -> Dataset:
    """Breiman's waveforms: three classes, 21 inputs, equal class probabilities, Bayes error about 0.14.

    x_j = u a(j) + (1 - u) b(j) + N(0, 1), j = 1..21, u uniform on (0, 1), where (a, b) is (h1, h2), (h1, h3) or
    (h2, h3) by class, and h1(j) = max(6 - |j - 11|, 0), h2(j) = h1(j - 4), h3(j) = h1(j + 4).
    Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984, section 2.6.2.
    villacampa2017 (section 4.1) and villacampa2020 (section 5.1) draw n = 1000 and split them 30 % and 70 %;
    villacampa2020 (section 5.6) takes 100 for training, 500 for test and 400 to choose from.
    """
    arguments.generator(rng, "rng")
    n = arguments.size(n, "n")
    y = rng.integers(3, size=n)
    u = rng.random(n)[:, None]
    first, second = np.array([0, 0, 1])[y], np.array([1, 2, 2])[y]
    h = waveform_bases()
    X = u * h[first] + (1.0 - u) * h[second] + rng.standard_normal((n, 21))
    citation = "Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984, section 2.6.2"
    return _generated("waveform", X, y, 3, citation, "make_waveform")


def waveform_bases() -> NDArray[np.float64]:
    """(3, 21): h1, h2, h3 of `make_waveform`; triangles of height 6 with their tops at j = 11, 15, 7."""
    j = np.arange(1, 22)
    return np.stack([np.maximum(6.0 - np.abs(j - top), 0.0) for top in (11, 15, 7)])


def _semidefinite_root(K: NDArray[np.float64]) -> NDArray[np.float64]:
    """R (n, rank) with R Rᵀ = K, for a positive semidefinite K."""
    # lower = 1; a negative tolerance is LAPACK's n eps max diag K.
    factor, pivots, rank, _ = dpstrf(K, lower=1, tol=-1.0)
    root = np.empty((K.shape[0], rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root


def _generated(
    name: str, X: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, citation: str, generator: str
) -> Dataset:
    classes = tuple(str(k) for k in range(n_classes))
    features = tuple(f"x{j + 1}" for j in range(X.shape[1]))
    dataset = Dataset(name, X, y, classes, features, 0, citation, generator, "")
    return replace(dataset, sha256=dataset.content_sha256)
