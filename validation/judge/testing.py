"""Tests for a program of your own, after scikit-learn's `parametrize_with_checks`.

    from validation.judge.testing import parametrize_with_checks

    @parametrize_with_checks(answer, method="laplace")
    def test_my_classifier(check):
        check()

One test for each question that the method allows: `laplace-toy-3-softmax-identity-latent_mean`, and so on. A question
that the program refuses (NotImplementedError), or a quantity that it does not give, is a skipped test that says why.
A failed test names the entry that is worst and the suspects that would explain it. pytest is needed to run the tests,
the repository is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import Any

from validation.door.statistics import QUANTITIES
from validation.judge.judging import SMALL, Session, in_child, known_truth
from validation.judge.posing import questions_for
from validation.judge.verdict import Case, read_expected

__all__ = ["Check", "checks_of", "parametrize_with_checks"]

_INVARIANCES = ("order of rows", "origin of inputs", "units of inputs", "order of classes")


class Check:
    """One question to a program; calling it asks, and raises an AssertionError that says what is wrong.

    Answers are kept: all checks of a problem ask the program once.
    """

    def __init__(self, session: Session, kept: dict[Any, Any], kind: str, quantity: str) -> None:
        """A question of the session's method and problem; kept: shared by the checks of the session."""
        self.session, self.kept, self.kind, self.quantity = session, kept, kind, quantity

    @property
    def name(self) -> str:
        """method-problem-kind-quantity, the id of the test."""
        parts = (self.session.method, self.session.name, self.kind, self.quantity.replace(" ", "_"))
        return "-".join(part for part in parts if part)

    def __repr__(self) -> str:
        return f"Check({self.name})"

    def __call__(self) -> None:
        """Ask; AssertionError if the verdict is FAIL, pytest's skip if there is none."""
        if "cases" not in self.kept:
            self.kept["cases"] = list(self.session.cases())
        results = [case for case in self.kept["cases"] if self._means(case)]
        failed = [case for case in results if case.row.verdict == "FAIL"]
        if failed:
            raise AssertionError("\n".join([*map(_told, failed), *self._suspects()]))
        if not any(case.row.verdict == "PASS" for case in results):
            import pytest

            reasons = [case.row.why for case in results] or [self.session.refusal or "the program does not give it"]
            pytest.skip(f"{self.name}: {reasons[0]}")

    def _means(self, case: Case) -> bool:
        if self.kind == "answer":
            return case.row.quantity in ("answer", "converged")
        if self.kind == "invariance":
            return case.row.quantity == self.quantity
        named = "log_evidence" if case.row.quantity == "bound - log Z" else case.row.quantity
        truth = case.row.kind != "identity"
        return (
            named == self.quantity and truth == (self.kind == "truth") and case.row.kind not in ("answer", "invariance")
        )

    def _suspects(self) -> Iterator[str]:
        if self.kind not in ("identity", "truth"):
            return
        if "suspects" not in self.kept:
            self.kept["suspects"] = list(self.session.suspects(self.kept["cases"]))
        for value in self.kept["suspects"]:
            yield from (f"suspect: {suspect.sentence}" for suspect in value.ranked[:3])


def _told(case: Case) -> str:
    row = case.row
    worst = f"\nworst at {row.worst}" if row.worst else ""
    numbers = f"found {row.observed:.3g}, expected at most {row.limit:.3g}"
    return f"{case.name} against {case.against}: {numbers}\n{row.why}{worst}"


def checks_of(
    answer: Callable[..., Any] | str,
    method: str | None = None,
    *,
    problems: Iterable[str] | str | None = None,
    largest: int | None = None,
    limit: float | None = None,
) -> list[Check]:
    """The checks that `parametrize_with_checks` makes tests of, for those who do without pytest.

    Parameters, errors: as `validation.judge.judging.judge`.
    """
    results = []
    for asked in questions_for(in_child(answer), method, problems=problems, largest=largest):
        for name in asked.problems:
            session, kept = Session(asked.answer, asked.method, name, limit, asked.known), {}  # type: ignore[var-annotated]
            several, sparse = session.problem.n_latents > 1, session.problem.Z is not None
            quantities = [name for name in QUANTITIES if sparse or not name.startswith("inducing")]
            results.append(Check(session, kept, "answer", ""))
            if asked.known:
                results += [Check(session, kept, "identity", quantity) for quantity in quantities]
            if known_truth(name):
                results += [Check(session, kept, "truth", quantity) for quantity in quantities]
            if session.problem.n <= 2 or name in SMALL:
                results += [Check(session, kept, "invariance", what) for what in _INVARIANCES[: 3 + several]]
    return results


def parametrize_with_checks(
    answer: Callable[..., Any] | str,
    method: str | None = None,
    *,
    problems: Iterable[str] | str | None = None,
    largest: int | None = None,
    limit: float | None = None,
    expected: str | PathLike[str] | None = None,
) -> Any:
    """A decorator for a test function with the argument `check`: one test for each check.

    Parameters
    ----------
    answer : callable or str    (method, problem) -> Solution, an entry point, or "module:function"; by name it has a
                                process of its own, while a callable that ends its process ends that of the tests
    method : str                one of its methods; None: all that its attribute `methods` lists
    problems : str or iterable  names of problems, in place of those that `validation.judge.posing` chooses
    largest : int               largest number of data of a problem, >= 2: then every problem up to it is posed
    limit : float               of identities, > 0, by default as `judge` has it
    expected : path             file of expected failures, "id of a check: reason" a line; such tests are XFAIL, or
                                XPASS where something has improved

    Raises
    ------
    ValueError, TypeError       naming the argument: no method, a problem that is unknown or does not fit
    """
    import pytest

    checks = checks_of(answer, method, problems=problems, largest=largest, limit=limit)
    reasons = {} if expected is None else read_expected(expected)
    if unknown := sorted(reasons.keys() - {check.name for check in checks}):
        raise ValueError(f"{expected}: found {', '.join(unknown)}, expected ids of checks of this program")
    cases = [
        pytest.param(check, id=check.name, marks=[pytest.mark.xfail(reason=reasons[check.name], strict=False)])
        if check.name in reasons
        else pytest.param(check, id=check.name)
        for check in checks
    ]
    return pytest.mark.parametrize("check", cases)
