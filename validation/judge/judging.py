"""Judge a program that is no witness: every question that its method allows, with limits, reasons, suspects and power.

    from validation.judge.judging import judge

    print(judge(answer, method="laplace"))

`answer(method, problem, **options) -> Solution` is all that is asked for. Its attributes, each optional, say what it
can do: `methods`, `likelihoods`, `kernels` (tuples of words of `Problem`), `points` ("all rows", "inducing points" or
"either"). A problem that it cannot answer it refuses by NotImplementedError; that is listed, and no failure.

Asked are the problems of `validation.judge.posing`. Each answer is held against the same method of `fast` where that is
one of ours (an identity), against the truth (a discrepancy), and a small one against itself with rows, classes, origin
and units changed (an invariance). A method of another name is judged as the one of `fast` that gives the same answers.
Where none does, it may be an approximation that we do not have: far from the truth it is INEXACT and no failure.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np

from validation.door import arguments, premises
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.door.solve import JUDGE, WITNESSES, ImplementationError, methods, raised, solve
from validation.judge import distances
from validation.judge.child import Child
from validation.judge.compare import Row, compare, identity_limit
from validation.judge.posing import Asked, all_features, features, name_of, posed, questions_as, questions_for, taken
from validation.judge.suspects import answers, questions, search
from validation.judge.suspects.search import QUANTITIES, Found, Suspect
from validation.judge.verdict import Case, Suspicion, Twin, Verdict
from validation.truth import store

#: Two programs with stopping rules and quadratures of their own: a lost term shows from about 1e-4 on.
LIMIT = 1e-6
_WHY = "two programs with stopping rules and quadratures of their own: a lost term shows from about 1e-4 on"

#: The same program on the same numbers in another order or unit: what a stopping rule leaves. Probabilities of several
#: classes are integrals, by rules that need not treat classes alike, or by draws; a column in the wrong place differs
#: by much more.
INVARIANCE, INTEGRALS = 1e-5, 1e-3

#: What a computation in float32 leaves of moderately conditioned matrices, relative to the largest entry.
FLOAT32 = 1e-3

SECONDS = 900.0  # for all questions of a run
_POWER = 60.0  # seconds for problems that are changed to find out what a run could have seen

_SUSPECTS = 30.0  # seconds for problems that are changed to find out what a program may have done

_DIGITS = 5.0  # of the quadrature that is the truth of problems of two data

_NEAR = 3.0  # times its limit: nearer failures have no suspects

_TWINS = 2  # problems on which answers are held against every method of `fast`

KINDS = ("answer", "identity", "discrepancy", "invariance")


def judge(
    answer: Callable[..., Any] | str,
    method: str | None = None,
    *,
    problems: Iterable[str] | str | None = None,
    largest: int | None = None,
    limit: float | None = None,
    power: bool = True,
    seconds: float = SECONDS,
    listen: Callable[[str], object] | None = None,
) -> Verdict:
    """Ask a program everything that it allows.

    Parameters
    ----------
    answer : callable or str    the program, an entry point, or "module:function"; by name it has a process of its own,
                                and one that ends its process has given no answer to that question
    method : str                one of its methods; None: all that its attribute `methods` lists
    problems : str or iterable  names of problems, in place of those that `validation.judge.posing` chooses
    largest : int               largest number of data of a problem, >= 2: then every problem up to it is posed
    limit : float               of identities, > 0, by default 1e-6; more where the condition of the prior's matrix asks
                                for it, and for numbers in float32
    power : bool                find out too which mistakes this run could have seen; costs up to a minute
    seconds : float             for all questions, > 0: what is left after that is named as not judged
    listen : callable           called with the name of each problem before it is asked

    Raises
    ------
    ValueError, TypeError       naming the argument: no method, a problem that is unknown or does not fit
    """
    if isinstance(answer, str) and isinstance(named := in_child(answer), Child):
        with named:
            return judge(
                named, method, problems=problems, largest=largest, limit=limit, power=power, seconds=seconds,
                listen=listen,
            )  # fmt: skip
    if not arguments.real(seconds, "seconds") > 0.0:
        raise ValueError(f"seconds: found {seconds:g}, expected a number > 0")
    run = _Run(limit, power, seconds, listen)
    for asked in questions_for(answer, method, problems=problems, largest=largest):
        run.ask(asked if asked.known else run.as_known(asked, problems, largest))
    return run.verdict(answer.given if isinstance(answer, Child) else name_of(answer))


class _Run:
    """What has been found so far, over all methods of a program."""

    def __init__(
        self, limit: float | None, power: bool, seconds: float, listen: Callable[[str], object] | None
    ) -> None:
        self._limit, self._power, self._seconds = limit, power, seconds
        self._listen = (lambda _: None) if listen is None else listen
        self._began, self._power_left, self._suspects_left = time.perf_counter(), _POWER, _SUSPECTS
        self.cases: list[Case] = []
        self.left_out: dict[str, str] = {}
        self.twins: dict[str, Twin] = {}
        self.results: list[tuple[str, Found]] = []
        self.noticed: set[str] = set()
        self.all: set[str] = set()
        self.precisions: set[str] = set()

    def as_known(self, asked: Asked, problems: Iterable[str] | str | None, largest: int | None) -> Asked:
        """Questions to a method of another name: those of the method of `fast` whose answers it gives, if there is one.

        Its first answers are held against every method of `fast` that takes the problem.
        """
        self._listen(f"{asked.method}: whose answers it gives, of the methods of fast")
        equal: dict[str, float] = {}
        partly: dict[str, set[str]] = {}
        compared = 0
        larger = [name for name in asked.problems if posed(name).n > 2] or list(asked.problems)
        for name in larger:
            session = Session(asked.answer, asked.method, name, self._limit)
            _, answer = session.asked(session.problem)
            if answer is None or premises.claims_truth(answer):
                continue
            found = {}
            for known in methods()["fast"] if not compared else equal.keys() | partly.keys():
                if taken(known, name) and (rows := session.beside(answer, known)):
                    found[known] = rows
            agreeing = {
                known: {row.quantity for row in rows if row.verdict == "PASS" and row.quantity in QUANTITIES}
                for known, rows in found.items()
            }
            whole = {
                known: max(row.observed for row in rows)
                for known, rows in found.items()
                if all(row.verdict == "PASS" for row in rows)
            }
            equal = {k: max(apart, equal.get(k, 0.0)) for k, apart in whole.items() if not compared or k in equal}
            partly = {k: same & partly.get(k, same) for k, same in agreeing.items() if not compared or k in partly}
            compared += 1
            if compared == _TWINS or not (equal or any(partly.values())):
                break
        if equal:
            twin = min(equal, key=lambda known: equal[known])
            self.twins[asked.method] = Twin(twin, equal[twin])
            return questions_as(asked.answer, asked.method, twin, problems, largest)
        self.left_out |= _no_identities(asked.method, {known: same for known, same in partly.items() if same})
        return asked

    def ask(self, asked: Asked) -> None:
        """Every question to one method."""
        absent: list[set[str]] = []
        if self._power:
            self.all |= all_features(asked.known or asked.method)
        for name in asked.problems:
            if self._seconds < time.perf_counter() - self._began:
                self.left_out[f"{asked.method} on {name}"] = f"the {self._seconds:g} s of this run were used up"
                continue
            self._listen(f"{asked.method} on {name}")
            session = Session(asked.answer, asked.method, name, self._limit, asked.known)
            mine = list(session.cases())
            self.cases += mine
            if session.refusal:
                self.left_out[f"{asked.method} on {name}"] = session.refusal
            if session.solution is None:
                continue
            absent.append(session.absent())
            self.precisions.add(session.precision)
            if any(case.row.verdict in ("FAIL", "INEXACT") for case in mine):
                began = time.perf_counter()
                self.results += [(name, told) for told in session.suspects(mine, max(0.0, self._suspects_left))]
                self._suspects_left -= time.perf_counter() - began
            elif self._power:
                began = time.perf_counter()
                self.all |= session.every()
                self.noticed |= features(name) | session.power(self.noticed, self._power_left)
                self._power_left -= time.perf_counter() - began
        for quantity in (*QUANTITIES, "gradients"):
            if any(quantity in one for one in absent):
                self.left_out[f"{asked.method}/{quantity}"] = "the program does not give it"
        if absent:
            why = "every question holds the hyper-parameters at the problem's values"
            self.left_out[f"{asked.method}/learning of hyper-parameters"] = why

    def verdict(self, program: str) -> Verdict:
        """The whole."""
        for case in self.cases:
            if case.row.verdict == "SKIP":
                self.left_out.setdefault(case.name, case.row.why)
        passed = any(case.row.verdict == "PASS" for case in self.cases)
        unseen = sorted(self.all - self.noticed) if self._power and (self.noticed or passed) else []
        precision = "float32" if "float32" in self.precisions else "float64"
        return Verdict(
            program, tuple(self.cases), _ranked(self.results), tuple(sorted(self.noticed)), tuple(unseen),
            self.left_out, self.twins, precision,
        )  # fmt: skip


def in_child(answer: Callable[..., Any] | str) -> Callable[..., Any] | str:
    """A program that is given by name as a `Child`; a witness, and what is no name, as it is."""
    if not isinstance(answer, str) or answer in WITNESSES + JUDGE:
        return answer
    return Child(answer)


def _no_identities(method: str, partly: dict[str, set[str]]) -> dict[str, str]:
    """Why a method of another name is held against nothing but the truth, and what it shares with methods of `fast`."""
    close = get_close_matches(method, methods()["fast"], n=1, cutoff=0.8)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    shared = ""
    if partly:
        most = max(map(len, partly.values()))
        # several methods may be one approximation: all are named, in an order that no import decides
        nearest = sorted(known for known, same in partly.items() if len(same) == most)
        same = ", ".join(sorted(partly[nearest[0]]))
        shared = f"; {same} equal those of {', '.join(nearest)}, as which it can be judged by name"
    return {f"{method}/identity": f"fast has no method {shown(method)}{hint}: the truth alone is asked{shared}"}


def _ranked(value: list[tuple[str, Found]]) -> tuple[Suspicion, ...]:
    """Suspects by the problems that they explain, then by their place on each.

    One that explains a single problem has to leave a tenth of the difference at most.
    """
    where: dict[str, dict[str, str]] = {}
    points: Counter[str] = Counter()
    gains: set[str] = set()
    for name, told in value:
        for place, suspect in enumerate(told.ranked):
            gains |= {suspect.name} if suspect.gains else set()
            if name not in where.setdefault(suspect.name, {}):
                where[suspect.name][name] = suspect.text
                points[suspect.name] += 1000 - place
    return tuple(
        Suspicion(word, next(iter(where[word].values())), tuple(where[word]))
        for word, _ in points.most_common()
        if word in gains or len(where[word]) > 1
    )


class Session:
    """One method of a program on one problem; `known` is the method of `fast` as which it is judged, "" for none."""

    def __init__(
        self, answer: Callable[..., Any], method: str, name: str, limit: float | None = None, known: str | None = None
    ) -> None:
        if limit is not None and not arguments.real(limit, "limit") > 0.0:
            raise ValueError(f"limit: found {limit:g}, expected a number > 0")
        self.answer, self.method, self.name = answer, method, name
        self.known = (method if method in methods()["fast"] else "") if known is None else known
        self.problem = posed(name)
        by_condition, why = identity_limit(self.problem)
        self.limit = max(LIMIT if limit is None else limit, by_condition)
        self.why = "limit given by the caller" if limit is not None else _WHY
        if by_condition == self.limit:
            self.why = why
        self.refusal = ""
        self.precision = "float64"
        self.solution: Solution | None = None
        self._others: list[Solution] = []

    def cases(self) -> Iterator[Case]:
        """Every verdict on this problem."""
        row, self.solution = self.asked(self.problem)
        yield Case(self.method, self.name, row, name_of(self.answer))
        if self.solution is None:
            return
        if not self.opponents():
            why = f"fast {self.known} does not converge here, and no truth is known"
            yield Case(self.method, self.name, Row("answer", "identity", np.nan, np.nan, "SKIP", why), "nothing")
        for other in self.opponents():
            for row in self._compared(self.solution, other):
                if row.quantity not in ("settings", "method"):
                    yield Case(self.method, self.name, row, other.label)
        yield from self._invariances()

    def opponents(self) -> list[Solution]:
        """The same method of `fast`, where there is one that takes the problem, and the truth, where it is known."""
        if not self._others:
            if self.known and taken(self.known, self.name) and (ours := _ours(self.known, self.name)).converged:
                self._others.append(ours)
            if known_truth(self.name):
                self._others.append(_truth(self.name))
        return self._others

    def beside(self, mine: Solution, known: str) -> list[Row]:
        """The quantities of an answer against those of a method of `fast`."""
        mine = replace(mine, method=known)
        rows = compare(mine, _ours(known, self.name), limit=self.limit, why=self.why)
        return [row for row in rows if row.quantity in QUANTITIES and row.verdict in ("PASS", "FAIL")]

    def absent(self) -> set[str]:
        """Quantities that someone else states, and the program does not."""
        assert self.solution is not None
        missing = {name for other in self.opponents() for name in _given(other)} - _given(self.solution)
        # of all rows the "inducing" moments are those of the latent values, once more
        return {name for name in missing if self.problem.Z is not None or not name.startswith("inducing")}

    def suspects(self, cases: Iterable[Case], seconds: float = search.SECONDS) -> Iterator[Found]:
        """Suspects of what failed, held against `fast` where that has the method; seconds are for changed problems."""
        rows = [case.row for case in cases if case.row.verdict in ("FAIL", "INEXACT")]
        # what is just beyond a limit may have many reasons, and fits many suspects
        rows = [row for row in rows if not row.observed <= _NEAR * row.limit]
        failed = {"log_evidence" if row.quantity == "bound - log Z" else row.quantity for row in rows}
        yield from self._own_suspects(failed)
        failed &= set(QUANTITIES)
        if self.solution is not None and failed:
            mine = replace(self.solution, method=self.known) if self.known else self.solution
            for other in self.opponents()[:1]:
                sides = ("yours", "fast" if other.implementation == "fast" else "the truth")
                given = min(seconds, search.SECONDS)
                yield search.suspects(mine, other, failed, limit=self.limit, seconds=given, sides=sides)

    def _own_suspects(self, failed: set[str]) -> Iterator[Found]:
        """Draws that differ from one call to the next, and derivatives that are some multiple of the right ones."""
        if self.solution is None or not failed:
            return
        _, again = self.asked(self.problem)
        if again is not None:
            pairs = {name: (getattr(self.solution, name), getattr(again, name)) for name in failed & set(QUANTITIES)}
            apart = {name: distances.relative_difference(a, b) for name, (a, b) in pairs.items() if b is not None}
            noisy = tuple(name for name, it in apart.items() if it > self.limit)
            if noisy:
                text = "yours differs from one call to the next: noise of Monte Carlo, or a start of its own each time"
                found = Suspect("Monte Carlo noise", text, noisy, max(apart.values()), 0.0)
                yield Found((found,), 1, "", "itself")
        for other in self.opponents()[:1]:
            for name, theirs in (other.gradients or {}).items():
                if f"gradients/{name}" not in failed:
                    continue
                mine = (self.solution.gradients or {})[name]
                before = distances.relative_difference(mine, theirs)
                for told, value in answers.gradients(self.problem, name, theirs):
                    after = distances.relative_difference(mine, value)
                    if after <= max(self.limit, 1e-2 * before):
                        text = f"the gradient by {name} of yours {told}"
                        found = Suspect("gradient", text, (f"gradients/{name}",), before, after)
                        yield Found((found,), 1, "", "fast")

    def every(self) -> set[str]:
        """Every well-known mistake in every quantity that someone else states on this problem, given or not."""
        stated = {name: getattr(other, name) for other in self.opponents() for name in _given(other) - {"gradients"}}
        arrays = {name: np.asarray(value, dtype=float) for name, value in stated.items()}
        results = {f"{name} 5 % off" for name in arrays.keys() & {*answers.MEANS, *answers.COVARIANCES}}
        results |= {candidate.name for candidate in answers.candidates(self.problem, arrays, arrays)}
        changes = questions.changes(self.problem, self.known) if self.known else ()
        return results | {change.name for change in changes}

    def power(self, known: set[str], seconds: float) -> set[str]:
        """Suspects by which a verdict would have turned red had this answer made that mistake, but for those known."""
        mine, given = self.solution, {}
        assert mine is not None
        for name in _given(mine) - {"gradients"}:
            given[name] = np.asarray(getattr(mine, name), dtype=float)
        results: set[str] = set()
        for name in given.keys() & {*answers.MEANS, *answers.COVARIANCES}:
            word = f"{name} 5 % off"
            if word not in known and self._noticed(mine, {name: 1.05 * given[name]}):
                results.add(word)
        for candidate in answers.candidates(self.problem, given, given):
            if candidate.name in known | results:
                continue
            planted = {name: value for name, value in candidate.values.items() if name in given}
            differing = any(_differs(given[name], value) for name, value in planted.items())
            if differing and self._noticed(mine, planted):
                results.add(candidate.name)
        return results | self._power_of_changes(mine, given, known | results, seconds) if self.known else results

    def _power_of_changes(self, mine: Solution, given: dict[str, Any], known: set[str], seconds: float) -> set[str]:
        began, results = time.perf_counter(), set[str]()
        for change in questions.changes(self.problem, self.known):
            if time.perf_counter() - began > seconds:
                break
            if change.name in known | results:
                continue
            try:
                solution = solve("fast", change.method or self.known, change.problem, **change.options)
            except (ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError):
                continue
            values = {name: getattr(solution, name) for name in given}
            planted = {k: v for k, v in values.items() if v is not None and np.shape(v) == given[k].shape}
            if planted and self._noticed(mine, planted):
                results.add(change.name)
        return results

    def _noticed(self, mine: Solution, planted: dict[str, Any]) -> bool:
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
        mine = replace(mine, method=self.known) if self.known else mine
        if other.implementation == "fast" and not premises.claims_truth(mine):
            return compare(mine, other, limit=self.limit, why=self.why, sides=("yours", "fast"))
        return [self._of_own_method(row) for row in compare(mine, other, sides=("yours", "truth"))]

    def _of_own_method(self, row: Row) -> Row:
        """Beyond the band a method that `fast` does not have is INEXACT, beside the distances of those that it has."""
        if self.known or row.kind != "discrepancy" or row.verdict != "FAIL" or row.quantity not in QUANTITIES:
            return row
        entries = [e for e in distances.entries() if e.problem == self.name and not e.options]
        near = sorted((abs(e.distances[row.quantity][0]), e.method) for e in entries if row.quantity in e.distances)
        listed = ", ".join(f"{method} {apart:.2g}" for apart, method in near)
        beside = f"; methods here: {listed}" if listed else ""
        return row._replace(verdict="INEXACT", why=f"distance {row.observed:.2g} from the truth{beside}; {row.why}")

    def asked(self, problem: Problem) -> tuple[Row, Solution | None]:
        """The program's answer, and a row on whether it gave one."""
        try:
            result = solve_with(self.answer, self.method, problem)
        except NotImplementedError as error:
            self.refusal = f"refused: {error}"
            return Row("answer", "answer", np.nan, np.nan, "SKIP", self.refusal), None
        except (ImplementationError, TypeError, ValueError) as error:
            return Row("answer", "answer", 1.0, 0.0, "FAIL", str(error)), None
        there = [name for name in QUANTITIES if name in _given(result)]
        if not there:
            why = f"found none of {', '.join(QUANTITIES)} in the solution, expected at least one"
            return Row("answer", "answer", 1.0, 0.0, "FAIL", why), None
        if result.settings.get("dtype") == "float32" and self.limit < FLOAT32:
            self.precision, self.limit = "float32", FLOAT32
            self.why = f"numbers in float32: {FLOAT32:g} of the largest entry is what such a computation leaves"
        return Row("answer", "answer", 0.0, 0.0, "PASS", f"gives {', '.join(there)}"), result

    def _invariances(self) -> Iterator[Case]:
        assert self.solution is not None
        for what, problem, by_row, by_class in self.variants():
            row, result = self.asked(problem)
            if result is not None:
                row = _unchanged(self.solution, result, by_row, by_class, self.precision)
            yield Case(self.method, self.name, row._replace(quantity=what, kind="invariance"), "itself")

    def variants(self) -> Iterator[tuple[str, Problem, Any, Any]]:
        """The problem in other words: what is changed, the changed problem, and the order of its rows and classes."""
        if self.problem.n > 2 and self.name not in SMALL:
            return
        rng = np.random.default_rng(len(self.name))
        p, d = self.problem, self.problem.d
        rows, as_they_are = np.roll(np.arange(p.n), 1), slice(None)
        shift, unit = rng.normal(size=d), np.exp2(rng.integers(1, 3, size=d))
        yield "order of rows", p.replace(X=p.X[rows], y=p.y[rows]), rows, as_they_are
        moved = p.replace(X=p.X + shift, **_points(p, lambda a: a + shift))
        yield "origin of inputs", moved, as_they_are, as_they_are
        scaled = p.replace(X=p.X * unit, lengthscales=p.lengthscales * unit, **_points(p, lambda a: a * unit))
        yield "units of inputs", scaled, as_they_are, as_they_are
        if p.n_latents > 1:
            order = np.roll(np.arange(p.n_classes), 1)  # class c of the changed problem was class order[c]
            changed = {k: getattr(p, k)[order] for k in ("variance", "lengthscales", "noise", "jitter")}
            changed |= {"Z": None if p.Z is None else p.Z[order]}
            renamed = p.replace(y=np.argsort(order)[p.y], y_test=None, **changed)
            yield "order of classes", renamed, as_they_are, order


