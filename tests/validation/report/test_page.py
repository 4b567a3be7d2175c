"""The page is one file that parses, loads nothing, escapes everything, and shows what the run holds."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest

from validation.report import figures, page
from validation.report.page import render

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
COVERAGE = [
    {"paper": "wenzel2019", "verified": 30, "corrected": 2, "not_executable": 4, "open": 0},
    {"paper": "izmailov2016", "verified": 0, "corrected": 0, "not_executable": 0, "open": 0},
]
VOID = {"meta", "br", "img", "input", "hr", "link"}


class Reader(HTMLParser):
    """Checks that elements are closed in order, and collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def html(fake_run) -> str:
    """Rendered once for all tests that only look at it."""
    return render(fake_run({"toy": (24, None), "digits": (240, 8)}, red=True), COVERAGE, now=NOW)


def test_the_page_parses_and_every_element_is_closed(html):
    assert read(html).tags[0][0] == "html"


def test_the_page_loads_nothing_and_runs_nothing(html):
    reader = read(html)
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "link", "iframe", "object", "embed", "image", "img"}
    for tag, attributes in reader.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} has {name}"
            if name in ("src", "href", "xlink:href", "action", "srcset"):
                assert value is not None
                assert value.startswith("#"), f"{tag} refers to {value}"
    assert "http" not in html
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_every_local_reference_is_there(html):
    reader = read(html)
    ids = {attributes["id"] for _, attributes in reader.tags if "id" in attributes}
    links = {v[1:] for _, a in reader.tags for k, v in a.items() if k in ("href", "xlink:href") and v}
    used = set(re.findall(r"url\(#([^)]*)\)", html))
    assert links | used <= ids


def test_what_came_from_outside_is_escaped(html, nasty):
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; $x_1$" in html
    assert f"ValueError: {nasty}" in "".join(read(html).text)


def test_verdict_reasons_and_commands_are_there(html):
    text = " ".join("".join(read(html).text).split())
    assert "3 of 20 verdicts are red" in text
    assert "16 passed, 2 failed, 1 error, 1 skipped in 48 s" in text
    assert "triad verify --check bound/x-gpc/log_evidence --problem toy" in text
    assert "condition of K_ZZ 4e4 times eps leaves 1e-11" in text
    assert "log Z needs s.e. <= 0.05 nat, found 0.08" in text
    assert "2026-01-02 03:04 UTC, quick run" in text
    assert "numpy 2.2.0" in text


def test_each_problem_has_scatters_a_ladder_and_traces(html):
    labels = [a["aria-label"] for tag, a in read(html).tags if tag == "svg"]
    assert len(labels) == 2 * 5
    assert sum("latent means at the data: reference x-gpc, fast x-gpc against gibbs" in label for label in labels) == 2
    assert sum("log Z of log p(y): " in label and "± 0.03" in label for label in labels) == 2
    assert sum(label.startswith("objective: reference x-gpc, fast x-gpc") for label in labels) == 2


def test_colours_of_figures_follow_the_page(html):
    pictures = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    # a fixed colour would vanish on a light or on a dark page
    assert not re.findall(r"(?:fill|stroke): ?#[0-9a-f]{3,6}", pictures)
    assert "currentColor" in pictures
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_chains_and_coverage_are_there(html):
    text = " ".join("".join(read(html).text).split())
    assert "1.0012" in text
    assert "n_chains = 16" in text
    assert "acceptance = 1" in text
    assert "wenzel2019" in text
    assert text.count("not met") >= 1  # the legend of the gate


def test_without_coverage_the_page_says_that_it_was_not_collected(fake_run, html):
    without = render(fake_run({}), None)
    assert "Ledger coverage not collected" in without
    assert "Ledger of equations" not in without
    assert 'href="#ledger"' not in without
    assert "not collected" not in html
    html = without
    assert "Problems" in html  # the fact in the head, even without a section


def test_twelve_problems_stay_below_three_megabytes(fake_run):
    # twelve times one of 600 points, more than any problem of a run has
    one = len(render(fake_run({"digits": (600, 20)}, name="digits")))
    none = len(render(fake_run({}, name="digits")))
    assert none + 12 * (one - none) < 3_000_000


def test_an_interrupted_run_says_so(fake_run):
    html = render(fake_run({}, interrupted=True), None)
    assert "Interrupted: 1 of 1 verdicts were reached" in html


def test_equal_runs_give_equal_pages(fake_run):
    runs = [fake_run({"toy": (12, None)}) for _ in range(2)]
    assert render(runs[0], None, now=NOW) == render(runs[1], None, now=NOW)


def test_points_of_a_permuted_problem_are_not_held_against_the_truth(fake_run):
    run = fake_run({"toy": (12, None)})
    reference, fast, chain = run.solutions
    p = fast.problem
    permuted = replace(fast, problem=p.replace(X=p.X[::-1], y=p.y[::-1]))
    labels = re.findall(
        r'aria-label="(latent means[^"]*)"', render(run._replace(solutions=(reference, permuted, chain)))
    )
    assert labels == ["latent means at the data: reference x-gpc against gibbs gibbs-logit"]


def test_a_problem_without_truth_or_numbers_is_drawn_without_error(fake_run):
    run = fake_run({"toy": (2, None)})
    reference, fast, _ = run.solutions
    bare = replace(fast, log_evidence=None, latent_mean=None, latent_cov=None, probabilities=None, trace=np.zeros(0))
    assert 'aria-label="objective' in render(run._replace(solutions=(reference,)))
    assert "<svg" not in render(run._replace(solutions=(bare,)))


def test_equal_numbers_and_no_standard_errors_are_drawn(fake_run):
    run = fake_run({"toy": (12, None)})
    reference, _, chain = run.solutions
    exact = replace(chain, log_evidence_kind="exact", log_evidence_se=None, latent_mean_se=None,
                    latent_mean=np.zeros((12, 1)), ess=None, r_hat=None)  # fmt: skip
    same = replace(reference, latent_mean=np.zeros((12, 1)), log_evidence=exact.log_evidence)
    html = render(run._replace(solutions=(same, exact)))
    assert "nan" not in "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))


def test_settings_of_matplotlib_are_left_as_they_were(fake_run):
    with matplotlib.rc_context({"axes.facecolor": "pink", "svg.fonttype": "path"}):
        html = render(fake_run({"toy": (12, None)}))
        assert matplotlib.rcParams["axes.facecolor"] == "pink"
    assert "#ffc0cb" not in html
    assert "<text" in html


def test_thinning_keeps_the_worst_and_both_ends():
    rng = np.random.default_rng(1)
    values, worst = rng.standard_normal(5000), rng.exponential(size=5000)
    kept = figures.thinned(values, worst)
    assert len(kept) <= figures.MOST_POINTS
    assert len(np.unique(kept)) == len(kept)
    assert set(np.argsort(-worst)[:50]) <= set(kept)
    assert {int(values.argmin()), int(values.argmax())} <= set(kept)
    assert figures.thinned(values[:7], worst[:7]).tolist() == list(range(7))


@pytest.mark.parametrize(
    ("ratio", "length"), [(math.nan, 0.0), (-3.0, 0.0), (0.25, 25.0), (7.0, 100.0), (math.inf, 100.0)]
)
def test_a_bar_has_a_length_for_every_ratio(ratio, length):
    assert page._bar(ratio) == length
