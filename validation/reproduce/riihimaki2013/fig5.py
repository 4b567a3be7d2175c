"""riihimaki2013, section 5.3, Fig. 5 and 6: class probabilities and marginals on USPS 3 vs. 5 vs. 7."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validation.door import arguments
from validation.door.problem import Problem
from validation.door.solution import Solution
from validation.ledger.marker import equation
from validation.reproduce import decisions
from validation.reproduce.decisions import Decided, above, below
from validation.reproduce.experiment import Outcome, Picture, Say, Table, experiment
from validation.reproduce.riihimaki2013 import setting
from validation.screen import figures

Array = NDArray[np.float64]
TRUTHS: Mapping[str, str] = MappingProxyType(
    {
        "nested-ep": "gibbs-probit",
        "nested-iep": "gibbs-probit",
        "vb-probit": "gibbs-probit",
        "laplace": "mh-softmax",
        "laplace-tkp": "mh-softmax",
    }
)


class Pairs(NamedTuple):
    """A method beside the chains with its likelihood: probabilities of the true labels, and one marginal."""

    truth: str  # method id of the chains
    training: Array  # (n,) of the method
    training_truth: Array
    training_truth_se: Array  # Monte Carlo standard errors of the chains
    test: Array  # (t,)
    test_truth: Array
    test_truth_se: Array
    mean: Array  # (C,) of f at one training point
    cov: Array  # (C, C)
    mean_truth: Array
    cov_truth: Array
    means: Array  # (n, C) at all training points
    covs: Array  # (n, C, C)
    means_truth: Array
    covs_truth: Array


@equation("riihimaki2013", "u5.3-usps")
def usps_marginals(
    problem: Problem,
    point: int,
    *,
    methods: Sequence[str] = tuple(TRUTHS),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> dict[str, Pairs]:
    """Predictive probabilities of the true labels against MCMC, training and test, and the marginal of f at one point.

    riihimaki2013, section 5.3, Fig. 5 and 6. EP, IEP and VB are compared with Gibbs sampling of the multinomial probit
    model, LA and LA-TKP with scaled Metropolis-Hastings of the softmax model.

    Parameters
    ----------
    problem : Problem      multinomial probit; its test inputs and labels begin with those of the data
    point : int            training point whose marginal is shown
    methods : method ids   out of nested-ep, nested-iep, vb-probit, laplace, laplace-tkp
    options : method id -> options    of single methods, those of the chains too
    """
    n = problem.n
    if problem.X_test is None or problem.y_test is None or not np.array_equal(problem.X_test[:n], problem.X):
        raise ValueError("X_test: found other rows than those of X first, expected the training inputs, then the test")
    if not 0 <= arguments.integer(point, "point", at_least=0) < n:
        raise ValueError(f"point: found {point}, expected a training row below {n}")
    for method in methods:
        arguments.choice(method, tuple(TRUTHS), "methods")
    own = options or {}
    solutions: dict[str, Solution] = {}
    for method in (*methods, *dict.fromkeys(TRUTHS[method] for method in methods)):
        say(f"{setting.NAMES[method]}: n = {n}")
        solutions[method] = setting.answer(method, problem, **own.get(method, {}))
    results = {}
    for method in methods:
        ours, truth = solutions[method], solutions[TRUTHS[method]]
        p, q = (setting.of_labels(s, problem.y_test) for s in (ours, truth))
        assert truth.probabilities_se is not None  # chains have them
        se = truth.probabilities_se[np.arange(q.size), problem.y_test]
        every = [np.asarray(getattr(s, name)) for s in (ours, truth) for name in ("latent_mean", "latent_cov")]
        results[method] = Pairs(
            TRUTHS[method], p[:n], q[:n], se[:n], p[n:], q[n:], se[n:], *(part[point] for part in every), *every
        )
    return results


def _log_dets(covs: Array) -> Array:
    return np.linalg.slogdet(covs)[1]


def _divergence(pairs: Pairs) -> float:
    """Mean over training points of KL(Gaussian with the chains' moments, the method's marginal of f)."""
    inverse = np.linalg.inv(pairs.covs)
    off = pairs.means - pairs.means_truth
    trace = np.einsum("nij,nji->n", inverse, pairs.covs_truth)
    squares = np.einsum("ni,nij,nj->n", off, inverse, off)
    each = 0.5 * (trace + squares - off.shape[1] + _log_dets(pairs.covs) - _log_dets(pairs.covs_truth))
    return float(each.mean())


def _in_deviations(means: Array, truth: Array, covs_truth: Array) -> float:
    """Mean distance of latent means, in deviations of the chains."""
    return float(np.mean(np.abs(means - truth) / np.sqrt(np.einsum("ncc->nc", covs_truth))))


def decide(value: Mapping[str, Pairs]) -> list[Decided]:
    """What section 5.3 says of the probabilities and of the marginals at the training points; all five methods."""
    ep, iep, vb, la, tkp = (value[method] for method in TRUTHS)

    def distance(pairs: Pairs) -> float:
        return float(np.abs(_gaps(pairs)).mean())

    def signed(pairs: Pairs, part: str) -> float:
        return float((getattr(pairs, part) - getattr(pairs, f"{part}_truth")).mean())

    def narrowness(pairs: Pairs) -> float:
        return float(np.mean(_log_dets(pairs.covs) - _log_dets(pairs.covs_truth)))

    next_best = min(distance(pairs) for method, pairs in value.items() if method != "nested-ep")
    density = {name: float(np.log(pairs.test).mean()) for name, pairs in (("EP", ep), ("IEP", iep))}
    of_5 = [
        below("fig5-ep-best", "mean distance of probabilities from the chains': EP's below the next", distance(ep),
              next_best),
        below("fig5-iep", "IEP: mean difference on training rows", signed(iep, "training"), 0.0),
        below("fig5-iep", "IEP: size of the mean difference on test rows, below twice EP's",
              abs(signed(iep, "test")), 2.0 * abs(signed(ep, "test"))),
        *(below("fig5-vb-la", f"{name}: mean difference on test rows", signed(pairs, "test"), 0.0)
          for name, pairs in (("VB", vb), ("LA", la))),
        below("fig5-tkp", "mean distance of probabilities: LA-TKP's below half of LA's", distance(tkp),
              0.5 * distance(la)),
    ]  # fmt: skip
    of_6 = [
        *(below("fig6-iep-vb-narrow", f"mean log ratio of determinants to the chains': {name}'s below EP's",
                narrowness(pairs), narrowness(ep)) for name, pairs in (("IEP", iep), ("VB", vb))),
        above("fig6-la-mode", "mean distance of latent means in deviations: LA's from its chains, above 3 × EP's",
              _in_deviations(la.means, la.means_truth, la.covs_truth),
              3.0 * _in_deviations(ep.means, ep.means_truth, ep.covs_truth)),
        below("fig6-vb-mean-near-la", "mean distance of VB's latent means: to LA's, below that to the chains of probit",
              float(np.abs(vb.means - la.means).mean()), float(np.abs(vb.means - vb.means_truth).mean())),
    ]  # fmt: skip
    return [
        decisions.figure("fig5", of_5), *of_5, decisions.figure("fig6", of_6), *of_6,
        below("visual-more-accurate", "mean divergence of marginals from the chains': EP's below IEP's",
              _divergence(ep), _divergence(iep)),
        below("visual-more-accurate", "distance of EP's and IEP's mean log predictive densities",
              abs(density["EP"] - density["IEP"]), 0.01),
    ]  # fmt: skip


def _gaps(pairs: Pairs) -> Array:
    """Of the probabilities of the true labels from the chains', training and test rows."""
    return np.concatenate([pairs.training - pairs.training_truth, pairs.test - pairs.test_truth])


