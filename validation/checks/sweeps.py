"""Sweeps over kernel parameters, one at a time: where they start, along what they slice, what they refuse.

Each is held against the sentence that documents it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from validation.by_name import sampler_by_name
from validation.checks import hyper_model as own
from validation.checks.core import NO_PROBLEM, Context, Outcome, as_documented, check, flaws
from validation.problem import Problem

Array = NDArray[np.float64]
PAPER = "riihimaki2013"

INPUTS = np.array([[-1.0], [-0.4], [0.1], [0.5], [1.2]])


LAWS: Mapping[str, own.Distribution] = {
    "variance": ("half-student-t", 4.0, 2.0),
    "lengthscales": ("log-normal", 1.0, 1.0),
    "noise": ("log-normal", 1.0, 0.3),
}


def hyper_model(likelihood: str, n_classes: int, y: NDArray[np.int64], **more: Any) -> Any:
    """What chains over kernel parameters of these labels are made of."""
    from gibbs.models.hyper import make_model

    options: dict[str, Any] = {"hyperprior": dict(LAWS), "learn": own.FIELDS, "shared": True, **more}
    epsilon, n_warmup = options.pop("epsilon", 0.0), options.pop("n_warmup", 0)
    made, _ = sampler_by_name(make_model, n_warmup=n_warmup)(
        likelihood, INPUTS, y, n_classes, 1.5, np.array([1.4]), 0.05, 1e-4, None, "full", INPUTS[:1], epsilon, **options
    )
    return made


@check(
    "identity/gibbs-probit/starts_near_the_apex",
    paper=PAPER,
    question="Does no chain of constraints start farther out under its prior than its values are many?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    y = np.array([0, 2, 1, 2, 0])
    for likelihood in ("multinomial-probit", "threshold"):
        for shared in (True, False):
            model = hyper_model(likelihood, 3, y, shared=shared)
            state = model.start(np.random.default_rng(3), 12, 1)
            unit = own.unit_noise(likelihood) * np.eye(len(INPUTS))
            given = own.Given(INPUTS, INPUTS[:1], None, 1e-4)
            depth = np.zeros(12)
            for k in range(12):
                for latent in range(3):
                    v = state["latent"][k, latent]
                    cov = own.blocks(state["hyper"][k, 0 if shared else latent], given).data + unit
                    depth[k] += 0.5 * float(v @ np.linalg.solve(cov, v))
            # half a value's square on average: what a draw of the prior has
            most = 0.5 * 3 * len(INPUTS)
            wrong = int(np.any(depth > most * (1.0 + 1e-9))) + int(not np.any(np.abs(depth / most - 1.0) < 1e-9))
            wrong += int(np.any(state["latent"].argmax(axis=1) != y))
            why = f"{likelihood}, {'one vector' if shared else 'a vector for each class'}: {wrong} of three"
            yield flaws(wrong, f"{why} (at most as far as a draw of the prior, some drawn in, all inside)", "gibbs",
                        "starts")  # fmt: skip


@check(
    "identity/gibbs-logit/slices_of_a_sweep",
    paper=PAPER,
    question="Does a sweep slice along each logarithm in turn and once at random, block by block, and count refusals?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models import hyper_models
    from gibbs.moves.hyper import Moved

    y = np.array([0, 2, 1, 2, 0])
    rows: list[tuple[str, object, object]] = []
    for learn in (own.FIELDS, ("noise",)):
        model = hyper_model("softmax", 3, y, shared=False, learn=learn)
        r, p = 4, len(learn)
        rng = np.random.default_rng(24)
        hyper = np.tile(model.hyper, (r, 1, 1))
        directions: list[Array] = []

        def slice_move(rng: Any, position: Array, direction: Array, function: Any, width: float,
                       directions: list[Array] = directions) -> Any:  # fmt: skip
            directions.append(direction.copy())
            refused = np.arange(float(len(position))) * 10.0 ** len(directions)
            return Moved(position, np.ones(len(position)), np.asarray(refused, dtype=np.float64))

        with mock.patch.object(hyper_models, "slice_move", slice_move):
            result = model.ancillary_move(rng, hyper, rng.standard_normal((r, 3, 1, 5)), np.zeros((r, 5)))
        each = p + 1 if p > 1 else 1
        refused = np.array([[k * sum(10.0 ** (b * each + j + 1) for j in range(each)) for b in range(3)]
                            for k in range(r)])  # fmt: skip
        rows.append((f"{p} learnt: slices", len(directions), 3 * each))
        rows.append((f"{p} learnt: refused", result[3].tolist(), refused.tolist()))
        blocks = [directions[b * each : (b + 1) * each] for b in range(3)]
        axes = all(np.array_equal(one[j], np.tile(np.eye(p)[j], (r, 1))) for one in blocks for j in range(p))
        rows.append((f"{p} learnt: axes in turn", axes, True))
        if p > 1:
            random = np.array([one[p] for one in blocks])
            lengths = float(np.abs(np.linalg.norm(random, axis=-1) - 1.0).max())
            rows.append(("directions at random of length one", lengths < 1e-12, True))
            rows.append(("directions at random, all others", len(np.unique(random.round(9))), random.size))
    yield as_documented(rows, "gibbs", "slices")


@check(
    "identity/gibbs-probit/parameters_beside_noise",
    paper=PAPER,
    question="Are parameters moved where only the noise of h gives a covariance a factor, and refused for the logit?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.hyper import make_model

    twins = np.array([[-0.5], [-0.5], [0.4], [0.4], [1.0]])
    y = np.array([0, 0, 1, 1, 1])
    rows: list[tuple[str, object, object]] = []
    for likelihood, factorised in (("probit", False), ("logit", True)):
        model, _ = sampler_by_name(make_model, n_warmup=0)(
            likelihood, twins, y, 2, 1.5, np.array([1.4]), 0.0, 0.0, None, "full", twins[:1],
            hyperprior=dict(LAWS), learn=("variance", "lengthscales"), shared=True, n_steps=3,
        )  # fmt: skip
        hyper = np.tile(model.hyper, (6, 1, 1))
        values = np.tile(np.where(y == 1, 0.8, -0.8), (6, 1, 1, 1))
        more: dict[str, Any] = {"factorised": True} if factorised else {}
        moved, _, refused = model._sufficient(
            {"gradient": np.random.default_rng(27)}, False, hyper, values, 1.0, np.full((6, 1), 0.2), **more
        )
        changed = bool(np.all(moved[..., :-1] != hyper[..., :-1]))
        rows.append((f"{likelihood}: moved, refused", (changed, refused.sum()), (not factorised, 6.0 * factorised)))
    yield as_documented(rows, "gibbs", "moves")


@check(
    "identity/mh-softmax/shared_parameters",
    paper=PAPER,
    question="Are parameters that latents share refused where they are given unequal, whichever they are?",
    problems=(NO_PROBLEM,),
)
def _(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    from gibbs.models.hyper import make_model

    inducing = np.stack([INPUTS[:2], INPUTS[1:3], INPUTS[2:4]])
    fields: dict[str, Any] = {"variance": 1.5, "lengthscales": np.array([1.4]), "noise": 0.05, "jitter": 1e-4,
                              "Z": inducing[:1].repeat(3, axis=0)}  # fmt: skip
    unequal: dict[str, Any] = {
        "variance": np.array([1.5, 1.5, 1.6]), "lengthscales": np.array([[1.4], [1.3], [1.4]]),
        "noise": np.array([0.05, 0.05, 0.06]), "jitter": np.array([1e-4, 2e-4, 1e-4]), "Z": inducing,
    }  # fmt: skip
    rows: list[tuple[str, object, object]] = []
    for name in ("nothing", *fields):
        for shared in (True, False):
            given = fields | ({name: unequal[name]} if name in unequal else {})
            try:
                sampler_by_name(make_model, n_warmup=0)(
                    "softmax", INPUTS, np.array([0, 2, 1, 2, 0]), 3, *given.values(), "fitc", INPUTS[:1],
                    hyperprior=dict(LAWS), learn=own.FIELDS, shared=shared,
                )  # fmt: skip
                told = "taken"
            except ValueError as error:
                told = str(error).split(":")[0]
            rows.append((f"{name} unequal, {'shared' if shared else 'apart'}", told,
                         name if shared and name in unequal else "taken"))  # fmt: skip
    yield as_documented(rows, "gibbs", "requests")
