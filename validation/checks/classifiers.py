"""Classifiers: each estimator and the method that it stands for, by what a user has of both.

An estimator is asked by its parameters, `fit`, `partial_fit` and what it predicts and says of itself afterwards; the
method by `solve`, with the same prior and options. Which classifier stands for which method the catalogue says.
"""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check
from validation.door.catalogue import METHODS
from validation.door.options import options_of
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.door.solve import solve
from validation.implementations.classifiers import classifier
from validation.judge.compare import identity_limit, relative_difference

Array = NDArray[Any]
_BATCH = {"x-gpc-svi": "x-gpc"}  # the method of training on all rows, where its mini-batches have a name of their own
_NAMES = ("pear", "quince", "fig")  # labels whose order is not that of the codes, nor its inverse
_MEAN_CORRECTED = ("laplace",)  # predicts around the mean of the latent values, where the method has their mode
# sep follows a gradient that is none of its evidence, vi-taylor maximises with the mode of the latent values held
_NO_MAXIMUM = ("sep", "vi-taylor")
_ENDS = (
    "a classifier ends within 1e-8 of the fixed point by its method's own estimate, which is a distance of q on its "
    "scale: what follows from q is known a hundred times worse at most; a setting that is lost shows at 1e-3"
)
_END = 1e-6
_BY_GAIN = ("vi-robust", "apep", "arpep", "rpapep")  # end where an objective no longer grows, parameters held or not
_GAIN = "three iterations together gained less than 2e-4 nat a row: what that leaves shows in the fourth digit"


class Classifier(NamedTuple):
    """A classifier: its class, the methods of training on all rows and on mini-batches, paper, likelihood, problem."""

    cls: Any
    method: str
    stochastic: str
    paper: str
    likelihood: str
    problem: str

    @property
    def parameters(self) -> frozenset[str]:
        """Names of what can be set."""
        return frozenset(inspect.signature(self.cls).parameters)

    @property
    def alpha(self) -> float | None:
        """The power of its divergence where nobody says."""
        parameter = inspect.signature(self.cls).parameters.get("alpha")
        return None if parameter is None else float(parameter.default)

    @property
    def end(self) -> tuple[float, str]:
        """How far from the fixed point it may end with parameters held, and why."""
        return (1e-3, _GAIN) if self.method in _BY_GAIN else (_END, _ENDS)

    @property
    def several(self) -> bool:
        """Whether it has a latent function for each class."""
        return self.likelihood not in ("logit", "probit")


def _classifiers() -> Iterator[Classifier]:
    problems = {
        "logit": "toy-sparse", "probit": "toy-sparse", "multinomial-probit": "toy-3", "softmax": "toy-3-softmax",
        "threshold": "toy-3-sparse-threshold",
    }  # fmt: skip
    for row in METHODS:
        for name in row.classifiers:
            cls, link = classifier(name), row.likelihoods[0]
            problem = problems[link]
            if "epsilon" in inspect.signature(cls).parameters:
                problem = problem.replace("-threshold", "-errors")
            yield Classifier(cls, _BATCH.get(row.method, row.method), row.method, row.paper, link, problem)


CLASSIFIERS = tuple(_classifiers())


def posed(entry: Classifier, problem: Problem) -> Problem:
    """The problem with one prior for all latent functions, and the likelihood of the classifier."""
    matern = {"kernel": "matern", "smoothness": 1.5} if "smoothness" in entry.parameters else {}
    return problem.replace(
        **matern, variance=problem.variance[0], lengthscales=problem.lengthscales[0], noise=problem.noise[0] + 0.05,
        jitter=1e-6, Z=None if problem.Z is None else problem.Z[0], shared=problem.n_classes > 2,
        likelihood=entry.likelihood if problem.n_classes == 2 else problem.likelihood, y_test=None,
    )  # fmt: skip


def settings(entry: Classifier, problem: Problem, **more: Any) -> dict[str, Any]:
    """The problem's prior as parameters of a classifier, held, and as many iterations as it takes."""
    given: dict[str, Any] = {
        "variance": float(problem.variance[0]), "lengthscales": problem.lengthscales[0],
        "noise": float(problem.noise[0]), "jitter": float(problem.jitter[0]), "learn": (), "random_state": 0,
        "inducing_points": None if problem.Z is None else problem.Z[0], "epsilon": problem.epsilon, "shared": True,
        "tol": 1e-12, "max_iter": 10_000, "damping": 0.7, "count": "per-class",
        "smoothness": None if problem.smoothness is None else float(problem.smoothness[0]),
    }  # fmt: skip
    return {name: value for name, value in {**given, **more}.items() if name in entry.parameters}


def labelled(entry: Classifier, problem: Problem) -> Array:
    """The labels as text."""
    return np.array(_NAMES)[problem.y]


def columns(problem: Problem) -> list[int]:
    """The code of the label of each column, which are in the order of the alphabet."""
    return sorted(range(problem.n_classes), key=_NAMES.__getitem__)


def options(entry: Classifier, method: str, **more: Any) -> dict[str, Any]:
    """The same settings as options of a method, those that are the classifier's too or are given."""
    known = set(options_of("fast", method)) & {*entry.parameters, *more}
    return {
        name: value
        for name, value in {"alpha": entry.alpha, "damping": 0.7, "count": "per-class", **more}.items()
        if name in known
    }


def fitted(entry: Classifier, problem: Problem, **more: Any) -> Any:
    """The classifier on the problem."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return entry.cls(**settings(entry, problem, **more)).fit(problem.X, labelled(entry, problem))


# -- one answer beside the other ---------------------------------------------------------------------------------------


def _apart(pairs: Mapping[str, tuple[Any, Any]], limit: float, why: str, left: str, right: str) -> Compared:
    values = {
        name: np.inf if a is None or b is None or np.shape(a) != np.shape(b) else relative_difference(a, b)
        for name, (a, b) in pairs.items()
    }
    worst = max(sorted(values), key=lambda name: values[name])
    told = f"{why}; {worst} differs most of {', '.join(values)}"
    return Compared(float(values[worst]), limit, told, left, right, "largest relative difference")


def beside(
    entry: Classifier, model: Any, answer: Solution, limit: float, why: str, *, evidence: bool = True
) -> Compared:
    """Probabilities, latent moments and log evidence of a classifier, and those of an answer of its method."""
    problem = answer.problem
    assert problem.X_test is not None
    assert answer.test_latent_mean is not None
    assert answer.test_latent_var is not None
    order = columns(problem)
    mean, var = model.latent_mean_and_variance(problem.X_test)
    ours_mean, ours_var = answer.test_latent_mean, answer.test_latent_var
    if entry.several:
        ours_mean, ours_var = ours_mean[:, order], ours_var[:, order]
    else:  # one latent function, whose sign is that of the label in the second column
        ours_mean, ours_var = (1.0 if order[1] == 1 else -1.0) * ours_mean[:, 0], ours_var[:, 0]
    pairs: dict[str, tuple[Any, Any]] = {}
    if entry.method not in _MEAN_CORRECTED:
        assert answer.probabilities is not None
        pairs["predict_proba"] = (model.predict_proba(problem.X_test), answer.probabilities[:, order])
        pairs |= {"latent means": (mean, ours_mean), "latent variances": (var, ours_var)}
    if evidence and np.isfinite(model.log_evidence_):
        pairs["log_evidence_"] = (model.log_evidence_, answer.log_evidence)
    return _apart(pairs, limit, why, type(model).__name__, answer.label)


# -- parameters held ---------------------------------------------------------------------------------------------------


def held(entry: Classifier, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Trained on all rows."""
    asked = posed(entry, problem)
    answer = context.solve("fast", entry.method, asked, **options(entry, entry.method))
    yield beside(entry, fitted(entry, asked), answer, *entry.end)


def names(entry: Classifier, context: Context, problem: Problem) -> Iterable[Outcome]:
    """The rows in another order, with numbers for labels; test points one by one; what is made of probabilities."""
    asked = posed(entry, problem)
    assert asked.X_test is not None
    model, who = fitted(entry, asked), entry.cls.__name__
    order = np.random.default_rng(5).permutation(asked.n)
    numbers = np.array([40, 7, 55])
    other = entry.cls(**settings(entry, asked)).fit(asked.X[order], numbers[asked.y[order]])
    place = [list(other.classes_).index(numbers[_NAMES.index(label)]) for label in model.classes_]
    told, limit_and_why = model.predict_proba(asked.X_test), entry.end
    if entry.several:
        # latent means: the integral over several classes is of a rule that takes them in order
        mean, moved = (one.latent_mean_and_variance(asked.X_test)[0] for one in (model, other))
        pair = {"latent means": (moved[:, place], mean)}
    else:
        pair = {"predict_proba": (other.predict_proba(asked.X_test)[:, place], told)}
    why = f"rows have no order, a label is a name: columns follow it; {limit_and_why[1]}"
    yield _apart(pair, limit_and_why[0], why, f"{who}, other rows and labels", who)
    alone = np.concatenate([model.predict_proba(row[None]) for row in asked.X_test])
    yield _apart({"predict_proba": (alone, told)}, 1e-11, "a test point does not feel those beside it: rounding",
                 f"{who}, one by one", who)  # fmt: skip
    guesses, logs = model.classes_[told.argmax(axis=1)], np.log(told)
    odds = logs if len(place) > 2 else logs[:, 1] - logs[:, 0]
    wrong = [
        not np.array_equal(model.classes_, np.unique(labelled(entry, asked))),
        not np.array_equal(model.predict(asked.X_test), guesses),
        model.score(asked.X_test, guesses) != 1.0,
        relative_difference(model.decision_function(asked.X_test), odds) > 1e-12,
    ]
    yield Compared(float(sum(wrong)), 0.0, "classes_, predict, score and decision_function by their definitions", who,
                   "definitions", "of four, those that differ")  # fmt: skip


def memory_map(entry: Classifier, context: Context, problem: Problem) -> Iterable[Outcome]:
    """The same rows in a file, on all rows and on mini-batches."""
    asked = posed(entry, problem)
    assert asked.X_test is not None
    ways = [{}, {"training": "minibatch", "batch_size": 7}] if "training" in entry.parameters else [{}]
    with tempfile.TemporaryDirectory() as folder:
        X: Any = np.memmap(Path(folder) / "X", dtype=np.float64, mode="w+", shape=asked.X.shape)
        X[...] = asked.X
        for way in ways:
            given = settings(entry, asked, max_iter=3, **way)
            told = [entry.cls(**given).fit(rows, labelled(entry, asked)).predict_proba(asked.X_test)
                    for rows in (asked.X, X)]  # fmt: skip
            yield Compared(float(np.sum(told[0] != told[1])), 0.0, f"the same rows are read; {way or 'all rows'}",
                           f"{entry.cls.__name__}, memory map", entry.cls.__name__,
                           "probabilities that differ in a bit")  # fmt: skip
        del X


# -- mini-batches ------------------------------------------------------------------------------------------------------


_RATE = 0.05


def _adam(entry: Classifier, learn: tuple[str, ...]) -> dict[str, Any]:
    """The rate of Adam's steps as the stochastic method calls it; svi has AdaDelta for all, at its own rate."""
    if entry.method == "svi":
        return {}
    known = options_of("fast", entry.stochastic)
    return (
        {"learning_rate": _RATE}
        if "learning_rate" in known
        else {"rate": _RATE, "optimizer": "adam" if learn else None}
    )


