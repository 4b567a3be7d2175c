"""Doors through which files come in: problems, solutions, truths, data folders and checkpoints, damaged or foreign."""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from support.by_name import by_name

from fuzz.door import Arguments, Door
from validation.door.problem import Problem
from validation.door.solution import Solution


def damaged(rng: np.random.Generator, content: bytes) -> bytes:
    """Cut off, with bytes changed, something else altogether, or as it was."""
    changed, how = bytearray(content), rng.integers(4)
    if how == 0:
        changed = changed[: int(rng.integers(len(changed)))]
    elif how == 1:
        for _ in range(int(rng.integers(1, 20))):
            changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    elif how == 2:
        changed = bytearray(rng.bytes(int(rng.integers(200))))
    return bytes(changed)


def _edited(rng: np.random.Generator, text: str) -> str:
    """A text with one line dropped, doubled, or with something else after its sign of equality."""
    lines = text.splitlines()
    at, how = int(rng.integers(len(lines))), rng.integers(4)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(at, lines[at])
    elif how == 2:
        put = str(rng.choice(["", "nan", "-1", "[]", '"text"', "1e400", "{}", "true", "0", '"' + "a" * 5000 + '"']))
        lines[at] = f"{lines[at].partition('=')[0]}= {put}"
    return "\n".join(lines) + "\n"


@cache
def _stored(seed: int) -> tuple[bytes, bytes]:
    """A problem and a solution, as they are stored."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4, 2))
    problem = Problem(name="p", X=X, y=np.array([0, 1, 0, 1]), n_classes=2, likelihood="logit", X_test=X[:2],
                      variance=1.0, lengthscales=1.0, Z=X[:2])  # fmt: skip
    solution = Solution(problem, "fast", "x-gpc", log_evidence=-2.0, latent_mean=np.zeros((4, 1)),
                        probabilities=np.full((2, 2), 0.5), settings={"a": 1})  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        problem.save(path / "p.npz")
        solution.save(path / "s.npz")
        return (path / "p.npz").read_bytes(), (path / "s.npz").read_bytes()


def _loading_door(name: str, which: int, load: Callable[[Path], Any]) -> Door:
    def call(given: Arguments) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "p.npz"
            path.write_bytes(given["content"])
            return load(path)

    return Door(name, 0.6, lambda rng: {"content": damaged(rng, _stored(3)[which])}, call, {})


def _renamed_door() -> Door:
    """A file of the right schema with an array in the place of another, or of another type."""

    def base(rng: np.random.Generator) -> Arguments:
        return {"which": int(rng.integers(2)), "at": float(rng.random()), "value": np.zeros(2)}

    def call(given: Arguments) -> Any:
        kind = (Problem, Solution)[given["which"]]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "p.npz"
            path.write_bytes(_stored(3)[given["which"]])
            arrays = dict(np.load(path))
            name = sorted(arrays)[int(given["at"] * len(arrays))]
            try:
                arrays[name] = np.asarray(given["value"])
                np.savez(path, **{key: value for key, value in arrays.items() if not value.dtype.hasobject})
            except (ValueError, TypeError, OverflowError, RecursionError):  # no array can be made of it
                return None
            return kind.load(path)

    return Door("load of a file with another array", 0.6, base, call, {"value": "array"})


def _truth_door() -> Door:
    """A truth and its card, one of them changed."""

    def base(rng: np.random.Generator) -> Arguments:
        store = importlib.import_module("validation.truth.store")
        here = store.folder() / "toy.npz"
        if not here.is_file():
            here = min(store.folder().glob("*.npz"))
        content, card = here.read_bytes(), here.with_suffix(".toml").read_text(encoding="utf-8")
        what = rng.integers(3)
        if what == 0:
            content = damaged(rng, content)
        elif what == 1:
            card = _edited(rng, card)
        return {"content": content, "card": card.encode() if rng.random() < 0.8 else damaged(rng, card.encode())}

    def call(given: Arguments) -> Any:
        truth = importlib.import_module("validation.truth.make").Truth
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.npz"
            path.write_bytes(given["content"])
            path.with_suffix(".toml").write_bytes(given["card"])
            return truth.load(path)

    return Door("Truth.load", 0.4, base, call, {})


_ROWS = "x1,x2,y\n0.5,1.0,a\n1.5,-1.0,b\n2.5,0.0,a\n"
_OTHER_ROWS = ("", "x1,y\n", "x1,x2,y\nnan,inf,a\n", "x1,y\n1,a\n1e400,b\n", "y\na\n", "x1,x2,y\n1,2\n", "x1,y\n1,")
_CLASSES = '{"a" = 2, "b" = 1}'


def _folder_door() -> Door:
    """A data folder of one's own, its manifest or its rows changed."""

    def base(rng: np.random.Generator) -> Arguments:
        gzip = importlib.import_module("gzip")
        rows = _ROWS if rng.random() < 0.5 else str(rng.choice(_OTHER_ROWS))
        content = gzip.compress(rows.encode())
        content = content if rng.random() < 0.7 else damaged(rng, content)
        digest = hashlib.sha256(content).hexdigest()
        manifest = (
            f'[[dataset]]\nname = "own"\nfile = "own.csv.gz"\nsha256 = "{digest}"\ncitation = "none"\nn = 3\nd = 2\n'
            f"n_classes = 2\nn_train = 0\nclasses = {_CLASSES}\n"
        )
        return {"content": content, "manifest": _edited(rng, manifest) if rng.random() < 0.6 else manifest}

    def call(given: Arguments) -> Any:
        loading = importlib.import_module("validation.datasets.loading")
        before = os.environ.get("TRIAD_DATA")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "own.csv.gz").write_bytes(given["content"])
            (Path(folder) / "manifest.toml").write_text(given["manifest"], encoding="utf-8")
            os.environ["TRIAD_DATA"] = folder
            try:
                loading.known_names()
                return loading.load("own", source="folder")
            finally:
                if before is None:
                    del os.environ["TRIAD_DATA"]
                else:
                    os.environ["TRIAD_DATA"] = before

    return Door("load from a data folder", 0.5, base, call, {})


