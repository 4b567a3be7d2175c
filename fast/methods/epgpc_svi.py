"""epgpc on mini-batches: the sites of a batch are refreshed side by side, or in order. A baseline of wenzel2019.

q(u) is kept whitened, P = I + A T A' and w = A nu over all n sites, and a batch adds the change of its own sites: time
O(b m^2 + m^3) a step whatever n is. Sites take 16 n bytes, in memory or in a file.

Learning: after a batch one step of Adam on the batch's estimate of log Z_EP at fixed sites,

    (n/s) sum over S of log s_i + (|R^-1 w|^2 - log|P|)/2,

whose gradient takes the data terms of the batch n/s times (see `fast.one_latent.site_gradients`): over all data at the
fixed point it is the gradient of log Z_EP. Sites are functions of upsilon_i'u, which moves with the kernel: P and w are
then summed anew over all data, O(n m^2), every `rebuild_every` steps; in between, the sum of sites is held as it is in
u.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk

from fast.core import inputs
from fast.core.declare import option, takes_values
from fast.core.errors import NotPositiveDefiniteError
from fast.core.inputs import Hyper
from fast.core.linalg import cholesky, solve_rows, solve_vector, squared_norms
from fast.core.options import AdamRate, Blocks, Damped, Learning, Steps, Stopping, Storage, Traced, Watched
from fast.core.threads import one_thread
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior, checked_binary, moved
from fast.kernel.kernels import gram
from fast.methods.epgpc import EPGPCPosterior, assemble, refresh, sweep
from fast.methods.x_gpc import prepare
from fast.one_latent.predict import ProbitPrediction, probit_prediction, sparse_latent
from fast.one_latent.prior import SparsePrior, whiten
from fast.one_latent.site_gradients import add_outer, sparse_site_gradients
from fast.one_latent.sites import cavity, log_site_scale
from fast.solve.adam import AdamState, Packing, adam_step
from fast.solve.minibatch import epochs_of_indices, index_lists
from fast.solve.natural import Moments, factor_precision, moments, move_kernel
from fast.solve.site_iteration import site_gap
from fast.solve.steps import Ended, Stepping, run_steps
from fast.solve.stopping import Falling, converged_parameters, parameter_change


@dataclass(frozen=True, kw_only=True, eq=False)
class EPGPCSteps(Watched, Traced, Damped, Blocks, Steps, Stopping, Learning, AdamRate):
    """Options of `fit`."""

    parallel: bool = option("flag", "whether the sites of a batch are refreshed side by side", default=True)
    rebuild_every: int = option("integer", "steps between two sums of q from all sites", "[1, inf)", default=1)
    site_file: str | os.PathLike[str] | None = option("path", "file in which the sites live", default=None)


DEFAULTS = EPGPCSteps()


class Progress(NamedTuple):
    """What a callback sees after every step."""

    iteration: int
    n_steps: int
    log_evidence: float  # batch estimate of log Z_EP; NaN where none was asked for
    n_improper: int
    hyper: Hyper
    run: SiteRun  # sites and q(u) after the step; the next step changes it


@dataclass(frozen=True, eq=False)
class EPRun:
    """Where a run on mini-batches ended."""

    posterior: EPGPCPosterior  # from one pass over all data at the last sites: log Z_EP is that of all data
    trace: FloatArray  # batch estimates of log Z_EP, one a step; empty if not asked for
    iterations: int
    n_improper: int  # cavities skipped in all steps
    converged: bool
    diverged: bool
    reason: str

    @property
    def hyper(self) -> Hyper:
        """Parameters of the prior, as learned."""
        return self.posterior.prior.hyper

    @property
    def Z(self) -> FloatArray:
        """Inducing points, as learned: (m, d)."""
        assert isinstance(self.posterior.prior, SparsePrior)
        return self.posterior.prior.Z


class SiteSums(NamedTuple):
    """q(v) = N(P^-1 w, P^-1) from all sites."""

    shift: FloatArray  # w, (m,)
    precision: FloatArray  # P, (m, m), symmetric


class View(NamedTuple):
    """A batch seen through the inducing points."""

    rows: FloatArray  # (b, m)
    cond_var: FloatArray  # (b,)
    y_sign: FloatArray  # (b,)


@one_thread
def sum_sites(
    X: Any,
    Z: FloatArray,
    hyper: Hyper,
    chol_K: FloatArray,
    site_precision: FloatArray,
    site_shift: FloatArray,
    block_size: int,
) -> SiteSums:
    """P = I + A T A' and w = A nu over all data, block by block. Time O(n m (m + d)), memory of a block.

    Parameters
    ----------
    X : (n, d)                           may be a numpy.memmap
    Z : (m, d)
    hyper                                parameters of the prior
    chol_K : (m, m)                      L
    site_precision, site_shift : (n,)    tau, nu
    block_size : int
    """
    m = Z.shape[0]
    P, shift = np.eye(m, order="F"), np.zeros(m)
    for start in range(0, site_shift.size, block_size):
        part = slice(start, start + block_size)
        if not (site_precision[part].any() or site_shift[part].any()):
            continue
        block = inputs.finite_rows("X", X[part], start)
        rows = whiten(block, Z, chol_K, hyper.variance, hyper.lengthscales, hyper.noise).rows
        P = dsyrk(1.0, (rows * np.sqrt(site_precision[part])[:, None]).T, beta=1.0, c=P, lower=True, overwrite_c=True)
        shift += rows.T @ site_shift[part]
    return SiteSums(shift, P + np.tril(P, -1).T)


@one_thread
def add_sites(sums: SiteSums, rows: FloatArray, precision_change: FloatArray, shift_change: FloatArray) -> SiteSums:
    """Add the changes of a batch's sites. Time b m^2.

    Parameters
    ----------
    sums                          P and w before
    rows : (b, m)                 row i is a_i
    precision_change : (b,)       of tau, any sign
    shift_change : (b,)           of nu
    """
    P = add_outer(np.array(sums.precision, order="F"), rows, precision_change)
    return SiteSums(sums.shift + rows.T @ shift_change, np.tril(P) + np.tril(P, -1).T)


class SiteRun:
    """Sites, q(u) and the kernel that they stand on."""

    def __init__(self, X: Any, y_sign: FloatArray, Z: FloatArray, hyper: Hyper, sites: FloatArray, block: int) -> None:
        self.X, self.y_sign, self.block_size = X, y_sign, block
        self.precision, self.shift = sites
        self.n_improper = 0
        self.set_kernel(hyper, Z)
        self.rebuild()

    def set_kernel(self, hyper: Hyper, Z: FloatArray) -> None:
        K_ZZ = gram(Z, hyper.variance, hyper.lengthscales, 0.0, hyper.jitter, hyper.smoothness)
        self.chol_K = cholesky(K_ZZ, "K_ZZ", "raise jitter or remove duplicate rows of Z")
        self.hyper, self.Z = hyper, Z

    def rebuild(self) -> None:
        """P and w from all sites at the present kernel."""
        self.sums = sum_sites(self.X, self.Z, self.hyper, self.chol_K, self.precision, self.shift, self.block_size)
        self.factor = factor_precision(self.sums.precision)

    def view(self, batch: IntArray) -> View:
        hyper = self.hyper
        block = inputs.finite_rows("X", self.X[batch])
        rows, cond_var = whiten(block, self.Z, self.chol_K, hyper.variance, hyper.lengthscales, hyper.noise)
        return View(rows, cond_var, self.y_sign[batch])

    def cavities(self, batch: IntArray, rows: FloatArray) -> tuple[FloatArray, Any]:
        """Means of t_i under q, and the cavities of a batch. Time b m^2."""
        whitened = solve_rows(self.factor, rows.copy())
        mean, var = whitened @ solve_vector(self.factor, self.sums.shift), squared_norms(whitened)
        tau, nu = self.precision[batch], self.shift[batch]
        return mean, cavity(mean, var, 1.0 - tau * var, tau, nu)

    def predict(self, X_test: Any, *, block_size: int = 4096) -> ProbitPrediction:
        """Predictions with q(u) as it is now. Time O(t m (m + d))."""
        weights = solve_vector(self.factor, solve_vector(self.factor, self.sums.shift), transposed=True)
        latent = sparse_latent(X_test, self.Z, self.hyper, self.chol_K, self.factor, weights, block_size)
        return probit_prediction(latent.mean, latent.var)

    def step(self, batch: IntArray, view: View, damping: float) -> None:
        """Refresh the sites of a batch, all from the same q, then q."""
        value = self.cavities(batch, view.rows)[1]
        _, precision, shift = refresh(view.y_sign, value, view.cond_var)
        changes = [
            np.where(value.proper, damping * (new - old), 0.0)
            for new, old in ((precision, self.precision[batch]), (shift, self.shift[batch]))
        ]
        if not (np.isfinite(changes[0]).all() and np.isfinite(changes[1]).all()):
            raise ValueError("sites: found a value that is not finite, expected finite numbers; lower damping")
        self.n_improper += int(np.count_nonzero(~value.proper))
        sums = add_sites(self.sums, view.rows, *changes)
        self.factor = factor_precision(sums.precision)
        self.sums = sums
        self.precision[batch] += changes[0]
        self.shift[batch] += changes[1]

    def step_in_order(self, batch: IntArray, view: View, damping: float) -> None:
        """Refresh the sites of a batch one after the other, q after each by a rank-one update. Time b m^2 + m^3."""
        inverse = solve_rows(self.factor, np.eye(len(self.factor))).T
        S = inverse.T @ inverse
        weights = S @ self.sums.shift
        start = self.precision[batch], self.shift[batch]
        for k, i in enumerate(batch):
            row = view.rows[k]
            cov_row = S @ row
            var, mean = np.array([row @ cov_row]), np.array([row @ weights])
            tau, nu = self.precision[i : i + 1], self.shift[i : i + 1]
            result = cavity(mean, var, 1.0 - tau * var, tau, nu)
            if not result.proper[0]:
                self.n_improper += 1
                continue
            _, new_tau, new_nu = refresh(view.y_sign[k : k + 1], result, view.cond_var[k : k + 1])
            by_tau, by_nu = float(damping * (new_tau - tau)[0]), float(damping * (new_nu - nu)[0])
            if not np.isfinite(by_tau + by_nu):
                raise ValueError("sites: found a value that is not finite, expected finite numbers; lower damping")
            gain = 1.0 + by_tau * var[0]
            weights = weights + cov_row * ((by_nu - by_tau * mean[0]) / gain)
            S -= np.outer(cov_row, cov_row * (by_tau / gain))
            self.precision[i] += by_tau
            self.shift[i] += by_nu
        once = np.unique(batch, return_index=True)[1]
        sums = add_sites(
            self.sums,
            view.rows[once],
            self.precision[batch[once]] - start[0][once],
            self.shift[batch[once]] - start[1][once],
        )
        self.factor = factor_precision(sums.precision)
        self.sums = sums

    def estimate(self, batch: IntArray, view: View) -> float:
        """(n/s) sum over S of log s_i + (|R^-1 w|^2 - log|P|)/2."""
        _, result = self.cavities(batch, view.rows)
        link = refresh(view.y_sign, result, view.cond_var)[0]
        scales = log_site_scale(link.value, result.mean, result.var, self.precision[batch], self.shift[batch])
        whitened = solve_vector(self.factor, self.sums.shift)
        log_det = 2.0 * float(np.log(self.factor.diagonal()).sum())
        return self.y_sign.size / batch.size * float(scales.sum()) + 0.5 * (float(whitened @ whitened) - log_det)

    def gradient(self, batch: IntArray, view: View, packing: Packing) -> FloatArray:
        """Gradient of the estimate in the coordinates that are learned. Time O(b m (m + d) + m^3)."""
        mean, result = self.cavities(batch, view.rows)
        link = refresh(view.y_sign, result, view.cond_var)[0]
        scale = self.y_sign.size / batch.size
        tau, nu = self.precision[batch], self.shift[batch]
        prior = SparsePrior(self.X[batch], view.y_sign, self.Z, self.hyper, self.block_size, 2**62)
        weights = solve_vector(self.factor, solve_vector(self.factor, self.sums.shift), transposed=True)
        open_precision = -(link.derivative**2 + link.curvature)
        new_gradients = sparse_site_gradients(
            prior, self.factor, weights, scale * (nu - tau * mean), scale * tau, scale * open_precision
        )
        return packing.gradient(new_gradients, self.hyper)

    def move(self, hyper: Hyper, Z: FloatArray, rebuild: bool) -> None:
        """Another kernel under the same sites."""
        old = self.chol_K
        self.set_kernel(hyper, Z)
        if not rebuild:
            held = np.array(self.sums.precision, order="C")
            held.flat[:: held.shape[0] + 1] -= 1.0
            shift, precision = move_kernel(self.sums.shift, held, old, self.chol_K)
            precision = np.array(precision, order="C")
            precision.flat[:: held.shape[0] + 1] += 1.0
            self.sums = SiteSums(shift, precision)
            try:
                self.factor = factor_precision(precision)
            except NotPositiveDefiniteError:
                rebuild = True
        if rebuild:
            self.rebuild()


class _Steps(Stepping):
    """Sites of a batch, then the prior where it is learned."""

    def __init__(self, run: SiteRun, packing: Packing, indices: Iterator[IntArray], options: EPGPCSteps) -> None:
        self.run, self.packing, self.indices, self.options = run, packing, indices, options
        self.adam, self.falling = AdamState.start(packing.size), Falling(run.y_sign.size)
        self.estimates: list[float] = []
        self.changes: deque[float] = deque(maxlen=options.window)
        self.before: Moments | None = None

    def draw(self) -> IntArray:
        return next(self.indices)

    def step(self, batch: IntArray) -> float:
        run, options = self.run, self.options
        estimate = float("nan")
        if not options.parallel:
            run.step_in_order(batch, run.view(batch), options.damping)
        batch = np.unique(batch)
        view = run.view(batch)
        if options.parallel:
            run.step(batch, view, options.damping)
        if options.trace or self.packing.size:
            estimate = run.estimate(batch, view)
        if self.packing.size:
            self._move_kernel(batch, view)
        if options.trace:
            self.estimates.append(estimate)
        self.iteration += 1
        return estimate

    def _move_kernel(self, batch: IntArray, view: View) -> None:
        run, packing, options = self.run, self.packing, self.options
        derivative = run.gradient(batch, view, packing) + packing.prior(run.hyper)[1]
        if not np.isfinite(derivative).all():
            raise ValueError("the gradient with respect to the prior is not finite")
        move, self.adam = adam_step(derivative, self.adam, options.learning_rate)
        hyper, Z = packing.parameters(packing.vector(run.hyper, run.Z) + move, run.hyper, run.Z)
        assert Z is not None
        good = (run.hyper, run.Z)
        try:
            run.move(hyper, Z, rebuild=(self.iteration + 1) % options.rebuild_every == 0)
        except (ValueError, NotPositiveDefiniteError):
            run.move(*good, rebuild=True)
            raise

    def stopped(self, estimate: float) -> Ended | None:
        """The end where a rule asks for one."""
        run, window, threshold = self.run, self.options.window, self.options.stop
        if self.packing.size and self.falling.add(estimate):
            return Ended(True, f"step {self.iteration}: the estimate of log Z_EP has been falling without end")
        if not threshold:
            return None
        weights = solve_vector(run.factor, solve_vector(run.factor, run.sums.shift), transposed=True)
        before, after = self.before, moments(run.chol_K, run.factor, weights)
        if before is not None:
            self.changes.append(parameter_change(before, after))
        self.before = after
        if converged_parameters(self.changes, window, threshold):
            why = f"mean change of mean and covariance over {window} steps below {threshold:g}"
            return Ended(False, why, converged=True)
        return None


@takes_values
def fit(data: Data, prior: Prior, options: EPGPCSteps = DEFAULTS) -> EPRun:
    """EP on mini-batches from sites at zero, and one pass over all data at the end for log Z_EP.

    Parameters
    ----------
    data : Data      labels 0, 1; X may be a numpy.memmap
    prior : Prior    of one latent function with inducing points, where the run starts; m may exceed n
    options          by default 10 epochs; what is learned takes one step of Adam after each batch; the stopping rule is
                     on the mean and covariance of u; a trace keeps the batch estimates of log Z_EP; sites in a file
                     take 16 n bytes; the callback is given a Progress after every step

    Raises
    ------
    ValueError                  bad input, by name: an empty batch by its number
    NotPositiveDefiniteError    K_ZZ is singular

    Returns
    -------
    EPRun    diverged is True, with a reason, if sites or parameters left the finite numbers; the last good state then
    """
    if prior.Z is None:
        raise ValueError("Z: found None, expected inducing points (m, d); the full GP is fitted in batch")
    X, y_sign, hyper, Z = checked_binary(data, prior)
    assert Z is not None
    n, Z = y_sign.size, Z.copy()
    packing = Packing(options.learn, hyper, Z, options.hyperprior)
    if options.batches is None:
        indices, limit = epochs_of_indices(n, options.rows, options.seed), 10 * -(-n // options.rows)
    else:
        listed = index_lists("batches", options.batches, n)
        indices, limit = iter(listed), len(listed)
    steps = limit if options.n_steps is None else options.n_steps
    if options.batches is not None and steps > limit:
        raise ValueError(f"n_steps: found {steps}, expected at most {limit}, the number of batches")
    site_file, callback = options.site_file, options.callback
    sites = np.zeros((2, n)) if site_file is None else np.memmap(site_file, np.float64, "w+", shape=(2, n))
    run = SiteRun(X, y_sign, Z, hyper, sites, options.block_size)
    made = _Steps(run, packing, indices, options)

    def after(estimate: float) -> Ended | None:
        if callback is not None:
            callback(Progress(made.iteration, steps, estimate, run.n_improper, run.hyper, run))
        return made.stopped(estimate)

    end = run_steps(made, steps, after=after)
    trace = np.array(made.estimates)
    tau, nu = run.precision, run.shift
    prepared = prepare(data, moved(prior, run.hyper, run.Z), Storage(block_size=options.block_size))
    last = sweep(prepared, tau, nu)
    gap = site_gap(tau, nu, last.target_precision, last.target_shift, last.sites.proj_var)
    posterior = assemble(prepared, last, (tau, nu), trace, gap, end.converged, run.n_improper)
    return EPRun(posterior, trace.copy(), made.iteration, run.n_improper, end.converged, end.diverged, end.reason)
