"""Judge a program that is no witness: every question that its method allows, with limits, reasons, suspects and power.

    from validation.judge.judging import judge

    verdict = judge(answer, method="laplace")
    print(verdict.verdict, [case.name for case in verdict.failed])

`answer(method, problem, **options) -> Solution` is all that is asked for. Its attributes, each optional, say what it
can do: `methods`, `likelihoods`, `kernels` (tuples of words of `Problem`), `points` ("all rows", "inducing points" or
"either"). A problem that it cannot answer it refuses by NotImplementedError; that is listed, and no failure.

Asked are the built-in problems with a truth that fit, up to `largest` data (by default 40, or the smallest problem
where every one that fits is larger). Each answer is held against the same method of `fast` where that is one of ours
(an identity), against the truth (a discrepancy), and a small one against itself with rows, classes, origin and units
changed (an invariance).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from validation.door import arguments, catalogue, premises
from validation.door.problem import KERNELS, LIKELIHOODS, Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.door.solve import (
    JUDGE,
    WITNESSES,
    ImplementationError,
    find_implementation,
    known_methods,
    methods,
    raised,
    solve,
)
from validation.judge import distances
from validation.judge.child import Child
from validation.judge.compare import Row, compare, identity_limit
from validation.judge.suspects import answers, questions
from validation.judge.suspects.search import QUANTITIES, Found, suspects
from validation.truth import store

LARGEST = 40  # data of a problem: larger ones cost minutes and show little more

#: Two programs with stopping rules and quadratures of their own: a lost term shows from about 1e-4 on.
LIMIT = 1e-6

#: The same program on the same numbers in another order or unit: what a stopping rule leaves. Probabilities of several
#: classes are integrals, by rules that need not treat classes alike, or by draws; a column in the wrong place differs
#: by much more.
INVARIANCE, INTEGRALS = 1e-5, 1e-3

_DIGITS = 5.0  # of the quadrature that is the truth of problems of two data

KINDS = ("answer", "identity", "discrepancy", "invariance")


class Asked(NamedTuple):
    """One method of a program, on the problems that it allows."""

    answer: Callable[..., Any]
    method: str
    problems: tuple[str, ...]


class Case(NamedTuple):
    """One verdict: which method, which problem, which kind of question, and a row of `validation.judge.compare`."""

    method: str
    problem: str
    row: Row
    against: str

    @property
    def name(self) -> str:
        """method/problem/kind/quantity."""
        return f"{self.method}/{self.problem}/{self.row.kind}/{self.row.quantity}"


class Suspicion(NamedTuple):
    """A suspect with the problems on which it would explain what failed."""

    name: str
    text: str
    problems: tuple[str, ...]


class Verdict(NamedTuple):
    """What a run came to.

    cases        every verdict, in the order in which they were reached
    suspicions   suspects, those that explain the most problems first
    seen         well-known mistakes that would have turned a verdict red in this run
    unseen       those that would not
    not_judged   quantity or problem -> why nothing was said of it
    """

    program: str
    cases: tuple[Case, ...]
    suspicions: tuple[Suspicion, ...]
    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    not_judged: Mapping[str, str]

    @property
    def failed(self) -> tuple[Case, ...]:
        """Cases whose verdict is FAIL."""
        return tuple(case for case in self.cases if case.row.verdict == "FAIL")

    @property
    def passed(self) -> tuple[Case, ...]:
        """Cases whose verdict is PASS."""
        return tuple(case for case in self.cases if case.row.verdict == "PASS")

    @property
    def verdict(self) -> str:
        """DISAGREE, UNDECIDED (nothing could be judged), or AGREE."""
        return "DISAGREE" if self.failed else "AGREE" if self.passed else "UNDECIDED"


def judge(
    answer: Callable[..., Any] | str,
    method: str | None = None,
    *,
    problems: Iterable[str] | None = None,
    largest: int | None = None,
    limit: float = LIMIT,
    power: bool = True,
    listen: Callable[[str], object] | None = None,
) -> Verdict:
    """Ask a program everything that it allows.

    Parameters
    ----------
    answer : callable or str    the program, an entry point, or "module:function"; by name it has a process of its own,
                                and one that ends its process has given no answer to that question
    method : str                one of its methods; None: all that its attribute `methods` lists
    problems : iterable         names of problems, in place of all that fit
    largest : int               largest number of data of a problem, >= 2; None: 40, or the smallest problem that fits
    limit : float               of identities, > 0; more where the condition of the prior's matrix asks for it
    power : bool                find out too which mistakes this run could have seen; costs some seconds
    listen : callable           called with the name of each problem before it is asked

    Raises
    ------
    ValueError, TypeError       naming the argument: no method, a problem that is unknown or does not fit
    """
    if isinstance(answer, str) and isinstance(named := in_child(answer), Child):
        with named:
            return judge(named, method, problems=problems, largest=largest, limit=limit, power=power, listen=listen)
    cases: list[Case] = []
    left_out: dict[str, str] = {}
    results: list[tuple[str, Found]] = []
    visited: dict[str, bool] = {}
    for asked in questions_for(answer, method, problems=problems, largest=largest):
        left_out |= _no_identities(asked.method)
        absent: list[set[str]] = []
        for name in asked.problems:
            if listen is not None:
                listen(f"{asked.method} on {name}")
            session = Session(asked.answer, asked.method, name, limit)
            mine = list(session.cases())
            cases += mine
            left_out |= {f"{asked.method} on {name}": session.refusal} if session.refusal else {}
            absent += [session.absent()] if session.solution is not None else []
            if any(case.row.verdict == "FAIL" for case in mine):
                results += [(name, told) for told in session.suspects(mine)]
            elif power and session.solution is not None:
                known = {word for word, noticed in visited.items() if noticed}
                for word, noticed in session.power(known):
                    visited[word] = visited.get(word, False) or noticed
        for quantity in QUANTITIES:
            if any(quantity in one for one in absent):
                left_out[f"{asked.method}/{quantity}"] = "the program does not give it"
    for case in cases:
        if case.row.verdict == "SKIP":
            left_out.setdefault(case.name, case.row.why)
    lists = [sorted(word for word, noticed in visited.items() if noticed is wanted) for wanted in (True, False)]
    program = answer.given if isinstance(answer, Child) else name_of(answer)
    return Verdict(program, tuple(cases), _ranked(results), tuple(lists[0]), tuple(lists[1]), left_out)


def in_child(answer: Callable[..., Any] | str) -> Callable[..., Any] | str:
    """A program that is given by name as a `Child`; a witness, and what is no name, as it is."""
    if not isinstance(answer, str) or answer in WITNESSES + JUDGE:
        return answer
    return Child(answer)


def questions_for(
    answer: Callable[..., Any] | str,
    method: str | None = None,
    *,
    problems: Iterable[str] | None = None,
    largest: int | None = None,
) -> tuple[Asked, ...]:
    """The methods of a program and the problems that each allows; arguments and errors as `judge`."""
    target = find_implementation(answer) if isinstance(answer, str) else answer
    if not callable(target):
        raise TypeError(f"answer: found {type(target).__name__}, expected a callable (method, problem) -> Solution")
    bound = LARGEST if largest is None else arguments.integer(largest, "largest", at_least=2)
    listed = known_methods(target, name_of(target))
    wanted = (method,) if method is not None else listed
    if not wanted:
        raise ValueError("method: found None and no attribute `methods` of the answer, expected a method id")
    asked = []
    for one in wanted:
        arguments.string(one, "method")
        if listed and one not in listed:
            raise ValueError(f"method: found {shown(one)}, expected one of {', '.join(listed)}")
        of_any_size = tuple(name for name in names() if _fits(target, one, distances.question(name)))
        fitting = tuple(name for name in of_any_size if distances.question(name).n <= bound)
        if not fitting and largest is None:
            fitting = of_any_size[:1]
        if problems is not None:
            chosen = tuple(problems)
            if foreign := [name for name in chosen if name not in fitting]:
                raise ValueError(
                    f"problems: found {', '.join(foreign)}, expected some of {', '.join(fitting) or 'none'}: what "
                    f"{one} takes, with at most {bound} data"
                )
            fitting = chosen
        if not fitting and of_any_size:
            smallest = distances.question(of_any_size[0]).n
            raise ValueError(
                f"largest: found {bound}, expected at least {smallest}: the smallest problem that {one} takes"
            )
        if not fitting:
            raise ValueError(
                f"method: found {shown(one)}, for which no problem fits, expected attributes likelihoods (of "
                f"{', '.join(LIKELIHOODS)}), kernels and points of the answer to allow one"
            )
        asked.append(Asked(target, one, fitting))
    return tuple(asked)


def _no_identities(method: str) -> dict[str, str]:
    """Why a method of another name is held against nothing but the truth; empty for a method of `fast`."""
    known = methods()["fast"]
    if method in known:
        return {}
    close = get_close_matches(method, known, n=1, cutoff=0.8)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return {f"{method}/identity": f"fast has no method {shown(method)}{hint}: the truth alone is asked"}


@cache
def names() -> tuple[str, ...]:
    """Problems with a truth at hand: stored, or by quadrature where it takes seconds; the smallest first."""
    tiny = [name for name in distances.QUADRATURES if distances.question(name).n <= 2]
    return tuple(sorted((*tiny, *store.RECIPES), key=lambda name: distances.question(name).n))


def _fits(answer: Callable[..., Any], method: str, problem: Problem) -> bool:
    entry = next((entry for entry in catalogue.METHODS if entry.method == method), None)
    likelihoods = _words(answer, "likelihoods", LIKELIHOODS, LIKELIHOODS if entry is None else entry.likelihoods)
    kernels = _words(answer, "kernels", KERNELS, KERNELS)
    all_points = (catalogue.ALL_ROWS, catalogue.INDUCING, catalogue.EITHER)
    points = getattr(answer, "points", catalogue.ALL_ROWS if entry is None else entry.points)
    arguments.choice(points, all_points, "points")
    if entry is not None:
        likelihoods = tuple(set(likelihoods) & set(entry.likelihoods))
        if entry.errors and not problem.epsilon:
            return False
    sparse = problem.Z is not None
    fits = points == catalogue.EITHER or sparse == (points == catalogue.INDUCING)
    return fits and problem.likelihood in likelihoods and problem.kernel in kernels


def _words(answer: Callable[..., Any], name: str, known: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    result = getattr(answer, name, None)
    if result is None:
        return default
    words = (result,) if isinstance(result, str) else tuple(result)
    for word in words:
        arguments.choice(word, known, name)
    return words


def name_of(answer: Callable[..., Any] | str) -> str:
    if isinstance(answer, str):
        return answer
    if isinstance(name := getattr(answer, "name", None), str):  # a program of `validation.peers`
        return name
    return f"{getattr(answer, '__module__', '?')}:{getattr(answer, '__qualname__', type(answer).__name__)}"


def _ranked(value: list[tuple[str, Found]]) -> tuple[Suspicion, ...]:
    """Suspects by the problems that they explain, then by their place on each."""
    where: dict[str, dict[str, str]] = {}
    points: Counter[str] = Counter()
    for name, told in value:
        for place, suspect in enumerate(told.ranked):
            if name not in where.setdefault(suspect.name, {}):
                where[suspect.name][name] = suspect.text
                points[suspect.name] += 1000 - place
    return tuple(
        Suspicion(word, next(iter(where[word].values())), tuple(where[word])) for word, _ in points.most_common()
    )


class Session:
    """One method of a program on one problem."""

    def __init__(self, answer: Callable[..., Any], method: str, name: str, limit: float = LIMIT) -> None:
        limit = arguments.real(limit, "limit")
        if limit <= 0.0:
            raise ValueError(f"limit: found {limit:g}, expected a number > 0")
        self.answer, self.method, self.name = answer, method, name
        self.problem = posed(name)
        self.limit = max(limit, identity_limit(self.problem)[0])
        self.refusal = ""
        self.solution: Solution | None = None
        self.others: list[Solution] = []

    def cases(self) -> Iterator[Case]:
        """Every verdict on this problem."""
        row, self.solution = self._asked(self.problem)
        yield Case(self.method, self.name, row, name_of(self.answer))
        if self.solution is None:
            return
        for other in self.opponents():
            for row in self._compared(self.solution, other):
                if row.quantity not in ("settings", "method"):
                    yield Case(self.method, self.name, row, other.label)
        if self.problem.n <= 2 or self.name in SMALL:
            yield from self._invariances()

    def opponents(self) -> list[Solution]:
        """The same method of `fast`, where there is one, and the truth."""
        if not self.others:
            if self.method in methods()["fast"]:
                self.others.append(_ours(self.method, self.name))
            self.others.append(_truth(self.name))
        return self.others

    def absent(self) -> set[str]:
        """Quantities that someone else states, and the program does not."""

        def given(solution: Solution) -> set[str]:
            return {name for name in QUANTITIES if (v := getattr(solution, name)) is not None and np.size(v)}

        assert self.solution is not None
        missing = {name for other in self.opponents() for name in given(other)} - given(self.solution)
        # of all rows the "inducing" moments are those of the latent values, once more
        return {name for name in missing if self.problem.Z is not None or not name.startswith("inducing")}

    def suspects(self, cases: Iterable[Case]) -> Iterator[Found]:
        """Suspects of what failed, held against `fast` where that has the method."""
        failed = {case.row.quantity for case in cases if case.row.verdict == "FAIL"}
        failed = {"log_evidence" if name == "bound - log Z" else name for name in failed} & set(QUANTITIES)
        if self.solution is not None and failed:
            yield suspects(self.solution, self.opponents()[0], failed, limit=self.limit)

    def power(self, known: set[str]) -> Iterator[tuple[str, bool]]:
        """(suspect, whether a verdict would have turned red had this answer made that mistake), but for those known."""
        mine, given = self.solution, {}
        assert mine is not None
        for name in QUANTITIES:
            value = getattr(mine, name)
            if value is not None and np.size(value):
                given[name] = np.asarray(value, dtype=float)
        for name in given.keys() & {*answers.MEANS, *answers.COVARIANCES}:
            word = f"{name} 5 % off"
            if word not in known:
                yield word, self._noticed(mine, {name: 1.05 * given[name]})
        for candidate in answers.candidates(self.problem, given, given):
            if candidate.name in known:
                continue
            planted = {name: value for name, value in candidate.values.items() if name in given}
            if planted and any(_differs(given[name], value) for name, value in planted.items()):
                yield candidate.name, self._noticed(mine, planted)
        if self.method not in methods()["fast"]:
            return
        for change in questions.changes(self.problem, self.method):
            if change.name in known:
                continue
            try:
                solution = solve("fast", change.method or self.method, change.problem)
            except (ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError):
                continue
            values = {name: getattr(solution, name) for name in given}
            planted = {k: v for k, v in values.items() if v is not None and np.shape(v) == given[k].shape}
            if planted:
                yield change.name, self._noticed(mine, planted)

    def _noticed(self, mine: Solution, planted: dict[str, Any]) -> bool:
        from dataclasses import replace

        try:
            values: Any = {k: float(v) if k == "log_evidence" else v for k, v in planted.items()}
            wrong = replace(mine, **values)
        except (ValueError, TypeError):  # a Solution refuses it: nobody could hand it in
            return True
        # probabilities last: wrong moments ask for an integral of their own, which takes seconds
        return any(
            row.verdict == "FAIL"
            for answer in (replace(wrong, probabilities=None), wrong)
            for other in self.opponents()
            for row in self._compared(answer, other)
        )

    def _compared(self, mine: Solution, other: Solution) -> list[Row]:
        identity = other.implementation == "fast" and not premises.claims_truth(mine)
        return compare(mine, other, limit=self.limit if identity else None)

    def _asked(self, problem: Problem) -> tuple[Row, Solution | None]:
        """The program's answer, and a row on whether it gave one."""
        try:
            result = solve_with(self.answer, self.method, problem)
        except NotImplementedError as error:
            self.refusal = f"refused: {error}"
            return Row("answer", "answer", np.nan, np.nan, "SKIP", self.refusal), None
        except (ImplementationError, TypeError, ValueError) as error:
            return Row("answer", "answer", 1.0, 0.0, "FAIL", str(error)), None
        there = [name for name in QUANTITIES if (value := getattr(result, name)) is not None and np.size(value)]
        if not there:
            why = f"found none of {', '.join(QUANTITIES)} in the solution, expected at least one"
            return Row("answer", "answer", 1.0, 0.0, "FAIL", why), None
        return Row("answer", "answer", 0.0, 0.0, "PASS", f"gives {', '.join(there)}"), result

    def _invariances(self) -> Iterator[Case]:
        assert self.solution is not None
        rng = np.random.default_rng(len(self.name))
        p, d = self.problem, self.problem.d
        rows = np.roll(np.arange(p.n), 1)
        shift, unit = rng.normal(size=d), np.exp2(rng.integers(1, 3, size=d))
        moved: dict[str, tuple[Problem, Any, Any]] = {
            "order of rows": (p.replace(X=p.X[rows], y=p.y[rows]), rows, slice(None)),
            "origin of inputs": (
                p.replace(X=p.X + shift, **_points(p, lambda a: a + shift)), slice(None), slice(None)
            ),
            "units of inputs": (
                p.replace(X=p.X * unit, lengthscales=p.lengthscales * unit, **_points(p, lambda a: a * unit)),
                slice(None), slice(None),
            ),
        }  # fmt: skip
        if p.n_latents > 1:
            order = np.roll(np.arange(p.n_classes), 1)  # class c of the changed problem was class order[c]
            changed = {k: getattr(p, k)[order] for k in ("variance", "lengthscales", "noise", "jitter")}
            changed |= {"Z": None if p.Z is None else p.Z[order]}
            moved["order of classes"] = (
                p.replace(y=np.argsort(order)[p.y], y_test=None, **changed),
                slice(None),
                order,
            )
        for what, (problem, by_row, by_class) in moved.items():
            row, result = self._asked(problem)
            if result is not None:
                row = _unchanged(self.solution, result, by_row, by_class)
            yield Case(self.method, self.name, row._replace(quantity=what, kind="invariance"), "itself")


