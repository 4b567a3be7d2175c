"""What rounding leaves open: answers at neighbouring hyper-parameters, a few units in the last place away."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.common.algebra import eigenvalues
from reference.common.errors import NotPositiveDefiniteError, cholesky

Array = NDArray[np.float64]

LEAST, LARGEST = 1e-8, 1e-3  # relative errors: of an answer from well-conditioned matrices, and of any that is claimed
_EPS = float(np.finfo(np.float64).eps)
_COST = 100.0  # digits that the condition number of a matrix may cost, over eps
_SURE = 1e3  # condition number up to which its square, over eps, leaves answers within LEAST
_CLEAR = 0.02  # share of what is allowed, below which one neighbour is enough
_PUSH = 1e-5  # of q's own scale: far beyond any distance that is claimed, and near enough for steps to be nearly linear
_NEIGHBOURS = ((16, 4), (-4, -16))  # units in the last place of variance and lengthscales


class Answer(NamedTuple):
    """A number or array of an answer, with what its errors are measured by."""

    value: Any
    floor: float = 0.0  # size, if the largest entry is smaller
    share: float = 1.0  # how many times as large its errors may be: ten for gradients, in which terms cancel


def condition(matrices: Sequence[Array]) -> float:
    """The largest condition number of symmetric matrices; infinite for a singular one."""
    each = [eigenvalues(matrix, "K") for matrix in matrices]
    return max(float(values[-1] / values[0]) if values[0] > 0.0 else np.inf for values in each)


def claimed(matrices: Sequence[Array]) -> float:
    """Relative error within which an answer is claimed: 1e-8, or 100 eps cond, and 1e-3 at most."""
    return _claimed(condition(matrices))


def _claimed(worst: float) -> float:
    return min(max(LEAST, _COST * _EPS * worst), LARGEST)


def moment_answers(deviation: float, **values: Any) -> dict[str, Answer]:
    """Parts of an answer by name; in means below a millionth of the prior's deviation labels cancel."""
    return {name: Answer(value, 1e-6 * deviation if name.endswith("_mean") else 0.0) for name, value in values.items()}


def gradient_answers(derivatives: Mapping[str, Array], prior: Any, value: float) -> dict[str, Answer]:
    """Derivatives of a value in fields of the prior, each by its unit; terms of the size of 1 % of the value cancel."""
    lengths = prior.lengthscales
    units = {"variance": prior.variance, "noise": prior.variance + prior.noise, "lengthscales": lengths,
             "Z": lengths[..., None, :]}  # fmt: skip
    floor = 0.01 * max(abs(value), 1e-6)
    return {
        f"gradient by {name}": Answer(derivative * units[name], floor, 10.0) for name, derivative in derivatives.items()
    }


def neighbours(prior: Any, units: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """The prior with variances and lengthscales so many units in the last place away."""
    for by_variance, by_lengthscale in units:
        yield prior._replace(
            variance=prior.variance * (1.0 + by_variance * _EPS),
            lengthscales=prior.lengthscales * (1.0 + by_lengthscale * _EPS),
        )


def left_open(matrices: Sequence[Array], tolerance: float) -> float:
    """Relative change of an answer that leaves it known: half of what is claimed, or of a hundred tolerances.

    Neighbours lie on a line through the space of all that rounding may do to a matrix. Where a condition number stands
    for more than LARGEST, that line says too little: less is left by the root of how much more.
    """
    worst = condition(matrices)
    beyond = max(1.0, _COST * _EPS * worst / LARGEST)
    return 0.5 * max(_claimed(worst), 100.0 * tolerance) / float(np.sqrt(beyond))


def largest_change(here: Mapping[str, Answer], there: Mapping[str, Answer]) -> tuple[float, str]:
    """The largest relative change from one answer to another, and what changes by it; NaN counts as the largest."""
    changes = [(0.0, "")]
    for key, (value, floor, share) in here.items():
        size = share * max(float(np.max(np.abs(value), initial=0.0)), floor)
        moved = float(np.max(np.abs(there[key].value - value), initial=0.0))
        if moved != 0.0:
            changes.append((moved / size if size > 0.0 else np.inf, key))
    return _largest(changes)


def _largest(changes: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The first of the largest, one that is NaN before all others."""
    return max(changes, key=lambda change: (np.isnan(change[0]), change[0]))


def rounding_doubt(
    answers: Callable[[Any], Mapping[str, Answer]],
    prior: Any,
    matrices: Sequence[Array],
    beside: bool = False,
    tolerance: float = 1e-10,
) -> str:
    """Why an answer is not claimed; empty where it is.

    Kernels are known to some 1e-16, and how much of that an answer multiplies shows at its neighbours: variances and
    lengthscales up to 16 units in the last place away. A change of more than half of what is claimed is none of a known
    answer: the other half is for whoever else computes it. Nothing is asked up to a condition number of 1e3.

    Parameters
    ----------
    answers : callable        prior -> its answer, by name
    prior : NamedTuple        with variance and lengthscales
    matrices : (m, m) each    which are factorised
    tolerance : float         of the iterations: a hundred times that is allowed too, for who asks for little
    beside : bool             answers of neighbours start beside the optimum (`pushed`): asked always

    Returns
    -------
    str                       names what moves, by how much, and what would help
    """
    condition_number = condition(matrices)
    if not beside and condition_number <= _SURE:
        return ""
    how = "a start beside the optimum and " if beside else ""
    limit, here = left_open(matrices, tolerance), answers(prior)
    changes: list[tuple[float, str]] = []
    for neighbour in neighbours(prior, _NEIGHBOURS):
        try:
            there = answers(neighbour)
        except (ValueError, NotPositiveDefiniteError) as error:
            return f"{how}last digits of variance and lengthscales decide whether there is an answer ({error})"
        changes.append(largest_change(here, there))
        if changes[0][0] <= _CLEAR * limit:
            return ""
    worst, name = _largest(changes)
    if worst <= limit:
        return ""
    share = here[name].share
    return (
        f"{how}last digits of variance and lengthscales change {name} by {worst * share:.1e}, expected at most "
        f"{limit * share:.1e}: raise jitter or noise"
    )


def pushed(mean: Array, cov: Array) -> tuple[Array, Array]:
    """Moments of q (C, m), (C, m, m) moved by 1e-5 of its own scale in every direction at once.

    An ascent from there that ends at a gradient tells how far from its optimum such a gradient lets it stop: along a
    ridge it does not come back.
    """
    rng = np.random.default_rng(0)
    means, covs = [], []
    for m, V in zip(mean, cov, strict=True):
        root = cholesky(V, "inducing_cov", "raise jitter")
        turn = rng.choice([-1.0, 1.0], V.shape) / np.sqrt(len(m))
        means.append(m + _PUSH * root @ rng.choice([-1.0, 1.0], len(m)))
        covs.append(root @ (np.eye(len(m)) + 0.5 * _PUSH * (turn + turn.T)) @ root.T)
    return np.array(means), np.array(covs)
