"""The options of all samplers, declared once by concern: type, range, default and meaning of each.

A concern is a frozen value (`Chains`, `Stored`, `Routes`, ...); the options of a sampler are a class that inherits the
concerns it needs, and a sampler is `sample(data, prior, options)`. A value is checked where it is made, whether an
option will be used or not. The rows behind `solve` and `triad solve -o` (`METHODS`) and the page docs/options.md are
made from these declarations. A subclass changes a default by `n_draws: int = 5000` and keeps the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gibbs.core.checks import Option
from gibbs.core.declare import Options, option

_LENGTH = "[1, 2147483647]"  # of an axis of an array
_MOVES = "exact moves after each sweep"
_COUNT, _POSITIVE = "[1, inf)", "(0, inf)"


# -- concerns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Seeded(Options):
    """What is drawn."""

    seed: int = option("integer", "of all that is drawn", "[0, inf)", default=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(Options):
    """Who looks on."""

    callback: Callable[[Any], object] | None = option(
        "callable", "called with the state after every sweep", default=None
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Length(Seeded):
    """How many draws, after how many sweeps."""

    n_draws: int = option("integer", "draws of each chain", _LENGTH, default=1000)
    n_warmup: Any = option("integer", "sweeps thrown away first", "[0, 2147483647]", default=50)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chains(Watched, Length):
    """Chains side by side."""

    n_chains: int = option("integer", "chains side by side", _LENGTH, default=32)
    thin: int = option("integer", "sweeps for each draw", _LENGTH, default=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Automatic(Options):
    """A warm-up that may end by itself."""

    n_warmup: int | str = option(
        "integer", "sweeps thrown away; 'auto': until chains agree", "[0, 2147483647]", choices=("auto",), default=50
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Targeted(Automatic):
    """A run that ends by what its chains are worth."""

    target_ess: float | None = option("number", "effective draws at which a run may end", _POSITIVE, default=None)
    max_draws: int | None = option("integer", "draws at which a run ends without its target", _COUNT, default=None)
    max_warmup: int = option("integer", "sweeps at which an automatic warm-up ends", _COUNT, default=25_600)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stored(Options):
    """What a run keeps, on disk and in memory."""

    checkpoint: str | os.PathLike[str] | None = option(
        "path", "file from which and into which a run continues", default=None
    )
    checkpoint_every: int = option("integer", "sweeps between two checkpoints", _COUNT, default=1000)
    max_kept_bytes: int = option("integer", "bytes of draws that are kept", _COUNT, default=500_000_000)


@dataclass(frozen=True, kw_only=True, eq=False)
class Learning(Options):
    """Which parameters of the prior are sampled, and how."""

    learn: Sequence[str] = option(
        "names", "parameters of the prior that are sampled", choices=("variance", "lengthscales", "noise"),
        default=("variance", "lengthscales"),
    )  # fmt: skip
    n_steps: int = option("integer", "steps of a move", _COUNT, default=5)
    prior_on: str = option("choice", "what the hyperprior is a density of", choices=("field", "root"), default="field")


@dataclass(frozen=True, kw_only=True, eq=False)
class Trusted(Options):
    """How well log Z is to be known."""

    target_error: float = option("number", "standard error of log Z that is trusted", _POSITIVE, default=0.05)


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes(Trusted):
    """What is asked of log Z besides draws."""

    evidence: str = option("choice", "routes to log Z", choices=("none", "chains", "particles", "all"), default="none")

    @property
    def by_draws(self) -> bool:
        """Whether the draws of the chains give one."""
        return self.evidence in ("chains", "all")

    @property
    def by_particles(self) -> bool:
        """Whether particles give one, which never see the draws."""
        return self.evidence in ("particles", "all")


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposed(Trusted, Seeded):
    """Proposals for exact draws."""

    target_error: float = 0.01
    max_proposals: int = option("integer", "proposals after which exact draws are given up", _COUNT, default=4_000_000)


@dataclass(frozen=True, kw_only=True, eq=False)
class Islands(Trusted):
    """Islands of particles, and how often the particles may be doubled."""

    target_error: float = 0.04
    n_particles: int = option("integer", "particles of an island", "[2, 2147483647]", default=64)
    n_islands: int = option("integer", "islands of particles", "[4, 2147483647]", default=16)
    max_rounds: int = option("integer", "times that the particles may be doubled", _COUNT, default=3)


@dataclass(frozen=True, kw_only=True, eq=False)
class Particles(Islands):
    """Particles that move between two powers."""

    n_steps: int = option("integer", "steps of a move", _COUNT, default=2)


# -- samplers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactOptions(Watched, Proposed):
    """Exact draws."""

    n_draws: int = option("integer", "draws of each chain", _LENGTH, default=4000)
    max_proposals: int = 20_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class EnsembleOptions(Length):
    """Walkers of an ensemble."""

    n_walkers: int = option("integer", "walkers of the ensemble", "[4, 2147483647]", default=32)
    n_draws: int = 6000
    n_warmup: int = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class LatentOptions(Stored, Targeted, Chains):
    """Chains over latent values, at held parameters of the prior."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitOptions(LatentOptions):
    """Pólya-Gamma chains."""

    n_chains: int = 16
    n_draws: int = 5000
    n_warmup: int | str = 500
    moves: Sequence[str] = option("names", _MOVES, choices=("scale", "ellipse"), default=("scale",))


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbitOptions(LatentOptions):
    """Chains of the probit likelihoods."""

    moves: Sequence[str] = option("names", _MOVES, choices=("bounce",), default=("bounce",))