# -- checkpoints ---------------------------------------------------------------------------------------------------

_CONTINUED: dict[str, tuple[str, str, Arguments]] = {
    "fast.methods.sep": ("fit", "sep", {"batch_size": 2, "n_steps": 2, "checkpoint_every": 1}),
    "fast.methods.ep": ("fit", "ep", {"batch_size": 2, "n_steps": 2, "checkpoint_every": 1}),
    "fast.methods.pep": ("fit", "pep", {"batch_size": 2, "n_steps": 2, "checkpoint_every": 1}),
    "fast.methods.apep": ("fit", "apep", {"batch_size": 2, "n_steps": 2, "checkpoint_every": 1}),
    "fast.methods.vi_robust": ("fit", "vi-robust", {"batch_size": 2, "n_steps": 2, "checkpoint_every": 1}),
    "fast.methods.x_gpc_svi": ("fit", "x-gpc-svi", {"batch_size": 2, "n_steps": 2, "checkpoint_every": 1}),
    "gibbs.models.sampling": ("sample", "gibbs-logit", {"n_draws": 8, "n_warmup": 2, "n_chains": 2}),
    "gibbs.models.multinomial_probit": ("sample", "gibbs-probit", {"n_draws": 8, "n_warmup": 2, "n_chains": 2}),
    "gibbs.models.threshold": ("sample", "gibbs-threshold", {"n_draws": 8, "n_warmup": 2, "n_chains": 2}),
    "gibbs.models.softmax": ("sample", "mh-softmax", {"n_draws": 8, "n_warmup": 2, "n_chains": 2}),
}


def _checkpoint_doors(fit_door: Callable[..., Door]) -> Iterator[Door]:
    """Runs that are to continue from a file that is damaged, or of another run."""
    for place, (attribute, method, options) in _CONTINUED.items():
        function = getattr(importlib.import_module(place), attribute)
        if place.startswith("fast."):
            function = by_name(function, binary=method == "x-gpc-svi")
        yield _checkpoint_door(fit_door(function, method), place, options)


def _checkpoint_door(plain: Door, place: str, options: Arguments) -> Door:
    def base(rng: np.random.Generator) -> Arguments:
        return plain.base(rng) | options | {"damage": int(rng.integers(5)), "at": float(rng.random())}

    def call(given: Arguments) -> Any:
        given = dict(given)
        damage, at = given.pop("damage"), given.pop("at")
        changes: Arguments = {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "c.npz"
            plain.call({**given, "checkpoint": path})
            content = bytearray(path.read_bytes()) if path.is_file() else bytearray(b"none")
            where = int(at * len(content))
            if damage == 0:
                content = content[:where]
            elif damage == 1:
                content[where] ^= 0xFF
            elif damage == 2:
                changes = {"seed": 1}
            elif damage == 3:
                changes = {"X": np.asarray(given["X"], dtype=np.float64) + 1e-9}
            path.write_bytes(bytes(content))
            return plain.call({**given, **changes, "checkpoint": path})

    kinds = {name: plain.kinds[name] for name in ("X", "variance", "checkpoint_every") if name in plain.kinds}
    return Door(f"{place} from a checkpoint", 0.15, base, call, kinds)


def _path_door(kind: type[Problem] | type[Solution]) -> Door:
    def call(given: Arguments) -> Any:
        return kind.load(**given)

    return Door(f"{kind.__name__}.load", 0.3, lambda rng: {"path": "none.npz"}, call, {"path": "any"})


def file_doors(fit_door: Callable[..., Door]) -> Iterator[Door]:
    """All of them; fit_door: makes the door of a fit function."""
    yield _loading_door("Problem.load of a file", 0, Problem.load)
    yield _loading_door("Solution.load of a file", 1, Solution.load)
    for kind in (Problem, Solution):
        yield _path_door(kind)
    yield from (_renamed_door(), _truth_door(), _folder_door())
    yield from _checkpoint_doors(fit_door)
