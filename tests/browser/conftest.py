"""A browser without a window for the pages that people see; everything here is skipped by name where there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser():
    """Chromium from the path; TRIAD_BROWSER names another."""
    api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    program = os.environ.get("TRIAD_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser on the path: expected one of {', '.join(BROWSERS)}")
    with api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(params=[(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")], ids=lambda p: f"{p[0]}-{p[1]}")
def page(browser, request):
    """A page of that width; what its scripts complain of, and what it loads from elsewhere, fails the test."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    opened, wrong = context.new_page(), []
    opened.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    opened.on("console", lambda told: wrong.append(told.text) if told.type == "error" else None)
    opened.on(
        "request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None
    )
    yield opened
    context.close()
    assert wrong == []


@pytest.fixture(scope="session")
def docs():
    """The address of the documentation as `make docs` builds it; TRIAD_DOCS names another folder."""
    folder = Path(os.environ.get("TRIAD_DOCS") or ROOT / "docs" / "_build" / "html")
    if not (folder / "index.html").is_file():
        pytest.skip(f"{folder}: no documentation there, expected that of `make docs`")
    return folder.as_uri()


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """The address of a report of a small run, green, with checks of several kinds."""
    folder = tmp_path_factory.mktemp("report")
    command = ["verify", "--quiet", "--output", str(folder)]
    for check in ("identity/x-gpc/*", "discrepancy/x-gpc/*", "bound/x-gpc/*"):
        command += ["--check", check]
    for problem in ("two-points", "toy"):
        command += ["--problem", problem]
    done = subprocess.run(
        [sys.executable, "-m", "validation", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "report.html").as_uri()
