r"""label-regression: FITC regression on labels +1 and -1, one regression a class. villacampa2020, appendix C.

t_ik = 1 where y_i = k and -1 elsewhere is taken as drawn from N(f_k(x_i), noise_k), f_k under the FITC prior, so that
s_ik, the conditional variance with the noise, is all that a target varies by given the inducing values. With a_i the
whitened projections of `fast.sparse_classes.projections`, S = diag(s),

    q(v) = N(p, P^-1),  P = I + A S^-1 A',  p = P^-1 A S^-1 t,   r = t - A'p,
    log N(t | 0, A'A + S) = -(n log 2 pi + sum log s + log|P| + sum r^2/s + p'p)/2:

a sum of squares, nothing of size (n, n), nothing cancels where the noise is small. In a_i and s_i its derivatives are
(r_i p - P^-1 a_i)/s_i and (r_i^2/s_i + a_i'P^-1 a_i/s_i - 1)/(2 s_i), as p maximises the exponent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fast.core.declare import option, takes_values
from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyper import ClassHyper
from fast.core.options import Ascent, Blocks, Length, Mislabelled, SearchEnd, Storage, Traced, Watched
from fast.core.results import ClassPrediction
from fast.core.threads import one_thread
from fast.core.types import FloatArray, IntArray
from fast.core.values import Data, Prior
from fast.ledger import equation
from fast.sparse_classes.alpha_runs import data_moments
from fast.sparse_classes.data import ClassData
from fast.sparse_classes.ep import Swept
from fast.sparse_classes.inference import predict_robust, start
from fast.sparse_classes.projections import (
    ClassDistribution,
    ClassView,
    InducingClasses,
    PointGradients,
    VectorJacobianProduct,
    add_projected,
)
from fast.sparse_classes.training import Trained, train

SURE = 1e-8  # relative error up to which the closed form counts as an answer
_ULP = float(np.finfo(np.float64).eps)
_SHIFTS = ((6, 2), (-5, 9), (3, -7))  # of variance and lengthscales, in units in the last place
_LOG_2PI = float(np.log(2.0 * np.pi))


def label_targets(y: IntArray, n_classes: int) -> FloatArray:
    """+1 in the column of the label, -1 elsewhere: (b, C).

    Parameters
    ----------
    y : (b,)           labels
    n_classes : int    C
    """
    return np.where(y[:, None] == np.arange(n_classes), 1.0, -1.0)


class LabelRun:
    """q(v) of the regressions at the present priors, behind `training.Run`: no factor is to be visited."""

    def __init__(self, data: ClassData, points: InducingClasses) -> None:
        self.data, self.points = data, points
        self.rebuild()

    def rebuild(self) -> None:
        """q and the evidence, in one pass and a second for the residuals. Time 2 C n m^2 + C m^3 / 3."""
        points = self.points
        precision = np.tile(np.eye(points.m), (points.n_classes, 1, 1))
        shift = np.zeros((points.n_classes, points.m))
        constant = 0.0
        for block in self.data.blocks(points):
            s = block.view.cond_var
            if (s <= 0.0).any():
                i, k = np.argwhere(s <= 0.0)[0]
                raise ValueError(
                    f"noise: found conditional variance {s[i, k]:.3g} of datum {block.part.start + i}, class {k}, "
                    "expected > 0; raise noise"
                )
            add_projected(precision, shift, block.view, 1.0 / s, label_targets(block.y, points.n_classes) / s)
            constant += float(np.log(s).sum()) + s.size * _LOG_2PI
        self.q = ClassDistribution.of(precision, shift)
        self.value = regression_evidence(self.q, constant, self._misfit())

    def _residuals(self, view: ClassView, y: IntArray) -> FloatArray:
        targets = label_targets(y, self.points.n_classes)
        for k, kind in enumerate(self.points.kind):
            targets[:, k] -= view.rows[kind] @ self.q.weights[k]
        return targets

    def _misfit(self) -> float:
        blocks = self.data.blocks(self.points)
        return sum(float((self._residuals(b.view, b.y) ** 2 / b.view.cond_var).sum()) for b in blocks)

    def sites(self) -> tuple[FloatArray, FloatArray]:
        """1/s and t/s, what every target says of its projection: (n, C) each."""
        precision, shift = np.empty((2, self.data.n, self.points.n_classes))
        for block in self.data.blocks(self.points):
            precision[block.part] = 1.0 / block.view.cond_var
            shift[block.part] = label_targets(block.y, self.points.n_classes) / block.view.cond_var
        return precision, shift

    def refresh(self) -> Swept:
        """Nothing is left to visit."""
        return Swept(0.0, 0)

    def log_evidence(self) -> float | None:
        """log density of all targets."""
        return self.value

    def gradient(self) -> PointGradients:
        """Gradient of the evidence in the priors. Time O(C n m (m + d) + C m^3)."""
        points, q = self.points, self.q
        covariance = [q.covariance(k) for k in range(points.n_classes)]
        vjp = VectorJacobianProduct(points)
        by_K = [np.zeros((points.m, points.m)) for _ in covariance]
        for block in self.data.blocks(points, with_cross=True):
            view, s = block.view, block.view.cond_var
            r = self._residuals(view, block.y)
            parts, var = [], np.empty(s.shape)
            for k, kind in enumerate(points.kind):
                a = view.rows[kind]
                moved = a @ covariance[k]
                var[:, k] = np.einsum("bm,bm->b", a, moved)
                W = (np.multiply.outer(r[:, k], q.weights[k]) - moved) / s[:, k, None]
                crossed = 0.25 * (W.T @ a)
                by_K[k] += crossed + crossed.T
                parts.append(W)
            vjp.add(view, parts.__getitem__, 0.5 * ((r * r + var) / s - 1.0) / s)
        return vjp.finish(by_K.__getitem__)

    def move(self, hyper: ClassHyper, Z: FloatArray) -> None:
        """Other priors.

        Parameters
        ----------
        hyper            parameters of the classes
        Z : (C, m, d)
        """
        before = self.points, self.q, self.value
        self.points = InducingClasses(hyper, Z, self.points.shared, in_a_step=True)
        try:
            self.rebuild()
        except (ValueError, NotPositiveDefiniteError):
            self.points, self.q, self.value = before
            raise

    def state(self) -> dict[str, Any]:
        """Nothing but the priors."""
        return {}

    def restore(self, arrays: Mapping[str, Any], hyper: ClassHyper, Z: FloatArray, moved: bool) -> None:
        """Back to other priors.

        Parameters
        ----------
        arrays           from `state`
        hyper            parameters of the classes then
        Z : (C, m, d)    inducing points then
        moved : bool     whether the priors are learned
        """
        self.points = InducingClasses(hyper, Z, self.points.shared, in_a_step=moved)
        self.rebuild()


def _relative_change(moved: FloatArray, at: FloatArray) -> float:
    """Largest change over the largest number; labels that cancel leave means of zero, which have to stay there."""
    change, size = float(np.abs(moved - at).max()), float(np.abs(at).max())
    return change / size if size > 0.0 else (0.0 if change == 0.0 else np.inf)


@one_thread
def uncertainty(run: LabelRun) -> float:
    """Relative change of log density and q(u) under shifts of variance and lengthscales in the last digits.

    Rounding of kernels grows by the condition of K_ZZ, and in s = kappa - a'a by kappa / s. Where the product of both
    with 100 units in the last place is at most SURE, it is returned and nothing is evaluated; else three shifted
    problems are, each in the time of the fit. inf: one of them has no answer.

    Parameters
    ----------
    run    where the fit ended
    """
    points = run.points
    growth = max(float((np.diag(L).max() / np.diag(L).min()) ** 2) * points.m for L in points.chol_K)
    narrow = max(float((points.prior_var / block.view.cond_var).max()) for block in run.data.blocks(points))
    bound = 100.0 * _ULP * growth * narrow
    if bound <= SURE:
        return bound

    def answers(at: LabelRun) -> list[FloatArray]:
        observed = [data_moments(at.q, block.view) for block in at.data.blocks(at.points)]
        mean, var = (np.concatenate([getattr(part, name) for part in observed]) for name in ("mean", "var"))
        return [np.array([at.value]), *at.points.inducing_moments(at.q), mean, var]

    centre, change = answers(run), 0.0
    for up, across in _SHIFTS:
        hyper = points.hyper._replace(
            variance=points.hyper.variance * (1.0 + up * _ULP),
            lengthscales=points.hyper.lengthscales * (1.0 + across * _ULP),
        )
        try:
            near = LabelRun(run.data, InducingClasses(hyper, points.Z, points.shared, in_a_step=True))
        except (ValueError, NotPositiveDefiniteError):
            return np.inf
        change = max(change, *(_relative_change(a, b) for a, b in zip(answers(near), centre, strict=True)))
    return change


@equation("villacampa2020", "u46-label-regression")
def regression_evidence(q: ClassDistribution, constant: float, misfit: float) -> float:
    """-(constant + log|P| + misfit + p'p)/2 over all classes: log density of the targets. Appendix C.

    Parameters
    ----------
    q                   q(v)
    constant : float    sum of log 2 pi s
    misfit : float      sum of r^2/s
    """
    return -0.5 * (constant + misfit + float(q.log_det.sum()) + float((q.weights**2).sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionOptions(Length, Ascent, SearchEnd, Traced, Watched, Mislabelled, Storage):
    """Options of `fit`; predictions count with epsilon."""

    optimizer: str | None = option("choice", "of a search over the prior", choices=("lbfgs", "adaptive"), default=None)


DEFAULTS = RegressionOptions()


@dataclass(frozen=True, eq=False)
class LabelPosterior:
    """q at the last priors."""

    run: LabelRun
    epsilon: float
    trained: Trained

    @property
    def log_evidence(self) -> float:
        """log density of all targets, +1 and -1."""
        return self.run.value


@takes_values
def fit(data: Data, prior: Prior, options: RegressionOptions = DEFAULTS) -> LabelPosterior:
    """The regressions in closed form, with learned priors if asked. Time 2 C n m^2 + C m^3 / 3 an evaluation.

    Parameters
    ----------
    data       X may be a numpy.memmap, read in blocks
    prior      of C classes, with inducing points
    options    optimizer "lbfgs" (default, 200 iterations) or "adaptive" (250 steps)

    Raises
    ------
    ValueError                  bad input, by name; noise: a target has no variance given the inducing values
    NotPositiveDefiniteError    K_ZZ of a class is singular
    """
    learn = bool(options.learn)
    rows, points, settings = start("label-regression", data, prior, options, optimizer=options.optimizer or "lbfgs")
    run = LabelRun(rows, points)
    if learn:
        trained = train(run, settings, options.callback)
    else:
        trained = Trained(np.empty(0), 0.0, True, 0, 0, False, "closed form")
    if trained.converged and (doubt := uncertainty(run)) > SURE:
        why = f"found a change of {doubt:.1e} by shifts in the last digits, expected at most {SURE:.0e}; raise noise"
        trained = trained._replace(residual=trained.residual if learn else doubt, converged=False, reason=why)
    return LabelPosterior(run, options.epsilon, trained)


@one_thread
def gradients(posterior: LabelPosterior) -> PointGradients:
    """Gradient of the evidence in the priors.

    Parameters
    ----------
    posterior    from `fit`
    """
    return posterior.run.gradient()


@Blocks.checks
def predict(posterior: LabelPosterior, X_test: Any, *, block_size: int = 1024) -> ClassPrediction:
    """Latent moments and class probabilities at test points: villacampa2020 (A.31) to (A.34) with this q.

    Parameters
    ----------
    posterior            from `fit`
    X_test : (t, d)      t may be 0
    block_size : int     test points at a time
    """
    run = posterior.run
    return predict_robust(run.points, run.q, X_test, posterior.epsilon, block_size=block_size)
