"""Sums of sweeps that are kept in files: what goes on from them, and what is refused because it is another run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.checks.core import NO_PROBLEM, Context, Outcome, as_documented, check
from validation.problem import Problem

Array = NDArray[np.float64]
_RNG = np.random.default_rng(12)
_X = _RNG.standard_normal((40, 2))
_Y = (_X[:, 0] * _X[:, 1] > 0.0).astype(np.int64)
_PRIOR: dict[str, Any] = {
    "variance": 2.0, "lengthscales": np.ones(2), "noise": 0.05, "jitter": 1e-8, "Z": _X[::10].copy(),
}  # fmt: skip


def _run(
    folder: Path | None, X: Array = _X, y: NDArray[np.int64] = _Y, method: str = "x-gpc", leaf: int = 16, **changed: Any
) -> tuple[bytes, list[str]]:
    """Digits of q after three sweeps, and what the leaves were asked for on the way."""
    from fast.blockwise import engines, quadratic
    from fast.blockwise.rows import rows_of
    from fast.core.values import Prior

    asked: list[str] = []
    real = engines.Here.total

    def total(self: Any, visit: Any, state: Any) -> Any:
        asked.append(visit.leaf.__name__)
        return real(self, visit, state)

    given = _PRIOR | {name: value for name, value in changed.items() if name in _PRIOR}
    more = {name: value for name, value in changed.items() if name not in _PRIOR}
    options = quadratic.BlockwiseOptions(**{"tolerance": 1e-300, "max_iterations": 3} | more)
    with mock.patch.object(engines.Here, "total", total):
        end = quadratic.fit(method, rows_of(X, y, leaf=leaf), Prior(**given), options, checkpoint=folder)
    return end.inducing_mean.tobytes() + end.inducing_cov.tobytes(), asked


def _refused(*arguments: Any, **changed: Any) -> bool:
    try:
        _run(*arguments, **changed)
    except ValueError:
        return True
    return False


@check(
    "identity/x-gpc/kept_sums",
    paper="wenzel2019",
    question="Does a run go on from the sums it finds, asks for no others, and refuses those of another run?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    rows: list[tuple[str, object, object]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "deep" / "sums"
        alone, asked = _run(None)
        whole, made = _run(folder)
        names = sorted(path.name for path in folder.iterdir())
        rows += [
            ("digits with sums kept", whole == alone, True),
            ("asked beside the digest of the data", made[1:], asked),
            ("files", names, [f"{k:06d}.npz" for k in range(len(asked))]),
        ]
        for left in (1, len(names)):
            part = Path(temporary) / f"first {left}"
            shutil.copytree(folder, part)
            for name in names[left:]:
                (part / name).unlink()
            digits, again = _run(part)
            rows += [
                (f"digits from {left} sums on", digits == alone, True),
                (f"asked from {left} sums on", again, [made[0], *asked[left:]]),
                (f"files from {left} sums on", sorted(path.name for path in part.iterdir()), names),
            ]
        rows.append(("refused where somebody listens", _refused(folder, callback=_listen), False))
        for what, changed in _others():
            rows.append((f"refused with {what}", _refused(folder, **changed), True))
        shutil.copy(folder / names[1], folder / names[0])
        rows.append(("refused with the second sum in the place of the first", _refused(folder), True))
    yield as_documented(rows, "fast", "runs")


def _listen(*_: Any) -> None:
    return None


def _others() -> Iterable[tuple[str, dict[str, Any]]]:
    """Runs that differ in one thing."""
    X, y = _X.copy(), _Y.copy()
    X[33, 1] += 1e-9
    y[17] = 1 - y[17]
    yield "another input", {"X": X}
    yield "another label", {"y": y}
    yield "a row less", {"X": _X[:-1], "y": _Y[:-1]}
    yield "other leaves", {"leaf": 8}
    yield "another method", {"method": "vi-jj"}
    yield "another tolerance", {"tolerance": 1e-299}
    yield "another variance", {"variance": 2.0 + 1e-9}
    yield "another noise", {"noise": 0.05 + 1e-9}
    yield "other lengthscales", {"lengthscales": np.array([1.0, 1.0 + 1e-9])}
    yield "other inducing points", {"Z": _PRIOR["Z"] + 1e-9}
