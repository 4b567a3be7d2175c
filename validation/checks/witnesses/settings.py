"""Settings that hide mistakes, away from the values at which they do: every method, every family, both witnesses.

Zero jitter or noise, a squared exponential, inducing points far apart, damping one half, parameters that are the same
for all classes, test variances near one: each makes a wrong formula right. The problems of
`validation.checks.witnesses.learning` have none of them; here they are held at the parameters given, to the fixed
point and for the first three sweeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from validation.checks.core import NO_PROBLEM, Context, Outcome, check
from validation.checks.witnesses.learning import PAPER, ROUTE, Run, side_by_side
from validation.door.problem import Problem

_PLAIN = MappingProxyType({"accelerate": False})


def _ends(kinds: tuple[str, ...], fast: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> tuple[Run, ...]:
    """To the fixed point, whichever way."""
    return tuple(
        Run(
            "fixed point",
            kind,
            options,
            fast,
            ROUTE,
            1e-6 if "small" in kind else None,
            _SMALL_END if "small" in kind else _END,
        )
        for kind in kinds
    )


_END = "each iteration ends within 1e-10 of one fixed point"
_SMALL_END = f"{_END}, and a derivative in a variance of 3e-4 is what is left of two terms 3000 times as large: 1e-6"


def _sweeps(kind: str, fast: Mapping[str, Any] | None = None, **options: Any) -> Run:
    """The first three."""
    label = ", ".join(("three sweeps", *(f"{name} {value}" for name, value in options.items() if name != "trace")))
    # how far the end is can be estimated in more than one way
    return Run(label, kind, {"max_iterations": 3, **options}, fast or {}, ("residual", "converged"))


def _slow(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Of a full run only: the same code as in another row, at other values."""
    return tuple(run._replace(full=True) for run in runs)


_BLOCKS = MappingProxyType({"block_size": 3})
_BINARY = ("", " full", " small", " matern", " full matern")


def _links(*links: str, kernels: tuple[str, ...] = _BINARY) -> tuple[str, ...]:
    return tuple(f"{link}{words}" for link in links for words in kernels)


_WAYS: tuple[dict[str, Any], ...] = ({}, {"factors": "datum"}, {"schedule": "sequential"})
_SE = ("", " full", " small")
_CLASSES = ("threshold", "threshold small", "threshold shared")
_ERRORS = ("threshold errors", "threshold errors small", "threshold errors shared")
_FULL = ("multinomial-probit full", "multinomial-probit full small", "multinomial-probit full shared")
_SOFTMAX = ("softmax full", "softmax full small", "softmax full shared")

RUNS: Mapping[str, tuple[Run, ...]] = MappingProxyType(
    {
        "x-gpc": (*_ends(_links("logit", kernels=_SE), _BLOCKS), _sweeps("logit", _PLAIN)),
        "svgpc": _ends(_links("probit", kernels=_SE), _BLOCKS),
        "epgpc": (*_ends(_links("probit", kernels=_SE), _BLOCKS), *_ends(("probit",), damping=0.7)),
        "svi": (
            *_ends(_links("logit", kernels=("", " small", " matern")), _BLOCKS),
            *_ends(("probit matern", "logit full matern"), _BLOCKS),
            *_slow(_ends(_links("probit", kernels=("", " full", " small", " full matern")), _BLOCKS)),
        ),
        # an iteration of reference is n_upd rounds of algorithm 1, one of fast a sweep
        "vi-jj": (
            *_ends(_links("logit"), _BLOCKS),
            *(_sweeps(kind, _PLAIN, n_upd=1) for kind in ("logit", "logit full matern")),
        ),
        "vi-jj-full": _ends(_links("logit"), _BLOCKS),
        "vi-jj-hybrid": _ends(_links("logit"), _BLOCKS),
        "vi-taylor": _ends(_links("logit", "probit"), _BLOCKS),
        "ep": (
            *_ends(_CLASSES, _BLOCKS, damping=0.7),
            *(_sweeps("threshold", damping=0.7, trace=True, **more) for more in _WAYS),
        ),
        "sep": (
            *_ends(_CLASSES, _BLOCKS, damping=0.7),
            *(_sweeps("threshold", damping=0.7, trace=True, count=count) for count in ("all", "per-class")),
        ),
        "gfitc": (*_ends(_CLASSES, _BLOCKS, damping=0.7), _sweeps("threshold", damping=0.7, trace=True)),
        "vi-robust": (*_ends(_ERRORS[:2], _BLOCKS), *_slow(_ends(_ERRORS[2:], _BLOCKS))),
        "pep": (
            *_ends(_ERRORS[1:2], damping=0.7, alpha=0.7),
            _sweeps("threshold errors", damping=0.7, alpha=0.7, trace=True),
            *_slow(_ends((_ERRORS[0], _ERRORS[2]), damping=0.7, alpha=0.7)),
            *_slow(_ends(("threshold",), damping=0.7, alpha=1.0)),
        ),
        "apep": (*_ends(_ERRORS[1:2], alpha=0.7), *_slow(_ends((_ERRORS[0], _ERRORS[2]), alpha=0.7))),
        "arpep": (*_ends(_ERRORS[1:2], alpha=0.7), *_slow(_ends((_ERRORS[0], _ERRORS[2]), alpha=0.7))),
        "bb-alpha": _ends(_ERRORS[:1], alpha=0.7),
        "label-regression": _ends(_ERRORS),
        "laplace-sparse": _ends(("softmax", "softmax small", "softmax shared")),
        "laplace-binary": _ends(_links("logit", "probit", kernels=(" full", " full small")), _BLOCKS),
        "laplace": _ends(_SOFTMAX),
        "laplace-tkp": _ends(_SOFTMAX[:1]),
        "nested-ep": (*_ends(_FULL[1:2], damping=0.7), *_slow(_ends(_FULL[:1], damping=0.7))),
        "nested-iep": (*_ends(_FULL[1:2], damping=0.7), *_slow(_ends(_FULL[:1], damping=0.7))),
        "vb-probit": (*_ends(_FULL[1:2]), *_slow(_ends((_FULL[0], _FULL[2])))),
        **{
            method: tuple(
                _sweeps(_FULL[0], _PLAIN, damping=0.7, nodes=6, trace=True, schedule=schedule)
                for schedule in ("parallel", "sequential")
            )
            for method in ("qep", "qiep")
        },
    }
)


def _register(method: str, runs: tuple[Run, ...]) -> None:
    @check(
        f"identity/{method}/settings",
        paper=PAPER[method],
        question="Both witnesses agree when jitter, noise, kernel, scales and damping are not the defaults.",
        # arpep and bb-alpha read the settings that apep reads
        problems=() if method in ("arpep", "bb-alpha") else (NO_PROBLEM,),
        full=(NO_PROBLEM,) if method in ("arpep", "bb-alpha") else (),
    )
    def settings(context: Context, problem: Problem) -> list[Outcome]:
        return list(side_by_side(context, method, runs))


for _method, _runs in RUNS.items():
    _register(_method, _runs)
