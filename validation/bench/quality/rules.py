"""What the table must show for the classifiers to be a choice that people would make, rule by rule, with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from validation.bench.quality import programs

if TYPE_CHECKING:
    import pandas as pd

_EP_FAMILY = ("EP", "SEP", "GFITC", "PEP", "APEP")
_BASELINES = ("Logistic", *programs.GP_PEERS)
_WORSE, _FEW_SETS = 0.05, 2  # nat behind the best peer, and on how many sets that may be
_MANY_ROWS, _SECONDS, _CLASSES = 500, 20.0, 10
_CALIBRATED = 0.06


class Summary(NamedTuple):
    """What one program did over its sets: medians of the means over folds.

    rank        mean rank of its NLL among the programs that take any number of classes, over all sets; NaN for others
    rank_two    mean rank among all programs, over the sets of two classes
    """

    program: str
    sets: int
    nll: float
    error: float
    ece: float
    rank: float
    rank_two: float
    seconds: float
    slowest: float
    cut: int
    failed: int
    unconverged: int
    warned: int


class Verdict(NamedTuple):
    """One rule: what it asks, whether it holds, the number that decides and who misses it."""

    rule: str
    met: bool | None  # None: nothing in the table tells
    number: str
    misses: tuple[str, ...]


def means(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means over folds, sets x programs; inf where a fold was not fitted, NaN where a program was not run."""
    values = rows[column].where(rows["outcome"] == "fitted", np.inf)
    table = rows.assign(value=values).pivot_table("value", "dataset", "program", aggfunc="mean", sort=False)
    return table.reindex(columns=list(dict.fromkeys(rows["program"])), index=list(dict.fromkeys(rows["dataset"])))


def ranks(nll: pd.DataFrame) -> pd.Series:
    """Mean rank of each program over the sets; a tie shares its places."""
    return nll.rank(axis=1, method="average").mean()


def summaries(rows: pd.DataFrame) -> list[Summary]:
    """One line a program, in the order of the rows."""
    nll, error, ece = (means(rows, column) for column in ("nll", "error", "ece"))
    two = nll.loc[_of_two(rows)]
    everywhere = ranks(nll.loc[:, nll.notna().all()])
    pairwise = ranks(two)
    listed = []
    for program, part in rows.groupby("program", sort=False):
        fitted = part[part["outcome"] == "fitted"]
        listed.append(
            Summary(
                program=str(program),
                sets=part["dataset"].nunique(),
                nll=float(nll[program].median()),
                error=float(error[program].median()),
                ece=float(ece[program].median()),
                rank=float(everywhere.get(program, np.nan)),
                rank_two=float(pairwise.get(program, np.nan)),
                seconds=float(part["seconds"].median()),
                slowest=float(part["seconds"].max()),
                cut=int((part["outcome"] == "cut").sum()),
                failed=int((part["outcome"] == "failed").sum()),
                unconverged=int(fitted["converged"].eq(False).sum()),
                warned=int((fitted["n_warnings"] > 0).sum()),
            )
        )
    return listed


def _of_two(rows: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(rows.loc[rows["n_classes"] == 2, "dataset"]))


def verdicts(rows: pd.DataFrame) -> list[Verdict]:
    """All rules over a table of fits."""
    mine = [name for name in dict.fromkeys(rows["program"]) if name not in programs.PEERS]
    peers = [name for name in dict.fromkeys(rows["program"]) if name in programs.PEERS]
    nll = means(rows, "nll")
    listed = [_medians(nll, mine, peers), _first(nll), _behind(nll, mine, peers)]
    listed += [_slower(rows, mine, peer) for peer in programs.GP_PEERS]
    return [*listed, _seconds(rows, mine), _calibrated(means(rows, "ece"), mine)]


