"""Effective draws a second of `gibbs` beside NumPyro's NUTS on the same posterior. Optional: needs numpyro.

Both draw from p(f | y) of one problem with its prior held; NUTS moves whitened values, f = L xi, as suits it best. Its
kernel runs in one compiled scan, compiled and adapted before its clock starts, and warms up as long as it draws. The
effective number is that of the worst latent value (bulk, ArviZ's definition for both). Seconds are those of drawing,
warm-up left out on either side: CPU seconds of NUTS, elapsed seconds of ours, which are no fewer on one thread.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validation import problems, solve
from validation.bench.measure import Row
from validation.door.problem import Problem
from validation.judge.compare import prior_matrix

Array = NDArray[np.float64]
_ASKED = 100.0
# problem, method of gibbs, options in which the draws it has time for are many
Case = tuple[str, str, dict[str, Any]]
CASES: tuple[Case, ...] = (
    ("toy", "gibbs-logit", {"n_draws": 2000}),
    ("iris", "gibbs-logit", {"n_draws": 2000}),
    ("toy-3", "exact-probit", {"n_draws": 4000}),
)


def nuts(*, n_chains: int = 4, n_draws: int = 1000, cases: Sequence[Case] = CASES) -> Iterable[Row]:
    """Effective draws of the worst latent value a second, and how many times those of NUTS they are.

    Parameters
    ----------
    n_chains, n_draws    of NUTS
    cases                name of a problem, method of gibbs, its options

    Raises LookupError where NumPyro is not installed.
    """
    if importlib.util.find_spec("numpyro") is None:
        raise LookupError("numpyro: found no such package, expected it beside this one: pip install numpyro")
    for name, method, options in cases:
        problem = problems.get(name)
        theirs = _nuts(problem, n_chains, n_draws)
        ours = _gibbs(problem, method, options)
        yield from rows(f"{name}, {problem.likelihood}", method, ours, theirs)


def rows(what: str, method: str, ours: float, theirs: float) -> Iterable[Row]:
    """Effective draws a second of both, and their ratio."""
    yield Row("gibbs/nuts", f"{what}: {method}, effective draws", ours, "1/s", "", None)
    yield Row("gibbs/nuts", f"{what}: NUTS, effective draws", theirs, "1/s", "", None)
    ratio = ours / theirs
    yield Row("gibbs/nuts", f"{what}: {method} over NUTS", ratio, "", f">= {_ASKED:g}", ratio >= _ASKED)


def worst_effective(draws: Array) -> float:
    """Smallest bulk effective size over the values of draws (chains, draws, values)."""
    from arviz_stats.base import array_stats  # takes most of a second to load

    return float(np.min(array_stats.ess(draws, chain_axis=0, draw_axis=1)))


def _gibbs(problem: Problem, method: str, options: dict[str, Any]) -> float:
    if method == "exact-probit":  # every draw is independent
        started = time.process_time()
        solve("gibbs", method, problem, seed=2, **options)
        return float(options["n_draws"] / (time.process_time() - started))
    solution = solve("gibbs", method, problem, seed=2, evidence="none", **options)
    return float(solution.settings["ess_latent"] / solution.settings["sampling_seconds"])


def _nuts(problem: Problem, n_chains: int, n_draws: int) -> float:
    jax, numpyro = importlib.import_module("jax"), importlib.import_module("numpyro")
    infer = importlib.import_module("numpyro.infer")
    jnp, dist = importlib.import_module("jax.numpy"), importlib.import_module("numpyro.distributions")
    jax.config.update("jax_enable_x64", True)
    roots = jnp.asarray(prior_roots(problem))  # (L, n, n)
    y = jnp.asarray(problem.y)

    def model() -> None:
        xi = numpyro.sample("xi", dist.Normal(0.0, 1.0).expand(roots.shape[:2]).to_event(2))
        f = jnp.einsum("lij,lj->il", roots, xi)
        if problem.likelihood == "logit":
            value = jax.nn.log_sigmoid((2.0 * y - 1.0) * f[:, 0]).sum()
        else:
            value = _log_probit(jax, jnp, f, y).sum()
        numpyro.factor("labels", value)

    kernel = infer.NUTS(model)

    def draw(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})
        return state, jnp.einsum("lij,lj->li", roots, state.z["xi"]).reshape(-1)

    starts = [kernel.init(key, n_draws, None, (), {}) for key in jax.random.split(jax.random.PRNGKey(0), n_chains)]
    run = jax.jit(lambda state: jax.lax.scan(draw, state, None, length=n_draws)).lower(starts[0]).compile()
    adapted = [jax.block_until_ready(run(start))[0] for start in starts]  # as many steps as the kernel adapts
    started = time.process_time()
    draws = np.array([np.asarray(run(state)[1]) for state in adapted])
    seconds = time.process_time() - started
    return worst_effective(draws) / seconds


def _log_probit(jax: Any, jnp: Any, f: Any, y: Any) -> Any:
    """log p(y_i = argmax of f + e) of the multinomial probit, e ~ N(0, I): the mean over e_y by Gauss and Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    own = jnp.take_along_axis(f, y[:, None], axis=1)
    gaps = own[:, :, None] + jnp.asarray(nodes)[None, None, :] - f[:, :, None]  # (n, C, nodes)
    others = jnp.arange(f.shape[1])[None, :] != y[:, None]
    log_phi = jnp.where(others[:, :, None], jax.scipy.special.log_ndtr(gaps), 0.0).sum(axis=1)
    return jax.scipy.special.logsumexp(log_phi + jnp.asarray(np.log(weights / weights.sum())), axis=1)


def prior_roots(problem: Problem) -> Array:
    """Cholesky factors of the prior covariances at the data, noise and jitter in them: (L, n, n); of full GPs."""
    return np.linalg.cholesky(np.array([prior_matrix(problem, latent) for latent in range(problem.n_latents)]))
