"""GPflow: SVGP and VGP with Bernoulli, robust-max and softmax likelihoods, optimised to the end with the kernel held.

What the library calls Bernoulli() is a probit whose probabilities are kept 1e-3 off 0 and 1 (`inv_probit`): a model
with label errors. It is asked as it comes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from validation.door.problem import Problem
from validation.peers.program import Program, alike, binary, diagonal, one_jitter

_LBFGS = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 30}
_NATURAL_STEPS, _RATE = 200, 1.0  # after L-BFGS: natural gradients end what its line search leaves
_ROUNDS = 3
_DONE = 1e-12  # change of the bound in a natural step, relative
_SOFTMAX_POINTS, _SOFTMAX_STEPS = 1000, 400


@cache
def _library() -> tuple[Any, Any]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import gpflow
    import tensorflow as tf

    return gpflow, tf


def _shape(gpflow: Any, problem: Problem, latent: int) -> Any:
    return gpflow.kernels.SquaredExponential(problem.variance[latent], problem.lengthscales[latent])


def _noise(gpflow: Any, tf: Any, variance: float) -> Any:
    """Noise on latent values, none on inducing points, which GPflow's White would put it on too."""

    class Noise(gpflow.kernels.Kernel):
        def K(self, X: Any, X2: Any = None) -> Any:
            X2 = X if X2 is None else X2
            return tf.zeros((tf.shape(X)[0], tf.shape(X2)[0]), dtype=X.dtype)

        def K_diag(self, X: Any) -> Any:
            return tf.fill(tf.shape(X)[:-1], tf.cast(variance, X.dtype))

    return Noise()


def _likelihood(gpflow: Any, tf: Any, problem: Problem) -> Any:
    C = problem.n_classes
    if problem.likelihood == "probit":
        return gpflow.likelihoods.Bernoulli()
    if problem.likelihood == "logit":
        return gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    if problem.likelihood == "softmax":
        return gpflow.likelihoods.Softmax(C)
    if problem.epsilon == 0.0:
        raise NotImplementedError("labels without errors: the expected log-likelihood is not finite")
    # an error is any of the other classes there, any of all classes in `Problem`
    return gpflow.likelihoods.MultiClass(C, gpflow.likelihoods.RobustMax(C, epsilon=problem.epsilon * (C - 1) / C))


def _data(problem: Problem) -> tuple[Any, Any]:
    """Inputs and labels, whole numbers where the likelihood takes them for indices."""
    return problem.X, problem.y[:, None].astype(np.int64 if problem.likelihood == "softmax" else float)


def _svgp(problem: Problem) -> Mapping[str, Any]:
    gpflow, tf = _library()
    assert problem.Z is not None
    L = problem.n_latents
    kernels = [_shape(gpflow, problem, latent) for latent in range(L)]
    for latent in np.flatnonzero(problem.noise):
        kernels[latent] = kernels[latent] + _noise(gpflow, tf, float(problem.noise[latent]))
    points = [gpflow.inducing_variables.InducingPoints(problem.Z[latent].copy()) for latent in range(L)]
    kernel = kernels[0] if L == 1 else gpflow.kernels.SeparateIndependent(kernels)
    Z = points[0] if L == 1 else gpflow.inducing_variables.SeparateIndependentInducingVariables(points)
    with gpflow.config.as_context(gpflow.config.Config(jitter=one_jitter(problem))):
        model = gpflow.models.SVGP(kernel, _likelihood(gpflow, tf, problem), Z, num_latent_gps=L, whiten=True)
        fields = _fitted(gpflow, tf, model, _data(problem), problem)
        u_mean, u_cov = _inducing(model, problem)
    return fields | {"inducing_mean": u_mean, "inducing_cov": u_cov, "evidence_prior_model": "full"}


def _vgp(problem: Problem) -> Mapping[str, Any]:
    gpflow, tf = _library()
    if not alike(problem):
        raise NotImplementedError("parameters for each class")
    kernel = _shape(gpflow, problem, 0)
    if problem.noise[0] > 0.0:
        kernel = kernel + gpflow.kernels.White(float(problem.noise[0]))
    with gpflow.config.as_context(gpflow.config.Config(jitter=one_jitter(problem))):
        model = gpflow.models.VGP(
            _data(problem), kernel, _likelihood(gpflow, tf, problem), num_latent_gps=problem.n_latents
        )
        fields = _fitted(gpflow, tf, model, None, problem)
        # `predict_f` at the data would draw their noise anew
        K = np.asarray(kernel(problem.X)) + one_jitter(problem) * np.eye(problem.n)
        factor = np.linalg.cholesky(K)
        roots = factor @ np.asarray(model.q_sqrt)
    return fields | {
        "latent_mean": factor @ np.asarray(model.q_mu),
        "latent_cov": diagonal(np.einsum("lij,lij->il", roots, roots)),
    }


def _inducing(model: Any, problem: Problem) -> tuple[Any, Any]:
    """Moments (L, m), (L, m, m) of the inducing values, from whitened ones."""
    from gpflow.covariances import Kuu

    K = np.asarray(Kuu(model.inducing_variable, model.kernel, jitter=one_jitter(problem)))
    factors = np.linalg.cholesky(K if K.ndim == 3 else K[None])
    roots = factors @ np.asarray(model.q_sqrt)
    return np.einsum("lij,jl->li", factors, np.asarray(model.q_mu)), roots @ roots.transpose(0, 2, 1)


