"""The problems of a report: pictures of the answers beside the truth, and a table of them.

A method has a small picture of its own, in which a colour says who answered; beside it stands in words how far the
witnesses are apart, and below, after each iteration, in a picture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from validation.door import premises
from validation.door.premises import is_truth
from validation.door.problem import Problem, digest
from validation.door.solution import Solution
from validation.report import facets, table

# What makes two solutions answers about the same points: the same data and parameters, whatever approximates them.
_MAY_DIFFER = ("name", "Z", "prior_model", "jitter", "shared", "y_test")

# Panels of the scatter, the first that both sides have; (title, field, field of the standard errors).
_PANELS = (
    (
        ("latent means at the data", "latent_mean", "latent_mean_se"),
        ("latent means at test points", "test_latent_mean", "test_latent_mean_se"),
    ),
    (
        ("latent variances at the data", "latent_cov", "latent_cov_se"),
        ("latent variances at test points", "test_latent_cov", "test_latent_cov_se"),
    ),
    (("predictive probabilities", "probabilities", "probabilities_se"),),
)

# more methods than this are a wall of pictures: the table of solutions has them
_MOST_FACETS = 12
# fewer values of a power make no curve
_FEWEST_POWERS = 3
# settings that tell variants of a method apart: no more of them fit a label
_MOST_SETTINGS = 3
# settings that say how a run went rather than what was asked
_OUTCOMES = ("reason", "threads", "seconds", "diverged")
# chains report much of themselves; this is what they were asked
_ASKED_OF_CHAINS = ("evidence", "moves", "n_chains", "n_draws", "seed", "thin")
# more answers on one axis are a list: the table of solutions has them
_MOST_RUNGS = 24


class Facet(NamedTuple):
    """One method: its name, what is to be said of it in a few words, its picture."""

    label: str
    note: str
    picture: Markup


class Group(NamedTuple):
    """One quantity of several methods, on axes of equal limits."""

    title: str
    facets: tuple[Facet, ...]


class Figures(NamedTuple):
    """Groups that are told in one sentence."""

    caption: str
    groups: tuple[Group, ...]


class Rung(NamedTuple):
    """One log Z: who says so, by which kind of number, and its place on the axis in percent.

    beyond    nats above the truth, "" where there is none
    reach     two standard errors, in percent of the axis to each side
    """

    label: str
    kind: str
    value: float
    se: float | None
    beyond: str = ""
    left: float = 50.0
    reach: float = 0.0


class Ladder(NamedTuple):
    """log Z of one target and prior, the largest first; left out: how many more the table of solutions has."""

    target: str
    prior: str
    rungs: tuple[Rung, ...]
    truth: tuple[float, float] | None  # from, to, in percent of the axis
    left_out: int


class Section(NamedTuple):
    """One problem: answers against truths, log Z, other pictures, and the rows of its solutions."""

    name: str
    description: str
    scatters: tuple[Figures, ...]
    ladders: tuple[Ladder, ...]
    others: tuple[Figures, ...]
    solutions: tuple[dict[str, Any], ...]


def distinct(solutions: Iterable[Solution]) -> list[Solution]:
    """Solutions without repetitions: one answer per witness, method and question, unless the numbers differ visibly."""
    keys: set[tuple[Any, ...]] = set()
    kept: list[Solution] = []
    for solution in solutions:
        evidence = None if solution.log_evidence is None else f"{solution.log_evidence:.6g}"
        key = (solution.label, digest(solution.problem), evidence, solution.log_evidence_kind)
        if key not in keys:
            keys.add(key)
            kept.append(solution)
    return kept


def section(name: str, solutions: Sequence[Solution]) -> Section:
    """Everything about one problem; draw within `figures.style`."""
    truths = [solution for solution in solutions if _of_labels(solution)]
    base = (truths or list(solutions))[0].problem
    # checks of invariance permute the data under the same name: such points are no longer those of the truth
    same = [s for s in solutions if not base.differences(s.problem, ignore=_MAY_DIFFER)]
    drawn = []
    for i, truth in enumerate(_best_truths([solution for solution in same if _of_labels(solution)])):
        # beside an exact truth a chain is one more answer to be judged, and so is a chain without its gate met
        exact = truth.log_evidence_kind == "exact"
        judged = [
            s
            for s in same
            if s.evidence_target == truth.evidence_target and (not _of_labels(s) or (exact and s is not truth))
        ]
        drawn.append(_scatter(truth, judged, f"{name}-{i}"))
    scatters = [figure for figure in drawn if figure is not None]
    others = [*_powers(same, name), *_traces(same, name)]
    names = variants(solutions)
    rows = tuple(_row(solution, label) for solution, label in zip(solutions, names, strict=True))
    return Section(name, _described(base), tuple(scatters), tuple(_ladders(same)), tuple(others), rows)


def variants(solutions: Sequence[Solution]) -> list[str]:
    """A label for each solution; those of one method that were asked differently say by which settings.

    Parameters
    ----------
    solutions    answers about one problem
    """
    labels = []
    for solution in solutions:
        others = [s for s in solutions if s.label == solution.label]
        keys = sorted({key for s in others for key in s.settings} - {"alpha", *_OUTCOMES})
        if premises.is_sampled(solution):
            keys = [key for key in keys if key in _ASKED_OF_CHAINS]
        apart = [key for key in keys if len({_value(s.settings.get(key)) for s in others}) > 1]
        told = [f"{key} {_value(solution.settings[key])}" for key in apart if solution.settings.get(key) is not None]
        if len(told) > _MOST_SETTINGS:
            told[_MOST_SETTINGS:] = [f"and {len(told) - _MOST_SETTINGS} more"]
        labels.append(", ".join([solution.label, *told]))
    return labels


def _value(value: Any) -> str:
    """A setting in few words."""
    text = f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


def _best_truths(truths: Sequence[Solution]) -> list[Solution]:
    """One truth for each prior and target: the exact one where there is one, else the chain asked first."""
    best: dict[tuple[str, str], Solution] = {}
    for truth in sorted(truths, key=lambda truth: truth.log_evidence_kind != "exact"):
        best.setdefault((truth.problem.prior_model, truth.evidence_target), truth)
    return list(best.values())


def _of_labels(solution: Solution) -> bool:
    """Whether it is a truth of its own model of the labels, its gate met."""
    return is_truth(solution, solution.evidence_target)


def _described(problem: Problem) -> str:
    sizes = f"n = {problem.n}, d = {problem.d}"
    if problem.n_classes > 2:
        sizes += f", C = {problem.n_classes}"
    if problem.m is not None:
        sizes += f", m = {problem.m}"
    span = problem.variance
    log_variance = ", ".join(f"{value:.2g}" for value in np.unique(np.log(span)))
    return f"{sizes}, t = {problem.t}; {problem.likelihood}, {problem.kernel} kernel, log variance {log_variance}"


# -- answers against a truth ---------------------------------------------------------------------------------


_ORDER = ("reference", "fast")
# a span of less than this share of the numbers is none
_ROUNDING = 1e-9


def _by_method(solutions: Iterable[Solution]) -> dict[str, list[Solution]]:
    """Method -> one solution of each implementation, the witnesses of the papers first."""
    methods: dict[str, dict[str, Solution]] = {}
    for solution in solutions:
        methods.setdefault(solution.method, {}).setdefault(solution.implementation, solution)
    rank = {who: place for place, who in enumerate(_ORDER)}
    return {
        method: sorted(by.values(), key=lambda s: rank.get(s.implementation, len(rank)))
        for method, by in methods.items()
    }


def _note(group: Sequence[Solution]) -> str:
    """Who answered, and how far apart two witnesses are in the span of the picture."""
    names = " and ".join(solution.implementation for solution in group)
    apart = _distance(group[0], group[1]) if len(group) == len(_ORDER) else None
    if apart is None:
        return names
    # a hyphen that no line is broken at
    return f"{names}, {apart:.0e} apart".replace("e-", "e\u2011") if apart else f"{names}, equal"


def _distance(left: Solution, right: Solution) -> float | None:
    """Largest difference of what the panels show, in the span of its numbers; None if they cannot be compared."""
    largest = None
    for options in _PANELS:
        for _, field, _ in options:
            a, b = _flat(left, field), _flat(right, field)
            if (a is None) != (b is None) or (a is not None and b is not None and a.shape != b.shape):
                return None
            if a is None or b is None or not a.size:
                continue
            size = float(np.abs(a).max())
            span = float(np.ptp(a))
            if span <= _ROUNDING * size:  # numbers that are all one: their span is rounding
                span = max(1.0, size)
            largest = max(largest or 0.0, float(np.abs(a - b).max()) / span)
    return largest


def _scatter(truth: Solution, approximations: Sequence[Solution], name: str) -> Figures | None:
    methods = dict(list(_by_method(approximations).items())[:_MOST_FACETS])
    groups = [group for options in _PANELS if (group := _panel(truth, methods, options, f"scatter-{name}")) is not None]
    if not groups:
        return None
    caption = f"Across: {truth.label}, {truth.problem.prior_model} prior"
    if any(_flat(truth, field_se) is not None for options in _PANELS for _, _, field_se in options):
        caption += ", with bars of two standard errors"
    caption += (
        f". Up: the method. At most {facets._MOST_POINTS} points of each, those furthest from the truth among them."
    )
    return Figures(caption, tuple(groups))


def _panel(
    truth: Solution, methods: Mapping[str, list[Solution]], options: Iterable[tuple[str, str, str]], name: str
) -> Group | None:
    """The first of the quantities that the truth and a method have: a facet for each method that has it."""
    for title, field, field_se in options:
        true = _flat(truth, field)
        answers = {
            method: [
                facets.Answer(solution.implementation, values)
                for solution in group
                if (values := _flat(solution, field)) is not None
            ]
            for method, group in methods.items()
        }
        shown = {method: given for method, given in answers.items() if given}
        if true is None or not true.size or not shown:
            continue
        span = facets.limits([true, *(answer.values for given in shown.values() for answer in given)])
        made = []
        for method, given in shown.items():
            who = " and ".join(answer.who for answer in given)
            caption = f"{title}: {method}, {who} against {truth.label}"
            picture = facets.scatter(true, _flat(truth, field_se), given, span, caption, f"{name}-{field}-{method}")
            made.append(Facet(method, _note(methods[method]), picture))
        return Group(title, tuple(made))
    return None


def _flat(solution: Solution, field: str) -> NDArray[np.float64] | None:
    """Comparable numbers of one field: means, variances, probabilities of all classes but the first of two."""
    value: NDArray[np.float64] | None = getattr(solution, field)
    if value is None:
        return None
    if "_cov" in field:
        value = np.einsum("...ll->...l", value)
    if field.startswith("probabilities") and value.shape[1] == 2:
        value = value[:, 1:]
    return value.ravel()


# -- log Z and traces ----------------------------------------------------------------------------------------


def _ladders(solutions: Sequence[Solution]) -> list[Ladder]:
    """One for each target and prior: numbers of two priors are numbers of two models."""
    known = [solution for solution in solutions if solution.log_evidence is not None]
    made = []
    for target, prior in dict.fromkeys((s.evidence_target, s.prior_model) for s in known):
        there = [s for s in known if (s.evidence_target, s.prior_model) == (target, prior)]
        rungs: dict[str, Rung] = {}
        for solution, label in zip(there, variants(there), strict=True):
            assert solution.log_evidence is not None
            power = f", alpha {solution.settings['alpha']:g}" if "alpha" in solution.settings else ""
            # only a truth is drawn as one: not a chain without its gate met, nor a regression's exact likelihood
            claimed = solution.log_evidence_kind in _TRUTHS
            kind = "estimate" if claimed and not _of_labels(solution) else solution.log_evidence_kind
            _add(rungs, Rung(label + power, kind, solution.log_evidence, solution.log_evidence_se))
        made.append(_placed(target, prior, list(rungs.values())))
    return made


_TRUTHS = ("exact", "sampled")


def _placed(target: str, prior: str, rungs: Sequence[Rung]) -> Ladder:
    """Rungs from the top, each with its place on one axis; the truths and what is nearest to them are kept."""
    truths = sorted((rung for rung in rungs if rung.kind in _TRUTHS), key=lambda rung: rung.kind)
    truth = truths[0] if truths else None
    middle = float(np.median([rung.value for rung in rungs])) if truth is None else truth.value
    kept = sorted(rungs, key=lambda rung: (rung.kind not in _TRUTHS, abs(rung.value - middle)))[:_MOST_RUNGS]
    ends = [rung.value + sign * 2.0 * (rung.se or 0.0) for rung in kept for sign in (-1.0, 1.0)]
    low, high = facets.limits([np.array(ends)])
    if high - low < 1e-6 * max(1.0, abs(high)):  # all equal: an axis from rounding error would shout
        low, high = low - 0.5, high + 0.5
    scale = 100.0 / (high - low)
    placed = [
        rung._replace(
            left=scale * (rung.value - low),
            reach=2.0 * scale * (rung.se or 0.0),
            beyond="" if truth is None or rung is truth else f"{rung.value - truth.value:+.2g}",
        )
        for rung in sorted(kept, key=lambda rung: -rung.value)
    ]
    band = None
    if truth is not None:
        scaled = 2.0 * (truth.se or 0.0)
        band = scale * (truth.value - scaled - low), scale * (truth.value + scaled - low)
    return Ladder(target, prior, tuple(placed), band, len(rungs) - len(kept))


def _add(rungs: dict[str, Rung], rung: Rung) -> None:
    """Numbers that agree to six digits are one rung, those of both witnesses too; others of one label are numbered."""
    twin = rung.label.replace("fast ", "reference ", 1) if rung.label.startswith("fast ") else ""
    if twin in rungs and math.isclose(rungs[twin].value, rung.value, rel_tol=1e-6):
        rungs[twin] = rungs[twin]._replace(label=twin.replace("reference ", "reference, fast ", 1))
        return
    label, place = rung.label, 1
    while label in rungs:
        if math.isclose(rungs[label].value, rung.value, rel_tol=1e-6):
            return
        place += 1
        label = f"{rung.label} #{place}"
    rungs[label] = rung._replace(label=label)


def _traces(solutions: Sequence[Solution], name: str) -> list[Figures]:
    """Objectives of the iterations and the difference of the witnesses after each; what chains recorded."""
    recorded = [solution for solution in solutions if solution.trace.size > 1]
    made = []
    iterated = _by_method(s for s in recorded if not premises.is_sampled(s))
    if iterated:
        groups = [_objectives(iterated, name)]
        apart = _differences(iterated, name)
        if apart is not None:
            groups.append(apart)
        made.append(Figures("Over the iterations, which are on a logarithmic axis.", tuple(groups)))
    sampled = _by_method(s for s in recorded if premises.is_sampled(s))
    if sampled:
        group = _objectives(sampled, name, sampled=True)
        made.append(Figures("Over the draws: the log joint density or what else the chain recorded.", (group,)))
    return made


def _objectives(methods: Mapping[str, list[Solution]], name: str, *, sampled: bool = False) -> Group:
    """The trace of each method."""
    title = "trace of a chain" if sampled else "objective"
    made = []
    for method, group in list(methods.items())[:_MOST_FACETS]:
        ways = [_way(solution, solution.trace) for solution in group]
        who = " and ".join(way.who for way in ways)
        picture = facets.along(
            ways, f"{title}: {method}, {who}", f"trace-{name}-{method}-{sampled}", logarithmic=(not sampled, False)
        )
        made.append(Facet(method, who, picture))
    return Group(title, tuple(made))


def _differences(methods: Mapping[str, list[Solution]], name: str) -> Group | None:
    """By how much the witnesses differ after each iteration, where they took as many; zeros at float64's rounding."""
    floor = float(np.finfo(np.float64).eps)
    title = "|reference - fast| of it"
    ways = {
        method: _way(pair[0], np.maximum(np.abs(pair[0].trace - pair[1].trace), floor))._replace(who="")
        for method, pair in list(methods.items())[:_MOST_FACETS]
        if len(pair) == len(_ORDER) and pair[0].trace.size == pair[1].trace.size
    }
    if not ways:
        return None
    span = 0.3 * floor, 3.0 * max(10.0 * floor, *(float(way.y.max()) for way in ways.values()))
    made = [
        Facet(
            method,
            f"{way.y.max():.0e} at most",
            facets.along([way], f"{title}: {method}", f"apart-{name}-{method}", logarithmic=(True, True), span=span),
        )
        for method, way in ways.items()
    ]
    return Group(title, tuple(made))