# problems besides those of two data on which invariances are asked
SMALL = ("toy", "toy-probit", "toy-3", "toy-3-softmax", "toy-2-sparse-threshold", "toy-3-sparse-errors",
         "judge-sparse", "judge-sparse-probit", "judge-3-sparse-softmax")  # fmt: skip


def _points(p: Problem, change: Callable[[Any], Any]) -> dict[str, Any]:
    return {k: change(getattr(p, k)) for k in ("Z", "X_test") if getattr(p, k) is not None}


def _unchanged(before: Solution, after: Solution, rows: Any, classes: Any, precision: str) -> Row:
    """The largest difference over all quantities, once rows and classes are back in their places."""
    least = FLOAT32 if precision == "float32" else INVARIANCE
    worst, limit, told = 0.0, least, "nothing to compare"
    for name in ("log_evidence", "latent_mean", "latent_cov", "test_latent_mean", "probabilities"):
        a, b = getattr(before, name), getattr(after, name)
        if a is None or b is None or not np.size(a):
            continue
        if name.startswith("latent"):
            a = a[rows]
        if name != "log_evidence":
            a = a[:, classes] if not name.endswith("_cov") else a[:, classes][:, :, classes]
        apart = distances.relative_difference(a, b, 1e-3)
        allowed = INTEGRALS if name == "probabilities" else least
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
def _ours(method: str, name: str) -> Solution:
    return solve("fast", method, posed(name))


@cache
def _truth(name: str) -> Solution:
    def less(implementation: str, method: str, problem: Problem, **options: Any) -> Solution:
        return solve(implementation, method, problem, **{**options, "digits": _DIGITS})

    return distances.truth_of(name, less)


def known_truth(name: str) -> bool:
    """Whether the exact posterior of a problem is stored, or had by quadrature."""
    return name in store.RECIPES or name in distances.QUADRATURES


def _given(solution: Solution) -> set[str]:
    """Quantities, and gradients, that a solution states."""
    stated = {name for name in QUANTITIES if (value := getattr(solution, name)) is not None and np.size(value)}
    return stated | ({"gradients"} if solution.gradients else set())
