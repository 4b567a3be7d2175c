"""The posteriors of the library, from the table `library.toml`: what each is of, by which route, and about its cost.

A name says what a posterior is of: data, rows, likelihood, log variance (v), and where they are not the default
inducing points (m), labelling errors (e), lengthscales for each input (ard) and sampled parameters (learnt). Its
problem is made from the table alone; `fingerprints.toml` has the digest that it must come out with
(`python -m validation.truth.library` writes that file).
"""

from __future__ import annotations

import hashlib
import itertools
import tomllib
import zlib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from validation import datasets
from validation.datasets.dataset import Dataset
from validation.datasets.splits import duplicate_groups, standardise
from validation.door import storage
from validation.door.problem import BINARY_LIKELIHOODS, Problem
from validation.door.quoting import shown
from validation.problems import inducing_points

SEED = 20261123
TABLE, FINGERPRINTS = "library.toml", "fingerprints.toml"
GENERATORS = ("gp", "waveform", "riihimaki2013-toy", "villacampa2017-toy")
EMBEDDED = ("iris", "wine", "digits", "breast_cancer")

# in names and tables
SHORT = {"multinomial-probit": "mprobit", "threshold": "thr"}
# constraints n (C - 1) up to which exact draws are asked for: beyond, their acceptance falls with every datum
EXACT = 160
# data up to which annealed particles give log Z of the logit in seconds; beyond, the two routes from the draws
ANNEALED = 60
# lengthscales for each input: a geometric progression between this share of the common one and its inverse
LEAST_LENGTHSCALE = 0.6
# of K_ZZ, as a share of the variance: k-means++ centres lie apart, and neighbours among real rows need no more
JITTER = 1e-6
# half-Student-t, as riihimaki2013 sets them: degrees of freedom
DEGREES = 4.0


class Posterior(NamedTuple):
    """One row of the table, with defaults filled in; `classes` empty stands for all of them."""

    name: str
    data: str
    dataset: str
    classes: tuple[str, ...]
    n: int
    t: int
    likelihood: str
    n_classes: int
    log_variance: float
    lengthscale: float
    per_input: bool
    noise: float
    epsilon: float
    m: int
    d: int
    learn: tuple[str, ...]
    route: str

    @property
    def prior_model(self) -> str:
        """Full, or FITC where there are inducing points."""
        return "fitc" if self.m else "full"

    @property
    def withheld(self) -> bool:
        """Whether its rows come from a folder: then its file has moments and a digest, and no row."""
        return self.dataset not in (*EMBEDDED, *GENERATORS)

    @property
    def size(self) -> int:
        """Constraints or contrasts of the posterior: n (C - 1)."""
        return self.n * (self.n_classes - 1)

    @property
    def seconds(self) -> float:
        """About what it costs to make on one core, both routes and log Z: fitted by eye to those that are made."""
        if self.route == "quadrature":
            return 10.0
        size, steep = self.size / 40.0, float(np.exp(0.1 * self.log_variance))
        if self.learn:
            cost = 120.0 * max(1.0, size)
        elif self.route == "exact-probit":
            cost = 2.0 * max(1.0, size) ** 2
        elif self.route == "gibbs-logit":  # annealed particles, or sweeps
            # the draws of n auxiliary variables outweigh the algebra: 21 to 52 s for 100 rows, 39 s for 300
            cost = 40.0 * size**4 if self.n <= ANNEALED else steep * 16.0 * size
        elif self.route == "mh-softmax":
            cost = steep * 20.0 * max(1.0, size) ** 2
        else:
            cost = steep * 60.0 * max(1.0, size) ** 2
        return float(np.round(cost, 0))

    def recipe(self) -> dict[str, Any]:
        """What defines it, for its card."""
        values = self._asdict()
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()} | {
            "library_seed": SEED
        }


_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"t": 10, "lengthscale": 1.0, "per_input": False, "noise": 0.1, "epsilon": 0.0, "m": 0, "learn": [], "route": ""}
)
_PRODUCT = ("data", "n", "likelihood", "log_variance")


