"""Words that can be wrong: code in README and docs runs, links resolve, commands exist, and nothing strays in."""

import ast
import importlib.util
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from validation.command.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BUILT = {"ledger.md"}  # written by `triad audit`, which has tests of its own


def load(name):
    """A program of docs as a module: docs is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


refresh, times = load("refresh"), load("times")


# -- code ------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^(?P<skip><!-- not run: [^\n]+ -->\n)?```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def python_blocks(page):
    """The blocks that run, each padded so that a traceback names the line of the page."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        if match["skip"] is None:
            yield "\n" * text[: match.start("code")].count("\n") + match["code"]


WITH_CODE = [page for page in PAGES if list(python_blocks(page))]


def test_readme_and_the_pages_for_users_hold_code_that_runs():
    assert {"README.md", "quick-start.md", "bring-your-own.md", "data.md"} <= {page.name for page in WITH_CODE}


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path):
    script = tmp_path / "page.py"
    # one namespace for a page, in a fresh process and an empty folder, warnings as errors
    lines = [f"exec(compile({code!r}, {str(page)!r}, 'exec'), globals())" for code in python_blocks(page)]
    script.write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# -- commands --------------------------------------------------------------------------------------------------


def known_options():
    """Command, with its part if it has some -> its options, read from the command line itself."""
    results = {}

    def gather(command, path):
        results[" ".join(path)] = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for name in getattr(command, "commands", {}):
            gather(command.resolve_command(None, [name])[1], (*path, name))

    gather(typer.main.get_command(app), ())
    return results


def complaints(command, known):
    """What the command line would have against a documented command."""
    words = shlex.split(command, comments=True)[1:]
    plain = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    name = max((" ".join(plain[:k]) for k in range(3) if " ".join(plain[:k]) in known), key=len)
    if plain and not name:
        return [f"{command}: found no command {plain[0]!r}"]
    parts = [other for other in known if other.startswith(f"{name} ")]
    if name and parts and len(plain) > 1:
        return [f"{command}: found no part {plain[1]!r} of {name}"]
    options = {word.partition("=")[0] for word in words if word.startswith("-")} - {"--help", "-h"}
    return [f"{command}: found no option {option}" for option in sorted(options - known[name])]