# problems besides those of two data on which invariances are asked
SMALL = ("toy", "toy-probit", "toy-3", "toy-3-softmax", "toy-2-sparse-threshold", "toy-3-sparse-errors")


def _points(p: Problem, change: Callable[[Any], Any]) -> dict[str, Any]:
    return {k: change(getattr(p, k)) for k in ("Z", "X_test") if getattr(p, k) is not None}


def _unchanged(before: Solution, after: Solution, rows: Any, classes: Any) -> Row:
    """The largest difference over all quantities, once rows and classes are back in their places."""
    worst, limit, told = 0.0, INVARIANCE, "nothing to compare"
    for name in ("log_evidence", "latent_mean", "latent_cov", "test_latent_mean", "probabilities"):
        a, b = getattr(before, name), getattr(after, name)
        if a is None or b is None or not np.size(a):
            continue
        if name.startswith("latent"):
            a = a[rows]
        if name != "log_evidence":
            a = a[:, classes] if not name.endswith("_cov") else a[:, classes][:, :, classes]
        apart = distances.relative_difference(a, b, 1e-3)
        allowed = INTEGRALS if name == "probabilities" else INVARIANCE
        if not apart / allowed < worst / limit:
            worst, limit, told = apart, allowed, name
    why = f"largest in {told}: one question asked in other words; {limit:g} is what stopping rules and integrals leave"
    return Row("", "invariance", worst, limit, "PASS" if worst <= limit else "FAIL", why)


