"""villacampa2020, appendix C: what the text says of Tables C.3 and C.4 as a whole, from the averages on record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validation.reproduce import decisions
from validation.reproduce.averages import Averages, pairs, recorded
from validation.reproduce.decisions import Decided, above, surely
from validation.reproduce.experiment import Outcome, Say, experiment

BLOCKS = ("5%", "10%", "20%")
RESULT = "villacampa2020-tablec"
_HALF, _ALL = "PEP (alpha = 0.5)", ("PEP (alpha = 0)", "PEP (alpha = 0.5)", "PEP (alpha = 1)")


def decide(averages: Averages) -> list[Decided]:
    """What appendix C says, over the data sets and numbers of inducing points that have the methods compared."""
    left, right = pairs(averages, _HALF, "MCMC", "nll", BLOCKS)
    near = int((np.abs(left - right) < 0.05).sum())
    text = f"of {left.size} data sets and M, those with nll of PEP at 0.5 within .05 of MCMC"
    listed = [above("tablec-pep-like-mcmc", text, near, 0.5 * left.size)]
    left, right = pairs(averages, _HALF, "Laplace", "nll", BLOCKS)
    text = f"nll of PEP at 0.5 less Laplace over {left.size} data sets and M"
    listed.append(surely("tablec-better-than-softmax", text, left.tolist(), right.tolist()))
    for method in _ALL:
        slow, fast = pairs(averages, method, "MCMC", "seconds", BLOCKS)
        if slow.size:
            text = f"seconds of {method} over those of MCMC, mean of logarithms over {slow.size} data sets and M"
            ratio = float(np.exp(np.mean(np.log(slow) - np.log(fast))))
            listed.append(above("tablec-mcmc-fast", text, ratio, 10.0))
    return listed


@dataclass(frozen=True, kw_only=True)
class AveragesOptions:
    """Options of `averages`."""

    result: str = RESULT


@experiment(
    "villacampa2020",
    "averages",
    "what the text says of Tables C.3 and C.4 as a whole",
    "PEP predicts about as well as Gibbs sampling and better than the softmax; Gibbs sampling takes the least time "
    "(appendix C)",
)
def averages(asked: AveragesOptions, say: Say) -> Outcome:
    """From the rows that `tablec` has put on record: no method is run."""
    outcome = recorded(asked.result)
    sets = sorted({data for data, _, _, _ in outcome})
    return Outcome(
        {"rows": asked.result, "data": ", ".join(sets)},
        (decisions.table(decide(outcome), "What appendix C says of Tables C.3 and C.4"),),
        (),
        (
            f"{len(sets)} data sets of the paper's eight have rows, with the settings on their cards",
            "seconds are of these programs: MCMC's are those of its draws at held hyper-parameters, in the paper's way",
        ),
    )
