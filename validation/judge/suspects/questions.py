"""Suspects that are the answer to another question: other noise, jitter, lengthscales, kernel, link, epsilon.

Each is a changed problem, which is solved with the method of the side that is held suspect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from validation.door import catalogue
from validation.door.options import options_of
from validation.door.problem import Problem

_BATCHES = (10, 16, 20, 32, 50, 64, 100, 128)  # rows at once, of which the last ones get lost
_STEPS = (1, 2, 3, 5, 10, 20, 50)


class Change(NamedTuple):
    """A problem that the suspected side may have solved instead of the one that it was given.

    name      a word for tables and tests
    text      the sentence
    problem   the changed problem
    method    another method id, where the method itself does not take the changed likelihood; None: the same
    options   of `solve`
    """

    name: str
    text: str
    problem: Problem
    method: str | None = None
    options: Mapping[str, Any] = MappingProxyType({})


# who takes the other link of a binary method: the variational optimum over Gaussians is one for svi and svgpc
_OTHER_LINK = {
    "svi": ("logit", "svi", "probit", "svi"),
    "vi-taylor": ("logit", "vi-taylor", "probit", "vi-taylor"),
    "laplace-binary": ("logit", "laplace-binary", "probit", "laplace-binary"),
    "x-gpc": ("probit", "svgpc"),
    "x-gpc-svi": ("probit", "svgpc"),
    "vi-jj": ("probit", "svgpc"),
    "vi-jj-full": ("probit", "svgpc"),
    "vi-jj-hybrid": ("probit", "svgpc"),
    "svgpc": ("logit", "svi"),
    "epgpc": ("logit", "svi"),
    "laplace": ("multinomial-probit", "nested-ep"),
    "nested-ep": ("softmax", "laplace"),
    "nested-iep": ("softmax", "laplace"),
    "vb-probit": ("softmax", "laplace"),
}


def changes(problem: Problem, method: str) -> Iterator[Change]:
    """Changed problems, the likelier and cheaper ones first; none that equals the problem itself."""
    for change in (
        *_noise(problem),
        *_lengthscales(problem),
        *_jitter(problem),
        *_variance(problem),
        *_model(problem),
        *_link(problem, method),
        *_part(problem),
        *_steps(problem, method),
        *_other_methods(problem, method),
    ):
        if change.problem.differences(problem) or change.options or change.method not in (None, method):
            yield change


def _with(p: Problem, **values: Any) -> Problem:
    """The problem with some fields changed, or as it is where nobody can pose the changed one."""
    try:
        return p.replace(**values)
    except ValueError:
        return p


def _noise(p: Problem) -> Iterator[Change]:
    if p.noise.any():
        yield Change("noise left out", "the noise is not counted", _with(p, noise=0.0))
        yield Change("noise twice", "the noise is counted twice", _with(p, noise=2.0 * p.noise))
        yield Change("noise as sd", "the noise, a variance, is taken for a standard deviation and squared",
                     _with(p, noise=p.noise**2))  # fmt: skip
        yield Change("noise as sd", "the root of the noise is used where the noise, a variance, is meant",
                     _with(p, noise=np.sqrt(p.noise)))  # fmt: skip
        if p.Z is not None:
            yield Change("noise on K_ZZ", "the noise is added to K_ZZ too", _with(p, jitter=p.jitter + p.noise))
            yield Change("noise on K_ZZ", "the noise is added to K_ZZ instead of the data's prior variances",
                         _with(p, jitter=p.jitter + p.noise, noise=0.0))  # fmt: skip
        else:
            yield Change("noise as jitter", "the noise is counted at the data only, not at test points",
                         _with(p, jitter=p.jitter + p.noise, noise=0.0))  # fmt: skip
    if p.likelihood == "threshold":
        yield Change("another link", "the likelihood is the multinomial probit, which adds unit noise, and not the "
                     "threshold", _with(p, noise=p.noise + 1.0))  # fmt: skip
    elif p.likelihood in ("probit", "multinomial-probit"):
        yield Change("unit noise twice", "the probit's unit noise is counted twice", _with(p, noise=p.noise + 1.0))
        if (p.noise >= 1.0).all():
            yield Change("another link", "the probit's unit noise is not counted", _with(p, noise=p.noise - 1.0))


def _lengthscales(p: Problem) -> Iterator[Change]:
    scales = p.lengthscales
    for name, text, changed in (
        ("lengthscale factor 2", "the kernel lacks the factor 2: exp(-r^2/l^2) for exp(-r^2/(2 l^2))",
         scales / np.sqrt(2.0)),
        ("lengthscale squared", "lengthscales are squared once more: exp(-r^2/(2 l^4))", scales**2),
        ("lengthscale squared", "lengthscales are taken for their squares: exp(-r^2/(2 l))", np.sqrt(scales)),
        ("lengthscale factor 2", "the factor 2 is inside the square: exp(-r^2/(2 l)^2)", scales * np.sqrt(2.0)),
        ("lengthscale inverse", "lengthscales are taken for inverse lengthscales: exp(-r^2 l^2/2)", 1.0 / scales),
        ("lengthscale inverse", "lengthscales are taken for gamma: exp(-l r^2)", 1.0 / np.sqrt(2.0 * scales)),
        ("inputs standardised", "inputs are standardised by the program, lengthscales are not",
         scales * np.where(p.X.std(axis=0) > 0.0, p.X.std(axis=0), 1.0)),
        ("lengthscales left out", "lengthscales are left out: exp(-r^2/2)", np.ones_like(scales)),
        ("one lengthscale", "one lengthscale, the first, is used for all inputs",
         np.broadcast_to(scales[:, :1], scales.shape)),
        ("one lengthscale", "one lengthscale, their mean, is used for all inputs",
         np.broadcast_to(scales.mean(axis=1, keepdims=True), scales.shape)),
        ("one lengthscale", "one lengthscale, the last, is used for all inputs",
         np.broadcast_to(scales[:, -1:], scales.shape)),
        ("lengthscales reversed", "lengthscales are in the reverse order of the inputs", scales[:, ::-1]),
    ):  # fmt: skip
        yield Change(name, text, _with(p, lengthscales=changed))


def _jitter(p: Problem) -> Iterator[Change]:
    zeros = np.zeros_like(p.jitter)
    if p.jitter.any():
        yield Change("jitter left out", "the jitter is not added", _with(p, jitter=zeros))
        yield Change("jitter on the wrong matrix", "the jitter is added to the data's prior variances, as noise is",
                     _with(p, noise=p.noise + p.jitter, jitter=zeros))  # fmt: skip
        yield Change("jitter on the wrong matrix", "the jitter is added to the data's prior variances too",
                     _with(p, noise=p.noise + p.jitter))  # fmt: skip
        yield Change("jitter twice", "the jitter is added twice", _with(p, jitter=2.0 * p.jitter))
    matrix = "K_XX" if p.Z is None else "K_ZZ"
    for size in (1e-6, 1e-4, 1e-3, 1e-5, 1e-2):
        yield Change("jitter of its own", f"a jitter of {size:g} that the problem does not have is added to {matrix}",
                     _with(p, jitter=p.jitter + size))  # fmt: skip


def _variance(p: Problem) -> Iterator[Change]:
    yield Change("prior variance squared", "the prior variance is taken for a standard deviation and squared",
                 _with(p, variance=p.variance**2))  # fmt: skip
    yield Change("prior variance left out", "the prior variance is left out: k(x, x) = 1",
                 _with(p, variance=np.ones_like(p.variance)))  # fmt: skip
    yield Change("prior variance root", "the root of the prior variance is used for it",
                 _with(p, variance=np.sqrt(p.variance)))  # fmt: skip
    if p.noise.any():
        yield Change("noise in the prior variance", "the noise is part of the prior variance: k(x, x) keeps its size",
                     _with(p, variance=np.maximum(p.variance - p.noise, 1e-3 * p.variance)))  # fmt: skip
    if p.n_latents > 1 and not p.shared:
        order = np.arange(p.n_latents)[::-1]
        yield Change("parameters of classes permuted", "parameters of the classes are in reverse order",
                     _with(p, variance=p.variance[order], noise=p.noise[order],
                               lengthscales=p.lengthscales[order]))  # fmt: skip
        yield Change("parameters of one class", "all classes have the parameters of the first",
                     _with(p, variance=p.variance[0], noise=p.noise[0],
                               lengthscales=p.lengthscales[0]))  # fmt: skip


def _model(p: Problem) -> Iterator[Change]:
    if p.kernel == "se":
        for order, name in ((2.5, "5/2"), (1.5, "3/2")):
            yield Change("another kernel", f"the kernel is the Matérn kernel of order {name}",
                         _with(p, kernel="matern", smoothness=order))  # fmt: skip
    else:
        yield Change("another kernel", "the kernel is the squared exponential one",
                     _with(p, kernel="se", smoothness=None))  # fmt: skip
    if p.epsilon > 0.0:
        C = p.n_classes
        yield Change("epsilon left out", "labelling errors are left out: epsilon = 0", _with(p, epsilon=0.0))
        yield Change("epsilon among others", "a wrong label is drawn among the C - 1 other classes, or among all C",
                     _with(p, epsilon=p.epsilon * C / (C - 1.0)))  # fmt: skip
        yield Change("epsilon among others", "a wrong label is drawn among all C classes, or among the C - 1 others",
                     _with(p, epsilon=p.epsilon * (C - 1.0) / C))  # fmt: skip
    if p.Z is not None:
        yield Change("inducing points ignored", "inducing points are ignored: a full Gaussian process is fitted",
                     _with(p, Z=None, prior_model="full"))  # fmt: skip


def _link(p: Problem, method: str) -> Iterator[Change]:
    known = _OTHER_LINK.get(method)
    if known is None:
        return
    pairs = [known[i : i + 2] for i in range(0, len(known), 2)]
    for likelihood, other in pairs:
        if likelihood != p.likelihood:
            yield Change("another link", f"the likelihood is {likelihood} and not {p.likelihood}",
                         _with(p, likelihood=likelihood), other)  # fmt: skip


def _part(p: Problem) -> Iterator[Change]:
    """The last rows, which fill no batch, are left out; at most half of all."""
    for size in _BATCHES:
        kept = p.n - p.n % size
        if p.n / 2 <= kept < p.n and len(set(p.y[:kept].tolist())) > 1:
            yield Change("last rows lost", f"the last {p.n - kept} rows are left out: they fill no batch of {size}",
                         _with(p, X=p.X[:kept], y=p.y[:kept]))  # fmt: skip
    yield Change("last rows lost", "the last row is left out", _with(p, X=p.X[:-1], y=p.y[:-1]))


def _steps(p: Problem, method: str) -> Iterator[Change]:
    """The run of `fast` on its way: programs with the same steps that stop too early were there."""
    if "max_iterations" in options_of("fast", method):
        for count in _STEPS:
            yield Change("stopped early", f"the iteration stops after {count}, before it has converged", p,
                         options={"max_iterations": count})  # fmt: skip


def _other_methods(p: Problem, method: str) -> Iterator[Change]:
    for entry in catalogue.METHODS:
        points = catalogue.ALL_ROWS if p.Z is None else catalogue.INDUCING
        takes = p.likelihood in entry.likelihoods and entry.points in (points, catalogue.EITHER)
        if entry.method != method and takes and (p.epsilon or not entry.errors):
            yield Change("another method", f"the method is {entry.method} and not {method}", p, entry.method)
