"""Options of an experiment whose value a paper prints, and what there is to say where another is taken."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import field, fields
from typing import Any

import numpy as np

from validation.datasets.dataset import Dataset

_ALWAYS = 1e9  # seconds to ask for where the paper has no limit: JSON has no infinity


def option(value: Any, paper: Any, what: str) -> Any:
    """A field of a dataclass of options that the paper prints otherwise.

    Parameters
    ----------
    value            the default here, which takes seconds or minutes
    paper            what the paper has; infinity for a limit that it does not have
    what : str       the option in words, in the plural: "repetitions"
    """
    return field(default=value, metadata={"paper": paper, "what": what})


def of_paper(options: type) -> dict[str, Any]:
    """Option -> what the paper has."""
    return {one.name: one.metadata["paper"] for one in fields(options) if "paper" in one.metadata}


def differences(asked: Any) -> list[str]:
    """A line for each option that is not the paper's, with what asks for the paper's."""
    listed = []
    for one in fields(asked):
        if "paper" not in one.metadata:
            continue
        mine, paper = getattr(asked, one.name), one.metadata["paper"]
        if _alike(mine, paper):
            continue
        wanted = _ALWAYS if _is_limit(paper) else paper
        given = shlex.quote(f"{one.name}={wanted if isinstance(wanted, str) else json.dumps(wanted)}")
        listed.append(f"{one.metadata['what']}: {in_words(mine)} here, {in_words(paper)} in the paper: -o {given}")
    return listed


def rows_taken(data: Dataset, full: Dataset, key: str, *, name: str = "") -> list[str]:
    """A line where an experiment takes some rows of a data set only: none, or one."""
    if data.n >= full.n:
        return []
    return [f"{f'{name}: ' if name else ''}{data.n} of {full.n} rows, fewer than the paper's: -o {key}={full.n}"]


def _alike(mine: Any, paper: Any) -> bool:
    if _is_list(paper):
        return set(mine) == set(paper)
    return bool(mine == paper) or (_is_limit(paper) and mine >= _ALWAYS)


def in_words(value: Any) -> str:
    """A value as notes and lists of options have it."""
    if _is_list(value):
        return ", ".join(in_words(entry) for entry in value)
    if _is_limit(value):
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_limit(value: Any) -> bool:
    return isinstance(value, float) and bool(np.isinf(value))
