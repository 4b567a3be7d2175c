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

from validation.report import moved, page, sections, table
from validation.report.page import render
from validation.screen import figures

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
        if not {"style", "script"} & set(self.open):
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


def test_the_page_loads_nothing_and_runs_one_script_of_its_own(html):
    reader = read(html)
    tags = [tag for tag, _ in reader.tags]
    assert not set(tags) & {"link", "iframe", "object", "embed", "image", "img"}
    assert tags.count("script") == 1
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
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; $x_1$" in html
    assert f"ValueError: {nasty}" in "".join(read(html).text)


def test_verdict_reasons_and_commands_are_there(html):
    text = " ".join("".join(read(html).text).split())
    assert "3 of 20 verdicts are red" in text
    assert "passed: identity 10, exactness 2, bound 2, discrepancy 2; 2 failed (identity 1, bound 1), 1 error" in text
    assert "triad verify --check bound/x-gpc/log_evidence --problem toy" in text
    assert "condition of K_ZZ 4e4 times eps leaves 1e-11" in text
    assert "log Z needs s.e. <= 0.05 nat, found 0.08" in text
    assert "2026-01-02 03:04 UTC, quick run" in text
    assert "numpy 2.2.0" in text


def test_each_problem_has_scatters_a_ladder_and_traces(html):
    labels = [a["aria-label"] for tag, a in read(html).tags if tag == "svg"]
    # three scatters, objectives and the difference of the witnesses
    assert len(labels) == 2 * 5
    both = "x-gpc, reference and fast"
    assert labels.count(f"latent means at the data: {both} against gibbs gibbs-logit") == 2
    assert labels.count(f"objective: {both}") == 2
    assert labels.count("|reference - fast| of it: x-gpc") == 2
    assert html.count("reference and fast, equal") == 2 * 3
    # two priors are two ladders: the approximations of digits bound the evidence of the full one
    assert html.count('<table class="ladder">') == 1 + 2


def test_witnesses_that_differ_are_seen_in_words_and_in_two_colours(fake_run):
    run = fake_run({"toy": (24, None)})
    reference, fast, chain = run.solutions
    assert fast.latent_mean is not None
    moved = replace(fast, latent_mean=fast.latent_mean + 0.1 * np.ptp(fast.latent_mean))
    html = render(run._replace(solutions=(reference, moved, chain)))
    assert "reference and fast, 1e\u201101 apart" in html
    (picture,) = re.findall(r'<svg[^>]*aria-label="latent means at the data[^"]*".*?</svg>', html, flags=re.DOTALL)
    assert "var(--s1)" in picture
    assert "var(--s2)" in picture


def test_numbers_that_are_all_one_are_as_far_apart_as_they_are(fake_run):
    reference, fast, _ = fake_run({"toy": (2, None)}).solutions
    cov = np.full((2, 1, 1), 1.3)
    cov[1] += 2e-16  # a span of rounding
    pair = [replace(reference, latent_cov=cov), replace(fast, latent_cov=cov + 1e-12)]
    assert sections._distance(*pair) == pytest.approx(1e-12 / 1.3, rel=1e-3)


def test_a_colour_has_one_meaning(html):
    # verdicts, witnesses and truths have their own, and no picture takes one of another kind
    style = html[html.index("<style>") : html.index("</style>")]
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", style[: style.index("@media")]))
    meanings = {name: light[name] for name in ("green", "red", "yellow", "bar", "truth", "s1", "s2", "s4")}
    assert len(set(meanings.values())) == len(meanings)
    used = {
        name
        for svg in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
        for name in re.findall(r"var\(--(\w+)\)", svg)
    }
    assert used <= {"grid", "font", "truth", "s1", "s2", "s4"}
    assert {"s1", "s2"} <= used
    assert not re.search(r"\.(?:bar|stack|strip)[^{]*\{[^}]*var\(--s\d\)", style)


