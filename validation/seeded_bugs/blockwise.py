"""Bugs of sums over data in parts."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from validation.selftest import SeededBug


def _last_statistic_of_the_left_alone(original: Any) -> Any:
    def add(left: Any, other: Any) -> Any:
        return (*original(left, other)[:-1], left[-1])

    return add


def _second_statistic_of_the_left_alone(original: Any) -> Any:
    def add(left: Any, other: Any) -> Any:
        both = original(left, other)
        return (both[0], left[1], *both[2:]) if len(both) > 1 else both

    return add


def _no_sites(original: Any) -> Any:
    return lambda table, part: tuple(0.0 * entry for entry in original(table, part))


def _half_of_the_values(original: Any) -> Any:
    def data_terms(*asked: Any) -> Any:
        terms = original(*asked)
        return terms._replace(value=0.5 * terms.value)

    return data_terms


def _odd_leaf_twice(original: Any) -> Any:
    def over(start: int, stop: int, leaf: Any) -> Any:
        return original(start, stop, lambda k: leaf(max(start, min(k, stop - 2))))

    return over


def _leaves_from_the_second_on(original: Any) -> Any:
    def turned(value: Any) -> Any:
        changed = {name: getattr(value, name)[::-1] for name in ("latent_mean", "probabilities")}
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **changed)
        return value._replace(**changed)

    def streamed(rows: Any, answer: Any, client: Any = None) -> Any:
        for first, value in original(rows, answer, client):
            yield first, value if first == 0 else turned(value)

    return streamed


def _bugs() -> tuple[SeededBug, ...]:
    """One for each method and way to be wrong."""
    made = []
    for method, room in (
        *((name, "quadratic") for name in ("x-gpc", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")),
        ("sep", "sep"),
        *((name, "multiclass") for name in
          ("ep", "gfitc", "pep", "apep", "arpep", "rpapep", "bb-alpha", "vi-robust")),
    ):  # fmt: skip
        ways = [
            ("leaf-twice", "a part counts its last leaf but one twice, and the last one never",
             "fast.blockwise.engines:over", _odd_leaf_twice),
            ("rows-turned", "predictions of later leaves come in the reverse order of their rows",
             f"fast.blockwise.{room}:streamed", _leaves_from_the_second_on),
        ]  # fmt: skip
        if room == "multiclass" or method == "vi-taylor":
            ways.append(("lost-shift", "a node of the tree forgets the second statistic of its right side",
                         "fast.blockwise.tree:add", _second_statistic_of_the_left_alone))  # fmt: skip
        else:
            ways.append(("lost-constants", "a node of the tree forgets the last statistic of its right side",
                         "fast.blockwise.tree:add", _last_statistic_of_the_left_alone))  # fmt: skip
        if method in ("ep", "gfitc", "pep"):
            ways.append(("no-sites", "sites of a leaf are taken as zero in every sweep",
                         "fast.blockwise.sites:_of", _no_sites))  # fmt: skip
        if method in ("apep", "arpep", "rpapep", "bb-alpha", "vi-robust"):
            ways.append(("half-value", "leaves say half of what their data add to an energy",
                         "fast.blockwise.energies:data_terms", _half_of_the_values))  # fmt: skip
        for name, sentence, target, make in ways:
            made.append(
                SeededBug(f"{method}/parts-{name}", "fast", method, sentence, (target,), make, ("*",),
                      (f"run/{method}/parts",))
            )  # fmt: skip
    return tuple(made)


FAULTS = _bugs()
