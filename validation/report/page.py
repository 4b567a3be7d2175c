"""The report as one HTML page: verdicts with reasons, figures for each problem, chains, ledger; it loads nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from validation import premises
from validation.checks.core import KINDS, Result, digest
from validation.checks.runner import Run
from validation.mutation import power
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

_WORDS = {"PASS": "passed", "FAIL": "failed", "ERROR": "raised an error", "SKIP": "skipped"}

# longer tables start closed unless something in them is red: their line of counts says what they hold
_OPEN_ROWS = 30

_MOST_CLOUDS = len(figures.SERIES)
# fewer values of a power make no curve
_FEWEST_POWERS = 3


class Coverage(TypedDict):
    """One paper of the ledger: how many entries are in each state."""

    paper: str
    verified: int
    corrected: int
    not_executable: int
    open: int


class _Figures(NamedTuple):
    caption: str
    legend: tuple[tuple[str, str], ...]
    panels: tuple[Markup, ...]


class _Section(NamedTuple):
    name: str
    description: str
    scatters: tuple[_Figures, ...]
    others: tuple[_Figures, ...]
    solutions: tuple[dict[str, Any], ...]


def render(run: Run, coverage: Sequence[Coverage] | None = None, *, now: datetime | None = None) -> str:
    """The whole page.

    Parameters
    ----------
    run : Run         what `validation.checks.runner.run` gave
    coverage : list   of the ledger, one entry for each paper; None says that it was not collected
    now : datetime    when the run ended, by default this moment
    """
    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=table.number, observed=table.observed, ratio=table.ratio, seconds=table.seconds, against=table.against
    )
    distinct_solutions, samples = _distinct(run.solutions), power.samples()
    with figures.style():
        sections = _sections(distinct_solutions)
    return environment.get_template("page.html.j2").render(
        run=run,
        headline=_headline(run),
        state="stopped" if run.interrupted else "red" if run.failed else "green",
        summary=table.summary(run),
        date=(now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        kinds=[_kind(kind, [r for r in run.results if r.kind == kind]) for kind in KINDS if _any(run.results, kind)],
        failures=[result for result in run.results if result.failed],
        skipped=[result for result in run.results if result.verdict == "SKIP"],
        problems=sorted({r.problem for r in run.results if r.problem != "-"}),
        witnesses=sorted({solution.label for solution in run.solutions}),
        sections=sections,
        chains=[_chain(s) for s in distinct_solutions if s.ess is not None or s.r_hat is not None],
        gate=(premises.GATE_R_HAT, premises.GATE_ESS),
        coverage=None if coverage is None else [_covered(entry) for entry in coverage],
        bar=_bar,
        judged=power.sentence(table.asked(run)),
        power=power.rows(samples) if samples else None,
        sampled=power.heading(samples) if samples else "",
    )


def _any(results: Iterable[Result], kind: str) -> bool:
    return any(result.kind == kind for result in results)


def _kind(kind: str, results: list[Result]) -> tuple[str, list[Result], bool, str]:
    """Name, results, whether their table is open at first, and one line that stands for it when it is closed."""
    counts = {word: sum(r.verdict == verdict for r in results) for verdict, word in _WORDS.items()}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    largest = table.closest(results)
    if largest is not None:
        told += f"; largest ratio {table.ratio(largest.ratio) or '0'}"
    return kind, results, len(results) <= _OPEN_ROWS or any(r.failed for r in results), told


def _headline(run: Run) -> str:
    total = len(run.results)
    if run.interrupted:
        asked = total - sum(result.verdict == "SKIP" and "interrupted" in result.why for result in run.results)
        return f"Interrupted: {asked} of {total} verdicts were reached"
    wrong = run.count("FAIL") + run.count("ERROR")
    if wrong:
        return f"{wrong} of {total} verdicts {'is' if wrong == 1 else 'are'} red"
    skipped = run.count("SKIP")
    if skipped == total:
        return "Nothing was compared"
    if skipped:
        return f"No disagreement: {total - skipped} of {total} verdicts passed, {skipped} skipped"
    return f"All {total} verdicts passed"


def _bar(value: float) -> float:
    """Length of a ratio's bar in percent."""
    return 0.0 if math.isnan(value) else 100.0 * min(1.0, max(0.0, value))


