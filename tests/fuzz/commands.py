"""The command line as a door: every command, with words that it may not have been made for."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuzz.door import Arguments, Door

_TEXTS = (
    "nan", "1e400", "-1", "0", "[", "[0", "[[0]]", "null", "true", "", "text", "ü" * 3, "a" * 3000, '{"a": 1}', "1.5",
    "NaN", "Infinity", "[" * 2000, "0.5", "/", "no/such/file.npz", "toy", "x-gpc", "fast", "a=b=c", "--", "-o", "\x00",
    "iris", "wenzel2019", "fig1", "\ud800", "9" * 5000, "..", "~", "json:dumps", "os:getcwd", "no.such:x", "é\u202e",
)  # fmt: skip
_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("solve", "fast", "x-gpc", "toy", "-o", "{option}"),
    ("solve", "reference", "vi-jj", "toy", "-o", "max_iterations=3", "-o", "{option}"),
    ("solve", "fast", "ep", "toy-3-sparse-threshold", "-o", "max_iterations=3", "-o", "{option}"),
    ("solve", "gibbs", "gibbs-logit", "toy", *("-o", "evidence=none", "-o", "n_draws=8", "-o", "n_warmup=2"),
     "-o", "{option}"),
    ("solve", "fast", "x-gpc-svi", "toy", "-o", "n_steps=2", "-o", "learn=variance", "-o", "{option}"),
    ("solve", "{text}", "x-gpc", "toy"),
    ("solve", "fast", "{text}", "toy"),
    ("solve", "fast", "x-gpc", "{text}"),
    ("solve", "fast", "x-gpc", "toy", "-o", "max_iterations=3", "--output", "{text}"),
    ("solve", "fast", "x-gpc", "toy", "-o", "{text}"),
    ("compare", "{text}", "{text}"),
    ("compare", "{text}", "{text}", "--band", "{text}", "--limit", "{text}"),
    ("list", "problems", "{text}"),
    ("list", "problems", "toy", "--output", "{text}"),
    ("list", "methods", "{text}"),
    ("list", "data", "{text}"),
    ("verify", "--check", "no {text}"),
    ("verify", "--method", "no {text}"),
    ("verify", "--problem", "no {text}", "--output", "{text}"),
    ("audit", "no {text}"),
    ("audit", "wenzel2019:{text}", "--json"),
    ("claims", "list", "{text}"),
    ("claims", "list", "wenzel2019:{text}", "--state", "{text}"),
    ("claims", "run", "no {text}", "{text}"),
    ("claims", "run", "wenzel2019", "no {text}"),
    ("claims", "run", "{text}"),
    ("bench", "--only", "no {text}"),
    ("truth", "show", "no {text}"),
    ("truth", "list", "--likelihood", "no {text}"),
    ("truth", "make", "no {text}"),
    ("truth", "make", "toy", "--method", "no {text}"),
    ("{text}",),
    ("{text}", "{text}"),
)  # fmt: skip
_OPTION_NAMES = (
    "tolerance", "max_iterations", "learn", "seed", "rate", "callback", "batch_size", "wibble", "checkpoint", "n_draws",
    "moments", "damping", "optimizer", "n_steps", "learning_rate", "stop", "window", "batches",
)  # fmt: skip


def command_door() -> Door:
    """A command with words drawn."""

    def base(rng: np.random.Generator) -> Arguments:
        words = []
        for word in _COMMANDS[int(rng.integers(len(_COMMANDS)))]:
            text = str(rng.choice(np.array(_TEXTS, dtype=object)))
            name = str(rng.choice(_OPTION_NAMES))
            words.append(word.replace("{text}", text).replace("{option}", f"{name}={text}"))
        return {"words": words}

    return Door("triad", 1.5, base, lambda given: run_command(given["words"]), {})


def run_command(words: list[str]) -> None:
    """The command in this process, in an empty folder; AssertionError for an exit code or a text that may not be."""
    cli = importlib.import_module("validation.command.cli")
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    code: Any = 0
    try:
        sys.argv = ["triad", *words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _elsewhere():
            cli.main()
    except SystemExit as error:
        code = error.code
    finally:
        sys.argv = before
    message = err.getvalue()
    if code not in (0, 1, 2, None) or "Traceback" in message or (code == 2 and not message.strip()):
        raise AssertionError(f"triad {words}: exit code {code}, {message[-300:]!r}")


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """In an empty folder: what a command writes is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield
