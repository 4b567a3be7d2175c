"""Which problems the judge poses to a program: the smallest that have each feature.

Those with a truth up to `LARGEST` data; the smallest one with a chain's truth for all rows, and for inducing points,
where all of them are larger; and for each feature that none of these has (`features`) the smallest problem that has it:
noise and none, jitter and none, kernels, several lengthscales, numbers of classes, labelling errors, more rows than a
batch, probabilities near 0. Problems without a truth (`validation.problems.judged`) are for methods that `fast` has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from validation import problems as built_in
from validation.door import arguments, catalogue
from validation.door.options import options_of
from validation.door.problem import KERNELS, LIKELIHOODS, Problem
from validation.door.quoting import shown
from validation.door.solve import find_implementation, known_methods, methods, solve
from validation.judge import distances
from validation.truth import store

LARGEST = 40  # data of a problem: larger ones cost minutes and show little more
TINY = 3  # data of a problem up to which quadrature knows all, and little shows
BATCH = 100  # rows that many programs take at once
RARE = 0.02  # a probability in the tails


class Asked(NamedTuple):
    """One method of a program, the problems that it allows, and the method of `fast` as which it is judged, or ""."""

    answer: Callable[..., Any]
    method: str
    problems: tuple[str, ...]
    known: str


@cache
def names() -> tuple[str, ...]:
    """Problems with a truth at hand: stored, or by quadrature where it takes seconds; the smallest first."""
    tiny = [name for name in distances.QUADRATURES if _quick(distances.question(name))]
    return tuple(sorted((*tiny, *store.RECIPES), key=_size))


def _quick(problem: Problem) -> bool:
    return problem.n <= 2 or problem.prior_model == "fitc"


def _size(name: str) -> int:
    return distances.question(name).n


@cache
def posed(name: str) -> Problem:
    """The problem of that name, to the last digit that of its stored truth: another machine standardises otherwise."""
    value: Problem = store.load(name).solution.problem if name in store.RECIPES else distances.question(name)
    return value


@cache
def features(name: str) -> frozenset[str]:
    """What a problem asks of a program, in words; nothing where it has three data at most."""
    p = posed(name)
    if p.n <= TINY:
        return frozenset()
    several = p.n_latents > 1
    told = {
        "noise": p.noise.any(),
        "no noise": not p.noise.any(),
        "jitter": p.jitter.any(),
        "no jitter": not p.jitter.any(),
        "squared exponential kernel": p.kernel == "se",
        "Matérn kernel": p.kernel == "matern",
        "several lengthscales": (p.lengthscales != p.lengthscales[:, :1]).any(),
        "2 classes": several and p.n_classes == 2,
        "3 classes": several and p.n_classes == 3,
        "4 classes or more": several and p.n_classes > 3,
        "parameters of each class": several and (p.variance != p.variance[0]).any(),
        "labelling errors": p.epsilon > 0.0,
        "no labelling errors": p.likelihood == "threshold" and not p.epsilon,
        f"more than {BATCH} rows": p.n > BATCH,
        f"probabilities below {RARE:g}": _rare(name),
    }
    points = catalogue.ALL_ROWS if p.Z is None else catalogue.INDUCING
    return frozenset(f"{word} ({p.likelihood}, {points})" for word, there in told.items() if there)


def _rare(name: str) -> bool:
    if name not in store.RECIPES:
        p = posed(name)  # see tests/validation/judge/test_posing.py
        drawn = p.likelihood != "softmax" and p.epsilon / p.n_classes < RARE  # Laplace's method has none so rare
        return name in built_in.judged() and "plain" in name and drawn
    stored = store.load(name).solution.probabilities
    return bool(stored is not None and stored.size and stored.min() < RARE)


def all_features(method: str) -> frozenset[str]:
    """The features of every problem that some program of this method could be asked."""
    known = method in methods()["fast"]
    fitting = [name for name in (*names(), *_own(method)) if not known or taken(method, name)]
    return frozenset().union(*map(features, fitting))


def questions_for(
    answer: Callable[..., Any] | str,
    method: str | None = None,
    *,
    problems: Iterable[str] | str | None = None,
    largest: int | None = None,
) -> tuple[Asked, ...]:
    """The methods of a program and the problems that each allows; arguments and errors as `judge`."""
    target = find_implementation(answer) if isinstance(answer, str) else answer
    if not callable(target):
        raise TypeError(f"answer: found {type(target).__name__}, expected a callable (method, problem) -> Solution")
    listed = known_methods(target, name_of(target))
    wanted = (method,) if method is not None else listed
    if not wanted:
        raise ValueError("method: found None and no attribute `methods` of the answer, expected a method id")
    asked = []
    for one in wanted:
        arguments.string(one, "method")
        if listed and one not in listed:
            raise ValueError(f"method: found {shown(one)}, expected one of {', '.join(listed)}")
        asked.append(questions_as(target, one, one if one in methods()["fast"] else "", problems, largest))
    return tuple(asked)


def questions_as(
    target: Callable[..., Any],
    method: str,
    known: str,
    problems: Iterable[str] | str | None = None,
    largest: int | None = None,
) -> Asked:
    """The problems for a method of a program that is judged as the method `known` of `fast`, or as none of its ("")."""
    bound = None if largest is None else arguments.integer(largest, "largest", at_least=2)
    with_truth = [name for name in names() if _fits(target, known or method, posed(name))]
    if known:
        with_truth = [name for name in with_truth if taken(known, name)]
    own = [name for name in _own(known) if _fits(target, known or method, posed(name))]
    of_any_size = sorted((*with_truth, *own), key=_size)
    if not of_any_size:
        raise ValueError(
            f"method: found {shown(method)}, for which no problem fits, expected attributes likelihoods (of "
            f"{', '.join(LIKELIHOODS)}), kernels and points of the answer to allow one"
        )
    if problems is not None:
        chosen = (problems,) if isinstance(problems, str) else tuple(problems)
        allowed = [name for name in of_any_size if bound is None or _size(name) <= bound]
        if foreign := [name for name in chosen if name not in allowed]:
            most = "" if bound is None else f", with at most {bound} data"
            raise ValueError(
                f"problems: found {', '.join(foreign)}, expected some of {', '.join(allowed) or 'none'}: what "
                f"{method} takes{most}"
            )
        return Asked(target, method, chosen, known)
    if bound is not None:
        fitting = [name for name in of_any_size if _size(name) <= bound]
        if not fitting:
            raise ValueError(
                f"largest: found {bound}, expected at least {_size(of_any_size[0])}: the smallest problem that "
                f"{method} takes"
            )
        return Asked(target, method, tuple(fitting), known)
    return Asked(target, method, _smallest(with_truth, own), known)


def _smallest(with_truth: list[str], own: list[str]) -> tuple[str, ...]:
    """The selection of the first lines of this module, the smallest first."""
    chosen = [name for name in with_truth if _size(name) <= LARGEST]
    chained = [name for name in with_truth if name in store.RECIPES]
    for sparse in (False, True):
        of_points = [name for name in chained if (posed(name).Z is not None) is sparse]
        chosen += [name for name in of_points[:1] if name not in chosen]
    for name in (*sorted(own, key=_size), *with_truth):
        if not features(name) <= frozenset().union(*map(features, chosen)):
            chosen.append(name)
    return tuple(sorted(chosen, key=_size))


def _own(known: str) -> tuple[str, ...]:
    """Problems without a truth that a method of `fast` takes; none for another method."""
    if not known or known not in methods()["fast"]:
        return ()
    return tuple(name for name in built_in.judged() if taken(known, name))


def taken(known: str, name: str) -> bool:
    """Whether `fast` takes a problem by a method: it is asked the smallest one of that kind, for one iteration."""
    if not _takes_points_and_likelihood(known, posed(name)):
        return False
    alike = [other for other in (*names(), *built_in.judged()) if _kind(other) == _kind(name)]
    return _answered(known, min(alike, key=_size))


@cache
def _kind(name: str) -> tuple[object, ...]:
    p = distances.question(name)
    return p.likelihood, p.kernel, p.Z is None, p.epsilon > 0.0


@cache
def _answered(known: str, name: str) -> bool:
    options = {"max_iterations": 1} if "max_iterations" in options_of("fast", known) else {}
    try:
        solve("fast", known, posed(name), **options)
    except ValueError:
        return False
    return True


def _takes_points_and_likelihood(method: str, problem: Problem) -> bool:
    entry = next((entry for entry in catalogue.METHODS if entry.method == method), None)
    if entry is None:
        return True
    if problem.likelihood not in entry.likelihoods or (entry.errors and not problem.epsilon):
        return False
    return entry.points == catalogue.EITHER or (problem.Z is not None) == (entry.points == catalogue.INDUCING)


def _fits(answer: Callable[..., Any], method: str, problem: Problem) -> bool:
    entry = next((entry for entry in catalogue.METHODS if entry.method == method), None)
    likelihoods = _words(answer, "likelihoods", LIKELIHOODS, LIKELIHOODS if entry is None else entry.likelihoods)
    kernels = _words(answer, "kernels", KERNELS, KERNELS)
    all_points = (catalogue.ALL_ROWS, catalogue.INDUCING, catalogue.EITHER)
    points = getattr(answer, "points", catalogue.ALL_ROWS if entry is None else entry.points)
    arguments.choice(points, all_points, "points")
    fits = points == catalogue.EITHER or (problem.Z is not None) == (points == catalogue.INDUCING)
    known = entry is None or _takes_points_and_likelihood(method, problem)
    return fits and known and problem.likelihood in likelihoods and problem.kernel in kernels


def _words(answer: Callable[..., Any], name: str, known: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    result = getattr(answer, name, None)
    if result is None:
        return default
    words = (result,) if isinstance(result, str) else tuple(result)
    for word in words:
        arguments.choice(word, known, name)
    return words


def name_of(answer: Callable[..., Any] | str) -> str:
    """What reports call a program: its attribute `name`, or module:function."""
    if isinstance(answer, str):
        return answer
    if isinstance(name := getattr(answer, "name", None), str):  # a program of `validation.peers`
        return name
    return f"{getattr(answer, '__module__', '?')}:{getattr(answer, '__qualname__', type(answer).__name__)}"
