"""scikit-learn's GaussianProcessClassifier: Laplace's approximation, logistic function, one class against the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from validation.door.problem import Problem
from validation.peers.program import Program, diagonal, no_jitter


def _kernel(problem: Problem) -> Any:
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    no_jitter(problem)
    kernel = ConstantKernel(problem.variance[0], "fixed") * RBF(problem.lengthscales[0], "fixed")
    return kernel + WhiteKernel(problem.noise[0], "fixed") if problem.noise[0] > 0.0 else kernel


def _laplace(problem: Problem) -> Mapping[str, Any]:
    from sklearn.gaussian_process import GaussianProcessClassifier

    model = GaussianProcessClassifier(_kernel(problem), optimizer=None).fit(problem.X, problem.y)
    fitted = model.base_estimator_
    K = fitted.kernel_(problem.X)  # with the noise, which the prediction at the rows of X leaves out
    reduction = solve_triangular(fitted.L_, fitted.W_sr_[:, None] * K, lower=True)
    fields: dict[str, Any] = {
        "log_evidence": float(model.log_marginal_likelihood_value_),
        "latent_mean": (K @ (fitted.y_train_ - fitted.pi_))[:, None],
        "latent_cov": diagonal((np.diagonal(K) - (reduction**2).sum(axis=0))[:, None]),
    }
    if problem.t:
        mean, variance = model.latent_mean_and_variance(problem.X_test)
        fields |= {
            "test_latent_mean": mean[:, None],
            "test_latent_cov": diagonal(variance[:, None]),
            "probabilities": model.predict_proba(problem.X_test),
        }
    return fields


def _one_against_rest(problem: Problem) -> Mapping[str, Any]:
    from sklearn.gaussian_process import GaussianProcessClassifier

    if any(len({*map(tuple, part.reshape(problem.n_classes, -1))}) > 1 for part in (problem.variance, problem.noise)):
        raise NotImplementedError("parameters for each class")
    model = GaussianProcessClassifier(_kernel(problem), optimizer=None, multi_class="one_vs_rest")
    model.fit(problem.X, problem.y)
    if not problem.t:
        raise NotImplementedError("no test points: class probabilities there are all that it gives")
    return {"probabilities": model.predict_proba(problem.X_test)}


laplace = Program(
    "sklearn-laplace", "scikit-learn", "sklearn", ("laplace-binary",), ("logit",), "all rows", _laplace,
    note="class probabilities by a sum of five error functions in place of the logistic function",
)  # fmt: skip
one_against_rest = Program(
    "sklearn-one-vs-rest", "scikit-learn", "sklearn", ("one-vs-rest",), ("softmax",), "all rows", _one_against_rest,
    note="a binary approximation for each class, probabilities normalised: another model than the softmax",
)  # fmt: skip

PROGRAMS = (laplace, one_against_rest)
