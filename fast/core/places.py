"""What may move digits between the process that asks and a worker: code, versions, kernels of linear algebra."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Place(NamedTuple):
    """A process that computes."""

    code: str  # fingerprint of the text of `fast`
    python: str
    numpy: str
    scipy: str
    kernel: str  # of linear algebra, as threadpoolctl tells them

    def differences(self, other: Place) -> list[str]:
        """ "kernel A against B", for each thing in which they differ."""
        pairs = zip(self._fields, self, other, strict=True)
        return [f"{name} {left[:60]} against {right[:60]}" for name, left, right in pairs if left != right]


@cache
def here() -> Place:
    """This process."""
    import scipy.linalg
    from threadpoolctl import threadpool_info

    kernels = {
        f"{pool['internal_api']} {pool.get('version') or ''} {pool.get('architecture') or ''}".strip()
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[1]
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(root).as_posix()}\n{len(content)}\n".encode() + content)
    return Place(
        digest.hexdigest()[:12], platform.python_version(), np.__version__, scipy.__version__,
        ", ".join(sorted(kernels)) or "unknown",
    )  # fmt: skip
