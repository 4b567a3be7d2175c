"""villacampa2017, section 4.1 and appendix I: what the text says of Tables 2 and 3, from the averages on record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from validation.door import arguments
from validation.reproduce import decisions
from validation.reproduce.averages import Averages, alike, larger_by, pairs, recorded
from validation.reproduce.decisions import Decided, above, below, surely
from validation.reproduce.experiment import Outcome, Say, experiment

BLOCKS = ("5%", "10%", "20%")
RESULT = "villacampa2017-table2"
_METHODS = ("GFITC", "EP", "SEP", "VI")
_WORSE = ("glass", "svmguide2", "waveform")  # where the text finds VI's log-likelihoods much worse


def decide(averages: Averages) -> list[Decided]:
    """What section 4.1 and appendix I say of the tables, over the data sets that have the methods compared.

    A data set is a repetition where the text speaks of all of them.
    """
    listed: list[Decided] = []
    sets = sorted({data for data, _, _, _ in averages})

    def nll(data: str, M: str) -> dict[str, float]:
        return {m: averages[data, M, m, "nll"].value for m in _METHODS if (data, M, m, "nll") in averages}

    left, right = pairs(averages, "EP", "GFITC", "nll", BLOCKS)
    text = f"mean nll of EP less GFITC over {left.size} data sets and M"
    listed += alike("ep-like-gfitc", text, left.tolist(), right.tolist(), 0.1)
    cells = [outcome for data in sets for M in BLOCKS if {"EP", "GFITC", "SEP"} <= (outcome := nll(data, M)).keys()]
    first = sum(min(outcome, key=lambda m: outcome[m]) == "EP" for outcome in cells)
    listed.append(
        above("ep-like-gfitc", f"of {len(cells)} data sets and M, those where EP has the least nll", first, 0.5)
    )
    for M in BLOCKS:
        left, right = pairs(averages, "SEP", "EP", "nll", (M,))
        text = f"M = {M}: mean nll of SEP less EP over {left.size} data sets"
        listed += alike("sep-like-ep", text, left.tolist(), right.tolist(), 0.05)
        for method in ("EP", "SEP", "VI"):
            left, right = pairs(averages, method, "GFITC", "error", (M,))
            if left.size > 2 and pairs(averages, "VI", "GFITC", "error", (M,))[0].size > 2:
                text = f"M = {M}: mean error of {method} less GFITC over {left.size} data sets"
                listed += alike("errors-similar", text, left.tolist(), right.tolist(), 0.03)
        left, right = (np.log(each) for each in pairs(averages, "SEP", "VI", "seconds", (M,)))
        if left.size > 1:
            text = f"M = {M}: log seconds of training, SEP less VI, over {left.size} data sets"
            listed.append(surely("sep-slightly-faster-vi", text, left.tolist(), right.tolist()))
        for data in _WORSE:
            if {"EP", "VI"} <= nll(data, M).keys():
                both = averages[data, M, "VI", "nll"], averages[data, M, "EP", "nll"]
                listed.append(larger_by("vi-nll-worse", f"{data}, M = {M}: nll of VI less EP", *both, 0.2))
    for M in BLOCKS:
        for rival in ("GFITC", "EP", "VI"):
            fast, slow = (np.log(each) for each in pairs(averages, "SEP", rival, "seconds", (M,)))
            if fast.size > 1:
                text = f"M = {M}: log seconds of training, SEP less {rival}, over {fast.size} data sets"
                listed.append(surely("sep-fastest", text, fast.tolist(), slow.tolist()))
        slow, fast = pairs(averages, "GFITC", "SEP", "seconds", (M,))
        if slow.size:
            ratio, text = float(slow.mean() / fast.mean()), f"M = {M}: mean seconds of GFITC over SEP's"
            listed += [above("sep-fastest", f"{text}, at least 2", ratio, 2.0),
                       below("sep-fastest", f"{text}, at most 3.5", ratio, 3.5)]  # fmt: skip
    whole = [outcome for data in sets for M in BLOCKS if len(outcome := nll(data, M)) == len(_METHODS)]
    if whole:
        gap = {m: max(outcome[m] - min(outcome.values()) for outcome in whole) for m in _METHODS}
        text = f"of {len(whole)} data sets and M: largest nll above the best method's of"
        listed.append(above("vi-bad-predictive", f"{text} VI", gap["VI"], 0.2))
        listed += [below("vi-bad-predictive", f"{text} {m}", gap[m], 0.25) for m in ("EP", "SEP")]
    return listed


@dataclass(frozen=True, kw_only=True)
class AveragesOptions:
    """Options of `averages`."""

    result: str = RESULT
    methods: Sequence[str] = _METHODS


@experiment(
    "villacampa2017",
    "averages",
    "what the text says of Tables 2 and 3 as a whole",
    "EP is like GFITC, SEP like EP; VI has much worse log-likelihoods on Glass, Svmguide2 and Waveform, and similar "
    "errors (section 4.1, appendix I)",
)
def averages(asked: AveragesOptions, say: Say) -> Outcome:
    """From the rows that `table2` has put on record: no method is run."""
    for method in asked.methods:
        arguments.choice(method, _METHODS, "methods")
    outcome = {key: value for key, value in recorded(asked.result).items() if key[2] in asked.methods}
    message = decide(outcome)
    sets = sorted({data for data, _, _, _ in outcome})
    return Outcome(
        {"rows": asked.result, "methods": ", ".join(asked.methods), "data": ", ".join(sets)},
        (decisions.table(message, "What section 4.1 and appendix I say of Tables 2 and 3"),),
        (),
        (
            f"{len(sets)} data sets of the paper's eight have rows; a comparison is over those that have both methods",
            "the rows' own settings are on their cards: numbers of splits, first rates, VI by Adam",
        ),
    )
