"""Classifiers of villacampa2017 for two or more classes: ep, sep, gfitc and vi-robust."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from fast.core import inputs
from fast.core.declare import Options
from fast.core.hyper import class_hyper
from fast.core.types import IntArray
from fast.estimators._base import _FEW, _entry
from fast.estimators._classes import (
    ENDING,
    LABEL_ERRORS,
    POINTS,
    STEPS,
    TRAINING,
    BoundedClassifier,
    ClassesClassifier,
    Running,
    SteppingClassifier,
)
from fast.estimators._hyper import Fitted, Start
from fast.methods import ep, gfitc, sep, vi_robust
from fast.sparse_classes.projections import InducingClasses
from fast.sparse_classes.stream import TiedStream

_BATCH = """"batch": all rows in every step, parameters by L-BFGS-B"""
_TRAINING = TRAINING.format(batch=_BATCH, steps=STEPS)
_BY_ADAM = TRAINING.format(
    batch=_BATCH.replace("L-BFGS-B", "Adam"),
    steps="steps; None: 250 in batch, 10 epochs and at least 1000 on mini-batches",
)
_BOUND = ENDING.format(evidence="lower bound on log p(y), every constant in it")
_ENDING = ENDING.format(evidence="EP's estimate of log p(y)")
_STEPS = 250  # of Adam on all rows


@dataclass(kw_only=True, eq=False, repr=False)
class EPClassifier(SteppingClassifier):
    __doc__ = f"""GP classification by expectation propagation with inducing points: ep of villacampa2017.

    A site for each row and class is kept, so there is no `partial_fit`, and a step that moves the priors sums all sites
    anew, also on mini-batches.

    Parameters
    ----------{POINTS}
    factors : str                        "pairwise": a factor for each other class; "datum": one for each row
    damping : float                      of the sites, in [1e-8, 1]{_TRAINING}{_ENDING}"""
    _module: ClassVar[ModuleType] = ep
    _asked: ClassVar[Callable[..., Options]] = ep.EPOptions

    factors: str = "pairwise"
    damping: float = 0.5

    def _options(self) -> dict[str, Any]:
        return {"factors": self.factors, "damping": self.damping}


@dataclass(kw_only=True, eq=False, repr=False)
class SEPClassifier(SteppingClassifier):
    __doc__ = f"""GP classification by stochastic expectation propagation, sites tied: sep of villacampa2017.

    Memory does not grow with the rows, and `partial_fit` takes them batch by batch. What is learned moves by Adam.

    Parameters
    ----------{POINTS}
    count : str                          factors that share a tied one: "all", or those of the class, "per-class"
    damping : float                      of tied factors, in [1e-8, 1]{_BY_ADAM}{ENDING.format(evidence="log Z_q")}"""
    _module: ClassVar[ModuleType] = sep
    _asked: ClassVar[Callable[..., Options]] = sep.SEPOptions
    _by_ep: ClassVar[bool] = True
    _sure_sweeps: ClassVar[int] = 100  # tied sites drift on where predictions no longer change
    count: str = "all"
    damping: float = 0.5

    def _options(self) -> dict[str, Any]:
        return {"count": self.count, "damping": self.damping}

    def _whole(self, learn: tuple[str, ...]) -> dict[str, Any]:
        if not learn:
            return super()._whole(learn)
        steps = _STEPS if self.max_iter is None else inputs.count("max_iter", self.max_iter)
        rate = float(self.learning_rate)
        return {"n_steps": steps, "optimizer": "adam", "rate": rate}

    def _train(self, X: Any, codes: IntArray, start: Start, rng: np.random.RandomState, callback: Any) -> Fitted:
        self._fit_learned = self._named(X)
        self._fit_counts = np.bincount(codes, minlength=len(self.classes_))
        return super()._train(X, codes, start, rng, callback)

    @_entry
    def partial_fit(self, X: Any, y: Any, classes: Any = None, *, total_samples: int | None = None) -> Any:
        """One step on a batch X (b, d), y (b,): its factors, and one step of Adam if parameters are learned.

        Goes on from where `fit` ended; without a fit, classes (C,) is needed in the first call and gives all labels,
        lengthscales are chosen from the first batch unless given, and inducing points from this and later ones, until
        there are n_inducing, unless given or learned. A batch may miss classes.
        A column counts from the first batch on in which it varies, copies apart from the first in which they differ;
        where the first batch has one or two rows, all columns count at once.
        total_samples: rows that the batches stand for, no fewer than those of X. Give it where rows come again in later
        calls. None: the rows of `fit`, or those seen by `partial_fit` so far if they are more. `log_evidence_` is NaN:
        nothing looks at all rows.

        What to expect: after `fit` a pass over its rows leaves the held-out log-likelihood within 2 % of what it was.
        From nothing, with total_samples, inducing points and lengthscales given, twenty passes end at most 5 % above
        `fit`; where parameters are learned, a hundred passes.

        Raises ValueError, by name; the classifier is then as it was before the call.
        """
        first = not hasattr(self, "posterior_")
        if first and classes is None:
            raise ValueError("classes: found None in the first call of partial_fit, expected all labels")
        X, codes = self._checked_batch(X, y, classes, first=first)
        total = self._checked_total(total_samples, X.shape[0])
        online = getattr(self, "_online", None)
        if online is None:
            online = self._begin(self._seen(X, _FEW)) if first else self._continue()
        before: int = self._stream_rows if hasattr(self, "_online") else 0
        rows = before + X.shape[0]
        room = self._room(online.run.points.m) if hasattr(self, "_online") else 0
        points = online.run.points
        with self._or_as_before(), online.whole():
            X = self._admitted(
                X, points.hyper.lengthscales, points.Z,
                lambda lengths, Z: online.in_columns(
                    lengths, Z, online.packing.names if self._fit_rows else self._named(X), self._density
                ),
            )  # fmt: skip
            if room:
                online.grow(online.candidates(np.array(X, dtype=np.float64), room))
            online.step(X, codes, max(rows, self._fit_rows) if total is None else total)
        self._online = online
        self._stream_rows: int = rows
        batches = online.iterations
        self._keep(self._fitted(Running(self._online.run), None, batches, False, f"{batches} batches seen"))
        return self

    def _begin(self, X: Any) -> TiedStream:
        start = self._first_start(X)
        C = len(self.classes_)
        hyper = class_hyper(*start[:4], C, X.shape[1])
        Z = np.asarray(start.Z)
        Z = np.array(np.broadcast_to(Z, (C, *Z.shape[-2:])))
        return self._stream(InducingClasses(hyper, Z, inputs.flag("shared", self.shared)), self._named(X))

    def _continue(self) -> TiedStream:
        """From where `fit` ended."""
        run = self.posterior_.run
        return self._stream(run.points, self._fit_learned, q=run.q, class_counts=self._fit_counts)

    def _stream(self, points: InducingClasses, learn: tuple[str, ...], **state: Any) -> TiedStream:
        rate = float(self.learning_rate)
        return TiedStream(
            points, count=self.count, damping=self.damping, learn=learn, hyperprior=self._density, rate=rate, **state
        )


@dataclass(kw_only=True, eq=False, repr=False)
class GFITCClassifier(ClassesClassifier):
    __doc__ = f"""GP classification by EP on the threshold factors with the FITC prior: gfitc of villacampa2017.

    All rows in every sweep.

    Parameters
    ----------{POINTS}
    damping : float                      of the sites, in [1e-8, 1]
    max_iter : int or None               iterations of L-BFGS-B; None: 30{_ENDING}"""
    _module: ClassVar[ModuleType] = gfitc
    _asked: ClassVar[Callable[..., Options]] = gfitc.GFITCOptions

    damping: float = 0.5

    def _options(self) -> dict[str, Any]:
        return {"damping": self.damping}

    def _whole(self, learn: tuple[str, ...]) -> dict[str, Any]:
        whole = super()._whole(learn)
        whole.pop("optimizer", None)
        return whole


@dataclass(kw_only=True, eq=False, repr=False)
class RobustVIClassifier(BoundedClassifier):
    __doc__ = f"""Variational GP classification with the robust likelihood: vi-robust of villacampa2017.

    For rows of which some have wrong labels; where labels are clean, `EPClassifier` learns the same parameters in less
    time and its q is nearer to the posterior.

    Parameters
    ----------{POINTS}
    epsilon : "auto" or float            probability of a random label: {LABEL_ERRORS}.
                                         The bound cannot give a row to noise as EP can: q pays log(epsilon/C) for all
                                         of it on the wrong side, and a small one bends q to wrong labels{_TRAINING}{
        _BOUND
    }
    epsilon_ : float                     the probability of a random label that was used"""
    _module: ClassVar[ModuleType] = vi_robust
    _asked: ClassVar[Callable[..., Options]] = vi_robust.RobustOptions
    _by_ep: ClassVar[bool] = True
    _from_ep: ClassVar[bool] = True

    epsilon: Any = "auto"
