"""Identity: data in parts, summed in a fixed tree, give the sweeps of the array path of `fast`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from validation.checks.core import Compared, Context, Outcome, check
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
        from fast.core.values import Data, Prior
        from fast.methods import x_gpc

        assert problem.Z is not None
        prior = Prior(
            float(problem.variance[0]), problem.lengthscales[0], float(problem.noise[0]), float(problem.jitter[0]),
            problem.Z[0],
        )  # fmt: skip
        rows = rows_of(problem.X, problem.y, leaf=max(1, problem.n // 5))
        parts = quadratic.fit(method, rows, prior, quadratic.BlockwiseOptions(NEVER, SWEEPS))
        options = x_gpc.XGPCOptions(accelerate=False, max_iterations=SWEEPS, tolerance=NEVER)
        whole = x_gpc.fit(Data(problem.X, problem.y), prior, options)
        joined = np.concatenate([part.latent_mean for _, part in quadratic.predictions(parts, rows)])
        return _compared(
            {
                "bound of each sweep": (parts.trace, whole.trace),
                "inducing mean": (parts.inducing_mean, whole.inducing_mean),
                "inducing covariance": (parts.inducing_cov, whole.inducing_cov),
                "latent means, leaf by leaf": (joined, x_gpc.predict(whole, problem.X).latent_mean),
            }
        )

    return ask


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
