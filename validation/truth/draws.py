"""Draws from a truth's posterior: an optional file beside the moments, and what ArviZ is given of it.

No draws are in the package: a thousand of them weigh a hundred times the moments. `triad truth show NAME --draws FILE`
draws them afresh: independent ones where exact draws are the truth's route, thinned chains of its sampler elsewhere.
`maintain truths --draws FOLDER` does so for every truth; the distribution gpc-triad-truths is such a folder, installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import resources
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gibbs.core.options import ExactOptions, LogitOptions, ProbitOptions, SoftmaxOptions, ThresholdOptions
from gibbs.models import exact_probit, multinomial_probit, sampling, softmax, threshold
from validation.datasets.errors import DatasetNotFoundError
from validation.door import arguments, storage
from validation.door.problem import Problem
from validation.implementations.gibbs.asked import one_latent, values
from validation.jobs import run as jobs_run
from validation.jobs.job import Job
from validation.jobs.run import Engine
from validation.truth import shelf
from validation.truth.library import fingerprint
from validation.truth.make import Truth

SCHEMA = "gpc-triad/truth-draws/1"
# the import name of the distribution gpc-triad-truths
DISTRIBUTION = "gpc_triad_truths"

CHAINS, DRAWS = 4, 250
# sweeps between two draws of a chain that are kept, and before the first of them
THIN: Mapping[str, int] = MappingProxyType(
    {"gibbs-logit": 10, "gibbs-probit": 4, "gibbs-threshold": 10, "mh-softmax": 4}
)
WARMUP: Mapping[str, int] = MappingProxyType(
    {"gibbs-logit": 500, "gibbs-probit": 50, "gibbs-threshold": 50, "mh-softmax": 400}
)


class Draws(NamedTuple):
    """latent (chain, draw, n, L), latent values at the data, noise included; of which problem, and how drawn."""

    name: str
    fingerprint: str
    sampler: str
    seed: int
    latent: NDArray[np.float64]

    def save(self, path: str | PathLike[str]) -> None:
        """Write one .npz, atomically; draws are stored in single precision."""
        told = {key: value for key, value in self._asdict().items() if key != "latent"}
        arrays = {"told": np.asarray(json.dumps(told)), "latent": self.latent.astype(np.float32)}
        storage.save_npz(path, SCHEMA, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str], problem: Problem) -> Draws:
        """Read what `save` wrote.

        Raises
        ------
        FileNotFoundError          no such file
        storage.FileFormatError    it is damaged, or has draws of another problem
        """
        arrays = storage.load_npz(path, SCHEMA, lambda names: storage.check_keys(names, {"told", "latent"}, set(), ""))
        storage.check_keys(set(arrays), {"told", "latent"}, {"told", "latent"}, str(path))
        told = storage.read_json(storage.scalar(arrays["told"]), f"{path}: told")
        storage.check_keys(set(told), set(cls._fields) - {"latent"}, set(cls._fields) - {"latent"}, f"{path}: told")
        if told["fingerprint"] != fingerprint(problem):
            raise storage.FileFormatError(
                f"{path}: found draws of {told['name']} with another digest, expected those of {problem.name}"
            )
        latent = arguments.float_array(arrays["latent"], f"{path}: latent")
        if latent.ndim != 4 or latent.shape[2:] != (problem.n, problem.n_latents):
            raise storage.FileFormatError(
                f"{path}: found latent of shape {latent.shape}, expected (chains, draws, {problem.n}, "
                f"{problem.n_latents})"
            )
        return cls(**told, latent=latent)


def draw(problem: Problem, method: str, *, n_chains: int = CHAINS, n_draws: int = DRAWS, seed: int = 0) -> Draws:
    """Draws from a problem's posterior with its parameters held.

    method     of the truth: "exact-probit", "gibbs-logit", "gibbs-probit", "gibbs-threshold", "mh-softmax"; "exact" is
               quadrature, which has no draws of its own: the surest sampler of the likelihood stands in

    Raises
    ------
    ValueError    for another method, or lengths below 1
    """
    arguments.integer(n_chains, "n_chains", at_least=1)
    arguments.integer(n_draws, "n_draws", at_least=4)
    if method == "exact":
        method = {"logit": "gibbs-logit", "softmax": "mh-softmax"}.get(problem.likelihood, "exact-probit")
    arguments.choice(method, ("exact-probit", *THIN), "method")
    p = problem
    at_data = p.replace(X_test=None, y_test=None)
    data, prior = values(at_data)
    if method == "exact-probit":
        if p.epsilon:
            method = "gibbs-threshold"
        else:
            result = exact_probit.sample_exact(
                p.likelihood, data, prior, ExactOptions(n_draws=n_chains * n_draws, seed=seed)
            )
            latent = result.latent_draws.reshape(n_chains, n_draws, p.n, p.n_latents)
            return Draws(p.name, fingerprint(p), f"{method}, independent", seed, latent)
    run: dict[str, Any] = {
        "n_chains": n_chains, "n_draws": n_draws, "n_warmup": WARMUP[method], "thin": THIN[method], "seed": seed,
    }  # fmt: skip
    chains: Any
    if method == "gibbs-logit":
        chains = sampling.sample(*one_latent(at_data), LogitOptions(**run))
    elif method == "gibbs-probit":
        chains = multinomial_probit.sample(data, prior, ProbitOptions(**run), likelihood=p.likelihood)
    elif method == "gibbs-threshold":
        chains = threshold.sample(data, prior, ThresholdOptions(**run), epsilon=p.epsilon)
    else:
        chains = softmax.sample(data, prior, SoftmaxOptions(**run))
    latent = np.asarray(chains.latent_draws).reshape(n_chains, n_draws, p.n, p.n_latents)
    return Draws(p.name, fingerprint(p), f"{method}, every {THIN[method]}th sweep", seed, latent)


# -- a folder of them ------------------------------------------------------------------------------------------------


class Drawing(NamedTuple):
    """One truth to draw from, and the file that the draws go to."""

    name: str
    path: Path


class Drawn(NamedTuple):
    """What came of it: "drawn", "there" (by an earlier run) or "left out", with the reason."""

    name: str
    what: str
    line: str


def draw_all(names: Sequence[str], folder: Path, engine: Engine) -> Iterator[Drawn]:
    """Draw from each truth into FOLDER/NAME.npz; a file of draws of today's problem is left as it is."""
    jobs = [Job(name, Drawing(name, folder / f"{name}.npz")) for name in names]
    with closing(jobs_run.run(work, jobs, engine)) as results:
        for done in results:
            if done.lost is not None:
                raise done.lost
            yield done.value