def _way(solution: Solution, values: NDArray[np.float64]) -> facets.Way:
    return facets.Way(solution.implementation, np.arange(1.0, values.size + 1.0), values)


# -- powers --------------------------------------------------------------------------------------------------


def _powers(solutions: Sequence[Solution], name: str) -> list[Figures]:
    """Methods with a power alpha over its values: log Z, and distances of predictions from the truth."""
    by_power: dict[tuple[str, str], dict[float, Solution]] = {}
    for solution in solutions:
        if "alpha" in solution.settings and solution.converged and solution.log_evidence is not None:
            key = solution.method, solution.implementation
            by_power.setdefault(key, {}).setdefault(float(solution.settings["alpha"]), solution)
    along = {key: dict(sorted(by.items())) for key, by in by_power.items() if len(by) >= _FEWEST_POWERS}
    if not along:
        return []
    # powers are of p(y)
    truths = _best_truths([solution for solution in solutions if is_truth(solution)])
    # powers above zero speak of the model in which latent values are independent given the inducing values
    truth = next((t for t in truths if t.prior_model == "fitc"), truths[0] if truths else None)
    groups = [
        _power_curves("log Z", along, lambda s: s.log_evidence, name, truth.log_evidence if truth is not None else None)
    ]
    if truth is not None:
        groups += [
            _power_curves(title, along, lambda s, of=distance: of(s, truth), name, level)  # type: ignore[misc]
            for title, distance, level in _DISTANCES
            if all(distance(solution, truth) is not None for by in along.values() for solution in by.values())
        ]
    caption = "Over the power alpha" + (f", against {truth.label}." if truth is not None else ".")
    return [Figures(caption, tuple(groups))]