def documented_commands():
    """Every `triad ...` of a marker, of a console block outside markers, or between backquotes."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.name in BUILT:
            continue
        yield from (block.command for block in refresh.blocks(page) if block.command.startswith("triad"))
        text = refresh._BLOCK.sub("", text)
        for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            yield from (line for line in block.splitlines() if line.startswith("triad "))
        # PAPER, A and B stand for something; a command that is only named has no options to check
        for command in re.findall(r"`(triad [^`]+)`", text):
            if not re.search(r"\.\.\.|\[", command):
                yield command


def test_every_documented_command_exists_with_its_options():
    known = known_options()
    commands = list(documented_commands())
    assert len(commands) > 30
    assert [line for command in commands for line in complaints(command, known)] == []


def test_a_documented_command_that_does_not_exist_is_seen():
    known = known_options()
    assert complaints("triad verfy", known)
    assert complaints("triad truth shwo toy", known)
    assert not complaints("triad truth show toy", known)
    assert complaints("triad solve fast x-gpc toy --outpt a.npz", known)
    assert not complaints("triad verify --quiet", known)


def test_every_block_of_output_is_closed_and_its_options_are_known():
    for page in refresh.pages():
        text = page.read_text(encoding="utf-8")
        assert len(refresh.blocks(page)) == text.count("<!-- output: ") == text.count("<!-- end -->"), page.name


def test_a_slow_command_that_two_pages_show_runs_once(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(refresh, "run", lambda command, folder: ran.append(command) or (0, "x\n"))
    monkeypatch.setattr(refresh, "_RUN", {})
    for name in ("a.md", "b.md"):
        text = "<!-- output: triad y; slow -->\n<!-- end -->\n<!-- output: triad z -->\n<!-- end -->\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert refresh.refresh(tmp_path / name, write=True, slow=True) == []
        assert "$ triad y\nx\n" in (tmp_path / name).read_text(encoding="utf-8")
    assert ran == ["triad y", "triad z", "triad z"]


RUN = """check,kind,paper,method,quantity,left,right,problem,observed,limit,ratio,verdict,seconds,why
identity/x-gpc/mean,identity,,x-gpc,mean,reference,fast,toy,1e-12,1e-08,0.0001,PASS,0.5,rounding
identity/x-gpc/cov,identity,,x-gpc,cov,reference,fast,toy,,,,SKIP,,no data
"""


def test_a_whole_run_that_was_kept_is_shown_and_one_that_counts_otherwise_is_seen(tmp_path):
    (tmp_path / "checks.csv").write_text(RUN, encoding="utf-8")
    output = refresh.told(tmp_path / "checks.csv")
    page = tmp_path / "a.md"
    page.write_text("<!-- output: triad verify; last=9; keep=passed|failed; slow -->\n<!-- end -->\n", encoding="utf-8")
    refresh.show(page, output)
    assert "passed: identity 1\n0 failed, 1 skipped in" in page.read_text(encoding="utf-8")
    assert refresh.stale(page, output) == []
    page.write_text(page.read_text(encoding="utf-8").replace("identity 1", "identity 3, run 2"), encoding="utf-8")
    assert [re.search(r"of kind (\w+)", line)[1] for line in refresh.stale(page, output)] == ["identity", "run"]
    (tmp_path / "checks.csv").write_text(RUN.replace("PASS", "FAIL"), encoding="utf-8")
    with pytest.raises(ValueError, match="found a run with red verdicts"):
        refresh.told(tmp_path / "checks.csv")


def test_output_is_trimmed_by_the_rule_of_its_block():
    text = "\n".join(f"line {i}" for i in range(9)) + "\n"
    assert refresh.trim(text, refresh.parse("triad x; lines=2", "p")) == ["line 0", "line 1", "..."]
    assert refresh.trim(text, refresh.parse("triad x; lines=1; last=1", "p")) == ["line 0", "...", "line 8"]
    assert refresh.trim(text, refresh.parse("triad x; keep=[37]$", "p")) == ["line 3", "line 7"]
    assert refresh.trim("2 passed in 99.1 s\n", refresh.parse("triad x; without= in +[0-9]+ s", "p")) == ["2 passed"]
    assert refresh.trim("done in 12.34 s, 4 s.e.\nseconds   0.0173\n", refresh.parse("triad x", "p")) == [
        "done in    10 s, 4 s.e.",
        "seconds   0.02",
    ]
    with pytest.raises(ValueError, match=r"found the option 'line=2', expected exit="):
        refresh.parse("triad x; line=2", "p")


# -- links -----------------------------------------------------------------------------------------------------


def broken_links(page, text):
    """Relative links of a page to files or headings that are not there."""
    results = []
    # code is no prose: brackets and parentheses in it are no links
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if file.parent in {ROOT / "docs" / name for name in ("atlas", "claims", "methods", "pictures")}:
            continue  # written by the build, which checks the link
        if not file.is_file():
            results.append(f"{page.name}: {target}: found no file")
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8") if path else text):
            results.append(f"{page.name}: {target}: found no heading")
    return results


def anchors(text):
    """Anchors of the headings of a page, as MyST and GitHub make them."""
    headings = re.findall(r"^#+ +(.+?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_relative_link_resolves():
    results = [line for page in PAGES for line in broken_links(page, page.read_text(encoding="utf-8"))]
    assert results == []


def test_a_broken_link_is_seen():
    page = ROOT / "README.md"
    assert broken_links(page, "[a](nowhere.md) [b](#no-such-heading)\n# One\n[c](#one)") == [
        "README.md: nowhere.md: found no file",
        "README.md: #no-such-heading: found no heading",
    ]


def test_no_committed_picture_shows_a_formula_as_it_is_written():
    pictures = sorted((ROOT / "docs" / "_static").glob("*.svg"))
    assert len(pictures) >= 3
    labels = {(p.name, text) for p in pictures for text in re.findall(r"<text[^>]*>([^<]*)", p.read_text("utf-8"))}
    assert {(name, text) for name, text in labels if "$" in text or "mathdefault" in text} == set()


def test_the_gallery_has_a_dozen_scripts_each_told_in_words_and_drawing_one_picture():
    scripts = sorted((ROOT / "docs" / "gallery").glob("plot_*.py"))
    assert len(scripts) >= 12
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        title, line, *rest = (ast.get_docstring(ast.parse(text)) or "").splitlines()
        assert set(line) == {"="}, script.name
        assert len(line) == len(title), script.name
        assert len(" ".join(rest).split()) > 20, script.name
        assert text.count("plt.subplots(") == 1, script.name


def toctree(page):
    """Entries of the tables of contents of a page."""
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if re.fullmatch(r"[a-z0-9/-]+", line)]


def test_the_start_page_has_fifteen_entries():
    assert len(toctree(ROOT / "docs" / "index.md")) == 15


def test_every_page_is_in_one_table_of_contents():
    entries = [entry for page in (ROOT / "docs").glob("*.md") for entry in toctree(page)]
    assert len(entries) == len(set(entries))
    # the ledger as text stays out, its pages are the atlas; derivations stand under the table of methods
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index", "ledger"}
    derivations = {page for page in pages if page.startswith("method-")}
    decisions = {f"decisions/{page.stem}" for page in (ROOT / "docs" / "decisions").glob("*.md")}
    claims = {f"claims/{file.stem}" for file in (ROOT / "validation" / "claims" / "protocols").glob("*.toml")}
    assert set(entries) == (pages - derivations) | decisions | claims | {
        "atlas/index",
        "methods/index",
        "pictures/index",
    }
    told = tomllib.loads((ROOT / "docs" / "methods.toml").read_text(encoding="utf-8"))["methods"].values()
    assert {entry["derivation"] for entry in told} == derivations


def test_the_glossary_has_the_words_that_newcomers_ask_for():
    text = (ROOT / "docs" / "vocabulary.md").read_text(encoding="utf-8")
    terms = set(re.findall(r"^(.+)\n: ", text, re.MULTILINE))
    first = {"Witness", "Judge", "Truth", "Gate", "Kind", "Evidence"}
    assert terms == first | {"Inducing point", "FITC", "Site", "Cavity", "Tilted distribution"}
    assert "vocabulary.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "vocabulary.md#glossary" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_first_screen_of_readme_fits_a_terminal_and_shows_what_a_newcomer_looks_for():
    first, heading, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")
    assert heading
    lines = first.splitlines()
    assert len(lines) <= 40
    assert [line for line in lines if len(line) > 100 and not line.startswith("![")] == []
    for shown in ("(docs/_static/triangle.svg)", "pip install .", ".whl", "no package index", "docs/classifiers.md",
                  "docs/strangers.md", "docs/ledger.md"):  # fmt: skip
        assert shown in first, shown
    code = re.findall(r"```python\n(.*?)```", first, re.DOTALL)
    assert [len([line for line in block.splitlines() if line]) for block in code] == [5]


@pytest.mark.parametrize("page", times.PAGES, ids=lambda page: page.name)
def test_times_stand_where_the_program_that_measures_them_writes_them(page):
    (shown,) = times._LINES.findall(page.read_text(encoding="utf-8"))
    number = r"(\d+0 s|[\d.]+ minutes)"
    assert re.fullmatch(times.lines(1.0, 1.0, 1.0).replace("10 s", number), shown)


def test_pages_tell_one_time_for_one_command():
    shown = {times._LINES.findall(page.read_text(encoding="utf-8"))[0] for page in times.PAGES}
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "10 s"), (68.0, "70 s"), (114.9, "110 s"), (115.1, "2 minutes"), (336.0, "5.5 minutes")],
)
def test_times_are_told_to_the_digit_that_another_run_would_give(seconds, told):
    assert times.spoken(seconds) == told


# -- nothing strays in -----------------------------------------------------------------------------------------

# Written in two halves, so that this file does not trip over itself.
_HOSTS = ("python" + "hosted", "pypi.org" + "/simple", "--index" + "-url", "--extra-index" + "-url")
_FOLDERS = tuple(f"/{name}/" for name in ("ho" + "me", "ro" + "ot", "wo" + "rk", "Us" + "ers"))
# Words for how a product is made: (word, whether its case matters). `todo` is a good name for rows still to do.
_MAKING = (
    *(("TO" + "DO", True), ("FIX" + "ME", True), ("X" + "XX", True), ("A" + "I", True), ("L" + "LM", True)),
    *(("ag" + "ent", False), ("ag" + "ents", False), ("suba" + "gent", False), ("chat" + "bot", False)),
    *(("cla" + "ude", False), ("anthro" + "pic", False), ("open" + "ai", False), ("chat" + "gpt", False)),
    *(("copi" + "lot", False), ("language " + "model", False), ("as an ass" + "istant", False)),
)
_WORDS = tuple(
    (word, re.compile(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", 0 if cased else re.IGNORECASE))
    for word, cased in _MAKING
)
_SUFFIXES = {".py", ".md", ".toml", ".cff", ".txt", ".in", ".sh", ".j2", ".css", ".rst", ".yml", ".yaml", ".cfg", ""}


def tracked_files():
    """What git tracks or would track: all text of the product."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        names = [name for name in listed.stdout.split("\0") if name]
    else:  # a source archive has no git
        skip = {".venv", "_build", "generated", "results", "build", "dist", "__pycache__"}
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if path.is_file() and not (set(path.relative_to(ROOT).parts) & skip) and path.parts[-2][0] != "."
        ]
    return [ROOT / name for name in names if Path(name).suffix in _SUFFIXES and (ROOT / name).is_file()]


