"""Run the tests and `triad verify` under named OpenBLAS kernels, and say which kernel was really loaded.

OPENBLAS_CORETYPE chooses the kernel of an OpenBLAS that holds several. A misspelt name, or a kernel that the CPU has no
instructions for, is ignored without a word; so each kernel is first looked for in a process of its own, in which NumPy
and SciPy are loaded and multiply two matrices. Where another kernel answers, or the process dies, nothing is run and
the summary says so: not run is never green.

Exit status: 0 if all that was asked ran and was green, 1 if something was red, 2 if something could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SELECTION = Path(__file__).resolve().with_name("rounding.txt")
GREEN, RED, NOT_RUN = "green", "RED", "NOT RUN"
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

# Kernels with the width of their vectors in bits and fused multiply-add, which is what decides the order of sums.
CLASSES = {
    "SkylakeX": "512 fused",
    "Haswell": "256 fused",
    "Sandybridge": "256",
    "Nehalem": "128, SSE4",
    "Prescott": "128, SSE3",
}
# An OpenBLAS built without the oldest CPUs keeps their names for Prescott's kernel and reports the first of them.
ALIASES = {"Katmai": "Prescott", "Coppermine": "Prescott", "Northwood": "Prescott", "Banias": "Prescott"}
# The two that .ci/run takes: the first of these that the machine can load and does not take by itself. Fused and not
# fused, the widest difference, come first.
PREFERENCE = ("Haswell", "Prescott", "Sandybridge", "Nehalem", "SkylakeX")

PROBE = """
import json, platform, sys
import numpy as np, scipy, scipy.linalg, threadpoolctl
pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
print(json.dumps({
    "kernels": [pool.get("architecture") or pool["internal_api"] for pool in pools],
    "threads": [pool["num_threads"] for pool in pools],
    "versions": f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}",
}), flush=True)
rng = np.random.default_rng(0)
A, B = rng.standard_normal((200, 500)), rng.standard_normal((200, 500))
# 500 products of size one: rounding stays below 1e-12, a broken kernel is wrong in the first digits
sys.exit(3 if not np.abs(A @ B.T - np.einsum("ij,kj->ik", A, B)).max() < 1e-10 else 0)
"""


class Probe(NamedTuple):
    """What a process found that had asked for a kernel and a number of threads."""

    kernels: tuple[str, ...]
    threads: tuple[int, ...]
    versions: str
    status: int


class Task(NamedTuple):
    """One command under one kernel with one number of threads."""

    kernel: str
    threads: int
    what: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """A line of the summary."""

    kernel: str
    threads: int
    loaded: str
    what: str
    verdict: str
    seconds: float
    note: str


def environment(kernel: str | None, threads: int, base: Mapping[str, str]) -> dict[str, str]:
    """`base` with the kernel and the threads set; kernel None leaves the choice to OpenBLAS."""
    changed = {name: value for name, value in base.items() if name != "OPENBLAS_CORETYPE"}
    changed.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    if kernel is not None:
        changed["OPENBLAS_CORETYPE"] = kernel
    return changed


def probe(kernel: str | None, threads: int) -> Probe:
    """Load NumPy and SciPy in a fresh process, see which kernels they took, and multiply two matrices."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=environment(kernel, threads, os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        raise RuntimeError(f"probe: found status {done.returncode} and no answer, expected kernels:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[0])
    return Probe(tuple(result["kernels"]), tuple(result["threads"]), result["versions"], done.returncode)


def canonical(kernel: str) -> str:
    """The name by which OPENBLAS_CORETYPE takes a kernel that OpenBLAS reports by another."""
    return ALIASES.get(kernel, kernel)


def loaded(value: Probe) -> str:
    """The kernels that a probe met, each once, under the names that OpenBLAS reports."""
    return ", ".join(dict.fromkeys(value.kernels)) or "no OpenBLAS"


def obstacle(kernel: str, threads: int, value: Probe) -> str:
    """Why nothing may be run under this kernel; empty if all is as asked."""
    if not value.kernels or any(canonical(name) != canonical(kernel) for name in value.kernels):
        return (
            f"found {loaded(value)}, expected {kernel} in every library: the name is unknown to this OpenBLAS, or "
            "this CPU has no instructions for it"
        )
    if any(number != threads for number in value.threads):
        return f"found {', '.join(map(str, value.threads))} threads, expected {threads}"
    if value.status < 0 or value.status > 3:
        name = signal.Signals(-value.status).name if value.status < 0 else f"status {value.status}"
        return f"the library itself dies of {name} in A @ B.T of two matrices 200 x 500 ({value.versions})"
    if value.status:
        return f"the library itself is wrong in A @ B.T of two matrices 200 x 500 ({value.versions})"
    return ""


def others(own: Iterable[str], can_run: Callable[[str], bool], number: int) -> list[str]:
    """The first `number` kernels, in order of preference, that are not the machine's own and that it can run."""
    taken = {canonical(name) for name in own}
    results: list[str] = []
    for kernel in PREFERENCE:
        if len(results) < number and kernel not in taken and can_run(kernel):
            results.append(kernel)
    return results


