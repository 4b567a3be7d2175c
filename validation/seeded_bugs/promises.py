"""Bugs of single steps: which are kept, what is carried over, what is looked at in each; of turns that few take."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from validation.seeded_bugs._seeded import seeded
from validation.selftest import SeededBug


def _looks_at_condition(_original: Any) -> Any:
    def factorise(matrix: Any, name: str, remedy: str) -> Any:
        from fast.core.linalg import cholesky

        return cholesky(matrix, name, remedy)

    return factorise


def _rising(monotone: bool) -> Any:
    def make(original: Any) -> Any:
        def iterate(visit: Any, start: Any, steps: Any, callback: Any = None) -> Any:
            return original(visit, start, steps._replace(monotone=monotone), callback)

        return iterate

    return make


def _brought_to_optimum(original: Any) -> Any:
    def alternate(*arguments: Any, n_upd: int, joint: bool) -> Any:
        return original(*arguments, n_upd=n_upd, joint=not joint)

    return alternate


def _from_complement(_original: Any) -> Any:
    def losing_probability(mean: Any, var: Any, y: Any) -> Any:
        from fast.likelihood.largest import argmax_moments

        return 1.0 - np.exp(argmax_moments(mean, var, y, moments=False).log_mass)

    return losing_probability


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


def _from_zero(original: Any) -> Any:
    def newton(objective: Any, start: Any, *arguments: Any) -> Any:
        return original(objective, tuple(0.0 * part for part in start), *arguments)

    return newton


def _any_sign(original: Any) -> Any:
    def propose(self: Any, visit: Any, rate: float, signed: bool) -> Any:
        return original(self, visit, rate, True)

    return propose


def _keeps_mixed(original: Any) -> Any:
    def plain(run: Any, settings: Any, callback: Any, iteration: int, improper: int, rate: float = 0.0) -> Any:
        end = original(run, settings, callback, iteration, improper, rate)
        return end._replace(converged=True)

    return plain


def _first_rows(_original: Any) -> Any:
    def sequential(mean: Any, rows: Any, u: Any) -> Any:
        return np.repeat(_original(mean[:1], rows[:1], u), len(mean))

    return sequential


def _unsynced(original: Any) -> Any:
    def replaced(path: Any, write: Any) -> None:
        with mock.patch.object(os, "fsync", return_value=None):
            original(path, write)

    return replaced


def _always_due(original: Any) -> Any:
    def hear(self: Any, what: str, value: float) -> None:
        self._next = min(self._next, 1.0)
        original(self, what, value)

    return hear


_TOLD = (
    seeded(
        "vi-taylor",
        "newton-from-zero",
        "Newton's method begins at zero wherever it is told to",
        "fast.methods.vi_taylor:newton",
        _from_zero,
        "identity/vi-taylor/starts",
    ),
    seeded(
        "epgpc",
        "mixed-to-any-sign",
        "mixed precisions are taken whatever their sign",
        "fast.solve.site_iteration:_Mixer.propose",
        _any_sign,
        "identity/epgpc/mixed_signs",
    ),
    seeded(
        "ep",
        "mixed-taken-for-certified",
        "sweeps after mixing are taken to have arrived",
        "fast.sparse_classes.training:_plain",
        _keeps_mixed,
        "identity/ep/mixing_led_nowhere",
    ),
    seeded(
        "laplace",
        "first-row-of-a-table",
        "all rows of a table are taken for its first",
        "fast.likelihood.sobol_rule:_sequential",
        _first_rows,
        "invariance/laplace/tables",
    ),
    seeded(
        "x-gpc-svi",
        "file-not-synced",
        "a checkpoint takes the old one's place before it is on the disk",
        "fast.core.checkpoint:_replace",
        _unsynced,
        "invariance/x-gpc-svi/whole_files",
    ),
    seeded(
        "svi",
        "line-at-each-look",
        "a line of progress is told at each look after the first second",
        "fast.core.ending:Ending.hear",
        _always_due,
        "identity/svi/lines_of_progress",
    ),
)


def _of_the_batch(original: Any) -> Any:
    def objective(posterior: Any, y: Any, K: Any, epsilon: float, alpha: float, n: int | None = None) -> float:
        return float(original(posterior, y, K, epsilon, alpha))

    return objective


def _always_proper(original: Any) -> Any:
    def project(*arguments: Any) -> Any:
        at = original(*arguments)
        return at._replace(proper=np.ones_like(at.proper))

    return project


def _without_rest(original: Any) -> Any:
    def tilted(cavities: Any, y: Any, cond_var: Any) -> Any:
        return original(cavities, y, 0.0 * cond_var)

    return tilted


def _one_more(original: Any) -> Any:
    def search(*arguments: Any) -> Any:
        end = original(*arguments)
        return end._replace(value=end.value - 1.0)

    return search


def _never_unbounded(_original: Any) -> Any:
    return lambda q, K_ZZ: None


def _without_reason(original: Any) -> Any:
    def stochastic(*arguments: Any) -> Any:
        return original(*arguments)._replace(reason="")

    return stochastic


def _forgets_sites(original: Any) -> Any:
    def refuse(self: Any) -> Any:
        return tuple(0.0 * part for part in original(self))

    return refuse


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


def _of_the_first_row(original: Any) -> Any:
    def modes(start: Any, rate: Any) -> Any:
        return np.full(len(start), original(start[:1], rate[:1])[0])

    return modes


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
        "ep",
        "mode-of-the-first-row",
        "the mode of the first row is taken for that of all",
        "reference.common._largest:_modes",
        _of_the_first_row,
        "identity/ep/modes_of_rows",
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

_REFERENCE = (
    seeded(
        "apep",
        "batch-for-all",
        "the bound of a mini-batch does not stand for all data",
        "reference.villacampa2020.energies:arpep_objective",
        _of_the_batch,
        "limit/apep/objectives_at_zero",
    ),
    seeded(
        "pep",
        "value-without-cavity",
        "log Z has a value where a cavity is no distribution",
        "reference.villacampa2020.fit_pep:project",
        _always_proper,
        "identity/pep/without_value",
        raises=True,
    ),
    seeded(
        "ep",
        "far-labels-without-rest",
        "tilted derivatives leave out what the inducing values leave open",
        "reference.villacampa2017.datum:tilted_of_data",
        _without_rest,
        "identity/ep/far_labels",
    ),
    seeded(
        "vi-jj-full",
        "told-less-than-found",
        "who listens is told a bound one nat lower than the search has found",
        "reference.izmailov2016.algorithm1:maximise",
        _one_more,
        "identity/vi-jj-full/told_once",
    ),
    seeded(
        "vi-robust",
        "starts-beyond-bounds",
        "an ascent begins at a q beyond all bounds",
        "reference.villacampa2017.vi_fit:unbounded",
        _never_unbounded,
        "identity/vi-robust/starts_refused",
        raises=True,
    ),
    seeded(
        "apep",
        "left-without-reason",
        "a run on batches that left the energies does not say so",
        "reference.villacampa2020.fit_energies:_stochastic",
        _without_reason,
        "identity/apep/refused_batches",
    ),
    seeded(
        "gfitc",
        "sites-forgotten",
        "sites are zero again where an extrapolation was refused",
        "reference.common._sweeps:Sweeps.refuse",
        _forgets_sites,
        "identity/gfitc/refused_extrapolations",
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

_STEPS: tuple[SeededBug, ...] = (
    seeded(
        "ep",
        "condition-in-steps",
        "the condition of K_ZZ is estimated in each step, which is refused where it is large",
        "fast.sparse_classes.projections:factorise",
        _looks_at_condition,
        "identity/ep/priors_of_steps",
    ),
    seeded(
        "epgpc",
        "steps-that-lower-taken-back",
        "a step of EP is taken back where its log Z falls, as if that were a bound",
        "fast.methods.epgpc:iterate_sites",
        _rising(True),
        "identity/epgpc/steps_kept",
    ),
    seeded(
        "svgpc",
        "steps-that-lower-kept",
        "a step is kept although the bound falls",
        "fast.methods.svgpc:iterate_sites",
        _rising(False),
        "identity/epgpc/steps_kept",
    ),
    *(
        seeded(
            method,
            "optimum-for-carried",
            "mean and covariance are brought to their optimum where they are carried over, and the other way round",
            f"fast.methods.{method.replace('-', '_')}:alternate",
            _brought_to_optimum,
            "identity/vi-taylor/carried_over",
        )
        for method in ("vi-taylor", "vi-jj")
    ),
    seeded(
        "apep",
        "sure-labels-from-complement",
        "what a label that is nearly sure leaves open is 1 - P, of which rounding leaves nothing",
        "fast.likelihood.power:losing_probability",
        _from_complement,
        "identity/apep/nearly_sure",
    ),
)

FAULTS = (*_STEPS, *_TOLD, *_REFERENCE, *_ENDS, *_TURNS)