def strays(text, *, prose):
    """Forbidden content of one text: (what, the line)."""
    results = []
    for number, line in enumerate(text.splitlines(), 1):
        low = line.lower()
        results += [(number, word) for word in (*_FOLDERS, *_HOSTS) if word.lower() in low]
        results += [(number, word) for word, pattern in _WORDS if pattern.search(line)]
        if re.search(r"[\w.+-]+@(?!pytest\.)[\w-]+\.[a-z]{2,}\b", low):
            results.append((number, "an e-mail address"))
        if prose and "/t" + "mp/" in low:
            results.append((number, "/t" + "mp/"))
    return results


def test_no_text_of_the_product_holds_paths_of_a_machine_package_hosts_or_how_it_is_made():
    results = []
    for file in tracked_files():
        prose = file.suffix == ".md" or file.parent.name == "docs"
        results += [f"{file.relative_to(ROOT)}:{n}: {what}" for n, what in strays(file.read_text("utf-8"), prose=prose)]
    assert results == []


def test_content_that_strays_in_is_seen():
    for text in (
        _FOLDERS[0] + "someone/project",
        "pip install " + _HOSTS[2] + " x",
        "# TO" + "DO: later",
        "a@" + "b.org",
    ):
        assert strays(text, prose=False), text
    assert not strays("a mastodon, a homepage, np.einsum and @equation", prose=True)


