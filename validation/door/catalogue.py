"""What there is: the methods of both witnesses and the truths, with what each of them takes.

`triad methods` prints these rows, README holds them as a table that the program wrote, and the tests ask every
witness whether a row says what it accepts and refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

PAPERS = {
    "wenzel2019": "Wenzel and others (2019)",
    "izmailov2016": "Izmailov and others (2016)",
    "riihimaki2013": "Riihimäki and others (2013)",
    "villacampa2017": "Villacampa-Calvo and Hernández-Lobato (2017)",
    "villacampa2020": "Villacampa-Calvo and Hernández-Lobato (2020)",
    "rasmussen2006": "Rasmussen and Williams (2006)",  # a book: not of the ledger
}

# what a prior may stand on: every row of X (no Z), inducing points Z, or either
ALL_ROWS, INDUCING, EITHER = "all rows", "inducing points", "either"


class Method(NamedTuple):
    """A method that `reference` and `fast` both have.

    method       its id
    paper        key of the paper that describes it
    likelihoods  those of `Problem` that it takes
    points       ALL_ROWS (a full GP: no Z), INDUCING (Z is needed) or EITHER
    errors       whether it needs a threshold likelihood with labelling errors, epsilon > 0
    classifiers  the classes of `fast.estimators` that fit it
    """

    method: str
    paper: str
    likelihoods: tuple[str, ...]
    points: str
    classifiers: tuple[str, ...] = ()
    errors: bool = False


class Truth(NamedTuple):
    """What others are judged by, with the largest problem it takes and how log Z is had.

    implementation, method   as `solve` takes them
    likelihoods              those of `Problem` that it takes
    what                     how the posterior is had
    evidence                 how log Z is had
    """

    implementation: str
    method: str
    likelihoods: tuple[str, ...]
    what: str
    evidence: str


METHODS = (
    Method("x-gpc", "wenzel2019", ("logit",), EITHER),
    Method("x-gpc-svi", "wenzel2019", ("logit",), INDUCING, ("XGPClassifier",)),
    Method("svgpc", "wenzel2019", ("probit",), EITHER, ("SVGPClassifier",)),
    Method("epgpc", "wenzel2019", ("probit",), EITHER, ("EPGPClassifier",)),
    Method("svi", "izmailov2016", ("logit", "probit"), EITHER, ("SVIClassifier",)),
    Method("vi-jj", "izmailov2016", ("logit",), EITHER, ("JJClassifier",)),
    Method("vi-jj-full", "izmailov2016", ("logit",), EITHER, ("JJFullClassifier",)),
    Method("vi-jj-hybrid", "izmailov2016", ("logit",), EITHER, ("JJHybridClassifier",)),
    Method("vi-taylor", "izmailov2016", ("logit", "probit"), EITHER, ("TaylorClassifier",)),
    Method("nested-ep", "riihimaki2013", ("multinomial-probit",), ALL_ROWS, ("NestedEPClassifier",)),
    Method("nested-iep", "riihimaki2013", ("multinomial-probit",), ALL_ROWS, ("NestedIEPClassifier",)),
    Method("qep", "riihimaki2013", ("multinomial-probit",), ALL_ROWS),
    Method("qiep", "riihimaki2013", ("multinomial-probit",), ALL_ROWS),
    Method("laplace", "riihimaki2013", ("softmax",), ALL_ROWS, ("LaplaceClassifier",)),
    Method("laplace-tkp", "riihimaki2013", ("softmax",), ALL_ROWS),
    Method("vb-probit", "riihimaki2013", ("multinomial-probit",), ALL_ROWS, ("VBProbitClassifier",)),
    Method("ep", "villacampa2017", ("threshold",), INDUCING, ("EPClassifier",)),
    Method("sep", "villacampa2017", ("threshold",), INDUCING, ("SEPClassifier",)),
    Method("gfitc", "villacampa2017", ("threshold",), INDUCING, ("GFITCClassifier",)),
    Method("vi-robust", "villacampa2017", ("threshold",), INDUCING, ("RobustVIClassifier",), errors=True),
    Method("pep", "villacampa2020", ("threshold",), INDUCING, ("PEPClassifier",)),
    Method("apep", "villacampa2020", ("threshold",), INDUCING, ("APEPClassifier",)),
    Method("arpep", "villacampa2020", ("threshold",), INDUCING, ("ARPEPClassifier",)),
    Method("rpapep", "villacampa2020", ("threshold",), INDUCING, ("RPAPEPClassifier",)),
    Method("bb-alpha", "villacampa2020", ("threshold",), INDUCING),
    Method("label-regression", "villacampa2020", ("threshold",), INDUCING),
    Method("laplace-sparse", "villacampa2020", ("softmax",), INDUCING),
    Method("laplace-binary", "rasmussen2006", ("logit", "probit"), ALL_ROWS),
)

TRUTHS = (
    Truth(
        "quadrature", "exact", ("logit", "probit", "softmax", "multinomial-probit", "threshold"),
        "adaptive quadrature, a few data", "exact",
    ),
    Truth(
        "gibbs", "exact-probit", ("probit", "multinomial-probit", "threshold"),
        "independent exact draws, no labelling errors", "minimax tilting",
    ),
    Truth("gibbs", "gibbs-logit", ("logit",), "Pólya-Gamma chains", "three routes"),
    Truth("gibbs", "ensemble-logit", ("logit",), "affine-invariant ensemble: a sampler that shares no code", "none"),
    Truth("gibbs", "gibbs-probit", ("probit", "multinomial-probit"), "chains of auxiliary variables", "two routes"),
    Truth("gibbs", "gibbs-threshold", ("threshold",), "chains, labelling errors included", "two routes"),
    Truth("gibbs", "mh-softmax", ("softmax",), "Metropolis chains", "two routes"),
    Truth("gibbs", "gibbs-pairwise", ("threshold",), "the pairwise model (7) of villacampa2017", "two routes"),
)  # fmt: skip


def methods_markdown() -> str:
    """The table of methods of README: a row for each paper, likelihood and kind of points."""
    groups: dict[tuple[str, tuple[str, ...], str], list[Method]] = {}
    for entry in METHODS:
        groups.setdefault((entry.paper, entry.likelihoods, entry.points), []).append(entry)
    rows = []
    for (paper, likelihoods, points), entries in groups.items():
        classifiers = [name for entry in entries for name in entry.classifiers]
        names = _code(entry.method for entry in entries)
        rows.append((f"{PAPERS[paper]}, `{paper}`", names, _code(likelihoods), points, _code(classifiers)))
    return _markdown(("paper", "methods, in `reference` and in `fast`", "likelihood", "prior on", "classifiers"), rows)


def truths_markdown() -> str:
    """The table of truths of README."""
    rows = [
        (f"`{entry.implementation} {entry.method}`", _code(entry.likelihoods), entry.what, entry.evidence)
        for entry in TRUTHS
    ]
    return _markdown(("truth", "likelihood", "how", "log Z"), rows)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "-"


def _markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
