"""Bugs of single steps: which are kept, what is carried over, what is looked at in each; of turns that few take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from validation.seeded_bugs._seeded import seeded


def _without_root(_original: Any) -> Any:
    def damped(factor: Any, precision: Any, rhs: Any) -> Any:
        from fast.core.linalg import solve_vector

        return precision * solve_vector(factor, solve_vector(factor, rhs), transposed=True)

    return damped


def _nothing_moves(_original: Any) -> Any:
    return lambda *arguments: 0.0


def _never_ends(_original: Any) -> Any:
    return lambda: ""


def _one_restart_less(original: Any) -> Any:
    def fit_learning(data: Any, prior: Any, options: Any) -> Any:
        return original(data, prior, replace(options, restarts=options.restarts - 1))

    return fit_learning


def _first_alone(original: Any) -> Any:
    return lambda path: list(original(path))[:1]


def _without_order(original: Any) -> Any:
    def common(data: Any, prior: Any) -> Any:
        return original(data, prior)._replace(smoothness=None)

    return common


def _as_independent(_original: Any) -> Any:
    return lambda values: float(values.std(ddof=1) / np.sqrt(values.size))


def _always_built(original: Any) -> Any:
    def move(self: Any, hyper: Any, Z: Any, rebuild: bool) -> None:
        original(self, hyper, Z, True)

    return move


def _turned_round(original: Any) -> Any:
    def rows(leaves: Any, wanted: Any, labels: bool) -> Any:
        return original(leaves, np.sort(wanted), labels)

    return rows


def _mixes_coarsely(original: Any) -> Any:
    def iterate(visit: Any, start: Any, steps: Any, callback: Any = None) -> Any:
        return original(visit, start, steps._replace(tolerance=1e4 * steps.tolerance), callback)

    return iterate


def _full_steps(original: Any) -> Any:
    def come_by_way(self: Any) -> bool:
        self.rho = 1.0
        return bool(original(self))

    return come_by_way


def _goes_on(original: Any) -> Any:
    def step(self: Any, batch: Any) -> float:
        from fast.core.errors import NotPositiveDefiniteError

        try:
            return float(original(self, batch))
        except NotPositiveDefiniteError:
            return float("nan")

    return step


def _one_reading(original: Any) -> Any:
    def half_t_scale(*, variance: float = 100.0, df: float = 4.0, reading: str = "scale squared") -> float:
        return float(original(variance=variance, df=df, reading="scale squared" if reading == "moment" else reading))

    return half_t_scale


def _never_leapt(_original: Any) -> Any:
    return lambda state, log_likelihood: False


def _first_block(original: Any) -> Any:
    def look(self: Any, start: int, stop: int) -> Any:
        return original(
            self, start if self.cached is not None else 0, stop if self.cached is not None else stop - start
        )

    return look


def _as_given(_original: Any) -> Any:
    return lambda self, alone: self.training


def _per_class(original: Any) -> Any:
    return lambda self, posterior: original(self, posterior) / 3.0


def _follows_derivative(original: Any) -> Any:
    return lambda values, derivative, radius: original(np.ones_like(values), derivative, radius)


def _one_round(original: Any) -> Any:
    def estimate(rng: Any, common: Any, workers: Any = None, options: Any = None) -> Any:
        return original(rng, common, workers, replace(options, max_rounds=1))

    return estimate


def _in_order(_original: Any) -> Any:
    return lambda rng, weights: np.arange(len(weights))


def _of_the_first_axis(original: Any) -> Any:
    return lambda array, axis=0: original(array, 0)


def _unclipped(original: Any) -> Any:
    def sites(cavity: Any, tilted: Any, *, full: bool) -> Any:
        whole = original(cavity, tilted, full=True)
        return whole if full else whole._replace(precision=whole.precision * np.eye(whole.precision.shape[1]))

    return sites


def _over_before(original: Any) -> Any:
    return lambda before, after: original(after, before)


def _mirrored(original: Any) -> Any:
    def sequential(mean: Any, rows: Any, u: Any) -> Any:
        size = rows.shape[-1] - 1
        other = rows.copy()
        other[:, :size, :size] *= 2.0 * np.eye(size) - 1.0
        return original(mean, other, u)

    return sequential


def _backwards(original: Any) -> Any:
    return lambda index, count, keys: original(index, count, keys[::-1])


_ENDS = (
    seeded(
        "x-gpc-svi",
        "keys-backwards",
        "rows go where the keys in the other order send them",
        "fast.solve.minibatch:permuted",
        _backwards,
        "invariance/x-gpc-svi/order_of_keys",
    ),
    seeded(
        "laplace",
        "correlations-turned-round",
        "an entry of an orthant is moved away from where those before it are",
        "fast.likelihood.sobol_rule:_sequential",
        _mirrored,
        "limit/laplace/orthants_of_one_factor",
    ),
    seeded(
        "epgpc",
        "change-over-before",
        "a change is told relative to what was before it",
        "fast.solve.stopping:parameter_change",
        _over_before,
        "identity/epgpc/changes_in_order",
    ),
    seeded(
        "x-gpc",
        "sizes-of-the-first-axis",
        "threads are chosen by the number of classes in the place of inducing points",
        "fast.core.threads:length",
        _of_the_first_axis,
        "identity/x-gpc/sizes_of_steps",
    ),
    seeded(
        "qiep",
        "precisions-below-zero",
        "precisions that rounding leaves below zero stay there",
        "fast.full_classes.quadrature_tilt:g_sites",
        _unclipped,
        "identity/qiep/sites_without_sign",
    ),
    seeded(
        "vi-taylor",
        "leaps-unseen",
        "an expansion that leapt past the mode is kept",
        "fast.methods.vi_taylor:_overshot",
        _never_leapt,
        "identity/vi-taylor/leapt",
    ),
    seeded(
        "vi-jj",
        "first-block-again",
        "without memory every block is the first",
        "fast.one_latent.quadratic_sweep:BlockPrior.look",
        _first_block,
        "invariance/vi-jj/without_memory",
        raises=True,
    ),
    seeded(
        "x-gpc",
        "words-unchecked",
        "what is no word is compared with words",
        "fast.estimators._base:GPClassifier._way",
        _as_given,
        "identity/x-gpc/words_before_checks",
    ),
    seeded(
        "laplace",
        "derivative-of-a-class",
        "the derivative of lengthscales that classes share is that of one class",
        "fast.estimators.multiclass:_MulticlassClassifier._lengthscale_gradient",
        _per_class,
        "identity/laplace/shared_gradients",
    ),
    seeded(
        "rpapep",
        "curvature-left-out",
        "Newton's steps take all curvatures for one",
        "fast.sparse_classes.alpha_search:_within",
        _follows_derivative,
        "identity/rpapep/few_hessians",
    ),
    seeded(
        "gibbs-threshold",
        "one-round-of-islands",
        "islands do not grow whatever their error",
        "gibbs.evidence.sequential:estimate",
        _one_round,
        "exactness/gibbs-threshold/rounds_of_islands",
    ),
    seeded(
        "mh-softmax",
        "resampled-in-order",
        "particles stay where their weights are made equal",
        "gibbs.evidence.softmax_annealed:_systematic",
        _in_order,
        "exactness/mh-softmax/islands_unbiased",
    ),
)


_TURNS = (
    seeded(
        "ep",
        "mixing-ends-far-away",
        "mixing ends ten thousand tolerances from the fixed point",
        "fast.sparse_classes.mixing:iterate_sites",
        _mixes_coarsely,
        "identity/ep/mixing_refused",
    ),
    seeded(
        "apep",
        "full-steps-after-refusal",
        "full steps follow a way by easier energies that was refused",
        "fast.sparse_classes.alpha_runs:EnergyRun._come_by_way",
        _full_steps,
        "identity/apep/refused_ways",
    ),
    seeded(
        "apep",
        "goes-on-without-factor",
        "a run goes on with the next batch where a step has no factor",
        "fast.sparse_classes.alpha_joint:JointSteps.step",
        _goes_on,
        "identity/apep/unsure_factors",
    ),
    seeded(
        "laplace",
        "one-reading-for-two",
        "the second moment of a half-Student-t is taken for its squared scale",
        "fast.core.hyperprior:half_t_scale",
        _one_reading,
        "identity/laplace/readings_of_a_variance",
    ),
    seeded(
        "x-gpc",
        "rows-in-their-order",
        "rows that are asked for by number come in the order of the data",
        "fast.blockwise.engines:_rows",
        _turned_round,
        "invariance/x-gpc/rows_taken",
    ),
    seeded(
        "laplace-binary",
        "unsymmetric-step",
        "a Newton step takes W where it should take its root on both sides",
        "fast.one_latent.mode:damped",
        _without_root,
        "identity/laplace-binary/halved_steps",
    ),
    seeded(
        "nested-ep",
        "inner-moves-unseen",
        "the inner iteration takes no site to have moved",
        "reference.riihimaki2013.inner_ep:change_of_site",
        _nothing_moves,
        "identity/nested-ep/inner_edges",
    ),
    seeded(
        "ep",
        "deaf-at-the-start",
        "a search does not hear that its time is over before its first evaluation has ended",
        "fast.sparse_classes.training:ended",
        _never_ends,
        "identity/ep/ended_at_once",
        raises=True,
    ),
    seeded(
        "x-gpc",
        "one-restart-less",
        "one restart less is made than was asked for",
        "fast.methods.x_gpc:fit_learning",
        _one_restart_less,
        "identity/x-gpc/refused_restarts",
    ),
    seeded(
        "x-gpc-svi",
        "one-orphan-alone",
        "one temporary file is looked at, whatever becomes of it",
        "fast.core.checkpoint:_orphans",
        _first_alone,
        "invariance/x-gpc-svi/unreadable_orphans",
    ),
    seeded(
        "gibbs-logit",
        "order-left-out",
        "the order of the Matérn kernel is not looked at, nor is it in the file",
        "gibbs.models.sampling:_common",
        _without_order,
        "invariance/gibbs-logit/kernel_of_a_file",
    ),
    seeded(
        "gibbs-logit",
        "bridge-of-independent-draws",
        "the error of the chain's side of the bridge is that of independent draws",
        "gibbs.evidence.bridge:_batch_error",
        _as_independent,
        "exactness/gibbs-logit/bridge_of_odd_chains",
    ),
    seeded(
        "epgpc",
        "built-in-every-step",
        "q is built from all sites in every step, however seldom that was asked for",
        "fast.methods.epgpc_svi:SiteRun.move",
        _always_built,
        "identity/epgpc/refused_steps",
    ),
)

FAULTS = (*_ENDS, *_TURNS)
