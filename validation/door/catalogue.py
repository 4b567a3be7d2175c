"""The methods of both witnesses and the truths, with what each of them takes.

`triad list methods` and the page of all methods show these rows; tests try on every witness what a row says that it
accepts and refuses.
"""

from __future__ import annotations

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