def _differs(a: Any, b: Any) -> bool:
    b = np.asarray(b, dtype=float)
    return a.shape != b.shape or distances.relative_difference(a, b) > 1e-3


def solve_with(answer: Callable[..., Any], method: str, problem: Problem) -> Solution:
    """The answer of a callable, checked; what it raises is an ImplementationError, but for NotImplementedError."""
    try:
        result = answer(method, problem)
    except NotImplementedError:
        raise
    except (Exception, SystemExit) as error:  # a program that ends the process has given no answer
        if isinstance(answer, Child):  # which says all that is said here
            raise
        raise ImplementationError(f"{name_of(answer)} {method} on {problem.name}: {raised(error, answer)}") from error
    if not isinstance(result, Solution):
        raise TypeError(f"{name_of(answer)}: found {type(result).__name__} returned, expected a validation.Solution")
    if changed := result.problem.differences(problem):
        raise ValueError(f"{name_of(answer)}: found a solution of another problem, which differs in {changed}")
    return result


@cache
def posed(name: str) -> Problem:
    """The problem of that name, to the last digit that of its stored truth: another machine standardises otherwise."""
    value: Problem = store.load(name).solution.problem if name in store.RECIPES else distances.question(name)
    return value


@cache
def _ours(method: str, name: str) -> Solution:
    return solve("fast", method, posed(name))


@cache
def _truth(name: str) -> Solution:
    def less(implementation: str, method: str, problem: Problem, **options: Any) -> Solution:
        return solve(implementation, method, problem, **{**options, "digits": _DIGITS})

    return distances.truth_of(name, less)
