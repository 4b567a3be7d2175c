"""Stochastic EP on batches that somebody else brings: data that can be neither indexed nor read again.

A step is one of `fast.sparse_classes.sep` on a mini-batch, villacampa2017, sections 2.3.1 and 2.3.2, and costs what
that costs. The tied factor stands for n data: when n grows from n_old, its power does, T <- (n / n_old) T and t
likewise, before the factors of the batch come in; with undamped steps on ever new data T is then the sum of what all
batches gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fast.core import inputs
from fast.core.errors import NotPositiveDefiniteError
from fast.core.hyper import class_labels
from fast.core.hyperprior import Hyperprior
from fast.core.options import Damped
from fast.core.types import FloatArray, IntArray
from fast.kernel.kernels import gram
from fast.solve.adam import AdamState, adam_step
from fast.sparse_classes.data import Chunk
from fast.sparse_classes.projections import ClassDistribution, InducingClasses
from fast.sparse_classes.sep import TiedFactors, data_scale, factor_counts
from fast.sparse_classes.training import ClassPacking

_EXPLAINED = 1e-3  # of the prior variance: what is left of a row that needs no inducing point of its own


# A fit stands for as many passes, those of one on mini-batches: its sites agree with its q, which a running average of
# fewer passes would disturb (counted once, a pass moves the held-out log-likelihood of 240 moons by up to 4 %)
_PASSES = 10


class Gone(NamedTuple):
    """Data that the tied factors stand for, and that are not kept."""

    counts: FloatArray | IntArray  # (C,) of each class
    n: int


class TiedStream:
    """Tied factors, q and priors between batches.

    points              inducing points to start from
    count, damping      as in `fast.methods.sep.fit`
    learn, rate         names out of variance, lengthscales, noise, Z, moved by Adam at this rate
    q                   q to start from; None: the prior
    class_counts (C,)   data that this q stands for; None: none
    """

    def __init__(
        self,
        points: InducingClasses,
        *,
        count: str = "all",
        damping: float = 0.5,
        learn: Iterable[str] = (),
        hyperprior: Hyperprior | None = None,
        rate: float = 0.01,
        q: ClassDistribution | None = None,
        class_counts: IntArray | None = None,
    ) -> None:
        C = points.n_classes
        self.damping = Damped(damping=damping).damping
        self.rate = inputs.scalar("rate", rate, positive=True)
        self.packing = ClassPacking(learn, points.hyper, points.Z, points.shared, hyperprior)
        self.adam = AdamState.start(self.packing.size)
        self.class_counts = np.zeros(C, dtype=np.int64) if class_counts is None else np.array(class_counts)
        rows = int(self.class_counts.sum())
        gone = Gone(self.class_counts if rows else np.ones(C, dtype=np.int64), max(rows, 1))
        self.run = TiedFactors(gone, points, count, q)
        self.started = q is not None
        self.iterations = 0
        self._known = rows  # that q stood for at the start

    def step(self, X: Any, y: IntArray, n: int | None = None) -> None:
        """One batch: its factors, and one step of Adam on the priors if they are learned.

        Parameters
        ----------
        X : (b, d)    real, finite
        y : (b,)      labels, 0 .. C - 1
        n : int       data that the batches stand for, no fewer than b; None: those seen so far

        Raises
        ------
        ValueError    bad input by name, or a step out of the range of numbers; all is then as it was before
        """
        points = self.run.points
        X = inputs.finite_rows("X", inputs.inputs("X", X, points.d))
        y = class_labels(y, X.shape[0], points.n_classes)
        if n is not None and inputs.count("n", n) < X.shape[0]:
            raise ValueError(f"n: found {n}, expected at least {X.shape[0]}, the rows of X")
        with self.whole(), np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            try:
                self.class_counts = self.class_counts + np.bincount(y, minlength=points.n_classes)
                rows = int(self.class_counts.sum())
                n = rows if n is None else n
                with_priors = self.packing.size > 0
                self._stand_for(Gone(np.asarray(self.class_counts * (n / rows), dtype=np.float64), n))
                run, view = self.run, points.view(X, with_cross=with_priors)
                # share b / N of a running average over the rows that q stands for
                averaged = rows + (_PASSES - 1) * self._known
                damping = min(self.damping, n / averaged) if self._known else self.damping
                batch = (Chunk(slice(None), view, y),)
                run.update_from(batch, X.shape[0], damping)
                if with_priors:
                    # a pass over the rows known before moves a logarithm by no more than the rate
                    rate = self.rate * X.shape[0] / (X.shape[0] + self._known)
                    self._move(run.gradient_from(batch, data_scale(n, X.shape[0]), "10"), rate)
            except (ValueError, NotPositiveDefiniteError) as error:
                raise ValueError(f"rate: step diverged ({error}), expected a smaller value") from error
        self.iterations += 1

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Growing and stepping inside happen both, or not at all where one of them raises."""
        before = self.class_counts, self.run, self.adam, self.started, self.packing
        try:
            yield
        except (ValueError, NotPositiveDefiniteError):
            self.class_counts, self.run, self.adam, self.started, self.packing = before
            raise

    def _stand_for(self, gone: Gone) -> None:
        """Tied factors to the power that so many data ask for."""
        run = self.run
        power = factor_counts(gone.counts, gone.n, run.count) / run.counts
        q = run.q
        if self.started and (power != 1.0).any():
            precision = q.precision * power[:, None, None]
            diagonal = np.arange(q.shift.shape[1])
            precision[:, diagonal, diagonal] += 1.0 - power[:, None]
            q = ClassDistribution.of(precision, q.shift * power[:, None])
        self.run = TiedFactors(gone, run.points, run.count, q)
        self.started = True

    def candidates(self, X: FloatArray, count: int) -> FloatArray:
        """Rows of X (b, d), at most so many, that Z does not yet explain to 1/1000 of their prior variance: (p, d).

        Of all classes the one that a row is explained worst in counts. Time C b^2 (m + p).
        """
        points = self.run.points
        view = points.view(X)
        left = []
        for k in range(points.n_kinds):
            one = points.hyper.of(k)
            rows = view.rows[k]
            left.append((gram(X, one.variance, one.lengthscales, 0.0, 0.0) - rows @ rows.T) / one.variance)
        chosen: list[int] = []
        while len(chosen) < count:
            worst = np.max([part.diagonal() for part in left], axis=0)
            worst[chosen] = 0.0
            best = int(np.argmax(worst))
            if worst[best] <= _EXPLAINED:
                break
            chosen.append(best)
            for part in left:
                if part[best, best] > 0.0:
                    column = part[best] / np.sqrt(part[best, best])
                    part -= np.outer(column, column)
        return X[chosen]

    def grow(self, Z: FloatArray) -> None:
        """More inducing points (p, d), at which q(u_new | u) = p(u_new | u): P and w gain I and 0, whitened.

        Time C (m + p)^3. Raises ValueError where inducing points are learned.
        """
        if "Z" in self.packing.parts:
            raise ValueError("learn: found 'Z', expected inducing points that are held where more of them come")
        p, run = Z.shape[0], self.run
        if p == 0:
            return
        old, C, m = run.points, run.points.n_classes, run.points.m
        everywhere = np.concatenate([old.Z, np.broadcast_to(Z, (C, *Z.shape))], axis=1)
        points = InducingClasses(old.hyper, everywhere, old.shared)
        precision = np.array(np.broadcast_to(np.eye(m + p), (C, m + p, m + p)))
        precision[:, :m, :m] = run.q.precision
        q = ClassDistribution.of(precision, np.concatenate([run.q.shift, np.zeros((C, p))], axis=1))
        self.run = TiedFactors(run.stands_for, points, run.count, q)

    def in_columns(
        self, lengthscales: FloatArray, Z: FloatArray, learn: Iterable[str], hyperprior: Hyperprior | None
    ) -> None:
        """The same q in other columns of the inputs, in which K_ZZ is what it was.

        Parameters
        ----------
        lengthscales (C, k), Z (C, m, k)    of them
        learn                               what moves from here on; Adam restarts where its vector has another size
        hyperprior                          density of what is learned
        """
        run = self.run
        hyper = run.points.hyper._replace(lengthscales=lengthscales)
        points = InducingClasses(hyper, Z, run.points.shared)
        packing = ClassPacking(learn, hyper, Z, run.points.shared, hyperprior)
        if packing.size != self.packing.size:
            self.adam = AdamState.start(packing.size)
        self.packing, self.run = packing, TiedFactors(run.stands_for, points, run.count, run.q)

    def _move(self, gradients: Any, rate: float) -> None:
        run = self.run
        hyper, Z = run.points.hyper, run.points.Z
        derivative = self.packing.gradient(gradients, hyper) + self.packing.prior(hyper)[1]
        if not np.isfinite(derivative).all():
            raise ValueError("gradient: found a value that is not finite, expected finite numbers")
        move, self.adam = adam_step(derivative, self.adam, rate)
        run.move(*self.packing.parameters(self.packing.vector(hyper, Z) + move, hyper, Z))