def test_labels_of_axes_are_numbers_and_no_formulas(html):
    labels = re.findall(r"<text[^>]*>(.*?)</text>", html, flags=re.DOTALL)
    assert len(labels) > 20
    assert [label for label in labels if "$" in label or "mathdefault" in label] == []
    assert any(re.fullmatch(r"1e-\d+", label.strip()) for label in labels)  # of the difference of the witnesses


def ladder_of(html):
    """Rows of the first ladder: who, kind, log Z, less the truth."""
    table = html[html.index('<table class="ladder">') :].split("</table>")[0]
    return [re.findall(r"<td[^>]*>([^<]*)", row)[:4] for row in table.split("<tr>")[2:]]


def test_a_ladder_says_by_how_much_a_number_is_off_the_truth(fake_run):
    run = fake_run({"toy": (24, None)})
    reference, fast, chain = run.solutions
    # one prior: numbers of two are not on one ladder
    chain = replace(chain, evidence_prior_model="full")
    assert reference.log_evidence is not None
    assert chain.log_evidence is not None
    off = reference.log_evidence - chain.log_evidence
    rows = ladder_of(render(run._replace(solutions=(reference, fast, chain))))
    assert rows == [
        ["gibbs gibbs-logit", "sampled", f"{chain.log_evidence:.4f} ± 0.03", ""],
        ["reference, fast x-gpc", "lower bound", f"{reference.log_evidence:.4f}", f"{off:+.2g}"],
    ]


def test_variants_of_a_method_say_by_which_settings(fake_run):
    run = fake_run({"toy": (24, None)})
    reference, fast, _ = run.solutions
    slow = replace(fast, settings={**fast.settings, "rate": 0.1, "reason": "ended"}, log_evidence=-9.0)
    assert sections.variants([reference, fast, slow]) == ["reference x-gpc", "fast x-gpc", "fast x-gpc, rate 0.1"]
    rows = ladder_of(render(run._replace(solutions=(reference, fast, slow))))
    assert ["fast x-gpc, rate 0.1", "lower bound", "-9.0000"] in [row[:3] for row in rows]


def test_chains_are_told_apart_by_what_was_asked_and_not_by_what_came_out(fake_run):
    chain = fake_run({"toy": (24, None)}).solutions[-1]
    other = replace(chain, settings={**chain.settings, "ess_latent": 17.0, "n_draws": 7})
    assert sections.variants([chain, other]) == [
        "gibbs gibbs-logit, n_draws 2500",
        "gibbs gibbs-logit, n_draws 7",
    ]


def test_numbers_of_one_label_that_differ_are_numbered(fake_run):
    run = fake_run({"toy": (24, None)})
    _, fast, _ = run.solutions
    rows = ladder_of(render(run._replace(solutions=(fast, replace(fast, log_evidence=-9.0)))))
    assert {row[0] for row in rows} == {"fast x-gpc", "fast x-gpc #2"}


def test_a_row_for_each_check_and_the_nearest_to_a_limit_first(fake_run, fake_result):
    ratios = {"toy": 0.2, "iris": 0.7, "wine": 0.1}
    results = [fake_result("identity/x-gpc/elbo", name, r * 1e-8, 1e-8, "PASS") for name, r in ratios.items()]
    results += [fake_result("identity/x-gpc/mean", name, r * 3e-9, 1e-8, "PASS") for name, r in ratios.items()]
    html = render(fake_run({})._replace(results=tuple(results)))
    rows = re.findall(r'<tr id="(check-\d+)">.*?</tr>', html, flags=re.DOTALL)
    assert rows == ["check-1", "check-2"]
    first, second = (part.split("</tr>")[0] for part in html.split('<tr id="check-')[1:])
    assert "identity/x-gpc/elbo" in first
    assert "toy 0.200, wine 0.100" in " ".join(first.split())
    assert "identity/x-gpc/mean" in second
    assert html.index('href="#check-1"') < html.index('href="#check-2"') < html.index('id="check-1"')


