"""Hold every suspect against two answers that differ, and rank those that explain the difference."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from validation.door import arguments, premises
from validation.door.options import options_of
from validation.door.solution import Solution, is_float32
from validation.door.solve import WITNESSES, ImplementationError, methods, solve
from validation.judge.distances import relative_difference
from validation.judge.suspects import answers, questions
from validation.judge.suspects.answers import EXACT, FITTED, NAMED, Arrays, Candidate

QUANTITIES = (
    "log_evidence",
    "latent_mean",
    "latent_cov",
    "test_latent_mean",
    "test_latent_cov",
    "probabilities",
    "inducing_mean",
    "inducing_cov",
)

#: A suspect is stated if what is left of a difference is within the limit, or less than this part of it. Fifteen named
#: constants of either sign, each with a window of 1 %, would explain one gap in three by chance: they ask for more.
LEFT = {EXACT: 1e-2, NAMED: 1e-4, FITTED: 1e-2}

#: Relative differences below this are agreement: two programs with stopping rules of their own seldom get nearer.
SAME = 1e-8

# what a computation in float32 leaves of moderately conditioned matrices, relative to the largest entry
_FLOAT32 = 1e-3

SECONDS = 20.0


class Suspect(NamedTuple):
    """One suspect that explains something.

    name, text    which, and what would make the sides agree
    explains      quantities that it brings to agreement
    before, after the largest relative differences of those, without it and with it
    """

    name: str
    text: str
    explains: tuple[str, ...]
    before: float
    after: float

    @property
    def gains(self) -> bool:
        """Whether what is left is a tenth of the difference at most."""
        return 10.0 * self.after <= self.before

    @property
    def sentence(self) -> str:
        """The text with what it explains."""
        quantities = ", ".join(self.explains)
        return f"{self.text} (explains {quantities}: difference {self.before:.2g} becomes {self.after:.2g})"


class Found(NamedTuple):
    """What a search came to.

    ranked     suspects, the likeliest first
    tried      how many transformations and changed problems were held against the answers
    left_out   what could not be tried, and why; empty if everything was
    model      whose answer the suspected side was held against
    same       whether the suspected side gives what the same method of `fast` gives: then the distance from a truth is
               that of the method, and no implementation is at bug
    """

    ranked: tuple[Suspect, ...]
    tried: int
    left_out: str
    model: str
    same: bool = False


def suspects(
    left: Solution,
    right: Solution,
    quantities: Iterable[str] | None = None,
    *,
    limit: float = SAME,
    seconds: float = SECONDS,
    sides: tuple[str, str] = ("left", "right"),
) -> Found:
    """Which well-known mistakes would make two solutions of one problem agree.

    Parameters
    ----------
    left, right : Solution     of one problem; the side that is no witness is held suspect, the left one if both are or
                               neither is. Where the other side is a truth, the method's own answer by `fast` takes its
                               place, if the method is one of `fast`'s
    quantities : iterable      names to be explained; None: all that differ by more than limit
    limit : float              relative difference within which two numbers agree, > 0
    seconds : float            for solving changed problems, >= 0; when they are used up, the rest is left out
    sides : (str, str)         words for the two in sentences

    Raises
    ------
    ValueError                 if the sides are solutions of different problems, or an argument is out of range
    """
    limit, seconds = arguments.real(limit, "limit"), arguments.real(seconds, "seconds")
    if limit <= 0.0:
        raise ValueError(f"limit: found {limit:g}, expected a number > 0")
    if seconds < 0.0:
        raise ValueError(f"seconds: found {seconds:g}, expected a number >= 0")
    learned = premises.learned(left, right)
    different = left.problem.differences(right.problem, ignore=("name", "prior_model", *learned))
    if different:
        raise ValueError(f"right: found a solution of another problem (it differs in {different}), expected the same")
    began = time.perf_counter()
    own = [side.implementation in (*WITNESSES, "quadrature") for side in (left, right)]
    first = not (own[0] and not own[1])
    suspected, other, words = (left, right, sides) if first else (right, left, sides[::-1])
    ask, left_out = _asker(suspected, other)
    if learned:
        ask, left_out = None, f"changed problems: both sides learned {', '.join(learned)}"
    trusted, model = _arrays(other), words[1]
    if premises.claims_truth(other):
        answer = None if ask is None else ask(suspected.problem, suspected.method, {})
        if answer is not None:
            trusted = _arrays(answer)
            model = f"fast {suspected.method}"
    search = _Search(suspected, trusted, limit, (words[0], model))
    failing = search.differing(quantities)
    if not failing:
        return Found((), 0, left_out, model, same=model not in sides)
    for candidate in answers.candidates(suspected.problem, search.suspected, trusted):
        search.hold(candidate)
    search.rounded()
    if ask is not None:
        left_out = _changed(search, suspected, ask, began, seconds)
    return Found(search.ranked(), search.tried, left_out, model)


Ask = Callable[[Any, str, Mapping[str, Any]], Solution | None]


def _asker(suspected: Solution, other: Solution) -> tuple[Ask | None, str]:
    """How a changed problem is solved: by `fast`, with the settings that the sides state; or why it cannot be."""
    if suspected.method not in methods()["fast"]:
        return None, f"changed problems: {suspected.method!r} is no method of fast"
    stated = {**premises.comparable_settings(suspected), **premises.comparable_settings(other)}

    def ask(problem: Any, method: str, options: Mapping[str, Any]) -> Solution | None:
        known = options_of("fast", method)
        given = {name: value for name, value in stated.items() if name in known and value != known[name].default}
        given = {name: value for name, value in given.items() if name != "learn"} | dict(options)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a problem that nobody posed
                solution = solve("fast", method, problem, **given)
        except (ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError, ImplementationError):
            return None  # no answer to the changed question: nobody gave it
        return solution

    return ask, ""


def _changed(search: _Search, suspected: Solution, ask: Ask, began: float, seconds: float) -> str:
    """Solve every changed problem that time allows; what was left out."""
    problem = suspected.problem
    if problem.noise.any():
        answer = ask(problem.replace(X_test=problem.X, y_test=None), suspected.method, {})
        if answer is not None and answer.test_latent_mean is not None and answer.test_latent_cov is not None:
            cov = answer.test_latent_cov - np.eye(problem.n_latents) * problem.noise
            told = "latent values of suspected are those of f at the data, trusted's those of f + noise"
            values = {"latent_mean": answer.test_latent_mean, "latent_cov": cov}
            search.hold(Candidate("latent without noise", told, values))
            told = "latent means of suspected are those of f at the data, trusted's those of f + noise"
            search.hold(Candidate("latent without noise", told, {"latent_mean": answer.test_latent_mean}))
    skipped = []
    for change in questions.changes(problem, suspected.method):
        if time.perf_counter() - began > seconds:
            skipped.append(change.name)
            continue
        answer = ask(change.problem, change.method or suspected.method, change.options)
        if answer is not None:
            told = f"in suspected {change.text}"
            search.hold(Candidate(change.name, told, _arrays(answer)), whole=True)
    named = ", ".join(dict.fromkeys(skipped))
    return f"not tried in {seconds:g} s: {named}" if skipped else ""


class _Search:
    """The suspected answer, what it is held against, and the suspects so far."""

    def __init__(self, suspected: Solution, trusted: Arrays, limit: float, words: tuple[str, str]) -> None:
        self.suspected, self.trusted = _arrays(suspected), trusted
        self.limit, self.words = limit, words
        self.before: dict[str, float] = {}
        self.fine: set[str] = set()
        self.tried = 0
        self._stated: list[tuple[tuple[float, ...], Suspect]] = []

    def differing(self, quantities: Iterable[str] | None) -> dict[str, float]:
        """Quantities to be explained, with their relative differences."""
        wanted = None if quantities is None else set(quantities)
        for name in QUANTITIES:
            if name in self.suspected and name in self.trusted:
                apart = relative_difference(self.suspected[name], self.trusted[name])
                if not apart <= self.limit and (wanted is None or name in wanted):
                    self.before[name] = apart
                elif apart <= self.limit:
                    self.fine.add(name)
        return self.before

    def hold(self, candidate: Candidate, *, whole: bool = False) -> None:
        """Keep a suspect if it explains something. One that is `whole` answers for all quantities: it spoils others."""
        self.tried += 1
        after = {name: self._after(name, candidate) for name in self.before if name in candidate.values}
        part = LEFT[candidate.rank]
        explained = tuple(name for name, left in after.items() if left <= max(self.limit, part * self.before[name]))
        if not explained:
            return
        changed = sum(self._after(name, candidate) > 1e3 * self.limit for name in self.fine if name in candidate.values)
        spoilt = changed if whole else 0
        if whole:
            # another question moves every number: one that happens to fit says nothing
            if spoilt >= len(explained) or 2 * len(explained) < len(after):
                return
            if (
                explained == ("log_evidence",)
                and not after["log_evidence"] <= LEFT[NAMED] * self.before["log_evidence"]
            ):
                return
        worst = max(after[name] for name in explained)
        before = max(self.before[name] for name in explained)
        text = candidate.text.replace("suspected", self.words[0]).replace("trusted", self.words[1])
        result = Suspect(candidate.name, text, explained, before, worst)
        # decades that it gains, in steps of two: below that rank decides, then what it says of quantities that agree
        gained = min(8.0, float(np.log10(before / max(worst, self.limit, 1e-300))))
        key = (
            -float(len(explained) - spoilt), -np.floor(gained / 2.0), float(candidate.rank), float(changed), -gained
        )  # fmt: skip
        self._stated.append((key, result))

    def _after(self, name: str, candidate: Candidate) -> float:
        value = np.asarray(candidate.values[name], dtype=float)
        mine = self.suspected[name]
        if value.shape != mine.shape or not np.isfinite(value).all():
            return np.inf
        return relative_difference(mine, value)

    def rounded(self) -> None:
        """Numbers that are all float32 ones, at distances that float32 explains: computed in it, not only stored."""
        exact = tuple(
            name for name, before in self.before.items() if before < _FLOAT32 and is_float32(self.suspected[name])
        )
        self.tried += 1
        if exact and len(exact) == len(self.before):
            apart = max(self.before.values())
            text = f"every number of {self.words[0]} is a float32 one: it was computed in float32 (seven digits)"
            self._stated.append(
                ((-float(len(exact)), -0.5, float(FITTED), 0.0, 0.0), Suspect("float32", text, exact, apart, apart))
            )

    def ranked(self) -> tuple[Suspect, ...]:
        """The likeliest first, each sentence once."""
        results: dict[str, Suspect] = {}
        for _, suspect in sorted(self._stated, key=lambda pair: pair[0]):
            results.setdefault(suspect.text, suspect)
        return tuple(results.values())


def _arrays(solution: Solution) -> dict[str, Any]:
    """What is compared, by name, as far as it is there and has entries."""
    results = {name: getattr(solution, name) for name in QUANTITIES}
    return {
        name: np.asarray(value, dtype=float) for name, value in results.items() if value is not None and np.size(value)
    }


__all__ = ["SAME", "SECONDS", "Found", "Suspect", "suspects"]
