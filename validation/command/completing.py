"""What a shell offers after `triad ...` and a tab: names of methods, problems, witnesses, papers, data sets."""

from __future__ import annotations

from collections.abc import Iterable

# Nothing that computes is imported before a tab asks for it: an answer should come while one waits.


def methods(incomplete: str) -> list[str]:
    """Ids of methods and of truths that begin so."""
    from validation.door import catalogue

    return _beginning(incomplete, [entry.method for entry in (*catalogue.METHODS, *catalogue.TRUTHS)])


def papers(incomplete: str) -> list[str]:
    """Keys of papers that begin so."""
    from validation.door import catalogue

    return _beginning(incomplete, catalogue.PAPERS)


def implementations(incomplete: str) -> list[str]:
    """Witnesses, and what entry points add, that begin so."""
    from validation.door.solve import implementations as known

    return _beginning(incomplete, known())


def problems(incomplete: str) -> list[str]:
    """Built-in problems that begin so."""
    from validation import problems as built_in

    return _beginning(incomplete, built_in.names())


def datasets(incomplete: str) -> list[str]:
    """Data sets known by name that begin so."""
    from validation.datasets.loading import known_names

    return _beginning(incomplete, known_names())


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