def test_what_moved_is_told_with_both_numbers(fake_run, fake_result):
    old = [fake_result("identity/x-gpc/elbo", "toy", 1e-12, 1e-8, "PASS")]
    new = [fake_result("identity/x-gpc/elbo", "toy", 3e-8, 1e-8, "FAIL")]
    moves = moved.moves(table.verdicts(old), table.verdicts(new))
    run = fake_run({})._replace(results=tuple(new))
    text = " ".join("".join(read(render(run, moves=moves, earlier="old.csv")).text).split())
    assert "What moved against old.csv" in text
    assert "1 turned red" in text
    assert "What moved" not in "".join(read(render(run)).text)


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
    assert "2 of 2 met it" in text


def test_without_coverage_the_page_says_that_it_was_not_collected(fake_run, html):
    without = render(fake_run({}), None)
    assert "Ledger coverage not collected" in without
    assert "Ledger of equations" not in without
    assert 'href="#ledger"' not in without
    assert "not collected" not in html
    assert "quick run of 1 check on 1 problem" in without  # the fact in the head, even without a section


def test_problems_are_drawn_while_the_page_stays_below_two_megabytes_and_the_others_are_named(fake_run, monkeypatch):
    names = {f"digits-{i}": (240, 20) for i in range(4)}
    whole = render(fake_run(names))
    assert "are not drawn here" not in whole
    room = len(whole.encode()) - 5_000
    monkeypatch.setattr(page, "_MOST_BYTES", room)
    html = render(fake_run(names))
    drawn = re.findall(r'<h3 id="problem-([^"]*)"', html)
    assert len(drawn) == 3
    assert len(html.encode()) <= room + 200  # the names of those left out
    # nobody can ask for what checks make for themselves, such as these
    assert "1 more are not drawn here." in html
    monkeypatch.setattr(page, "_MOST_BYTES", 0)
    html = render(fake_run({"toy": (24, None), "digits-1": (24, None)}))
    assert "2 more are not drawn here; <code>triad verify --problem NAME</code> draws one of the 1" in html
    assert "<p>toy</p>" in html


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
    assert labels == ["latent means at the data: x-gpc, reference against gibbs gibbs-logit"]


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


def test_a_picture_is_written_in_few_characters_and_says_the_same():
    with figures.style():
        points = np.array([1.0, 2.0, 3.0])
        drawn = figures.scatter("t", points, None, [figures.Cloud("a", points + 0.5, 0)], "truth", "few")
    read(drawn)  # what was opened is closed
    assert "<g>" not in drawn
    assert re.search(r'd="(M[\d.]+ [\d.]+h0){3}"', drawn)  # three dots
    assert not re.search(r"\d\.\d\d", re.sub(r'id="[^"]*"|#\w+', "", re.sub(r'viewBox="[^"]*"', "", drawn)))
    assert figures._ungrouped('<g>a<g id="b">c<g>d</g></g></g>') == 'a<g id="b">cd</g>'


def test_the_head_of_the_page_names_three_that_were_not_judged_and_counts_the_others(fake_run):
    run = fake_run({"toy": (10, 5)})
    skipped = [
        replace(run.results[0], check=f"identity/x-gpc/q{k}", verdict="SKIP", why="no draws", ratio=math.nan)
        for k in range(9)
    ]
    html = render(run._replace(results=(*run.results, *skipped)))
    head = html[html.index('<div class="verdict') : html.index('<dl class="facts">')]
    assert "q1" in head  # the run has one of its own
    assert "q2" not in head
    assert "and 7 more, with their reasons below" in head
    assert "q8" in html


def test_a_check_that_needs_no_problem_is_on_none(fake_run):
    run = fake_run({"toy": (10, 5)})
    alone = replace(run.results[0], check="identity/x-gpc/rule", problem="-", ratio=0.9, observed=9e-9)
    html = render(run._replace(results=(*run.results, alone)))
    assert " on -" not in html
    assert "largest ratio 0.900 (identity/x-gpc/rule);" in html
    assert "0.900 of the limit</span>" in html  # of a phone's row
    assert table.on("toy") == " on toy"