def _medians(nll: pd.DataFrame, mine: Sequence[str], peers: Sequence[str]) -> Verdict:
    rule = "median NLL no worse than the best of Logistic and GPC, on the same sets"
    known = [name for name in _BASELINES if name in peers]
    if not known or not mine:
        return Verdict(rule, None, "", ())
    gaps = {}
    for name in mine:
        own = nll[name].dropna()
        gaps[name] = float(own.median() - min(nll.loc[own.index, peer].median() for peer in known))
    misses = tuple(f"{name} +{gap:.3f}" for name, gap in gaps.items() if not gap <= 0.0)
    return Verdict(rule, not misses, f"{len(mine) - len(misses)} of {len(mine)} classifiers", misses)


def _first(nll: pd.DataFrame) -> Verdict:
    rule = "EP, SEP, GFITC, PEP and APEP have the five best mean ranks of NLL"
    complete = nll.loc[:, nll.notna().all()]
    if not set(_EP_FAMILY) <= set(complete):
        return Verdict(rule, None, "", ())
    order = list(ranks(complete).sort_values().index)
    places = {name: order.index(name) + 1 for name in _EP_FAMILY}
    misses = tuple(f"{name} {place}." for name, place in places.items() if place > len(_EP_FAMILY))
    return Verdict(rule, not misses, f"first: {', '.join(order[:5])}", misses)


def _behind(nll: pd.DataFrame, mine: Sequence[str], peers: Sequence[str]) -> Verdict:
    rule = f"behind the best peer by more than {_WORSE} nat on at most {_FEW_SETS} sets"
    if not peers or not mine:
        return Verdict(rule, None, "", ())
    best = nll[list(peers)].min(axis=1)
    counts = {name: int((nll[name] > best + _WORSE).sum()) for name in mine}
    misses = tuple(f"{name} {count}" for name, count in counts.items() if count > _FEW_SETS)
    return Verdict(rule, not misses, f"{len(mine) - len(misses)} of {len(mine)} classifiers", misses)


def _slower(rows: pd.DataFrame, mine: Sequence[str], peer: str) -> Verdict:
    rule = f"no fit slower than that of {peer} on the same rows, from {_MANY_ROWS} rows"
    large = rows[rows["n"] >= _MANY_ROWS]
    keys = ["dataset", "fold"]
    theirs = large[large["program"] == peer].set_index(keys)["seconds"]
    own = large[large["program"].isin(mine)]
    if theirs.empty or own.empty:
        return Verdict(rule, None, "", ())
    ratio = own["seconds"].to_numpy() / theirs.reindex(own[keys].apply(tuple, axis=1)).to_numpy()
    worst = own.assign(ratio=ratio).groupby("program", sort=False)["ratio"].max()
    misses = tuple(f"{name} {value:.3g}x" for name, value in worst.items() if not value <= 1.0)
    return Verdict(rule, not misses, f"{int((ratio <= 1.0).sum())} of {len(ratio)} fits", misses)


def _seconds(rows: pd.DataFrame, mine: Sequence[str]) -> Verdict:
    rule = f"no fit above {_SECONDS:g} s with up to {_CLASSES} classes"
    own = rows[rows["program"].isin(mine) & (rows["n_classes"] <= _CLASSES)]
    if own.empty:
        return Verdict(rule, None, "", ())
    worst = own.groupby("program", sort=False)["seconds"].max()
    misses = tuple(f"{name} {value:.3g} s" for name, value in worst.items() if value > _SECONDS)
    return Verdict(rule, not misses, f"slowest {worst.max():.3g} s, at up to {own['n'].max()} rows", misses)


def _calibrated(ece: pd.DataFrame, mine: Sequence[str]) -> Verdict:
    rule = f"median calibration error below {_CALIBRATED}"
    if not mine:
        return Verdict(rule, None, "", ())
    medians = {name: float(ece[name].median()) for name in mine}
    misses = tuple(f"{name} {value:.3f}" for name, value in medians.items() if not value < _CALIBRATED)
    return Verdict(rule, not misses, f"{len(mine) - len(misses)} of {len(mine)} classifiers", misses)
