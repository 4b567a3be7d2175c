"""`gibbs` behind the one door where kernel parameters are learnt: chains over parameters and latent values together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import numpy as np

from gibbs.core.options import LearntOptions, row_of
from gibbs.models import hyper
from validation.door import arguments
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.door.solve import check_options
from validation.implementations.gibbs.asked import by_keywords, moments_of, signature, values
from validation.implementations.gibbs.diagnosis import diagnosed

# the likelihoods of each method, as without `learn`
METHODS = {
    "gibbs-logit": ("logit",),
    "gibbs-probit": ("probit", "multinomial-probit"),
    "gibbs-threshold": ("threshold",),
    "mh-softmax": ("softmax",),
}


def learnt(method: str, problem: Problem, options: Any) -> Solution:
    """Answer `method` with the fields of `learn` sampled under problem.hyperprior instead of held.

    The solution's problem stands at exp(posterior mean of the logarithm) of each field learnt; every moment,
    probability and error is averaged over the parameters. `local` has, for each field, <field>_draws (r, s, B) or
    (r, s, B, d) with B = 1 where shared, <field>_mean and _se, log_<field>_mean, _var and their _se.
    options: a LearntOptions; its prior_on "field" puts a prior of variance or noise on the field itself, "root" on its
    square root (the lengthscales' always sits on them).
    """
    who = f"gibbs {method} with learn"
    likelihoods = METHODS[arguments.choice(method, tuple(METHODS), "method")]
    if problem.likelihood not in likelihoods:
        raise ValueError(f"likelihood: found {shown(problem.likelihood)}, expected one of {likelihoods} for {who}")
    if problem.kernel != "se":
        raise ValueError(f"kernel: found {shown(problem.kernel)}, expected 'se' for {who}")
    data, prior = values(problem)
    prior = replace(prior, shared=problem.shared or problem.n_latents == 1)
    lengths = {name: getattr(options, name) for name in ("n_chains", "n_draws", "n_warmup", "thin")}
    result = hyper.sample(problem.likelihood, data, prior, options, epsilon=problem.epsilon)
    fields = options.learn
    local: dict[str, Any] = {"log_joint": result.log_joint}
    for name in fields:
        local |= {
            f"{name}_draws": result.hyper_draws[name],
            f"{name}_mean": result.hyper_mean[name],
            f"{name}_se": result.hyper_mean_se[name],
            f"log_{name}_mean": result.log_hyper_mean[name],
            f"log_{name}_mean_se": result.log_hyper_mean_se[name],
            f"log_{name}_var": result.log_hyper_var[name],
            f"log_{name}_var_se": result.log_hyper_var_se[name],
        }
    diagnosis = diagnosed(result, result.convergence, options.n_chains)
    return Solution(
        problem=problem.replace(**{name: np.exp(result.log_hyper_mean[name]) for name in fields}),
        implementation="gibbs",
        method=method,
        log_evidence_kind="sampled",
        ess=diagnosis.ess,
        r_hat=diagnosis.r_hat,
        converged=diagnosis.converged,
        local=local,
        trace=result.log_joint[0],
        iterations=result.n_sweeps,
        settings={
            **lengths,
            "seed": options.seed,
            "learn": list(fields),
            "prior_on": options.prior_on,
            "n_steps": options.n_steps,
            "movement": float(result.movement.min()),
            "acceptance": result.acceptance,
            "step_size": float(result.step_size.mean()),
            **{f"refused_{name}": value for name, value in result.refused.items()},
            "sampling_seconds": result.seconds,
            "sweeps_per_second": result.sweeps_per_second,
            **diagnosis.settings,
        },
        **moments_of(result, problem),
    )


def learning(method: str, held: Callable[..., Solution]) -> Callable[..., Solution]:
    """The adapter `held` of a method, with the option learn: fields to sample, by default none of them.

    With fields in it the answer is that of `learnt`, with its options and defaults; an option that only the other one
    knows is refused by name.
    """

    sampled = by_keywords(LearntOptions)(partial(learnt, method))

    @wraps(held)
    def answer(problem: Problem, *, learn: Sequence[str] = (), **options: Any) -> Solution:
        if len(learn) == 0:
            check_options(held, options, f"gibbs {method}")
            return held(problem, **options)
        check_options(sampled, options, f"gibbs {method} with learn")
        return sampled(problem, learn=learn, **options)

    answer.__signature__ = signature(row_of(method))  # type: ignore[attr-defined]
    return answer