# -- sections, one for each problem --------------------------------------------------------------------------


def _distinct(solutions: Iterable[Solution]) -> list[Solution]:
    """Solutions without repetitions: one answer per witness, method and question, unless the numbers differ visibly."""
    seen: set[tuple[Any, ...]] = set()
    kept: list[Solution] = []
    for solution in solutions:
        evidence = None if solution.log_evidence is None else f"{solution.log_evidence:.6g}"
        key = (solution.label, digest(solution.problem), evidence, solution.log_evidence_kind)
        if key not in seen:
            seen.add(key)
            kept.append(solution)
    return kept


def _sections(solutions: Sequence[Solution]) -> list[_Section]:
    names = dict.fromkeys(solution.problem.name for solution in solutions)
    return [_section(name, [s for s in solutions if s.problem.name == name]) for name in names]


def _section(name: str, solutions: Sequence[Solution]) -> _Section:
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
    return _Section(name, _described(base), tuple(scatters), tuple(others), tuple(_row(s) for s in solutions))


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


def _scatter(truth: Solution, approximations: Sequence[Solution], name: str) -> _Figures | None:
    chosen: dict[str, Solution] = {}
    for solution in approximations:
        chosen.setdefault(solution.label, solution)
    # a method keeps its colour in every panel, also where another one has nothing to show
    places = list(enumerate(list(chosen.items())[:_MOST_CLOUDS]))
    panels: list[Markup] = []
    used: set[int] = set()
    for options in _PANELS:
        for title, field, field_se in options:
            true = _flat(truth, field)
            clouds = [
                figures.Cloud(label, values, place)
                for place, (label, solution) in places
                if (values := _flat(solution, field)) is not None
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
    legend = tuple((f"s{place + 1}", label) for place, (label, _) in places if place in used)
    return _Figures(caption, legend, tuple(panels))


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


def _ladders(solutions: Sequence[Solution], name: str) -> list[_Figures]:
    """One ladder for each target; where it holds numbers of two priors, each says which."""
    found = []
    known = [solution for solution in solutions if solution.log_evidence is not None]
    for target in dict.fromkeys(solution.evidence_target for solution in known):
        there = [solution for solution in known if solution.evidence_target == target]
        priors = sorted({solution.prior_model for solution in there})
        rungs: list[figures.Rung] = []
        for solution in there:
            assert solution.log_evidence is not None
            prior = f", {solution.prior_model}" if len(priors) > 1 else ""
            power = f", alpha {solution.settings['alpha']:g}" if "alpha" in solution.settings else ""
            label = f"{solution.label}{power} ({solution.log_evidence_kind}{prior})"
            # only a truth is drawn as one: not a chain without its gate met, nor a regression's exact likelihood
            claimed = solution.log_evidence_kind in ("sampled", "exact")
            kind = "estimate" if claimed and not _of_labels(solution) else solution.log_evidence_kind
            rung = figures.Rung(label, kind, solution.log_evidence, solution.log_evidence_se)
            # two settings that agree to six digits are one rung
            if not any(r.label == label and math.isclose(r.value, rung.value, rel_tol=1e-6) for r in rungs):
                rungs.append(rung)
        drawing = figures.ladder(f"log Z of {target}", rungs, f"ladder-{name}-{target}")
        legend = (("truth", "sampled or exact, ± s.e."), ("s1", "lower bound"), ("s2", "estimate"))
        kinds = {rung.kind for rung in rungs}
        present = (kinds & {"sampled", "exact"}, "lower bound" in kinds, "estimate" in kinds)
        shown = tuple(entry for entry, here in zip(legend, present, strict=True) if here)
        if len(priors) > 1:
            caption = f"evidence of {target} under the priors {' and '.join(priors)}; compare within one prior only"
        else:
            caption = f"evidence of {target}, {priors[0]} prior"
        found.append(_Figures(caption, shown, (drawing,)))
    return found


def _traces(solutions: Sequence[Solution], name: str) -> list[_Figures]:
    """Objectives of the iterations in one picture, what chains recorded in another."""
    found = []
    for sampled, title, caption in (
        (False, "objective", "objective after each iteration"),
        (True, "trace of a chain", "what a chain recorded along its way, such as the log joint density"),
    ):
        chosen: dict[str, Solution] = {}
        for solution in solutions:
            if solution.trace.size > 1 and premises.is_sampled(solution) == sampled:
                chosen.setdefault(solution.label, solution)
        lines = [figures.Line(label, solution.trace) for label, solution in list(chosen.items())[:_MOST_CLOUDS]]
        if lines:
            drawing = figures.traces(title, lines, f"trace-{name}-{sampled}", logarithmic=not sampled)
            legend = tuple((f"s{i + 1}", line.label) for i, line in enumerate(lines))
            found.append(_Figures(caption, legend, (drawing,)))
    return found


def _powers(solutions: Sequence[Solution], name: str) -> list[_Figures]:
    """Methods with a power alpha over its values: log Z, and distances of predictions from the truth."""
    found: dict[str, dict[float, Solution]] = {}
    for solution in solutions:
        if "alpha" in solution.settings and solution.converged and solution.log_evidence is not None:
            found.setdefault(solution.label, {}).setdefault(float(solution.settings["alpha"]), solution)
    along = {label: dict(sorted(by.items())) for label, by in found.items() if len(by) >= _FEWEST_POWERS}
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
    return [_Figures(caption, (("truth", "truth"), *legend) if truth is not None else legend, tuple(panels))]


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


def _row(solution: Solution) -> dict[str, Any]:
    return {
        "label": solution.label,
        "evidence": "" if solution.log_evidence is None else f"{solution.log_evidence:.6g}",
        "se": "" if solution.log_evidence_se is None else f"± {solution.log_evidence_se:.2g}",
        "kind": "" if solution.log_evidence is None else solution.log_evidence_kind,
        "target": "" if solution.log_evidence is None else f"{solution.evidence_target}, {solution.prior_model}",
        "converged": solution.converged,
        "iterations": solution.iterations,
        "residual": "" if solution.residual is None else f"{solution.residual:.2g}",
        "improper": solution.n_improper,
        "seconds": table.seconds(solution.seconds),
        "settings": _pairs(solution.settings),
    }


def _chain(solution: Solution) -> dict[str, Any]:
    errors = {
        name: float(np.max(values))
        for name in ("latent_mean_se", "probabilities_se")
        if (values := getattr(solution, name)) is not None and values.size
    }
    scalars = {key: value.item() for key, value in solution.local.items() if value.ndim == 0}
    return {
        "label": solution.label,
        "problem": solution.problem.name,
        "prior": solution.problem.prior_model,
        "r_hat": "" if solution.r_hat is None else f"{solution.r_hat:.4f}",
        "ess": "" if solution.ess is None else f"{solution.ess:,.0f}".replace(",", "\u202f"),
        "met": premises.gate(solution).met,
        "log_evidence_se": "" if solution.log_evidence_se is None else f"{solution.log_evidence_se:.2g}",
        "latent_mean_se": table.number(errors.get("latent_mean_se", math.nan)),
        "probabilities_se": table.number(errors.get("probabilities_se", math.nan)),
        "seconds": table.seconds(solution.seconds),
        "settings": _pairs({**solution.settings, **scalars}),
    }


def _pairs(values: Mapping[str, Any]) -> str:
    def shown(value: Any) -> str:
        text = f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
        return text if len(text) <= 60 else f"{text[:57]}..."

    return ", ".join(f"{key} = {shown(value)}" for key, value in sorted(values.items()))


def _covered(entry: Coverage) -> dict[str, Any]:
    states = ("verified", "corrected", "not_executable", "open")
    counts = {state: int(entry[state]) for state in states}  # type: ignore[literal-required]
    total = sum(counts.values())
    return {
        "paper": entry["paper"],
        "total": total,
        "shares": [(state, counts[state], 100.0 * counts[state] / total if total else 0.0) for state in states],
    }
