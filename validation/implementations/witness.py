"""How a method of a witness is asked: a record a method, from which come its options, its refusals and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from validation.door import catalogue
from validation.door.problem import Problem
from validation.door.quoting import shown
from validation.door.solution import Solution

_OF_PROBLEMS = frozenset(field.name for field in fields(Problem))


class Adapter(NamedTuple):
    """A method of a witness behind `solve`.

    options   class of the witness: its fields are the method's options, checked where a value is made
    run       problem and options -> answer
    kernels   those of `Problem` that the method takes; likelihoods and points stand in `validation.door.catalogue`
    """

    options: type[Any]
    run: Callable[[Problem, Any], Solution]
    kernels: tuple[str, ...] = ("se",)

    @property
    def row(self) -> dict[str, Any]:
        """The options that a user may set: neither arrays nor what the problem says."""
        declared = self.options.declared()
        return {name: option for name, option in declared.items() if option.kind != "data" and name not in _OF_PROBLEMS}

    def answer(self, who: str, method: str, problem: Problem, given: Mapping[str, Any]) -> Solution:
        """The answer to a problem, or a ValueError if it is none for this method; who: the witness and the method."""
        refuse_problem(problem, method, who, self.kernels)
        return self.run(problem, self.options(**given))


def refuse_problem(problem: Problem, method: str, who: str, kernels: tuple[str, ...] = ("se",)) -> None:
    """Refuse a problem that a method cannot answer, by what the catalogue lists."""
    entry = next(entry for entry in catalogue.METHODS if entry.method == method)
    for name, taken in (("likelihood", entry.likelihoods), ("kernel", kernels)):
        value = getattr(problem, name)
        if value not in taken:
            raise ValueError(f"{name}: found {shown(value)}, expected {' or '.join(map(repr, taken))} for {who}")
    if entry.points == catalogue.INDUCING and problem.Z is None:
        raise ValueError(f"Z: found None, expected inducing inputs for {who}")
    if entry.points == catalogue.ALL_ROWS and (problem.Z is not None or problem.prior_model != "full"):
        raise ValueError(f"Z: found inducing inputs, expected None: {who} takes full GPs")