def batches(entry: Classifier, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Mini-batches that have all rows, so that no order is left: the method's steps on them, with learning too."""
    asked = posed(entry, problem)
    count = 6
    everything = [np.arange(asked.n)] * count
    limit, why = identity_limit(asked)
    for learn in ((), ("variance",)):
        more = {"training": "minibatch", "batch_size": asked.n, "max_iter": count, "learn": learn, "prior": None}
        model = fitted(entry, asked, **more, learning_rate=_RATE)
        given = options(entry, entry.stochastic, batches=everything, learn=learn, **_adam(entry, learn))
        answer = context.solve("fast", entry.stochastic, asked, **given)
        what = f"{count} steps on all rows, {'variance learned' if learn else 'parameters held'}; {why}"
        yield beside(entry, model, answer, limit, what)


def brought(entry: Classifier, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Batches that are brought one by one, and the stochastic method on the same list."""
    asked = posed(entry, problem)
    listed = [np.arange(k, asked.n, 4) for k in range(4)]
    given = settings(entry, asked, prior=None, count="all")  # how many rows of each class are to come nobody says
    model = entry.cls(**given)
    text = labelled(entry, asked)
    for part in listed:
        model.partial_fit(asked.X[part], text[part], classes=np.unique(text), total_samples=asked.n)
    # from nothing a running average of the batches: rates 1, 1/2, 1/3, ...; tied factors count batches themselves
    more = {"count": "all"} if entry.several else {"rate": ("decay", 1.0, 0.0, 1.0)}
    answer = context.solve("fast", entry.stochastic, asked, **options(entry, entry.stochastic, batches=listed, **more))
    limit, why = identity_limit(asked)
    # of batches the evidence is an estimate from the last of them
    yield beside(entry, model, answer, limit, f"four batches, each a step; {why}", evidence=False)


def seeds(entry: Classifier, context: Context, problem: Problem) -> Iterable[Outcome]:
    """The same random_state twice, and another one where mini-batches are drawn."""
    asked = posed(entry, problem)
    assert asked.X_test is not None
    drawn = {"training": "minibatch", "batch_size": 7} if "training" in entry.parameters else {}
    more = {"max_iter": 4, "n_inducing": 5, "inducing_points": None, "lengthscales": "median", **drawn}
    first, again, other = (
        fitted(entry, asked, **more, random_state=seed).predict_proba(asked.X_test) for seed in (3, 3, 4)
    )
    yield Compared(float(np.sum(first != again)), 0.0, "what is drawn follows from random_state", entry.cls.__name__,
                   "itself", "probabilities that differ in a bit")  # fmt: skip
    draws = bool(drawn) or "n_inducing" in entry.parameters
    equal = np.array_equal(first, other)
    told = "another random_state draws other points and batches" if draws else "nothing is drawn"
    yield Compared(float(equal == draws), 0.0, told, f"{entry.cls.__name__}, another random_state", entry.cls.__name__,
                   "answers that are equal though something is drawn, or differ though nothing is")  # fmt: skip


# -- what is learned ---------------------------------------------------------------------------------------------------

_LEARN = ("variance", "lengthscales")
_MOVE = 0.01  # of a logarithm, for a difference that has four digits


def weak_log_density(entry: Classifier, problem: Problem) -> float:
    """Of the logarithms of a problem's variance and lengthscales: docs/classifiers.md, what is learned has a prior."""
    link = {"logit": np.pi**2 / 3.0, "probit": 1.0, "multinomial-probit": 1.0, "softmax": np.pi**2 / 6.0}
    median, deviation = (10.0 * link[entry.likelihood], 1.5) if entry.likelihood in link else (1.0, 1.5 / np.sqrt(2.0))
    spread = problem.X.std(axis=0)
    pairs = [np.linalg.norm((a - b) / spread) for k, a in enumerate(problem.X) for b in problem.X[:k]]
    logs = np.log(problem.lengthscales[0] / (spread * np.median([apart for apart in pairs if apart > 0.0])))
    total = norm.logpdf(np.log(problem.variance[0]), np.log(median), deviation)
    return float(total + multivariate_normal.logpdf(logs, np.zeros(logs.size), 0.25 * np.eye(logs.size) + 1.0))


def learned(entry: Classifier, context: Context, problem: Problem) -> Iterable[Outcome]:
    """Variance and lengthscales learned: log density, the answer at them, and the answer at parameters beside them."""
    asked = posed(entry, problem)
    assert asked.X_test is not None
    more = {"max_iter": 100, "tol": 1e-5, "learn": _LEARN}
    model = fitted(entry, asked, **more)
    one = next(iter(model.hyper_.values()))
    there = asked.replace(
        variance=np.ravel(one.variance)[0], lengthscales=np.ravel(one.lengthscales), noise=np.ravel(one.noise)[0]
    )
    density = weak_log_density(entry, there)
    yield Compared(abs(model.log_hyperprior_ - density), 1e-9, "log density of what was learned, as documented",
                   f"{entry.cls.__name__}.log_hyperprior_", "scipy.stats", "nat")  # fmt: skip
    answer = context.solve("fast", entry.method, there, **options(entry, entry.method))
    assert answer.log_evidence is not None
    assert answer.probabilities is not None
    if entry.method not in _MEAN_CORRECTED:
        apart = np.abs(model.predict_proba(asked.X_test) - answer.probabilities[:, columns(asked)]).max()
        why = "a search brings q to 1e-2 of its scale, or to where steps gain less than 2e-4 nats a row"
        yield Compared(float(apart), 5e-3, why, entry.cls.__name__, answer.label, "probability")
    if entry.method in _NO_MAXIMUM:
        return
    slopes = []
    for name in _LEARN:
        values = []
        for move in (-_MOVE, _MOVE):
            aside = there.replace(**{name: getattr(there, name) * np.exp(move)})
            moved = solve("fast", entry.method, aside, **options(entry, entry.method))
            assert moved.log_evidence is not None
            values.append(moved.log_evidence + weak_log_density(entry, aside))
        slopes.append(abs(values[1] - values[0]) / (2.0 * _MOVE))
    yield Compared(float(max(slopes)), 0.2, "a search ends where it gains less than 2e-4 nat a row: on a slope of 0.2 "
                   "a step of a tenth gains 0.02 nat at most; a prior that is left out is a slope of 0.3 and more",
                   f"slope at the end of {entry.cls.__name__}", "a maximum", "nat a unit of a logarithm")  # fmt: skip


# -- streams -----------------------------------------------------------------------------------------------------------


def half_circles() -> tuple[Array, Array, Array, Array]:
    """Two classes on half circles with noise: 240 rows and labels, and 160 that are held out."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(400) % 2)
    angle = np.pi * rng.random(400)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    X[y == 1] = np.array([1.0, 0.5]) - X[y == 1]
    X = (X + 0.25 * rng.normal(size=(400, 2))) / 0.8
    return X[:240], y[:240], X[240:], y[240:]


def streamed(entry: Classifier, context: Context, _: None) -> Iterable[Outcome]:
    """Held-out likelihood after a fit, after its rows came again in batches, and after passes without a fit."""
    X, y, X_new, y_new = half_circles()
    rng = np.random.default_rng(1)

    def likelihood(model: Any) -> float:
        return float(np.log(model.predict_proba(X_new)[np.arange(y_new.size), y_new]).mean())

    def one_pass(model: Any, size: int) -> None:
        for part in np.split(rng.permutation(y.size), y.size // size):
            model.partial_fit(X[part], y[part], classes=[0, 1], total_samples=y.size)

    given = {"inducing_points": X[::12], "variance": 4.0, "lengthscales": 0.8, "learn": ()}
    model = entry.cls(**given).fit(X, y)
    before = likelihood(model)
    one_pass(model, 10)
    yield Compared(abs(likelihood(model) / before - 1.0), 0.02, "a second pass tells nothing new: documented as 2 %",
                   f"{entry.cls.__name__}, a pass after fit", entry.cls.__name__,
                   "relative change of the held-out log-likelihood")  # fmt: skip
    if not context.quick:
        model = entry.cls(**given)
        for _count in range(20 if entry.several else 10):
            one_pass(model, 40 if entry.several else 10)
        yield Compared(abs(likelihood(model) / before - 1.0), 0.05, "ten passes end where a fit does: documented as "
                       "5 %; twenty of larger batches for tied factors", f"{entry.cls.__name__}, passes from nothing",
                       entry.cls.__name__, "relative difference of the held-out log-likelihood")  # fmt: skip


# -- registration ----------------------------------------------------------------------------------------------------


def _batched(entry: Classifier) -> bool:
    return "training" in entry.parameters


def _streams(entry: Classifier) -> bool:
    return hasattr(entry.cls, "partial_fit")


class Question(NamedTuple):
    """A question to every classifier that `has` what it is about."""

    statement: str
    ask: Callable[[Classifier, Context, Any], Iterable[Outcome]]
    has: Callable[[Classifier], bool] = lambda entry: True
    posed: bool = True  # on the problem of the classifier; else it needs none


QUESTIONS: Mapping[str, Question] = {
    "held": Question("With parameters held a classifier answers as its method does.", held),
    "names": Question("Neither the order of the rows nor the names of the labels matter.", names),
    "memory_map": Question("A memory map gives the digits of an array.", memory_map),
    "seed": Question("The same random_state gives the same digits, another one other draws.", seeds),
    "batches": Question("On mini-batches of all rows a classifier makes the steps of its method.", batches, _batched),
    "brought": Question(
        ("Batches given to partial_fit make the steps of the method on the same list."), brought, _streams
    ),
    "streamed": Question(
        ("Batches with rows seen before do not move the predictions."), streamed, _streams, posed=False
    ),
    "learned": Question("What is learned maximises evidence times the documented prior.", learned),
}


def _register(entry: Classifier, quantity: str, question: Question) -> None:
    problem = entry.problem if question.posed else NO_PROBLEM

    @check(f"classifier/{entry.method}/{quantity}", paper=entry.paper, question=question.statement, problems=(problem,))
    def asked(context: Context, problem: Any) -> Iterable[Outcome]:
        return question.ask(entry, context, problem)


for _entry in CLASSIFIERS:
    for _quantity, _question in QUESTIONS.items():
        if _question.has(_entry):
            _register(_entry, _quantity, _question)
