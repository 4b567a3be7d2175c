"""`reference` and `fast` on problems drawn at random: fixed points, given steps and batches, ends of searches.

One table for each. `triad verify` asks both on its own problems, so that most seeds are for `make test-all`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from agreement import FIELDS, above_limit, both
from in_every_run import others_slow
from random_problems import Rng, binary, classes, conditioned, full_binary, full_classes
from validation import Problem, problems, solve
from validation.judge.compare import compare, identity_limit, relative_difference

Draw = Callable[[Rng, int], Problem]
_CALM = (0.1, 0.3, 0.5)
_ERRORS = {"noises": _CALM, "epsilon": 0.05}
_SATURATED = ("site_precision", "site_shift")  # of data whose label is sure: free, and what they give is compared


def _one(likelihood: str = "logit", **given: Any) -> Draw:
    return lambda rng, seed: binary(rng, likelihood, **given)


def _one_full(likelihood: str, **given: Any) -> Draw:
    return lambda rng, seed: full_binary(rng, likelihood).replace(**given)


def _several(**given: Any) -> Draw:
    """Two to four classes, parameters shared for odd seeds."""
    return lambda rng, seed: classes(rng, 2 + seed % 3, bool(seed % 2), **given)


def _full(likelihood: str) -> Draw:
    return lambda rng, seed: full_classes(rng, likelihood)


# -- fixed points ------------------------------------------------------------------------------------------------------

_KERNELS: tuple[tuple[str, float | None], ...] = (("se", None), ("matern", 0.5), ("matern", 1.5), ("matern", 2.3))
_IZMAILOV = [(method, "logit") for method in ("svi", "vi-jj", "vi-jj-full", "vi-jj-hybrid", "vi-taylor")]
_IZMAILOV += [("svi", "probit"), ("vi-taylor", "probit")]
_PROBIT = ("nested-ep", "nested-iep", "qep", "qiep", "vb-probit")
_POWERS = (0.0, 0.01, 0.25, 0.5, 0.75, 1.0)  # 0.01: the print divides by alpha


def _powers() -> list[tuple[str, float, float]]:
    """Every power and share of errors that has an optimum which is found in a moment."""
    results = []
    for method, alpha, epsilon in product(("pep", "apep", "arpep", "rpapep", "bb-alpha"), _POWERS, (0.0, 0.05, 0.5)):
        # without errors the variational bound is -inf, and a label costs 1/alpha times log P
        lost = epsilon == 0.0 and alpha < 0.1
        lost |= epsilon == 0.5 and alpha not in (0.0, 0.01, 0.5)
        # from 0.5 on rpapep may have no optimum, and finds its way slowly; bb-alpha is apep's
        lost |= alpha not in {"rpapep": _POWERS[:3], "bb-alpha": (0.0, 0.5)}.get(method, _POWERS)
        if not lost:
            results.append((method, alpha, epsilon))
    return results


# method, problem, options, seeds of every run, seeds in all
_FIXED: list[tuple[str, Draw, dict[str, Any], int, int]] = [
    ("x-gpc", _one(), {}, 6, 40),
    *((method, _one("probit"), {}, 3, 24) for method in ("svgpc", "epgpc")),
    *((method, _one(link, kernel=kernel, smoothness=nu), {}, 1, 4)
      for (method, link), (kernel, nu) in product(_IZMAILOV, _KERNELS)),
    *(("laplace-binary", _one_full(link), {}, 2, 8) for link in ("logit", "probit")),
    ("ep", _several(), {}, 1, 3),
    ("ep", _several(), {"factors": "datum", "gradient_rule": "exact"}, 1, 3),
    # beside a noise of .001 plain sweeps of sep take thousands, and gfitc in reference stalls above its own distance
    ("sep", _several(noises=_CALM), {}, 1, 3),
    ("sep", _several(noises=_CALM), {"count": "per-class", "gradient_rule": "exact"}, 1, 3),
    ("gfitc", _several(noises=_CALM), {}, 1, 3),
    ("vi-robust", _several(epsilon=0.05), {}, 1, 3),
    *((method, _several(noises=_CALM, epsilon=epsilon), {"alpha": alpha},
       int((alpha, epsilon) in {(0.0, 0.05), (0.25, 0.0), (0.5, 0.5), (1.0, 0.05)}), 1)
      for method, alpha, epsilon in _powers()),
    *((method, _several(**_ERRORS), {"alpha": 0.25 if method == "rpapep" else 0.75}, 0, 4)
      for method in ("pep", "apep", "arpep", "rpapep")),
    ("label-regression", _several(**_ERRORS), {}, 3, 6),
    ("laplace-sparse", _several(noises=_CALM, likelihood="softmax"), {}, 3, 6),
    *((method, _full("multinomial-probit"), {}, 1, 4) for method in _PROBIT),
    ("qep", _full("multinomial-probit"), {"lambda_": "full"}, 1, 2),
    *((method, _full("softmax"), {}, 1, 4) for method in ("laplace", "laplace-tkp")),
]  # fmt: skip
_ASKED = [
    (method, draw, options, seed, seed < every) for method, draw, options, every, n in _FIXED for seed in range(n)
]


@pytest.mark.parametrize(
    ("method", "draw", "options", "seed", "often"), others_slow(_ASKED, lambda *row: row[-1])
)  # fmt: skip
def test_fixed_points_agree(method: str, draw: Draw, options: dict[str, Any], seed: int, often: bool) -> None:
    p = conditioned(partial(draw, seed=seed), 2017, seed)
    left, right = both(method, p, **options)
    assert left.converged
    assert right.converged
    assert not above_limit(left, right, without=_SATURATED if method in ("svgpc", "epgpc") else ()), identity_limit(p)[
        1
    ]
    assert bool(left.gradients) == bool(right.gradients)
    for name in ("log_evidence_kind", "evidence_target", "evidence_prior_model")[: 1 if p.n_classes == 2 else 3]:
        assert getattr(left, name) == getattr(right, name)
    assert left.settings.get("optimum") == right.settings.get("optimum")
    # another variance is another answer: agreement is not that of constants
    other = solve("fast", method, p.replace(variance=p.variance * 1.05), **options)
    assert above_limit(left, other)["log_evidence"] > 10.0


_NAMED = [(name, method, link) for name in ("three-points", "three-points-fitc", "toy-steep")
          for method, link in (*_IZMAILOV, ("svgpc", "probit"), ("epgpc", "probit"))]  # fmt: skip
_NAMED += [("two-points-3-steep", method, "multinomial-probit")
           for method in _PROBIT]  # fmt: skip
_NAMED += [("two-points-3-steep-softmax", method, "softmax") for method in ("laplace", "laplace-tkp")]


@pytest.mark.parametrize(
    ("name", "method", "likelihood"), others_slow(_NAMED, lambda name, method, _: name != "toy-steep")
)
def test_fixed_points_agree_on_named_problems(name: str, method: str, likelihood: str) -> None:
    left, right = both(method, problems.get(name).replace(likelihood=likelihood))
    assert left.converged
    assert right.converged
    assert not above_limit(left, right, without=_SATURATED)


# -- odd problems ------------------------------------------------------------------------------------------------------

_CHANGES: dict[str, Callable[[Problem, Rng], dict[str, Any]]] = {
    "duplicate rows": lambda p, rng: {"X": p.X[rng.integers(0, p.n, p.n)]},
    "a constant column": lambda p, rng: {"X": np.column_stack([np.full(p.n, 0.3), p.X[:, 1:]])},
    "far from the origin": lambda p, rng: {
        "X": p.X + 1e6, "X_test": p.X_test + 1e6, "Z": p.Z if p.Z is None else p.Z + 1e6},
    "one against all": lambda p, rng: {"y": (np.arange(p.n) == 0).astype(int)},
    "Z outside": lambda p, rng: {"Z": p.X.max(axis=0) + np.ptp(p.X, axis=0) * (0.2 + rng.random((4, p.d)))},
    "Z twice": lambda p, rng: {"Z": p.X[[0, 1, 0, 1]], "jitter": 1e-3},
    "Z at the data": lambda p, rng: {"Z": p.X},
    "one inducing point": lambda p, rng: {"Z": p.X[:1]},
    "far test points": lambda p, rng: {"X_test": p.X[:2] + 1e5},
    "no test points": lambda p, rng: {"X_test": np.empty((0, p.d))},
}  # fmt: skip


@pytest.mark.parametrize("seed", others_slow(range(4), lambda seed: seed == 1))
@pytest.mark.parametrize("change", _CHANGES)
def test_the_witnesses_agree_on_odd_problems(change: str, seed: int) -> None:
    def draw(rng: Rng) -> Problem:
        p = binary(rng)
        return p.replace(**_CHANGES[change](p, rng))

    p = conditioned(draw, 20190127, seed)
    for options in ({}, {"accelerate": False}, {"block_size": 7}):
        left, right = solve("reference", "x-gpc", p), solve("fast", "x-gpc", p, **options)
        assert left.converged
        assert right.converged
        assert not above_limit(left, right)


# -- given steps and batches -------------------------------------------------------------------------------------------

_FEW = {"max_iterations": 2, "tolerance": 1e-14}
_LISTED = {"batches": True}
_LEARN = {"learn": FIELDS, "rate": 0.05}
_RATES: tuple[Any, ...] = ("adaptive", 0.3, ("decay", 1.0, 2.0, 0.7))
_KINDS: list[tuple[str, dict[str, Any]]] = [
    *(("ep", {"factors": factors, "schedule": schedule})
      for factors, schedule in product(("pairwise", "datum"), ("parallel", "sequential"))),
    *(("sep", {"count": count}) for count in ("all", "per-class")),
]  # fmt: skip
_NESTED = [
    {"schedule": schedule, "inner": inner, "inner_schedule": inner_schedule}
    for schedule, inner, inner_schedule in product(
        ("parallel", "sequential"), ("converged", "incremental"), ("sequential", "parallel")
    )
]
_PLAIN = {**_FEW, "gradients": False}
# every route to a fixed point is open, so that runs of the outer scheme are cut short to be comparable step by step
_OUTER = {"scheme": "outer", "optimizer": "adam", "n_steps": 2, **_LEARN, **_FEW}
_DRAWN = {"batch_size": 3, "n_steps": 3, "seed": 5}
_OF_2017: list[tuple[str, dict[str, Any]]] = [
    *((method, options | _FEW | {"damping": 0.7}) for method, options in _KINDS),
    *((method, options | _LISTED | {"gradient_rule": "exact"}) for method, options in _KINDS),
    *((method, options | _LISTED | _LEARN | {"scheme": scheme, "optimizer": optimizer})
      for scheme, optimizer in (("inner-approximate", "adaptive"), ("inner-exact", "adam"))
      for method, options in _KINDS),
    *(("ep", _OUTER | {"factors": factors}) for factors in ("pairwise", "datum")), ("sep", _OUTER),
    ("ep", _FEW | {"damping": 1.0}), ("gfitc", _FEW), ("ep", _DRAWN), ("sep", _DRAWN),
]  # fmt: skip
_ROBUST: list[dict[str, Any]] = [
    # from the second step on `fast` mixes
    _FEW | {"max_iterations": 1}, _LISTED, _LISTED | _LEARN, _DRAWN | {"learn": ("Z",)},
    {**_LEARN, "optimizer": "adam", "n_steps": 2},
]  # fmt: skip
_OF_2020: list[tuple[str, dict[str, Any]]] = [
    ("pep", {"damping": 0.7, **_FEW}), ("pep", {"damping": 1.0, "gradient_rule": "exact", **_FEW}),
    ("pep", {"gradient_rule": "exact", **_LISTED}), ("pep", _OUTER), ("pep", _DRAWN), ("apep", _DRAWN),
    ("pep", {"scheme": "inner", "optimizer": "adaptive", **_LISTED, **_LEARN}),
    ("pep", {"scheme": "inner", "optimizer": "adam", "gradient_rule": "exact", **_LISTED, **_LEARN}),
    *((method, {**_LISTED, "rate": 0.05, **more}) for method in ("apep", "arpep", "rpapep")
      for more in ({}, {"learn": ("variance", "noise")}, {"learn": FIELDS, "optimizer": "adam"})),
    ("apep", {"optimizer": "adam", "n_steps": 2, **_LEARN}),
]  # fmt: skip
_RIIHIMAKI: list[tuple[str, dict[str, Any]]] = [
    *((method, options | _PLAIN) for method in ("nested-ep", "nested-iep") for options in _NESTED),
    *(("qep", {"schedule": s, "lambda_": x, **_PLAIN})
      for s, x in product(("parallel", "sequential"), ("diagonal", "full"))),
    *(("qiep", {"schedule": s, **_PLAIN}) for s in ("parallel", "sequential")),
    ("vb-probit", _PLAIN),
]  # fmt: skip

# method, problem, options, those of fast alone
_STEPS: list[tuple[str, Draw, dict[str, Any], dict[str, Any]]] = [
    *((method, _several(), options, {}) for method, options in _OF_2017),
    *(("vi-robust", _several(epsilon=0.05), options, {}) for options in _ROBUST),
    *((method, _several(noises=_CALM, most=3, epsilon=epsilon), {"alpha": alpha, **options}, {})
      for method, options in _OF_2020 for alpha, epsilon in ((0.6, 0.1), (1.0, 0.0), (0.0, 0.1))),
    ("label-regression", _several(**_ERRORS),
     {"learn": FIELDS, "optimizer": "adaptive", "rate": 0.02, "n_steps": 5}, {}),
    *((method, _full("multinomial-probit"), options, {"accelerate": False}) for method, options in _RIIHIMAKI),
    ("laplace", _full("softmax"), _PLAIN, {}),
    *(("laplace-binary", _one_full(link, variance=200.0), _FEW, {}) for link in ("logit", "probit")),
]  # fmt: skip

# Where q is the prior, as it is at Adam's first step, latent marginals do not depend on lengthscales and Z, and nothing
# depends on variances that all classes share: derivatives are zero up to 1e-13, which Adam divides by 1e-8 and
# multiplies by its rate; conditions of 1e3 carry that into q.
_FIRST_STEP = 1e-4


@pytest.mark.parametrize(("method", "draw", "options", "fast"), _STEPS)
@pytest.mark.parametrize("seed", others_slow([10, 11], lambda seed: seed == 10))
def test_given_steps_and_batches_lead_to_the_same_place(
    method: str, draw: Draw, options: dict[str, Any], fast: dict[str, Any], seed: int
) -> None:
    p = conditioned(partial(draw, seed=seed), 2020, seed)
    given = {"trace": True} | options
    if given.get("batches"):
        given["batches"] = [[0, 2, 3], [1, p.n - 1], list(range(p.n)), [2, 2, 4]]
    full = method in (*_PROBIT, "laplace", "laplace-binary")
    if full:
        given.pop("trace")  # these keep theirs always
    left, right = solve("reference", method, p, **given), solve("fast", method, p, **given, **fast)
    learn = given.get("learn")
    at_prior = method in ("apep", "arpep", "rpapep") and learn and (p.shared or "Z" in learn)
    least = _FIRST_STEP if at_prior else 0.0
    assert left.converged == right.converged
    assert left.iterations == right.iterations
    assert left.n_improper == right.n_improper
    assert len(left.trace) == len(right.trace)
    assert not above_limit(left, right, least)
    # of full processes each witness has its own; that of vi-robust in fast is of the q before its last step
    if not full and (method != "vi-robust" or "max_iterations" not in given):
        # a residual is a difference of what is known to the limit, in the units of one deviation
        assert relative_difference(left.residual, right.residual, 1.0) <= max(least, identity_limit(p)[0])
    moved = any(np.any(getattr(left.problem, name) != getattr(p, name)) for name in FIELDS)
    assert moved == bool(learn)


def _batches(p: Problem, seed: int, steps: int = 50) -> list[Any]:
    """Batches of two data or more, never all of them: there the gradient may vanish, and with it the rate.

    No run learns from one datum at a time, whose evidence is ½ whatever the prior: Adam would turn the rounding of a
    derivative that is zero in theory into a step.
    """
    rng = np.random.default_rng([11, seed])
    return [rng.choice(p.n, int(rng.integers(2, max(3, min(p.n, 20)))), replace=False) for _ in range(steps)]


_STOCHASTIC: list[tuple[str, str, dict[str, Any]]] = [
    *((method, link, {"rate": rate, "learn": learn})
      for (method, link), rate, learn in product(
          (("x-gpc-svi", "logit"), ("svgpc", "probit")), _RATES, ((), ("variance", "lengthscales"), FIELDS))),
    *(("epgpc", "probit", {"parallel": parallel, "learn": learn, "damping": damping})
      for parallel, learn, damping in product((True, False), ((), FIELDS), (1.0, 0.6))),
    *(("svi", link, {"learn": learn, "gradients": False})
      for link, learn in product(("logit", "probit"), ((), ("variance", "lengthscales", "noise")))),
]  # fmt: skip
_SOURCES = [("three-points-fitc", 0), ("toy-sparse", 0), *(("", seed) for seed in range(4))]


@pytest.mark.parametrize(("method", "likelihood", "options"), _STOCHASTIC)
@pytest.mark.parametrize(("name", "seed"), others_slow(_SOURCES, lambda name, _: name == "three-points-fitc"))
def test_fifty_steps_on_the_same_batches_are_the_same_steps(
    name: str, seed: int, method: str, likelihood: str, options: dict[str, Any]
) -> None:
    given = dict(options)
    if name:
        p = problems.get(name).replace(likelihood=likelihood)
    else:
        p = conditioned(lambda rng: binary(rng, likelihood, sparse=True, noise=0.05), 20190128, seed)
        # a small step of Adam: random kernels next to a singular one would leave it
        given |= {} if method == "svi" else {"learning_rate": 1e-3}
    given |= {"batches": _batches(p, seed)} | ({} if method == "svi" else {"trace": True})
    left, right = both(method, p, **given)
    assert not above_limit(left, right)
    assert left.iterations == right.iterations == 50
    assert method == "svi" or len(left.trace) == len(right.trace) == 50
    assert left.converged == right.converged == False  # noqa: E712 - no stopping rule was asked
    assert left.n_improper == right.n_improper


@pytest.mark.parametrize("method", ["x-gpc-svi", "svgpc"])
def test_batches_that_start_the_adaptive_rate_may_be_given(method: str) -> None:
    p = problems.get("toy-sparse").replace(likelihood="logit" if method == "x-gpc-svi" else "probit")
    given: dict[str, Any] = {"batches": _batches(p, 6), "rate": "adaptive"}
    left, right = both(method, p, **given, init_batches=_batches(p, 5, steps=3))
    assert not above_limit(left, right)
    plain = solve("fast", method, p, **given)
    assert relative_difference(plain.local["rates"], right.local["rates"]) > 1e-3


@pytest.mark.parametrize("method", ["x-gpc-svi", "svgpc", "epgpc"])
def test_the_judge_compares_both_answers_with_nothing_left_out(method: str) -> None:
    p = problems.get("toy-sparse").replace(likelihood="logit" if method == "x-gpc-svi" else "probit")
    rows = compare(*both(method, p, batches=_batches(p, 3, steps=20), learn=("variance", "lengthscales")))
    assert {row.verdict for row in rows} == {"PASS"}
    assert {"log_evidence", "learned/variance", "learned/lengthscales"} <= {row.quantity for row in rows}


# -- ends of searches --------------------------------------------------------------------------------------------------


def _line(n_inducing: int = 2) -> Problem:
    """Four data on a line, two classes, one parameter vector: as cheap as a search can be."""
    return Problem(
        name="line", X=np.array([[-1.5], [-0.5], [0.4], [1.6]]), y=np.array([0, 0, 1, 1]), n_classes=2,
        likelihood="threshold", variance=1.5, lengthscales=0.6, noise=0.2, jitter=1e-4,
        Z=np.array([[-1.0], [1.0]])[:n_inducing], shared=True, prior_model="fitc", epsilon=0.05,
        X_test=np.array([[-1.0], [0.0], [3.0]]),
    )  # fmt: skip


def _plane() -> Problem:
    """Six data of three classes."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(6, 2))
    y = np.argmax(np.stack([X[:, 0], -X[:, 0], X[:, 1]], axis=1) + rng.normal(size=(6, 3)), axis=1)
    return Problem(name="plane", X=X, y=y, n_classes=3, likelihood="threshold", variance=2.0, lengthscales=1.0,
                   noise=0.5, jitter=1e-4, Z=X[:3], shared=True, prior_model="fitc", X_test=X[:2])  # fmt: skip