@cache
def posteriors() -> Mapping[str, Posterior]:
    """All posteriors of the table by name, in its order."""
    table = tomllib.loads(_text(TABLE))
    result: dict[str, Posterior] = {}
    for group in table["posteriors"]:
        most = group.get("n_most", {})
        storage.check_keys(set(group) - {"n_most"}, {*_DEFAULTS, *_PRODUCT}, set(_PRODUCT), TABLE)
        for data, n, likelihood, log_variance in itertools.product(*(group[key] for key in _PRODUCT)):
            if n > most.get(data, n):
                continue
            posterior = _posterior(
                data, table["data"][data], n, likelihood, float(log_variance), {**_DEFAULTS, **group}
            )
            if posterior.name in result:
                raise ValueError(f"{TABLE}: found {posterior.name} twice, expected every posterior once")
            result[posterior.name] = posterior
    return MappingProxyType(result)


def get(name: str) -> Posterior:
    """The posterior of that name.

    Raises
    ------
    KeyError    with the near misses, if there is none
    """
    if name not in posteriors():
        close = get_close_matches(name, list(posteriors()), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise KeyError(f"truth: found {shown(name)}, expected a name that `triad truth list` lists{hint}")
    return posteriors()[name]


def _posterior(
    data: str, source: Mapping[str, Any], n: int, likelihood: str, log_variance: float, group: Mapping[str, Any]
) -> Posterior:
    dataset, classes = source["dataset"], tuple(source.get("classes", ()))
    if classes:
        n_classes = len(classes)
    elif dataset == "gp":
        n_classes = source["n_classes"]
    elif dataset in GENERATORS:
        n_classes = 3
    else:
        expected = datasets.expected_counts(dataset)
        assert expected is not None
        n_classes = len(expected.classes)
    name = f"{data}-{n}-{SHORT.get(likelihood, likelihood)}-v{log_variance:g}"
    name += f"-m{group['m']}" if group["m"] else ""
    name += f"-e{group['epsilon']:g}" if group["epsilon"] else ""
    name += ("-ard" if group["per_input"] else "") + ("-learnt" if group["learn"] else "")
    values = {key: group[key] for key in ("t", "lengthscale", "per_input", "noise", "epsilon", "m")}
    return Posterior(
        name=name,
        data=data,
        dataset=dataset,
        classes=classes,
        n=n,
        likelihood=likelihood,
        n_classes=n_classes,
        log_variance=log_variance,
        d=source.get("d", 0),
        learn=tuple(group["learn"]),
        route=group["route"] or route_of(likelihood, n, n_classes, group["epsilon"], bool(group["learn"])),
        **values,
    )


def route_of(likelihood: str, n: int, n_classes: int, epsilon: float, learnt: bool) -> str:
    """The surest route within reach: quadrature for three data, exact draws where the labels leave any, else chains."""
    if n <= (3 if n_classes == 2 else 2) and not learnt:
        return "quadrature"
    if likelihood in ("logit", "softmax"):
        return ("gibbs-logit-learnt" if learnt else "gibbs-logit") if likelihood == "logit" else "mh-softmax"
    if epsilon == 0.0 and n * (n_classes - 1) <= EXACT and not learnt:
        return "exact-probit"
    return "gibbs-threshold" if likelihood == "threshold" else "gibbs-probit"


# -- problems --------------------------------------------------------------------------------------------------------


@cache
def question(name: str) -> Problem:
    """The problem whose posterior has that name.

    Raises
    ------
    DatasetNotFoundError       its data come from a folder, and $TRIAD_DATA does not have them
    storage.FileFormatError    what is at hand makes another problem than the table's fingerprint
    """
    problem = _built(get(name))
    expected = fingerprints().get(name)
    if expected is not None and fingerprint(problem) != expected:
        raise storage.FileFormatError(
            f"{name}: found data that make another problem than {FINGERPRINTS} has, expected the same rows"
        )
    return problem


def _built(posterior: Posterior) -> Problem:
    p = posterior
    rng = np.random.default_rng(np.random.SeedSequence([SEED, zlib.crc32(p.name.encode())]))
    variance = float(np.exp(p.log_variance))
    data = _generated(p, rng, variance) if p.dataset in GENERATORS else _cut(p)
    X, X_test, y, y_test = data.X[: p.n], data.X[p.n :], data.y[: p.n], data.y[p.n :]
    if p.dataset != "gp":  # whose inputs are in units of its lengthscale
        X, X_test = standardise(X, X_test)
        varying = X.std(axis=0) > 0.0
        X, X_test = X[:, varying], X_test[:, varying]
    spread = {"variance": ("half-student-t", DEGREES, 1.0), "lengthscales": ("half-student-t", DEGREES, 1.0)}
    return Problem(
        name=p.name,
        X=X,
        y=y,
        n_classes=p.n_classes,
        likelihood=p.likelihood,
        variance=variance,
        lengthscales=_lengthscales(p, X.shape[1]),
        noise=p.noise,
        jitter=JITTER * variance if p.m else 0.0,
        Z=inducing_points(X, p.m, SEED % 2**32) if p.m else None,
        shared=p.likelihood not in BINARY_LIKELIHOODS,
        prior_model=p.prior_model,
        epsilon=p.epsilon,
        hyperprior={key: spread[key] for key in p.learn} or None,
        X_test=X_test,
        y_test=y_test,
    )


def _lengthscales(posterior: Posterior, d: int) -> Any:
    common = posterior.lengthscale * (1.0 if posterior.dataset == "gp" else np.sqrt(d))
    if not posterior.per_input:
        return common
    return common * np.geomspace(LEAST_LENGTHSCALE, 1.0 / LEAST_LENGTHSCALE, d)


def _generated(posterior: Posterior, rng: np.random.Generator, variance: float) -> Dataset:
    p, size = posterior, posterior.n + posterior.t
    while True:
        if p.dataset == "gp":
            scales = _lengthscales(p, p.d)
            own = datasets.synthetic.Scales(variance=variance, lengthscales=scales, noise=p.noise)
            data = datasets.make_gp_classification(rng, size, p.d, p.n_classes, p.likelihood, p.epsilon, **own)
        elif p.dataset == "waveform":
            data = datasets.make_waveform(rng, size)
        elif p.dataset == "villacampa2017-toy":
            data = datasets.make_villacampa2017_toy(rng, size)
        else:
            data = datasets.make_riihimaki2013_toy(rng, -(-size // 3))
            data = data.rows(np.arange(size))
        # a draw in which a class is missing asks another question: the next one is taken
        if np.unique(data.y[: p.n]).size == p.n_classes:
            return data


def _cut(posterior: Posterior) -> Dataset:
    """n + t distinct rows, each class in its share, shuffled by the library's seed."""
    p = posterior
    data = _distinct(p.dataset)
    return (data.only(*p.classes) if p.classes else data).subsample(p.n + p.t, SEED % 2**32)


@cache
def _distinct(dataset: str) -> Dataset:
    # a folder, and no download: whoever lists or checks truths must not wait for one
    data = datasets.load(dataset, source="embedded" if dataset in EMBEDDED else "folder")
    _, first = np.unique(duplicate_groups(data.X), return_index=True)
    return data.rows(np.sort(first))


# -- fingerprints ----------------------------------------------------------------------------------------------------


def fingerprint(problem: Problem) -> str:
    """Digest of every field but the name: inputs to six decimals, parameters to ten digits.

    Sums differ in the last place between machines, and so do the inputs that are standardised by them.
    """
    digest = hashlib.sha256()
    for key, value in sorted(problem.to_arrays().items()):
        if key == "name":
            continue
        if key in ("X", "Z", "X_test"):
            # adding 0.0 turns the negative zeros of rounding into zeros
            part = np.ascontiguousarray(np.round(value, 6) + 0.0, dtype="<f8").tobytes()
        elif value.dtype.kind == "f":
            part = " ".join(f"{number:.10g}" for number in np.ravel(value)).encode()
        elif value.dtype.kind in "iu":
            part = np.ascontiguousarray(value, dtype="<i8").tobytes()
        else:
            part = str(value).encode()
        digest.update(f"{key}{value.shape}{len(part)}\n".encode() + part)
    return digest.hexdigest()


@cache
def fingerprints() -> Mapping[str, str]:
    """The digest of each posterior's problem, as recorded."""
    return MappingProxyType(tomllib.loads(_text(FINGERPRINTS))["fingerprints"])


def write_fingerprints() -> None:
    """Record the digests of all posteriors anew; needs all data at hand."""
    lines = ["# Made by `python -m validation.truth.library`. Do not edit by hand.", "", "[fingerprints]"]
    lines += [f'"{name}" = "{fingerprint(_built(posterior))}"' for name, posterior in posteriors().items()]
    storage.write_text(Path(str(_folder() / FINGERPRINTS)), "\n".join([*lines, ""]))


def _folder() -> Any:
    return resources.files("validation.truth")


def _text(name: str) -> str:
    path = _folder() / name
    return str(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    write_fingerprints()
