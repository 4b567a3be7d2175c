"""What samplers of held priors tell of a finished run: averages with errors, whether to trust them, what it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gibbs.chains.chain import Run
from gibbs.chains.diagnostics import Convergence, long_enough, slowest_time
from gibbs.chains.moments import Array, Batches, Estimate, batch_average, batch_covariance, batches_per_chain


class Averages(NamedTuple):
    """Averages over a run, from batches that are as many as its slowest quantity allows."""

    batches: Batches

    @classmethod
    def of(cls, finished: Run, trust: Mapping[str, Convergence], n_chains: int, thin: int) -> Averages:
        """Of a run whose terms were summed (`Measures.accumulate`)."""
        assert finished.batches is not None
        count = batches_per_chain(n_chains, finished.n_draws, slowest_time(trust) / thin)
        return cls(finished.batches.joined(count))

    def average(self, terms: Array) -> Estimate:
        """Of one value for each batch, (r, b, ...)."""
        return batch_average(terms, self.batches.widths)

    def mean(self, name: str) -> Estimate:
        """Of a term."""
        return self.average(self.batches.means(name))

    def cov(self, name: str, conditional: Array) -> Estimate:
        """Covariance of what has name as its conditional mean and conditional as its conditional covariance."""
        means, second = self.batches.means(f"{name}_mean"), self.batches.means(f"{name}_second")
        return batch_covariance(means, second, conditional, self.batches.widths)


def _with_errors(**estimates: Estimate | None) -> dict[str, Any]:
    """The fields <name> and <name>_se of every estimate; None: the model has none."""
    results: dict[str, Any] = {}
    for name, value in estimates.items():
        results |= {name: value and value.mean, f"{name}_se": value and value.se}
    return results


def _run_fields(
    finished: Run, trust: Mapping[str, Convergence], movement: Array, n_chains: int, thin: int, *, sound: bool = True
) -> dict[str, Any]:
    """Verdict and course of a run: its gate is four chains that all move, long enough and converged, and no end before.

    finished : Run           of n_chains chains, a draw every `thin` sweeps
    trust                    what the diagnostics say of each quantity
    movement : (r,)          least share of draws in which an entry moves
    sound : bool             False: moves have failed, and the chains count as standing still
    """
    settled = bool(movement.min() > 0.0) and sound
    trusted = long_enough(trust, finished.n_draws * thin) and all(q.gate() for q in trust.values())
    names = ("n_sweeps", "seconds", "n_draws", "n_warmup", "keep_every", "warmed_up", "target_reached")
    return {
        "convergence": trust,
        "movement": movement,
        "settled": settled,
        "gate": n_chains >= 4 and settled and trusted and finished.warmed_up and finished.target_reached,
        "sweeps_per_second": finished.n_sweeps / max(finished.seconds, 1e-9),
        **{name: getattr(finished, name) for name in names},
    }
