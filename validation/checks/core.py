"""What a check is, what it may answer, and the register of all checks (design: What agreement means).

A check asks one question of one problem and answers with an observed value and a limit that has its reason beside
it (`Compared`), with z statistics (`Tested`), or with what is missing (`Skipped`). It never decides about a run:
`validation.checks.runner` does, because Holm's procedure needs the statistics of all checks.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from validation import problems
from validation.door.problem import Problem, digest, fingerprint
from validation.door.quoting import shown
from validation.door.solution import Solution
from validation.door.solve import solve
from validation.truth.store import stored_truth

# in the order of reports; docs/agreement.md says between whom each of them is
KINDS = (
    "identity", "definition", "print", "exactness", "bound", "limit", "derivative", "invariance", "discrepancy", "run",
    "classifier",
)  # fmt: skip
NO_PROBLEM = "-"
VERDICTS = ("PASS", "FAIL", "SKIP", "ERROR")


class Compared(NamedTuple):
    """One observed value against a limit: PASS iff observed <= limit, so that NaN fails.

    observed, limit : float    in `unit`
    why : str                  why this limit and no other
    left, right : str          who is compared with whom
    """

    observed: float
    limit: float
    why: str
    left: str
    right: str
    unit: str = "relative difference"


def flaws(count: float, why: str, left: str, unit: str) -> Compared:
    """How many things are not as their definition has them: none may be."""
    return Compared(float(count), 0.0, why, left, "definition", unit)


def as_documented(rows: Iterable[tuple[str, object, object]], left: str, unit: str) -> Compared:
    """Rows of what is asked, what came and what is documented: those that differ count, and are told; else all are."""
    listed = list(rows)
    differing = [f"{what}: {came}, expected {wanted}" for what, came, wanted in listed if came != wanted]
    why = "; ".join(differing) or "; ".join(f"{what}: {came}" for what, came, _ in listed)
    return flaws(len(differing), why, left, unit)


class Tested(NamedTuple):
    """z statistics, each standard normal if left and right agree; two-sided, Holm over the whole run decides.

    z : array      any shape, at least one entry; an entry that is NaN fails
    power : str    the smallest true difference that would be seen, in words with numbers
    """

    z: NDArray[np.float64]
    why: str
    left: str
    right: str
    power: str


# a name that starts with Test makes pytest look for tests in it
Tested.__test__ = False  # type: ignore[attr-defined]


class Skipped(NamedTuple):
    """The question could not be asked; `why` says what is missing. Counts as not passed, fails no run."""

    why: str
    left: str = ""
    right: str = ""


Outcome = Compared | Tested | Skipped


@dataclass(frozen=True)
class Result:
    """One line of a report: the verdict on one outcome of one check on one problem.

    ratio is observed/limit; NaN where the limit is zero or negative and holds, infinite where such a limit fails.
    `full` says that the run was a full one, `details` holds a traceback.
    """

    check: str
    kind: str
    paper: str
    method: str
    quantity: str
    left: str
    right: str
    problem: str
    observed: float
    limit: float
    ratio: float
    verdict: str
    seconds: float
    why: str
    unit: str = ""
    question: str = ""
    power: str = ""
    full: bool = False
    details: str = ""

    @property
    def failed(self) -> bool:
        """FAIL and ERROR fail a run; SKIP does not."""
        return self.verdict in ("FAIL", "ERROR")

    @property
    def reproduce(self) -> str:
        """The command that runs this check alone."""
        return f"triad verify{' --full' if self.full else ''} --check {self.check} --problem {self.problem}"


class Context:
    """What checks of one problem share: solutions are computed once for each question and setting.

    quick : bool           False in a full run, where longer chains and larger problems are welcome
    solutions : list       everything solved so far, in order, for the report
    """

    def __init__(self, *, quick: bool = True) -> None:
        self.quick = quick
        self.solutions: list[Solution] = []
        self._answers: dict[tuple[Any, ...], Solution | Exception] = {}
        self._problems: dict[str, Problem] = {}

    def problem(self, name: str) -> Problem:
        """A problem of `validation.problems` by name, built once."""
        if name not in self._problems:
            self._problems[name] = problems.get(name)
        return self._problems[name]

    def solve(self, implementation: str, method: str, problem: Problem, **options: Any) -> Solution:
        """`validation.solve` with a memory: equal questions (every field, name included) are answered once.

        An answer that was an exception is raised again without a second attempt.
        """
        key = (implementation, method, digest(problem), frozen(options))
        if key not in self._answers:
            try:
                answer = solve(implementation, method, problem, **options)
            except Exception as error:
                self._answers[key] = error
                raise
            self._answers[key] = answer
            self.solutions.append(answer)
            return answer
        value = self._answers[key]
        if isinstance(value, Exception):
            raise value
        return value

    def stored(self, problem: Problem) -> Solution | None:
        """The truth that ships with the package for this very question, if there is one; the report shows it too.

        Never remembered as an answer: a file that changes between two contexts is read again.
        """
        result = stored_truth(problem)
        if result is not None and not any(solution is result for solution in self.solutions):
            self.solutions.append(result)
        return result


CheckFunction = Callable[[Context, Any], Outcome | Iterable[Outcome]]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Check:
    """A registered check; `problems` are asked in every run, `full` as well in a full run."""

    id: str
    paper: str
    question: str
    problems: tuple[str, ...]
    full: tuple[str, ...]
    function: CheckFunction

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return self.id.split("/")[0]

    @property
    def method(self) -> str:
        """Method id."""
        return self.id.split("/")[1]

    @property
    def quantity(self) -> str:
        """What is compared."""
        return self.id.split("/")[2]

    @property
    def module(self) -> str:
        """The module that registers it when imported."""
        return self.function.__module__


_registry: dict[str, Check] = {}


def check(
    id: str,
    *,
    paper: str,
    question: str,
    problems: tuple[str, ...],
    full: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Register `function(context, problem)` as the check `kind/method/quantity`.

    paper      key of the paper whose claim or method is judged
    question   a statement that can be true, ending in a full stop, for the report
    problems   names of problems of the quick run; ("-",) for a check that needs none and is called with None
    full       names that a full run adds
    """
    parts = id.split("/")
    if len(parts) != 3 or not all(parts) or any(c.isspace() for c in id):
        raise ValueError(f"id: found {shown(id)}, expected kind/method/quantity")
    if parts[0] not in KINDS:
        raise ValueError(f"id: found the kind {parts[0]!r}, expected one of {', '.join(KINDS)}")
    names = (*problems, *full)
    if isinstance(problems, str) or isinstance(full, str) or not names or len(set(names)) != len(names):
        raise ValueError(f"problems: found {shown(problems)} and {full!r} for {id}, expected tuples of distinct names")
    if NO_PROBLEM in names and len(names) > 1:
        raise ValueError(f"problems: found {names} for {id}, expected ('-',) alone or names of problems")
    if not question.strip().endswith("."):
        raise ValueError(f"question: found {shown(question)} for {id}, expected a statement that ends in '.'")

    def register(function: F) -> F:
        if id in _registry:
            raise ValueError(
                f"id: found {shown(id)} in {_registry[id].module} and in {function.__module__}, expected it once"
            )
        _registry[id] = Check(id, paper, question, tuple(problems), tuple(full), function)
        return function

    return register


