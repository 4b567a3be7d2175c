"""Identity: data in parts, summed in a fixed tree, give the sweeps of the array path of `fast`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

from validation.checks.core import NO_PROBLEM, Compared, Context, Outcome, check, flaws
from validation.checks.learning import tiny
from validation.compare import relative_difference
from validation.problem import Problem

LIMIT = 1e-12
WHY = (
    "the same sums in another order: a hundred terms leave 100 eps = 2e-14 each sweep, times the condition of B or P, "
    "below 50 after four sweeps; a lost leaf or term shows at 1e-3"
)
SWEEPS = 4
NEVER = 1e-300  # a tolerance that no sweep meets


def _compared(pairs: dict[str, tuple[object, object]]) -> Iterable[Outcome]:
    """Each quantity of the parts against that of the array path."""
    for name, (parts, whole) in pairs.items():
        difference = relative_difference(np.asarray(parts), np.asarray(whole))
        yield Compared(difference, LIMIT, WHY, f"parts ({name})", f"array ({name})")


def _quadratic(method: str) -> Callable[[Context, Problem], Iterable[Outcome]]:
    def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
        from fast.blockwise import quadratic
        from fast.blockwise.rows import rows_of
        from fast.core.values import Data
        from fast.methods import x_gpc

        prior = _one(problem)
        rows = rows_of(problem.X, problem.y, leaf=max(1, problem.n // 5))
        parts = quadratic.fit(method, rows, prior, quadratic.BlockwiseOptions(NEVER, SWEEPS))
        with mock.patch.object(quadratic, "_TILE", 8), mock.patch("fast.core.blocks._TILE", 8):  # the last is smaller
            whole_leaf = rows_of(problem.X, problem.y, leaf=problem.n)
            tiled = quadratic.fit(method, whole_leaf, prior, quadratic.BlockwiseOptions(NEVER, SWEEPS))
        options = x_gpc.XGPCOptions(accelerate=False, max_iterations=SWEEPS, tolerance=NEVER)
        whole = x_gpc.fit(Data(problem.X, problem.y), prior, options)
        joined = np.concatenate([part.latent_mean for _, part in quadratic.predictions(parts, rows)])
        return _compared(
            {
                "bound of each sweep": (parts.trace, whole.trace),
                "bound of each sweep, one leaf in tiles": (tiled.trace, whole.trace),
                "inducing covariance, one leaf in tiles": (tiled.inducing_cov, whole.inducing_cov),
                "inducing mean": (parts.inducing_mean, whole.inducing_mean),
                "inducing covariance": (parts.inducing_cov, whole.inducing_cov),
                "latent means, leaf by leaf": (joined, x_gpc.predict(whole, problem.X).latent_mean),
            }
        )

    return ask


def _kin(method: str) -> Callable[[Context, Problem], Iterable[Outcome]]:
    def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
        from fast.blockwise import quadratic
        from fast.blockwise.rows import rows_of
        from fast.core.values import Data
        from fast.methods import vi_jj

        prior, rows, data = _one(problem), rows_of(problem.X, problem.y, leaf=7), Data(problem.X, problem.y)
        parts = quadratic.fit(method, rows, prior, quadratic.BlockwiseOptions(1e-13))
        if method == "vi-jj-full":
            whole = vi_jj.fit_full(data, prior, vi_jj.JJFullOptions(tolerance=1e-14))
        else:
            whole = vi_jj.fit_hybrid(data, prior, vi_jj.JJHybridOptions(tolerance=1e-14))
        joined = np.concatenate([part.latent_mean for _, part in quadratic.predictions(parts, rows)])
        return _compared(
            {
                "bound": (parts.elbo, whole.elbo),
                "latent means, leaf by leaf": (joined, vi_jj.latent(whole, problem.X)[0]),
            }
        )

    return ask


def _one(problem: Problem) -> Any:
    from fast.core.values import Prior

    assert problem.Z is not None
    return Prior(
        float(problem.variance[0]), problem.lengthscales[0], float(problem.noise[0]), float(problem.jitter[0]),
        problem.Z[0],
    )  # fmt: skip


def _classes(method: str) -> Callable[[Context, Problem], Iterable[Outcome]]:
    def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
        from fast import methods
        from fast.blockwise import classes, multiclass
        from fast.blockwise.rows import rows_of
        from fast.core.values import Data, Prior

        prior = Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, problem.Z, problem.shared)
        own: dict[str, Any] = {"alpha": 0.5} if _MODULES[method] in ("pep", "apep") else {}
        own |= {"epsilon": 0.01} if multiclass.METHODS[method].robust else {}
        # not the half of the way, at which old and new sites count alike
        own |= {"damping": 0.7} if "damping" in multiclass.METHODS[method].options.declared() else {}
        made = multiclass.METHODS[method].options(**own, tolerance=NEVER, max_iterations=SWEEPS)
        rows = rows_of(problem.X, problem.y, leaf=max(1, problem.n // 5))
        with mock.patch("fast.sparse_classes.mixing._PLAIN", 2):  # sites in parts are never mixed
            parts = multiclass.fit(method, rows, problem.n_classes, prior, made)
        with mock.patch.object(classes, "_TILE", 8), mock.patch("fast.core.blocks._TILE", 8):
            whole_leaf = rows_of(problem.X, problem.y, leaf=problem.n)
            tiled = multiclass.fit(method, whole_leaf, problem.n_classes, prior, made)
        module = import_module(f"{methods.__name__}.{_MODULES[method]}")
        if _MODULES[method] == "apep":
            kind = method if method in ("arpep", "rpapep") else "apep"
            made = module.EnergyOptions(**own, energy=kind, tolerance=NEVER, max_iterations=SWEEPS)
        whole = module.fit(Data(problem.X, problem.y, problem.n_classes), prior, made)
        joined = np.concatenate([part.probabilities for _, part in multiclass.predictions(parts, rows)])
        return _compared(
            {
                "log Z, energy or bound": (parts.log_evidence, whole.log_evidence),
                "log Z, energy or bound, one leaf in tiles": (tiled.log_evidence, whole.log_evidence),
                "inducing mean, one leaf in tiles": (tiled.inducing_mean, whole.inducing_mean),
                "inducing mean": (parts.inducing_mean, whole.inducing_mean),
                "inducing covariance": (parts.inducing_cov, whole.inducing_cov),
                "largest change of the last sweep": (parts.trained.residual, whole.trained.residual),
                "probabilities, leaf by leaf": (joined, module.predict(whole, problem.X).probabilities),
            }
        )

    return ask


_MODULES = {
    "ep": "ep", "gfitc": "gfitc", "vi-robust": "vi_robust", "pep": "pep", "apep": "apep", "arpep": "apep",
    "rpapep": "apep", "bb-alpha": "apep",
}  # fmt: skip
_OF_2017 = ("ep", "gfitc", "vi-robust")

for _method in _MODULES:
    check(
        f"identity/{_method}/parts",
        paper="villacampa2017" if _method in _OF_2017 else "villacampa2020",
        question="Do data in parts, summed in a fixed tree, give the sweeps of the array path?",
        problems=("toy-3-sparse-threshold",),
    )(_classes(_method))

for _method in ("vi-jj-full", "vi-jj-hybrid"):
    check(
        f"identity/{_method}/parts",
        paper="izmailov2016",
        question="Do data in parts, the prior held, come to the fixed point of the array path?",
        problems=("toy-sparse",),
    )(_kin(_method))


@check(
    "identity/vi-taylor/parts",
    paper="izmailov2016",
    question="Do data in parts, summed in a fixed tree, give Newton's steps of the array path?",
    problems=("toy-sparse",),
)
def taylor_parts(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Either link, three steps on the way and the mode."""
    from fast.blockwise import quadratic, taylor
    from fast.blockwise.rows import rows_of
    from fast.core.values import Data
    from fast.methods import vi_taylor

    prior, rows = _one(problem), rows_of(problem.X, problem.y, leaf=max(1, problem.n // 5))
    for link in ("logit", "probit"):
        for most, tolerance in ((3, NEVER), (50, 1e-10)):
            parts = taylor.fit(rows, prior, quadratic.BlockwiseOptions(tolerance, most), likelihood=link)
            options = vi_taylor.TaylorOptions(tolerance=tolerance, max_iterations=most, likelihood=link)
            whole = vi_taylor.fit(Data(problem.X, problem.y), prior, options)
            joined = np.concatenate([part.probabilities for _, part in quadratic.predictions(parts, rows)])
            steps = min(parts.trace.size, whole.trace.size)
            yield from _compared(
                {
                    f"height of each step, {link}, {most}": (parts.trace[:steps], whole.trace[:steps]),
                    f"objective, {link}, {most}": (parts.elbo, whole.elbo),
                    f"number of steps, {link}, {most}": (parts.trace.size, whole.trace.size),
                    f"probabilities, {link}, {most}": (joined, vi_taylor.predict(whole, problem.X).probabilities),
                }
            )


for _method, _paper in (("x-gpc", "wenzel2019"), ("vi-jj", "izmailov2016")):
    check(
        f"identity/{_method}/parts",
        paper=_paper,
        question="Do data in parts, summed in a fixed tree, give the sweeps of the array path?",
        problems=("toy-sparse",),
    )(_quadratic(_method))


@check(
    "identity/sep/parts",
    paper="villacampa2017",
    question="Do data in parts, summed in a fixed tree, give the sweeps of the array path?",
    problems=("toy-3-sparse-threshold",),
)
def sep_parts(context: Context, problem: Problem) -> Iterable[Outcome]:
    """Tied factors after four sweeps."""
    from fast.blockwise import sep as blockwise
    from fast.blockwise.rows import rows_of
    from fast.core.values import Data, Prior
    from fast.methods import sep

    prior = Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, problem.Z, problem.shared)
    C = problem.n_classes
    rows = rows_of(problem.X, problem.y, leaf=max(1, problem.n // 5))
    parts = blockwise.fit(rows, C, prior, blockwise.SEPSweeps(tolerance=NEVER, max_iterations=SWEEPS))
    whole = sep.fit(Data(problem.X, problem.y, C), prior, sep.SEPOptions(tolerance=NEVER, max_iterations=SWEEPS))
    joined = np.concatenate([part.probabilities for _, part in blockwise.predictions(parts, rows)])
    return _compared(
        {
            "log Z": (parts.log_evidence, whole.log_evidence),
            "inducing mean": (parts.inducing_mean, whole.inducing_mean),
            "inducing covariance": (parts.inducing_cov, whole.inducing_cov),
            "probabilities, leaf by leaf": (joined, sep.predict(whole, problem.X).probabilities),
        }
    )


# method of batches -> module, function, options and what they are asked for besides
_BATCHES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "x-gpc-svi": ("x_gpc_svi", "fit", "XGPCSteps", {}),
    "svgpc": ("svgpc_svi", "fit", "SVGPCSteps", {}),
    "epgpc": ("epgpc_svi", "fit", "EPGPCSteps", {}),
    "svi": ("svi", "fit_stochastic", "SVISteps", {}),
    "sep": ("sep", "fit", "SEPOptions", {"learn": ("variance",)}),
    "ep": ("ep", "fit", "EPOptions", {"learn": ("variance",)}),
    "vi-robust": ("vi_robust", "fit", "RobustOptions", {"epsilon": 0.01}),
    "pep": ("pep", "fit", "PEPOptions", {"epsilon": 0.01}),
    "apep": ("apep", "fit", "EnergyOptions", {"epsilon": 0.01, "alpha": 0.5}),
}
_PAPERS = {"x-gpc-svi": "wenzel2019", "svgpc": "wenzel2019", "epgpc": "wenzel2019", "svi": "izmailov2016",
           "sep": "villacampa2017", "ep": "villacampa2017", "vi-robust": "villacampa2017"}  # fmt: skip


def _batches(method: str) -> Callable[[Context, Problem], Iterable[Outcome]]:
    def ask(context: Context, problem: Problem) -> Iterable[Outcome]:
        from fast.blockwise.batches import batches_from
        from fast.blockwise.rows import rows_of
        from fast.core.values import Data, Prior

        rng = np.random.default_rng(21)
        lists = [rng.permutation(problem.n)[: problem.n // 3] for _ in range(SWEEPS)]
        name, function, options_name, own = _BATCHES[method]
        module = import_module(f"fast.methods.{name}")
        fit, options = getattr(module, function), getattr(module, options_name)(batches=lists, **own)
        prior = _one(problem)
        if problem.n_classes > 2:
            prior = Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, problem.Z)
        whole = fit(Data(problem.X, problem.y, problem.n_classes), prior, options)
        rows = rows_of(problem.X, problem.y, leaf=max(1, problem.n // 5))
        with batches_from(rows, problem.n_classes) as data:
            parts = fit(data, prior, options)
        parts, whole = (getattr(end, "posterior", end) for end in (parts, whole))
        return _compared(
            {
                "inducing mean": (parts.inducing_mean, whole.inducing_mean),
                "inducing covariance": (parts.inducing_cov, whole.inducing_cov),
            }
        )

    return ask


for _method in _BATCHES:
    check(
        f"identity/{_method}/batches-elsewhere",
        paper=_PAPERS.get(_method, "villacampa2020"),
        question="Do listed batches of rows that live in leaves give the steps of the array path?",
        problems=("toy-sparse" if _BATCHES[_method][0].endswith(("svi",)) else "toy-3-sparse-threshold",),
    )(_batches(_method))


@check(
    "identity/ep/parts_by_default",
    paper="villacampa2017",
    question="Are options that nobody gives those of the method, and is a place told by its linear algebra?",
    problems=(NO_PROBLEM,),
)
def defaults(_context: Context, _problem: Problem | None) -> Iterable[Outcome]:
    """A fit without options and one with the method's own; what a process says of itself."""
    from threadpoolctl import threadpool_info

    from fast.blockwise import multiclass, places
    from fast.blockwise.rows import rows_of
    from fast.core.values import Prior

    problem = tiny("threshold")
    prior = Prior(problem.variance, problem.lengthscales, problem.noise, problem.jitter, problem.Z, problem.shared)
    rows = rows_of(problem.X, problem.y, leaf=problem.n)
    silent, told = (
        multiclass.fit("gfitc", rows, problem.n_classes, prior, options)
        for options in (None, multiclass.METHODS["gfitc"].options())
    )
    yield from _compared({"inducing mean": (silent.inducing_mean, told.inducing_mean)})
    names = {entry["internal_api"] for entry in threadpool_info() if entry["user_api"] == "blas"}
    kernel = places.here().kernel
    missing = [name for name in names if name not in kernel]
    foreign = [entry["internal_api"] for entry in threadpool_info() if entry["user_api"] != "blas"]
    missing += [name for name in foreign if name in kernel]
    yield flaws(len(missing), f"libraries {sorted(names)}, and what is said: {kernel}", "fast", "libraries")