@dataclass(frozen=True, kw_only=True)
class Fig5Options:
    """Options of `fig5`."""

    dataset: str = setting.THREE_DIGITS
    methods: Sequence[str] = tuple(TRUTHS)
    n: int = 150
    n_test: int = 60
    log_variance: float = 4.0
    log_lengthscale: float = 2.0
    n_chains: int = 8
    n_draws: int = 400
    seed: int = 0


@experiment(
    "riihimaki2013",
    "fig5",
    "class probabilities and latent marginals of all methods on USPS 3 vs. 5 vs. 7",
    "EP gives the most accurate probabilities; IEP underestimates them slightly at the training points; VB and LA "
    "underestimate those of the test points, LA-TKP improves LA clearly (section 5.3, Fig. 5 and 6)",
    cells=lambda asked: len({*asked.methods, *(TRUTHS[method] for method in asked.methods)}),
    ahead=True,
)
def fig5(asked: Fig5Options, say: Say) -> Outcome:
    """All methods at log σ² = 4, log l = 2; the paper's sizes are n=1157 and n_test=1175."""
    cut = setting.parts(asked.dataset, n=asked.n, n_test=asked.n_test, seed=asked.seed)
    problem = setting.pose(cut, asked.log_variance, asked.log_lengthscale, training=True)
    second = np.flatnonzero(cut.y == 1)  # Fig. 6: "the correct class label being 2"
    lengths = {"n_chains": asked.n_chains, "n_draws": asked.n_draws, "seed": asked.seed}
    result = usps_marginals(
        problem,
        int(second[0]) if second.size else 0,
        methods=asked.methods,
        options={"gibbs-probit": lengths | {"n_warmup": 200}, "mh-softmax": lengths},
        say=say,
    )
    rows: list[tuple[object, ...]] = []
    marginals: list[tuple[object, ...]] = []
    pictures = []
    for part in ("training", "test"):
        panels = []
        for method, pairs in result.items():
            ours, truth, se = (getattr(pairs, f"{part}{end}") for end in ("", "_truth", "_truth_se"))
            gap = ours - truth
            rows.append(
                (part, setting.NAMES[method], setting.NAMES[pairs.truth], gap.size, float(gap.mean()),
                 float(np.abs(gap).mean()), float(np.abs(gap).max()), float(np.log(ours).mean()),
                 float(np.log(truth).mean()), float(se.max()))
            )  # fmt: skip
            with figures.style():
                panels.append(
                    figures.scatter(
                        setting.NAMES[method], truth, se, [figures.Cloud(setting.NAMES[method], ours, 0)],
                        setting.NAMES[pairs.truth], f"fig5-{part}-{method}",
                    )
                )  # fmt: skip
        pictures.append(Picture(f"p(true label), {part} points", ("method against chains",), tuple(panels)))
    for method, pairs in result.items():
        sd, sd_truth = (np.sqrt(np.diag(cov)) for cov in (pairs.cov, pairs.cov_truth))
        marginals += [
            (
                setting.NAMES[method],
                f"class {k + 1}",
                *map(float, (pairs.mean[k], pairs.mean_truth[k], sd[k], sd_truth[k])),
            )
            for k in range(cut.n_classes)
        ]
    return Outcome(
        {
            "data": f"{asked.dataset}: n = {problem.n}, {cut.y_test.size} test rows",
            "hyper-parameters": f"log variance {asked.log_variance:g}, log lengthscale {asked.log_lengthscale:g}",
            "chains": f"{asked.n_chains} of {asked.n_draws} draws",
            "seed": asked.seed,
        },
        (
            Table(
                "probabilities",
                (
                    "part",
                    "method",
                    "against",
                    "labels",
                    "mean difference",
                    "mean distance",
                    "largest",
                    "mean log p",
                    "mean log p of the chains",
                    "largest s.e. of the chains",
                ),
                tuple(rows),
                "Probabilities of the true labels; a negative mean difference is underestimation",
            ),
            Table(
                "marginal",
                ("method", "latent", "mean", "mean of the chains", "sd", "sd of the chains"),
                tuple(marginals),
                "Marginal of f at one training point of the second class (Fig. 6)",
            ),
            *(
                (decisions.table(decide(result), "What section 5.3 says of the figures"),)
                if set(TRUTHS) <= result.keys()
                else ()
            ),
        ),
        tuple(pictures),
        (*cut.notes, "the paper's Fig. 5 and 6 print no numbers: the directions of the differences are to be compared"),
    )
