"""The problems of a report: pictures of the answers beside the truth, and a table of them.

Two witnesses that gave the same numbers are one cloud and one line, with the distance between them in words: drawn one
above the other they would look like one answer or, if they differ, hide by how much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from validation import premises
from validation.checks.core import digest
from validation.premises import is_truth
from validation.problem import Problem
from validation.report import figures, table
from validation.solution import Solution

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

_MOST_CLOUDS = len(figures.SERIES)
# fewer values of a power make no curve
_FEWEST_POWERS = 3
# settings that tell variants of a method apart: no more of them fit a label
_MOST_SETTINGS = 3
# settings that say how a run went rather than what was asked
_OUTCOMES = ("reason", "threads", "seconds", "diverged")
# more answers on one axis are a list: the table of solutions has them
_MOST_RUNGS = 24
# below this share of the picture's span two answers cannot be told apart by eye
_ONE_POINT = 1e-3


class Figures(NamedTuple):
    """Pictures that share a legend."""

    caption: str
    legend: tuple[tuple[str, str], ...]
    panels: tuple[Markup, ...]


class Section(NamedTuple):
    """One problem: scatters against truths, other pictures, and the rows of its solutions."""

    name: str
    description: str
    scatters: tuple[Figures, ...]
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
    others = [*_ladders(same, name), *_powers(same, name), *_traces(same, name)]
    names = variants(solutions)
    rows = tuple(_row(solution, label) for solution, label in zip(solutions, names, strict=True))
    return Section(name, _described(base), tuple(scatters), tuple(others), rows)


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


class _Answer(NamedTuple):
    """What is drawn as one: a solution, or both witnesses of one method where no eye could tell them apart."""

    label: str
    solution: Solution


def _answers(solutions: Sequence[Solution]) -> list[_Answer]:
    """Reference and fast of one method as one answer if their latent means and probabilities coincide."""
    first: dict[str, Solution] = {}
    for solution in solutions:
        first.setdefault(solution.label, solution)
    answers: list[_Answer] = []
    joined: set[str] = set()
    for label, solution in first.items():
        if label in joined:
            continue
        twin = first.get(f"fast {solution.method}") if solution.implementation == "reference" else None
        apart = None if twin is None else _distance(solution, twin)
        if twin is None or apart is None or apart > _ONE_POINT:
            answers.append(_Answer(label, solution))
        else:
            joined.add(twin.label)
            answers.append(_Answer(f"{solution.method}, reference and fast ({apart:.0e} apart)", solution))
    return answers


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
            span = float(np.ptp(a)) or max(1.0, float(np.abs(a).max()))
            largest = max(largest or 0.0, float(np.abs(a - b).max()) / span)
    return largest


def _scatter(truth: Solution, approximations: Sequence[Solution], name: str) -> Figures | None:
    # a method keeps its colour in every panel, also where another one has nothing to show
    places = list(enumerate(_answers(approximations)[:_MOST_CLOUDS]))
    panels: list[Markup] = []
    used: set[int] = set()
    for options in _PANELS:
        for title, field, field_se in options:
            true = _flat(truth, field)
            clouds = [
                figures.Cloud(answer.label, values, place)
                for place, answer in places
                if (values := _flat(answer.solution, field)) is not None
            ]
            if true is None or not true.size or not clouds:
                continue
            true_se = _flat(truth, field_se)
            panels.append(
                figures.scatter(title, true, true_se, clouds, truth.label, f"scatter-{name}-{field}-{len(panels)}")
            )
            used |= {cloud.place for cloud in clouds}
            break
    if not panels:
        return None
    shown = f"; at most {figures.MOST_POINTS} points of each, those furthest from the truth among them"
    caption = f"against {truth.label}, {truth.problem.prior_model} prior{shown}"
    legend = tuple((f"s{place + 1}", answer.label) for place, answer in places if place in used)
    return Figures(caption, legend, tuple(panels))


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


def _ladders(solutions: Sequence[Solution], name: str) -> list[Figures]:
    """One axis for each target; where it holds numbers of two priors, each says which."""
    drawn = []
    known = [solution for solution in solutions if solution.log_evidence is not None]
    for target in dict.fromkeys(solution.evidence_target for solution in known):
        there = [solution for solution in known if solution.evidence_target == target]
        priors = sorted({solution.prior_model for solution in there})
        rungs: dict[str, figures.Rung] = {}
        for solution, label in zip(there, variants(there), strict=True):
            assert solution.log_evidence is not None
            prior = f", {solution.prior_model}" if len(priors) > 1 else ""
            power = f", alpha {solution.settings['alpha']:g}" if "alpha" in solution.settings else ""
            # only a truth is drawn as one: not a chain without its gate met, nor a regression's exact likelihood
            claimed = solution.log_evidence_kind in ("sampled", "exact")
            kind = "estimate" if claimed and not _of_labels(solution) else solution.log_evidence_kind
            text = f"{label}{power} ({solution.log_evidence_kind}{prior})"
            _add(rungs, figures.Rung(text, kind, solution.log_evidence, solution.log_evidence_se))
        shown = list(rungs.values())[:_MOST_RUNGS]
        drawing = figures.ladder(f"log Z of {target}", shown, f"ladder-{name}-{target}")
        legend = (("truth", "sampled or exact, ± s.e."), ("s1", "lower bound"), ("s2", "estimate"))
        kinds = {rung.kind for rung in shown}
        present = (kinds & {"sampled", "exact"}, "lower bound" in kinds, "estimate" in kinds)
        entries = tuple(entry for entry, here in zip(legend, present, strict=True) if here)
        caption = f"evidence of {target}, {priors[0]} prior"
        if len(priors) > 1:
            caption = f"evidence of {target} under the priors {' and '.join(priors)}; compare within one prior only"
        if len(shown) < len(rungs):
            caption += f"; {len(rungs) - len(shown)} more in the table below"
        drawn.append(Figures(caption, entries, (drawing,)))
    return drawn


def _add(rungs: dict[str, figures.Rung], rung: figures.Rung) -> None:
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
    """Objectives of the iterations in one picture, what chains recorded in another.

    Where both witnesses of a method took the same way, one line stands for both and a second picture shows the
    difference after each iteration.
    """
    drawn = []
    for sampled, title, caption in (
        (False, "objective", "objective after each iteration"),
        (True, "trace of a chain", "what a chain recorded along its way, such as the log joint density"),
    ):
        chosen: dict[str, Solution] = {}
        for solution in solutions:
            if solution.trace.size > 1 and premises.is_sampled(solution) == sampled:
                chosen.setdefault(solution.label, solution)
        lines, differences = _joined(chosen)
        lines, differences = lines[:_MOST_CLOUDS], differences[:_MOST_CLOUDS]
        if lines:
            panels = [figures.traces(title, lines, f"trace-{name}-{sampled}", logarithmic=not sampled)]
            if differences:
                panels.append(figures.differences("|reference - fast|", differences, f"apart-{name}"))
                caption += ", and by how much the witnesses differ"
            legend = tuple((f"s{i + 1}", line.label) for i, line in enumerate(lines))
            drawn.append(Figures(caption, legend, tuple(panels)))
    return drawn


def _joined(chosen: Mapping[str, Solution]) -> tuple[list[figures.Line], list[figures.Line]]:
    """Lines of traces, and differences of those that two witnesses share."""
    lines: list[figures.Line] = []
    differences: list[figures.Line] = []
    for label, solution in chosen.items():
        twin = chosen.get(f"fast {solution.method}") if solution.implementation == "reference" else None
        other = chosen.get(f"reference {solution.method}") if solution.implementation == "fast" else None
        if other is not None and other.trace.size == solution.trace.size:
            continue
        if twin is None or twin.trace.size != solution.trace.size:
            lines.append(figures.Line(label, solution.trace))
            continue
        both = f"{solution.method}, reference and fast"
        lines.append(figures.Line(both, solution.trace))
        differences.append(figures.Line(both, np.abs(solution.trace - twin.trace), place=len(lines) - 1))
    return lines, differences


# -- powers --------------------------------------------------------------------------------------------------


def _powers(solutions: Sequence[Solution], name: str) -> list[Figures]:
    """Methods with a power alpha over its values: log Z, and distances of predictions from the truth."""
    by_power: dict[str, dict[float, Solution]] = {}
    for solution in solutions:
        if "alpha" in solution.settings and solution.converged and solution.log_evidence is not None:
            by_power.setdefault(solution.label, {}).setdefault(float(solution.settings["alpha"]), solution)
    along = {label: dict(sorted(by.items())) for label, by in by_power.items() if len(by) >= _FEWEST_POWERS}
    along = dict(list(along.items())[:_MOST_CLOUDS])
    if not along:
        return []
    # powers are of p(y)
    truths = _best_truths([solution for solution in solutions if is_truth(solution)])
    # powers above zero speak of the model in which latent values are independent given the inducing values
    truth = next((t for t in truths if t.prior_model == "fitc"), truths[0] if truths else None)
    panels = [
        _power_curves("log Z", along, lambda s: s.log_evidence, name, truth.log_evidence if truth is not None else None)
    ]
    if truth is not None:
        panels += [
            _power_curves(title, along, lambda s, of=distance: of(s, truth), name, level)  # type: ignore[misc]
            for title, distance, level in _DISTANCES
            if all(distance(solution, truth) is not None for by in along.values() for solution in by.values())
        ]
    legend = tuple((f"s{i + 1}", label) for i, label in enumerate(along))
    caption = "over the power alpha" + (f", against {truth.label}" if truth is not None else "")
    return [Figures(caption, (("truth", "truth"), *legend) if truth is not None else legend, tuple(panels))]


def _power_curves(
    title: str,
    along: Mapping[str, Mapping[float, Solution]],
    value: Callable[[Solution], float | None],
    name: str,
    truth: float | None,
) -> Markup:
    lines = [
        figures.Curve(label, np.array(list(by)), np.array([value(solution) for solution in by.values()], dtype=float))
        for label, by in along.items()
    ]
    return figures.curves(title, lines, "alpha", f"powers-{name}-{title}", logarithmic=False, truth=truth)


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