def selection(path: Path = SELECTION) -> list[str]:
    """The test files that are sensitive to rounding, one a line; # starts a comment."""
    lines = [line.split("#", 1)[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line]


def commands(what: str, threads: int, jobs: int, folder: Path) -> tuple[str, ...]:
    """The command for `verify`, `tests` or `rounding`; processes times threads stay at `jobs`."""
    processes = max(1, jobs // threads)
    if what == "verify":
        options = ("--jobs", str(processes), "--threads", str(threads), "--output", str(folder))
        return (sys.executable, "-m", "validation", "verify", *options)
    parallel = ("-n", str(processes)) if processes > 1 else ()
    files = selection() if what == "rounding" else []
    marker = ("-q", "-m", "not slow", "-p", "no:cacheprovider")
    return (sys.executable, "-m", "pytest", *marker, *parallel, *files)


def tell(text: str) -> None:
    """A line on the standard output, at once: the runs take minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_task(task: Task, log: Path) -> tuple[int, float]:
    """Run one task with its output in a file; status and seconds."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run(
            task.command,
            cwd=ROOT,
            env=environment(task.kernel, task.threads, os.environ),
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.returncode, time.perf_counter() - started


def last_words(log: Path) -> str:
    """The line in which pytest or verify sums up."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    sums = [line for line in lines if " passed" in line or " failed" in line or " error" in line]
    return sums[-1].strip("= ") if sums else (lines[-1] if lines else "no output")


def summary(rows: Sequence[Row]) -> str:
    """A line for each kernel, number of threads and task, and one that counts."""
    head = ("kernel", "threads", "loaded", "task", "verdict", "time", "")
    cells = [
        (row.kernel, str(row.threads), row.loaded, row.what, row.verdict, f"{row.seconds:.0f} s", row.note)
        for row in rows
    ]
    widths = [max(len(line[k]) for line in [head, *cells]) for k in range(len(head) - 1)]
    lines = [
        "  ".join([*(line[k].ljust(widths[k]) for k in range(len(widths))), line[-1]]).rstrip()
        for line in [head, *cells]
    ]
    counts = ", ".join(f"{sum(row.verdict == kind for row in rows)} {kind}" for kind in (GREEN, RED, NOT_RUN))
    return "\n".join([*lines, counts])


def status(rows: Sequence[Row]) -> int:
    """1 if a row is red, 2 if one could not be run or nothing was asked, 0 if all are green."""
    verdicts = {row.verdict for row in rows}
    if RED in verdicts:
        return 1
    return 0 if verdicts == {GREEN} else 2


def run_all(
    kernels: Sequence[str], threads: Sequence[int], what: Sequence[str], jobs: int, side_by_side: bool, folder: Path
) -> list[Row]:
    """Every task under every kernel with every number of threads; side by side, each kernel has one core."""
    rows: dict[tuple[str, int, str], Row] = {}
    tasks: list[tuple[Task, str]] = []
    for kernel in kernels:
        for number in threads:
            result = probe(kernel, number)
            reason = obstacle(kernel, number, result)
            tell(f"{kernel}, {number} threads: loaded {loaded(result)} ({result.versions})")
            for task in what:
                command = commands(task, number, 1 if side_by_side else jobs, folder / f"{kernel}-{number}")
                rows[kernel, number, task] = Row(kernel, number, loaded(result), task, NOT_RUN, 0.0, reason)
                if not reason:
                    tasks.append((Task(kernel, number, task, command), loaded(result)))
    with interruptible(ThreadPoolExecutor(jobs if side_by_side else 1)) as pool:
        for row in pool.map(lambda item: finish(item[0], item[1], folder), tasks):
            rows[row.kernel, row.threads, row.what] = row
    return list(rows.values())


@contextmanager
def interruptible(pool: ThreadPoolExecutor) -> Iterator[ThreadPoolExecutor]:
    """A pool that starts nothing more after Ctrl-C."""
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def finish(task: Task, name: str, folder: Path) -> Row:
    """Run a task, print what failed, return its line."""
    log = folder / f"{task.kernel}-{task.threads}" / f"{task.what}.log"
    code, seconds = run_task(task, log)
    note = last_words(log)
    if code:
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()
        failed = [line for line in text if line.startswith(("FAILED", "ERROR", "FAIL "))]
        note = f"{note}; {log}"
        tell("\n".join(failed or text[-20:]))
    verdict = RED if code else GREEN
    tell(f"{task.kernel}, {task.threads} threads, {task.what}: {verdict}, {seconds:.0f} s")
    return Row(task.kernel, task.threads, name, task.what, verdict, seconds, note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", nargs="+", default=list(CLASSES), help="names as OPENBLAS_CORETYPE takes them")
    parser.add_argument("--others", type=int, metavar="N", help="instead: N kernels besides the machine's own")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--what", nargs="+", choices=["verify", "tests", "rounding"], default=["verify", "tests"])
    parser.add_argument("--jobs", type=int, default=2, help="cores to use")
    parser.add_argument("--side-by-side", action="store_true", help="as many tasks at a time, each on one core")
    parser.add_argument("--output", type=Path, default=Path("results/kernels"), help="folder for logs and reports")
    asked = parser.parse_args(arguments)
    if min([*asked.threads, asked.jobs, asked.others or 1]) < 1:
        parser.error("--threads, --jobs, --others: expected at least 1")
    own = probe(None, 1)
    tell(f"this machine takes {loaded(own)} by itself ({own.versions})")
    kernels = asked.kernel
    missing = 0
    if asked.others is not None:
        kernels = others(own.kernels, lambda name: not obstacle(name, 1, probe(name, 1)), asked.others)
        missing = asked.others - len(kernels)
    rows = run_all(kernels, asked.threads, asked.what, asked.jobs, asked.side_by_side, (ROOT / asked.output).resolve())
    tell(summary(rows))
    if missing:
        tell(f"--others: found {len(kernels)} other kernels that run here, expected {asked.others}")
    return status(rows) or (2 if missing else 0)


if __name__ == "__main__":
    sys.exit(main())