def modules() -> tuple[str, ...]:
    """Modules of this package that register checks."""
    package = importlib.import_module("validation.checks")
    result = pkgutil.walk_packages(package.__path__, prefix="validation.checks.")
    machinery = {f"validation.checks.{name}" for name in ("core", "multiple", "runner", "selection")}
    return tuple(sorted(module.name for module in result if module.name not in machinery))


def registered(extra: Iterable[str] = ()) -> Mapping[str, Check]:
    """All checks by id, after importing the modules of this package and the `extra` ones."""
    return imported((*modules(), *extra))


def imported(names: Iterable[str]) -> Mapping[str, Check]:
    """The checks by id, after importing the modules of these names only."""
    for name in names:
        importlib.import_module(name)
    return dict(sorted(_registry.items()))


def frozen(value: Any) -> Any:
    """A hashable stand-in for an option: equal content, equal stand-in."""
    if isinstance(value, Mapping):
        return ("mapping", *((key, frozen(value[key])) for key in sorted(value)))
    if isinstance(value, (list, tuple)):
        return ("sequence", *(frozen(entry) for entry in value))
    if isinstance(value, np.ndarray):
        return ("array", fingerprint({"": value}))
    if isinstance(value, np.generic):
        value = value.item()
    # 1 == 1.0 == True, but they may be different options; the object itself keeps the id of a callable alive
    return (type(value).__name__, value)