def work(unit: Drawing, hear: Callable[[Any], None]) -> Drawn:
    """The work of one job."""
    try:
        truth = shelf.load(unit.name)
    except DatasetNotFoundError as error:
        return Drawn(unit.name, "left out", " ".join(str(error).split()))
    if reason := refusal(truth):
        return Drawn(unit.name, "left out", reason)
    if unit.path.is_file():
        try:
            return Drawn(unit.name, "there", Draws.load(unit.path, truth.problem).sampler)
        except storage.FileFormatError:
            pass  # damaged, or of the problem that once had the name: drawn anew
    drawn = draw(truth.problem, truth.solution.method)
    drawn.save(unit.path)
    return Drawn(unit.name, "drawn", drawn.sampler)


def refusal(truth: Truth) -> str:
    """Why there are no draws of a truth, or nothing."""
    if truth.solution.settings.get("learn"):
        return f"found {truth.card.problem}, whose parameters are sampled, expected one with its parameters held"
    return ""


def installed(name: str) -> Path | None:
    """The file of a truth's draws in the distribution gpc-triad-truths; None where it, or the file, is not there."""
    if importlib.util.find_spec(DISTRIBUTION) is None:
        return None
    path = Path(str(resources.files(DISTRIBUTION))) / f"{name}.npz"
    return path if path.is_file() else None


# -- ArviZ -----------------------------------------------------------------------------------------------------------


def to_arviz(draws: Draws) -> Any:
    """An InferenceData (ArviZ below 1.0) or DataTree with f (chain, draw, data, latent).

    Raises ImportError, which names the extra, if ArviZ is not installed.
    """
    r, s, n, L = draws.latent.shape
    coords = {"chain": np.arange(r), "draw": np.arange(s), "data": np.arange(n), "latent": np.arange(L)}
    attrs = {"inference_library": "gpc-triad", "truth": draws.name, "sampler": draws.sampler}
    try:
        arviz = importlib.import_module("arviz")
    except ImportError as error:
        raise ImportError(
            "arviz: found none, expected the package that takes the draws: pip install 'gpc-triad[arviz]'"
        ) from error
    groups, dims = {"posterior": {"f": draws.latent}}, {"f": ["data", "latent"]}
    if "posterior" in inspect.signature(arviz.from_dict).parameters:  # ArviZ below 1.0: groups are arguments
        return arviz.from_dict(**groups, coords=coords, dims=dims, attrs=attrs)
    return arviz.from_dict(groups, coords=coords, dims=dims, attrs={"/": attrs})
