"""GPyTorch: variational inference with its Bernoulli likelihood, a probit, and Pólya-Gamma variables by natural steps.

The second follows the likelihood that its documentation teaches: expectations of the augmented model at the best local
parameters, without the terms that the gradient does not need, so that it gives no bound.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from validation.door.problem import Problem
from validation.peers.program import Program, binary, diagonal, one_jitter

_LBFGS_ROUNDS, _ITERATIONS = 5, 500
_DONE = 1e-9  # change of the objective over a round, relative
_NATURAL_STEPS = 400  # of the Pólya-Gamma updates at rate one: each is the closed form of a whole pass


@cache
def _library() -> tuple[Any, Any]:
    import gpytorch
    import torch

    torch.set_default_dtype(torch.float64)
    return gpytorch, torch


def _kernel(gpytorch: Any, torch: Any, problem: Problem) -> Any:
    shape = gpytorch.kernels.RBFKernel(ard_num_dims=problem.d)
    shape.lengthscale = torch.tensor(problem.lengthscales[0].copy())
    kernel = gpytorch.kernels.ScaleKernel(shape)
    kernel.outputscale = float(problem.variance[0])
    return kernel


def _model(gpytorch: Any, torch: Any, problem: Problem, q: Any) -> Any:
    """A GP on the problem's inducing points, which have no noise, or on all rows with theirs."""
    Z = problem.X if problem.Z is None else problem.Z[0]
    noise, m = float(problem.noise[0]), len(Z)
    full = problem.Z is None
    linear_operator = importlib.import_module("linear_operator")

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            strategy = gpytorch.variational.VariationalStrategy(
                self, torch.tensor(Z.copy()), q(m), learn_inducing_locations=False, jitter_val=one_jitter(problem)
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = _kernel(gpytorch, torch, problem)

        def forward(self, x: Any) -> Any:
            own = noise * torch.eye(len(x))  # x has the inducing points first
            if not full:
                own[:m, :m] = 0.0
            elif len(x) == 2 * m and torch.equal(x[:m], x[m:]):  # the data themselves: the same noise twice
                own[:m, m:] = own[m:, :m] = noise * torch.eye(m)
            # a linear operator: of a plain tensor it would ask a Cholesky factor, which equal rows do not have
            K = linear_operator.to_linear_operator(self.covar_module(x).to_dense() + own)
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), K)

    model = Model().double()
    for parameter in model.hyperparameters():
        parameter.requires_grad_(False)
    return model


def _said(torch: Any, model: Any, likelihood: Any, problem: Problem) -> dict[str, Any]:
    model.eval()
    with torch.no_grad():
        latent = model(torch.tensor(problem.X.copy()))
        fields: dict[str, Any] = {
            "latent_mean": latent.mean.numpy()[:, None],
            "latent_cov": diagonal(latent.variance.numpy()[:, None]),
        }
        if problem.t:
            assert problem.X_test is not None
            latent = model(torch.tensor(problem.X_test.copy()))
            fields |= {
                "test_latent_mean": latent.mean.numpy()[:, None],
                "test_latent_cov": diagonal(latent.variance.numpy()[:, None]),
            }
            if likelihood is not None:
                fields["probabilities"] = binary(likelihood(latent).probs.numpy())
    return fields


def _variational(problem: Problem) -> Mapping[str, Any]:
    gpytorch, torch = _library()
    torch.manual_seed(0)
    model = _model(gpytorch, torch, problem, gpytorch.variational.CholeskyVariationalDistribution)
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    X, y = torch.tensor(problem.X.copy()), torch.tensor(problem.y.astype(float))
    model.train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=problem.n)
    last, converged = np.inf, False
    for _ in range(_LBFGS_ROUNDS):
        search = torch.optim.LBFGS(
            list(model.variational_parameters()), max_iter=_ITERATIONS, history_size=50, tolerance_grad=1e-11,
            tolerance_change=1e-16, line_search_fn="strong_wolfe",
        )  # fmt: skip

        def closure(search: Any = search) -> Any:
            search.zero_grad()
            loss = -objective(model(X), y) * problem.n
            loss.backward()
            return loss

        search.step(closure)
        value = float(closure().detach())
        if abs(value - last) <= _DONE * abs(value):
            converged = True
            break
        last = value
    bound = {"log_evidence": -value, "log_evidence_kind": "lower bound", "evidence_prior_model": "full"}
    return bound | {"converged": converged} | _said(torch, model, likelihood, problem)


def _polya_gamma(problem: Problem) -> Mapping[str, Any]:
    gpytorch, torch = _library()
    torch.manual_seed(0)
    model = _model(gpytorch, torch, problem, gpytorch.variational.NaturalVariationalDistribution)

    class PolyaGamma(gpytorch.likelihoods.BernoulliLikelihood):  # type: ignore[name-defined]
        def expected_log_prob(self, target: Any, dist: Any, *_: Any, **__: Any) -> Any:
            mean, var = dist.mean, dist.variance
            c = (mean.detach() ** 2 + var.detach()).sqrt()
            theta = torch.tanh(0.5 * c) / (2.0 * c)
            return 0.5 * (target * mean - theta * (mean**2 + var))

    X, y = torch.tensor(problem.X.copy()), torch.tensor(problem.y_sign.copy())
    model.train()
    objective = gpytorch.mlls.VariationalELBO(PolyaGamma(), model, num_data=problem.n)
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=problem.n, lr=1.0)
    last, converged = np.inf, False
    for _ in range(_NATURAL_STEPS):
        natural.zero_grad()
        loss = -objective(model(X), y)
        loss.backward()
        natural.step()
        value = float(loss.detach())
        if abs(value - last) <= 1e-13 * abs(value):
            converged = True
            break
        last = value
    return {"converged": converged} | _said(torch, model, None, problem)


variational = Program(
    "gpytorch-variational", "gpytorch", "gpytorch", ("svgpc",), ("probit",), "either", _variational,
    note="expectations by 20 points of Gauss-Hermite quadrature; its jitter is on the data's covariance too",
)  # fmt: skip
polya_gamma = Program(
    "gpytorch-polya-gamma", "gpytorch", "gpytorch", ("x-gpc",), ("logit",), "either", _polya_gamma,
    note="moments only: its documentation's likelihood leaves out what the gradient does not need",
)  # fmt: skip

PROGRAMS = (variational, polya_gamma)
