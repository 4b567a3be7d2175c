"""riihimaki2013, section 4.1.1: what LA-TKP loses where its modes are cut short, by a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from reference.riihimaki2013.laplace import (
    la_tkp,
    laplace_log_marginal,
    laplace_posterior,
    predict_by_evidence_ratio,
    softmax_w_matrix,
)
from validation.reproduce.decisions import Decided, surely
from validation.reproduce.experiment import Outcome, Say, experiment
from validation.reproduce.trials import Trial, TrialOptions, run

Array = NDArray[np.float64]
_DATA, _CLASSES, _PROBLEMS, _NODES = 3, 2, 40, 32


def _problem(seed: int) -> tuple[Array, NDArray[np.int64]]:
    """K of three data and a test point, class-major, and three labels."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (_DATA + 1, 1))
    K = np.zeros((_CLASSES * len(X),) * 2)
    for k in range(_CLASSES):
        block = slice(k * len(X), (k + 1) * len(X))
        K[block, block] = rng.uniform(2.0, 8.0) * np.exp(-0.5 * (X - X.T) ** 2) + 1e-6 * np.eye(len(X))
    return K, rng.integers(_CLASSES, size=_DATA)


def _exact(K: Array, y: NDArray[np.int64]) -> Array:
    """p(y_* = k) by a product rule over the differences of two latent functions, on which two classes depend alone."""
    n = len(y) + 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    grid = np.stack(np.meshgrid(*[nodes] * n, indexing="ij"), axis=-1).reshape(-1, n)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * n, indexing="ij"), axis=-1).reshape(-1, n), axis=1)
    difference = grid @ np.linalg.cholesky(K[:n, :n] + K[n:, n:]).T  # f_0 - f_1
    mass = mass * np.prod(expit(difference[:, :-1] * (1 - 2 * y)), axis=1)
    first = float(mass @ expit(difference[:, -1]) / mass.sum())
    return np.array([first, 1.0 - first])


def _one_step(K: Array, y: NDArray[np.int64]) -> Array:
    """(23) where each extended mode is one Newton step from the mode of the data and the predictive mean."""
    n = len(y)
    kept = np.concatenate([k * (n + 1) + np.arange(n) for k in range(_CLASSES)])
    data = K[np.ix_(kept, kept)]
    mode = laplace_posterior(data, y).mode
    start: Array = np.asarray(K[:, kept] @ np.linalg.solve(data, mode))

    def log_evidence(covariance: Array, labels: NDArray[np.int64]) -> float:
        if len(labels) == n:
            return laplace_log_marginal(mode, covariance, labels)
        W = softmax_w_matrix(start, len(labels))
        A = np.linalg.inv(covariance) + W
        # one-hot labels less softmax: the gradient of log p(y|f), class by class
        gradient = (np.eye(_CLASSES)[labels].T - softmax(start.reshape(_CLASSES, -1), axis=0)).ravel()
        step = np.asarray(np.linalg.solve(A, W @ start + gradient), dtype=np.float64)
        fit = float(log_softmax(step.reshape(_CLASSES, -1), axis=0)[labels, np.arange(len(labels))].sum())
        W = softmax_w_matrix(step, len(labels))
        log_root = 0.5 * np.linalg.slogdet(np.eye(len(step)) + covariance @ W)[1]
        return fit - 0.5 * float(step @ np.linalg.solve(covariance, step)) - float(log_root)

    return predict_by_evidence_ratio(log_evidence, K, y, _CLASSES)


def _naive(seed: int) -> Iterable[Decided]:
    whole, cut = [], []
    for draw in range(seed, seed + _PROBLEMS):
        K, y = _problem(draw)
        exact = _exact(K, y)
        whole.append(float(np.abs(la_tkp(K, y, _CLASSES) - exact).max()))
        cut.append(float(np.abs(_one_step(K, y) - exact).max()))
    text = f"{_PROBLEMS} small problems, largest error of a class probability by quadrature: LA-TKP, mean "
    text += f"{np.mean(whole):.4f}, less one Newton step from the predictive mean, mean {np.mean(cut):.4f}"
    yield surely("tkp-naive", text, whole, cut)


TRIALS: Mapping[str, Trial] = MappingProxyType({"tkp-naive": _naive})


@experiment(
    "riihimaki2013",
    "trials",
    "a statement of section 4.1.1, by a trial",
    "further approximations to LA-TKP can only reduce its accuracy (section 4.1.1)",
)
def trials(asked: TrialOptions, say: Say) -> Outcome:
    """Three data, two classes and a test point, whose probabilities quadrature gives."""
    return run(TRIALS, asked, say, ("the paper names no approximation: one Newton step for each extended mode here",))