@dataclass(frozen=True, kw_only=True, eq=False)
class ThresholdOptions(LatentOptions):
    """Chains of the threshold likelihood."""

    moves: Sequence[str] = option("names", _MOVES, choices=("components", "bounce"), default=("bounce",))


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxRun(Automatic, Chains):
    """Chains of the softmax likelihood, as `solve` is asked for them."""

    n_warmup: int | str = 400
    moves: Sequence[str] = option("names", _MOVES, choices=("scaled", "ellipse", "flow"), default=("flow",))


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxOptions(SoftmaxRun, LatentOptions):
    """The same, with a target and a checkpoint."""

    n_warmup: int | str = 400


@dataclass(frozen=True, kw_only=True, eq=False)
class PairwiseRun(Chains):
    """Chains of the pairwise model, as `solve` is asked for them."""

    n_chains: int = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class PairwiseOptions(Stored, PairwiseRun):
    """The same, with a checkpoint."""

    max_kept_bytes: int = 2_000_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class LearntOptions(Stored, Chains, Learning):
    """Chains over parameters of the prior and latent values: other lengths, and no route to log Z."""

    n_chains: int = 8
    n_warmup: int = 200
    max_kept_bytes: int = 2_000_000_000


# method -> what `solve` takes where the prior is held
HELD: dict[str, type[Options]] = {
    "exact-probit": ExactOptions,
    "gibbs-logit": Routes.joined(LogitOptions, evidence="all", target_error=0.03),
    "ensemble-logit": EnsembleOptions,
    "gibbs-probit": Routes.joined(ProbitOptions),
    "gibbs-threshold": Routes.joined(ThresholdOptions),
    "gibbs-pairwise": Routes.joined(PairwiseRun, evidence="all"),
    "mh-softmax": Routes.joined(SoftmaxRun, evidence="chains", target_error=0.04),
}
LEARNING = ("gibbs-logit", "gibbs-probit", "gibbs-threshold", "mh-softmax")  # whose prior may be sampled as well


def row_of(method: str) -> dict[str, Option]:
    """The options of a method: those of both kinds of runs, with the declarations of the held one; by default held.

    method : str    a name of HELD
    """
    own = HELD[method].declared()
    if method not in LEARNING:
        return own
    learnt = LearntOptions.declared()
    return {**learnt, "learn": replace(learnt["learn"], default=()), **own}


METHODS: dict[str, dict[str, Option]] = {method: row_of(method) for method in HELD}
