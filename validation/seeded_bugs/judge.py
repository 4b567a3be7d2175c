"""Bugs that the judge must not be talked out of: variances a little off, and chains that vouch for themselves."""

from __future__ import annotations

from typing import Any

from validation.selftest import SeededBug


def _inflated(original: Any) -> Any:
    def latent(*arguments: Any, **options: Any) -> Any:
        correct = original(*arguments, **options)
        return correct._replace(var=1.05 * correct.var)

    return latent


def _vouching(method: str, problem: str) -> SeededBug:
    return SeededBug(
        f"{method}/gate-always-met",
        "gibbs",
        method,
        "every chain vouches for itself, however few its draws and whatever R-hat",
        ("gibbs.chains.diagnostics:Convergence.gate", "gibbs.chains.summary:long_enough"),
        lambda original: lambda *arguments: True,
        (problem,),
        (f"exactness/{method}/short_chains",),
    )


FAULTS = (
    SeededBug(
        "x-gpc/test-variances-inflated",
        "fast",
        "x-gpc",
        "predictive variances are 5 % too large: nearer to the truth than the method is, and seen without `reference`",
        ("fast.methods.x_gpc:sparse_latent", "fast.methods.x_gpc:full_latent"),
        _inflated,
        ("toy",),
        ("discrepancy/x-gpc/moments",),
    ),
    _vouching("gibbs-logit", "toy"),
    _vouching("gibbs-probit", "toy-3"),
    _vouching("gibbs-threshold", "toy-3-threshold"),
    _vouching("mh-softmax", "toy-3-softmax"),
)