_BOTH = ("variance", "lengthscales")
# method, problem, options; projected gradients of 1e-5 or 1e-4 at curvatures of about 0.1 leave so much
_SEARCHES: list[tuple[str, Problem, dict[str, Any], float, float]] = [
    *((method, problems.get("toy").replace(likelihood=link), {"learn": _BOTH}, 1e-8, 1e-4)
      for method, link in (("x-gpc", "logit"), ("svgpc", "probit"), ("epgpc", "probit"))),
    *(("ep", _plane(), {"learn": ("noise",), **options}, 1e-6, 1e-2) for options in ({}, {"factors": "datum"})),
    ("gfitc", _plane(), {"learn": ("noise",)}, 1e-6, 1e-2),
    ("vi-robust", _plane().replace(epsilon=0.05), {"learn": ("noise",)}, 1e-6, 1e-2),
    ("label-regression", _plane().replace(epsilon=0.05, noise=3.0),
     {"learn": ("noise",), "learn_tolerance": 1e-5}, 1e-8, 1e-3),
    *((method, _line(),
       {"alpha": 0.2, "learn": ("lengthscales",), "learn_tolerance": 1e-4, "tolerance": 1e-8}, 1e-6, 5e-3)
      for method in ("pep", "apep", "rpapep")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "p", "options", "in_value", "in_parameters"),
    others_slow(
        _SEARCHES, lambda method, *_: method in ("x-gpc", "svgpc", "epgpc", "gfitc", "label-regression", "pep")
    ),
)
def test_searches_end_at_the_same_evidence(
    method: str, p: Problem, options: dict[str, Any], in_value: float, in_parameters: float
) -> None:
    left, right = both(method, p, **options)
    assert left.converged
    assert right.converged
    held = {name: value for name, value in options.items() if not name.startswith("learn")}
    start = solve("fast", method, p, **held)
    assert left.log_evidence is not None
    assert right.log_evidence is not None
    assert start.log_evidence is not None
    assert left.log_evidence > start.log_evidence + 0.005
    assert abs(left.log_evidence - right.log_evidence) <= in_value * max(1.0, abs(left.log_evidence))
    for name in options["learn"]:
        assert relative_difference(getattr(left.problem, name), getattr(right.problem, name)) < in_parameters
        assert relative_difference(getattr(left.problem, name), getattr(p, name)) > 0.05  # it did move
    np.testing.assert_allclose(left.probabilities, right.probabilities, rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("shared", [True, False])
def test_rounds_of_the_alternation_of_vb_probit_are_the_same(shared: bool) -> None:
    X = np.random.default_rng(3).normal(size=(7, 2))
    p = Problem(name="em", X=X, y=np.arange(7) % 3, n_classes=3, likelihood="multinomial-probit", variance=2.0,
                lengthscales=1.0, noise=0.1, jitter=1e-4, shared=shared)  # fmt: skip
    left, right = both("vb-probit", p, learn=("variance", "noise"), optimizer="em", max_iterations=2)
    assert not left.converged
    assert not right.converged
    # L-BFGS-B stops at a gradient of 1e-6 in logarithms on either side
    np.testing.assert_allclose(left.trace, right.trace, rtol=1e-8)
    np.testing.assert_allclose(left.problem.variance, right.problem.variance, rtol=1e-4)
    np.testing.assert_allclose(left.problem.noise, right.problem.noise, rtol=1e-4)
    assert left.problem.variance[0] < 0.9 * p.variance[0]


@pytest.mark.slow  # some seconds
def test_a_search_by_vi_robust_ends_at_a_maximum_of_the_bound() -> None:
    p = problems.get("toy-2-sparse-errors")
    result = solve("reference", "vi-robust", p, learn=FIELDS, optimizer="lbfgs", n_steps=3, max_iterations=300)
    there = solve("fast", "vi-robust", result.problem)
    assert there.converged
    assert result.log_evidence == pytest.approx(there.log_evidence, rel=1e-9)


# -- energies that are no number, or have no end -----------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.25, 1.0])
def test_monte_carlo_energies_of_the_same_draws_agree(alpha: float, epsilon: float) -> None:
    p = conditioned(partial(_several(noises=_CALM, epsilon=epsilon), seed=1), 2020, 1)
    given = {"alpha": alpha, "expectation": "monte-carlo", "n_draws": 200}
    left, right = both("bb-alpha", p, seed=3, **given)
    assert not above_limit(left, right)
    again = solve("fast", "bb-alpha", p, seed=4, **given)
    assert relative_difference(again.log_evidence, right.log_evidence) > 1e-4


def test_an_energy_that_rises_without_end_is_said_to_by_both() -> None:
    # at power 1 rpapep takes the prior away, and an inducing value ninety units off all data has nothing else
    for value in both("rpapep", _line(1).replace(Z=np.array([[90.0]])), alpha=1.0):
        assert not value.converged
        assert value.log_evidence is None
        assert value.gradients is None
        assert value.settings["optimum"].startswith("none: the variance of class ")
    for value in both("apep", _line(), alpha=0.5, max_iterations=1):
        assert not value.converged
        assert value.settings["optimum"] == "not reached"
        assert value.log_evidence is not None


def test_expectations_that_no_draw_contributes_to_are_counted() -> None:
    # two draws of three classes miss the label of some datum
    p = conditioned(partial(_several(**_ERRORS), seed=1), 2020, 1)
    p = p.replace(epsilon=0.0, noise=0.0, variance=30.0, lengthscales=5.0)
    left, right = both("bb-alpha", p, alpha=1.0, expectation="monte-carlo", n_draws=2, seed=1)
    assert left.settings.get("zero_expectations", 0) == right.settings.get("zero_expectations", 0) > 0
    assert left.log_evidence is None
    assert right.log_evidence is None
