"""Time what a newcomer comes for, by doing it: docs/three-tasks.md.

    python docs/three_tasks.py             do the three tasks and print how long each takes
    python docs/three_tasks.py --write     write the table of the page too

The first is clicked through in a Chromium on the documentation that `make docs` builds; the second changes a copy of
`fast` and compares its run with one from before the change; the third is the program of docs/classifiers.md. What a
person needs to read comes on top: the times are what the machine takes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "three-tasks.md"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PACKAGES = ("reference", "fast", "gibbs", "validation", "triad")
# the bound of x-gpc, a millionth of its log determinant too low
CHANGED = ("fast/one_latent/bound.py", "(shift_norm - log_det)", "(shift_norm - 1.000001 * log_det)")
_TABLE = re.compile(r"(?<=<!-- times -->\n\n).*?(?=\n\n<!-- end of times -->)", re.DOTALL)


def find_a_misprint() -> tuple[float, str]:
    """From the start page to (A.20) of villacampa2020: seconds, and what is read there."""
    from playwright.sync_api import expect, sync_playwright

    program = os.environ.get("TRIAD_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)))
    folder = Path(os.environ.get("TRIAD_DOCS") or ROOT / "docs" / "_build" / "html")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        began = time.perf_counter()
        page.goto((folder / "index.html").as_uri())
        page.get_by_role("link", name="Audit an equation").click()
        page.locator("tr", has_text="villacampa2020").get_by_role("link", name="(A.20)").click()
        card = page.locator("article#A\\.20")
        expect(card.locator("figure.printed .differs").first).to_be_visible(timeout=30_000)
        expect(card.locator("figure.corrected math")).to_be_visible()
        state = card.locator(".state").inner_text()
        told = card.locator(".note").last.inner_text()
        seconds = time.perf_counter() - began
        browser.close()
    return seconds, f"{state}: {told}"


def see_what_got_worse(folder: Path) -> tuple[float, str]:
    """Change `fast`, run its method again and compare: seconds of that run, and the first line of what turned red."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    _verify(folder, "--output", "before")
    file = folder / CHANGED[0]
    source = file.read_text(encoding="utf-8")
    if source.count(CHANGED[1]) != 1:
        raise ValueError(f"{CHANGED[0]}: found {source.count(CHANGED[1])} of {CHANGED[1]!r}, expected one to change")
    file.write_text(source.replace(*CHANGED[1:]), encoding="utf-8")
    began = time.perf_counter()
    told = _verify(folder, "--compare", "before/checks.csv", "--output", "after", "--quiet").splitlines()
    seconds = time.perf_counter() - began
    causes = [line.strip() for line in told if line.startswith("  first ")]
    if not causes:
        raise ValueError("triad verify --compare: found nothing that turned red, expected the bound of x-gpc")
    return seconds, causes[0]


def _verify(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "validation", "verify", "--method", "x-gpc", *arguments]
    variables = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "120", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"triad verify: found exit code {done.returncode}, expected 0 or 1: {done.stderr[-500:]}")
    return done.stdout


def classify_a_csv(folder: Path) -> tuple[float, str]:
    """Run the program of docs/classifiers.md: seconds, and the held-out log loss."""
    page = (ROOT / "docs" / "classifiers.md").read_text(encoding="utf-8")
    program = page.partition("## From a CSV file")[2].partition("```python\n")[2].partition("```")[0]
    program += "\nprint(f'held-out log loss {log_loss(y_test, probabilities):.3f}, {len(frame)} rows')\n"
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return time.perf_counter() - began, done.stdout.strip()


def main() -> int:
    """Exit 1 if a task takes longer than it may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the table of docs/three-tasks.md")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="triad-tasks-") as name:
        folder = Path(name)
        rows = [
            ("find (A.20) of villacampa2020, see that it is misprinted and why", 30.0, *find_a_misprint()),
            ("learn which quantity got worse after a change to `fast`", 60.0, *see_what_got_worse(folder)),
            ("get a calibrated classifier on a CSV file", 180.0, *classify_a_csv(folder)),
        ]
    lines = ["| task | may take | takes | what is read at the end |", "|---|---:|---:|---|"]
    lines += [f"| {task} | {most:.0f} s | {seconds:.1f} s | {told} |" for task, most, seconds, told in rows]
    table = "\n".join(lines)
    sys.stdout.write(table + "\n")
    if chosen.write:
        PAGE.write_text(_TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return int(any(seconds > most for _, most, seconds, _ in rows))


if __name__ == "__main__":
    raise SystemExit(main())