def _fitted(gpflow: Any, tf: Any, model: Any, data: Any, problem: Problem) -> dict[str, Any]:
    """The optimum over q, kernel and inducing points held, and what the model says there."""
    for part in (model.kernel, getattr(model, "inducing_variable", None)):
        if part is not None:
            gpflow.set_trainable(part, False)
    gpflow.set_trainable(model.likelihood, False)
    bound = model.training_loss if data is None else model.training_loss_closure(data, compile=False)
    if problem.likelihood == "softmax":
        value, converged = _by_draws(gpflow, tf, model, bound), True
    else:
        value, converged = _exactly(gpflow, tf, model, bound, convex=problem.likelihood != "threshold")
    mean, variance = (np.asarray(part) for part in model.predict_f(problem.X))
    fields: dict[str, Any] = {
        "log_evidence": value,
        "log_evidence_kind": "lower bound",
        "latent_mean": mean,
        "latent_cov": diagonal(variance),
        "converged": converged,
    }
    if problem.t:
        mean, variance = (np.asarray(part) for part in model.predict_f(problem.X_test))
        p = np.asarray(model.predict_y(problem.X_test)[0])
        fields |= {
            "test_latent_mean": mean,
            "test_latent_cov": diagonal(variance),
            "probabilities": binary(p) if problem.n_latents == 1 else p,
        }
    return fields


def _exactly(gpflow: Any, tf: Any, model: Any, loss: Callable[[], Any], *, convex: bool) -> tuple[float, bool]:
    """The bound at its maximum and whether the last step still moved it."""
    compiled, q = tf.function(loss), (model.q_mu, model.q_sqrt)
    for _ in range(_ROUNDS):  # the line search gives up early where the bound is flat
        gpflow.optimizers.Scipy().minimize(compiled, model.trainable_variables, options=_LBFGS)
    value = -float(compiled())
    if not convex:
        return value, True
    natural = gpflow.optimizers.NaturalGradient(_RATE)
    step = tf.function(lambda: natural.minimize(loss, [q]))
    for _ in range(_NATURAL_STEPS):
        kept = [part.numpy() for part in q]
        try:
            step()
            before, value = value, -float(compiled())
        except tf.errors.InvalidArgumentError:  # the step left the positive definite matrices
            before, value = value, -np.inf
        if not value >= before - _DONE * abs(before):
            for part, old in zip(q, kept, strict=True):
                part.assign(old)
            return before, True
        if value - before <= _DONE * abs(value):
            return value, True
    return value, False


def _by_draws(gpflow: Any, tf: Any, model: Any, loss: Callable[[], Any]) -> float:
    """The softmax's bound, which GPflow takes over draws: Adam on fresh draws, its rate falling, then a mean."""
    model.likelihood.num_monte_carlo_points = 50
    tf.random.set_seed(0)
    rate = tf.keras.optimizers.schedules.CosineDecay(0.05, _SOFTMAX_STEPS)
    adam, variables = tf.keras.optimizers.Adam(rate), model.trainable_variables

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    adam.build(variables)
    for _ in range(_SOFTMAX_STEPS):
        step()
    model.likelihood.num_monte_carlo_points = _SOFTMAX_POINTS
    return -float(np.mean([loss() for _ in range(10)]))


svgp_probit = Program(
    "gpflow-svgp-probit", "gpflow", "gpflow", ("svgpc",), ("probit",), "inducing points", _svgp,
    note="Bernoulli() keeps probabilities 1e-3 off 0 and 1",
)  # fmt: skip
svgp_logit = Program("gpflow-svgp-logit", "gpflow", "gpflow", ("svi",), ("logit",), "inducing points", _svgp)
svgp_robust_max = Program(
    "gpflow-svgp-robust-max", "gpflow", "gpflow", ("vi-robust",), ("threshold",), "inducing points", _svgp
)
vgp_probit = Program(
    "gpflow-vgp-probit", "gpflow", "gpflow", ("svgpc",), ("probit",), "all rows", _vgp,
    note="Bernoulli() keeps probabilities 1e-3 off 0 and 1",
)  # fmt: skip
vgp_logit = Program("gpflow-vgp-logit", "gpflow", "gpflow", ("svi",), ("logit",), "all rows", _vgp)
vgp_robust_max = Program(
    "gpflow-vgp-robust-max", "gpflow", "gpflow", ("vgp-robust-max",), ("threshold",), "all rows", _vgp
)
svgp_softmax = Program(
    "gpflow-svgp-softmax", "gpflow", "gpflow", ("svgp-softmax",), ("softmax",), "inducing points", _svgp,
    note="expectations over draws: the bound and the moments have Monte Carlo error",
)  # fmt: skip
vgp_softmax = Program(
    "gpflow-vgp-softmax", "gpflow", "gpflow", ("vgp-softmax",), ("softmax",), "all rows", _vgp,
    note="expectations over draws: the bound and the moments have Monte Carlo error",
)  # fmt: skip

PROGRAMS = (svgp_probit, svgp_logit, svgp_robust_max, svgp_softmax, vgp_probit, vgp_logit, vgp_robust_max, vgp_softmax)
