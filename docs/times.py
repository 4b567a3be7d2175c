"""Time README's two commands as a newcomer meets them: in a fresh clone, with an environment of its own.

    python docs/times.py             clone, install, run both and print how long each takes
    python docs/times.py --write     write the lines of README.md and docs/quick-start.md too

Installing is timed apart from running: it hangs on the network. What is cloned is the last commit.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "quick-start.md")
_LINES = re.compile(r"(?<=<!-- times -->\n\n```console\n).*?(?=```\n\n<!-- end of times -->)", re.DOTALL)


def timed(folder: Path, *command: str) -> float:
    """Seconds of a command that must succeed; CalledProcessError with its last lines otherwise."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRIAD_DATA")}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
        done.check_returncode()
    return time.perf_counter() - began


def spoken(seconds: float) -> str:
    """Seconds as one says them: to ten seconds below two minutes, to half a minute above."""
    if seconds < 115.0:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{round(seconds / 30.0) / 2:g} minutes"


def lines(installing: float, verifying: float, testing: float) -> str:
    """The two commands with what they do and their times.

    Parameters
    ----------
    installing, verifying, testing     seconds of what `make verify` installs, of itself after that, of `make test`
    """
    return (
        f"make verify     # the triangle on real data: {spoken(verifying)}, after {spoken(installing)} of installing\n"
        f"make test       # the test suite: {spoken(testing)}\n"
    )


def main() -> int:
    """Print the lines; with --write, put them on the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the lines of both pages")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="triad-times-") as name:
        folder = Path(name) / "clone"
        timed(ROOT, "git", "clone", "--quiet", str(ROOT), str(folder))
        installing = timed(folder, "make", ".venv/run.stamp")
        verifying = timed(folder, "make", "verify")
        timed(folder, "make", ".venv/dev.stamp")
        told = lines(installing, verifying, timed(folder, "make", "test"))
    sys.stdout.write(told)
    for page in PAGES if chosen.write else ():
        text = page.read_text(encoding="utf-8")
        if len(_LINES.findall(text)) != 1:
            raise ValueError(f"{page.name}: found {len(_LINES.findall(text))} blocks of times, expected 1")
        page.write_text(_LINES.sub(lambda _: told, text), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
