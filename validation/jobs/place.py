"""Where a result was computed: versions, kernels of linear algebra, the text of the packages."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from validation.door.solve import versions

PACKAGES = ("reference", "fast", "gibbs", "validation")
HERE = "this machine"


class Place(NamedTuple):
    """One process that computes.

    worker      its address on a cluster, or "this machine"
    versions    pairs of name and version: Python, gpc-triad, NumPy, SciPy
    kernel      kernels of linear algebra, as threadpoolctl tells them
    code        fingerprint of the text of the packages
    """

    worker: str
    versions: tuple[tuple[str, str], ...]
    kernel: str
    code: str

    def describe(self) -> str:
        """One line, without the worker."""
        return f"{', '.join(' '.join(pair) for pair in self.versions)}; {self.kernel}; code {self.code[:12]}"

    def differences(self, other: Place) -> list[str]:
        """What may move digits between the two: "numpy 2.3.1 against 2.4.6", each of them."""
        ours, theirs = dict(self.versions), dict(other.versions)
        parts = [
            f"{name} {ours.get(name, 'none')} against {theirs.get(name, 'none')}"
            for name in dict.fromkeys((*ours, *theirs))
            if ours.get(name) != theirs.get(name)
        ]
        for name, left, right in (("kernel", self.kernel, other.kernel), ("code", self.code[:12], other.code[:12])):
            if left != right:
                parts.append(f"{name} {left} against {right}")
        return parts


def here(worker: str = HERE) -> Place:
    """This process."""
    return Place(worker, tuple(versions().items()), kernel(), code())


@cache
def kernel() -> str:
    """Kernels of linear algebra in this process: NumPy's, and SciPy's own, which has to be loaded for that."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    names = (
        f"{pool['internal_api']} {pool.get('version') or ''} {pool.get('architecture') or ''}".strip()
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    )
    return ", ".join(sorted(set(names))) or "unknown"


@cache
def code() -> str:
    """Fingerprint of the text of the packages and of the data that ship with them."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        root = Path(str(files(package)))
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".toml", ".npz", ".json") and path.is_file():
                # Windows checks out other ends of lines: of text, lines count
                content = path.read_bytes()
                if path.suffix != ".npz":
                    content = content.replace(b"\r\n", b"\n")
                digest.update(f"{package}/{path.relative_to(root).as_posix()}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


def commit() -> str:
    """The commit of the checkout, "" outside one."""
    folder = str(files("validation"))
    try:
        result = subprocess.run(
            ["git", "-C", folder, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
        )
    except OSError:  # no git
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def unlike(places: Iterable[Place]) -> list[str]:
    """A line for each worker that differs from the first: who, and in what; none where all are alike."""
    places = list(dict.fromkeys(places))
    return [
        f"{place.worker}: found {'; '.join(differences)} of {places[0].worker}, expected the same"
        for place in places[1:]
        if (differences := place.differences(places[0]))
    ]


def summary(places: Sequence[tuple[Place, int]]) -> list[str]:
    """A line for each kind of place: how many results, where, with what."""
    groups: dict[Place, dict[str, int]] = {}
    for place, count in places:
        workers = groups.setdefault(place._replace(worker=""), {})
        workers[place.worker] = workers.get(place.worker, 0) + count
    return [
        f"{sum(workers.values())} on {', '.join(sorted(workers))}: {place.describe()}"
        for place, workers in groups.items()
    ]