def _power_curves(
    title: str,
    along: Mapping[tuple[str, str], Mapping[float, Solution]],
    value: Callable[[Solution], float | None],
    name: str,
    truth: float | None,
) -> Group:
    ways: dict[str, list[facets.Way]] = {}
    for (method, who), by in along.items():
        result = np.array([value(solution) for solution in by.values()], dtype=float)
        ways.setdefault(method, []).append(facets.Way(who, np.array(list(by)), result))
    level = [] if truth is None else [np.array([truth])]
    span = facets.limits([*level, *(way.y for group in ways.values() for way in group)])
    made = []
    for method, group in list(ways.items())[:_MOST_FACETS]:
        ordered = sorted(group, key=lambda way: (*_ORDER, way.who).index(way.who))
        who = " and ".join(way.who for way in ordered)
        picture = facets.along(
            ordered,
            f"{title}: {method}, {who}",
            f"powers-{name}-{title}-{method}",
            xlabel="alpha",
            span=span,
            level=truth,
        )
        made.append(Facet(method, who, picture))
    return Group(title, tuple(made))


def _off(left: Solution, right: Solution) -> float | None:
    if left.probabilities is None or right.probabilities is None or not left.probabilities.size:
        return None
    return float(np.abs(left.probabilities - right.probabilities).max())