# -- changelog and citation ------------------------------------------------------------------------------------


def read_version():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_the_changelog_has_dated_releases_with_highlights_breaking_changes_and_a_table_of_numbers():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = dict(section.split("\n", 1) for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:])
    titles = list(sections)
    assert titles.count("Unreleased") == int(titles[0] == "Unreleased")
    sections.pop("Unreleased", None)
    versions = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \(2\d{3}-\d\d-\d\d\)", title).groups() for title in sections]
    assert ".".join(versions[0]) == read_version()
    assert versions == sorted(versions, key=lambda version: tuple(map(int, version)), reverse=True)
    for title, section in sections.items():
        highlights = section.partition("### Highlights\n")[2].partition("\n### ")[0]
        assert 1 <= len(re.findall(r"^- ", highlights, re.MULTILINE)) <= 10, title
    for title, section in list(sections.items())[:-1]:  # the first release breaks and moves nothing
        assert re.findall(r"^### (.*)$", section, re.MULTILINE) == ["Highlights", "Breaking", "Numbers that moved"], (
            title
        )
        assert section.count("\n| what | before | after |\n|---|---|---|\n| ") == 1, title


def read_citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_names_the_contributors_and_no_person_of_its_own():
    citation = read_citation()
    assert str(citation["cff-version"]) == "1.2.0"
    assert {"message", "title", "authors", "type"} <= set(citation)
    assert citation["type"] == "software"
    assert citation["authors"] == [{"name": "GPC Triad contributors"}]
    assert citation["version"] == read_version()


def test_the_citation_refers_to_the_five_papers_as_the_inventories_have_them():
    papers = [
        tomllib.loads(file.read_text(encoding="utf-8"))["paper"]
        for file in (ROOT / "validation" / "ledger" / "inventory").glob("*[0-9].toml")
    ]
    expected = {(p["title"], p["year"], p["authors"]) for p in papers}
    references = read_citation()["references"]
    results = {
        (r["title"], r["year"], ", ".join(f"{a['given-names']} {a['family-names']}" for a in r["authors"]))
        for r in references
    }
    assert len(expected) == 5
    assert results == expected


# -- a hosted build --------------------------------------------------------------------------------------------


def test_a_hosted_build_reads_files_there_are_and_is_as_strict_as_make_docs():
    hosted = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
    assert hosted["version"] == 2
    assert (ROOT / hosted["sphinx"]["configuration"]).is_file()
    assert hosted["sphinx"]["fail_on_warning"] is True
    installs = hosted["python"]["install"]
    assert all((ROOT / install["requirements"]).is_file() for install in installs if "requirements" in install)
    assert any(install.get("method") == "pip" for install in installs)
    # a Python that pyproject.toml admits
    assert tuple(map(int, hosted["build"]["tools"]["python"].split("."))) >= (3, 11)


def test_the_metadata_names_the_versions_of_python_that_the_hosted_workflow_tests():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(metadata["classifiers"]))
    (workflow,) = (ROOT / ".github" / "workflows").glob("*.yml")
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    tested = [
        job["strategy"]["matrix"]["python"]
        for job in jobs.values()
        if "python" in job.get("strategy", {}).get("matrix", {})
    ]
    assert tested
    assert all(versions == named for versions in tested)
    assert metadata["requires-python"] == f">={named[0]}"
