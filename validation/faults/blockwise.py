"""Faults of sums over data in parts."""

from __future__ import annotations

from typing import Any

from validation.selftest import Fault


def _last_statistic_of_the_left_alone(original: Any) -> Any:
    def add(left: Any, other: Any) -> Any:
        return (*original(left, other)[:-1], left[-1])

    return add


def _odd_leaf_twice(original: Any) -> Any:
    def over(start: int, stop: int, leaf: Any) -> Any:
        return original(start, stop, lambda k: leaf(max(start, min(k, stop - 2))))

    return over


def _leaves_from_the_second_on(original: Any) -> Any:
    def streamed(rows: Any, answer: Any, client: Any = None) -> Any:
        for first, value in original(rows, answer, client):
            yield (
                first,
                value
                if first == 0
                else value._replace(**{name: getattr(value, name)[::-1] for name in ("latent_mean", "probabilities")}),
            )

    return streamed


def _faults() -> tuple[Fault, ...]:
    """One for each method and way to be wrong."""
    made = []
    for method, problem, room in (
        ("x-gpc", "toy-sparse", "quadratic"),
        ("vi-jj", "toy-sparse", "quadratic"),
        ("sep", "toy-3-sparse-threshold", "sep"),
    ):
        for name, sentence, target, make in (
            ("lost-constants", "a node of the tree forgets the last statistic of its right side",
             "fast.blockwise.tree:add", _last_statistic_of_the_left_alone),
            ("leaf-twice", "a part counts its last leaf but one twice, and the last one never",
             "fast.blockwise.engines:over", _odd_leaf_twice),
            ("rows-turned", "predictions of later leaves come in the reverse order of their rows",
             f"fast.blockwise.{room}:streamed", _leaves_from_the_second_on),
        ):  # fmt: skip
            made.append(
                Fault(f"{method}/parts-{name}", "fast", method, sentence, (target,), make, (problem,),
                      (f"identity/{method}/parts",))
            )  # fmt: skip
    return tuple(made)


FAULTS = _faults()