def _mean_off(left: Solution, right: Solution) -> float | None:
    a, b, cov = left.test_latent_mean, right.test_latent_mean, right.test_latent_cov
    if a is None or b is None or cov is None or not a.size:
        return None
    return float((np.abs(a - b) / np.sqrt(np.einsum("tll->tl", cov))).max())


def _var_ratio(left: Solution, right: Solution) -> float | None:
    a, b = left.test_latent_cov, right.test_latent_cov
    if a is None or b is None or not a.size:
        return None
    return float((np.einsum("tll->tl", a) / np.einsum("tll->tl", b)).mean())


_DISTANCES: tuple[tuple[str, Callable[[Solution, Solution], float | None], float], ...] = (
    ("largest difference in probability", _off, 0.0),
    ("largest difference of a test mean, in deviations", _mean_off, 0.0),
    ("mean ratio of test variances to the truth", _var_ratio, 1.0),
)


# -- tables --------------------------------------------------------------------------------------------------


def _row(solution: Solution, label: str) -> dict[str, Any]:
    return {
        "label": label,
        "evidence": "" if solution.log_evidence is None else f"{solution.log_evidence:.6g}",
        "se": "" if solution.log_evidence_se is None else f"± {solution.log_evidence_se:.2g}",
        "kind": "" if solution.log_evidence is None else solution.log_evidence_kind,
        "target": "" if solution.log_evidence is None else f"{solution.evidence_target}, {solution.prior_model}",
        "converged": solution.converged,
        "iterations": solution.iterations,
        "residual": "" if solution.residual is None else f"{solution.residual:.2g}",
        "improper": solution.n_improper,
        "seconds": table.seconds(solution.seconds),
    }
